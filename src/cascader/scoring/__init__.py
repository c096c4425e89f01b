"""Scorers, the engines that run them, and stores that make sure no pair is scored twice."""

from cascader.scoring.reason import Explains, Reason, reasons_of
from cascader.scoring.scorer import Scorer, reads_pairs
from cascader.scoring.shards import PairKeys
from cascader.scoring.store import MemoryStore, ScoreStore, Store, WriteBehind
from cascader.scoring.stored_scorer import StoredScorer

__all__ = [
    "Explains",
    "MemoryStore",
    "PairKeys",
    "Reason",
    "ScoreStore",
    "Scorer",
    "Store",
    "StoredScorer",
    "WriteBehind",
    "reads_pairs",
    "reasons_of",
]
