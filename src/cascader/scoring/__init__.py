"""What scores answers, where that work runs, and scores that are stored so that no pair is scored twice."""

from cascader.scoring.memory_store import MemoryStore, Store
from cascader.scoring.pair_keys import PairKeys
from cascader.scoring.score_store import ScoreStore
from cascader.scoring.scorer import Scorer, reads_pairs
from cascader.scoring.stored_scorer import StoredScorer
from cascader.scoring.write_behind import WriteBehind

__all__ = ["MemoryStore", "PairKeys", "ScoreStore", "Scorer", "Store", "StoredScorer", "WriteBehind", "reads_pairs"]
