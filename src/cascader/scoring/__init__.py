"""Scorers, the engines that run them, and stores that make sure no pair is scored twice."""

from cascader.scoring.engine import PairKeys
from cascader.scoring.scorer import Explains, Reason, RejectingScorer, Scorer, reads_pairs, reasons_of
from cascader.scoring.store import MemoryStore, ScoreStore, Store, WriteBehind
from cascader.scoring.stored_scorer import StoredScorer

__all__ = [
    "Explains",
    "MemoryStore",
    "PairKeys",
    "Reason",
    "RejectingScorer",
    "ScoreStore",
    "Scorer",
    "Store",
    "StoredScorer",
    "WriteBehind",
    "reads_pairs",
    "reasons_of",
]
