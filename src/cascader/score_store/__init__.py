"""Scores that are kept: each pair of a question and a candidate is scored once."""

from cascader.score_store.memory import MemoryStore, Store
from cascader.score_store.pair_keys import PairKeys
from cascader.score_store.scorer import StoredScorer
from cascader.score_store.store import ScoreStore
from cascader.score_store.write_behind import WriteBehind

__all__ = ["MemoryStore", "PairKeys", "ScoreStore", "Store", "StoredScorer", "WriteBehind"]
