"""Shards: groups of pairs, each with a numeric key, whose scores are computed and stored together."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cascader.errors import DataError, SettingsError, TrainingError
from cascader.graph import Candidates, FloatArray, IntArray, Queries
from cascader.scoring.scorer import Scorer
from cascader.storage import read_arrays, write_arrays


@dataclass(frozen=True)
class PairKeys:
    """Numbers the pairs of a graph; in sorted order, the pairs of a question are adjacent.

    >>> numbering = PairKeys(entity_count=5, relation_count=2)
    >>> keys = numbering.of(Queries(np.array([3]), np.array([1]), np.array([False])), Candidates.from_lists([[0, 4]]))
    >>> queries, candidates = numbering.pairs(keys)
    >>> queries.anchors.tolist(), queries.relations.tolist(), candidates.ids.tolist()
    ([3], [1], [0, 4])
    """

    entity_count: int
    relation_count: int

    def __post_init__(self) -> None:
        if 2 * self.relation_count * self.entity_count**2 >= 2**63:
            raise DataError(
                f"{self.entity_count:,} entities with {self.relation_count:,} relations make more pairs than 64 bits "
                "can number. Score without a store."
            )

    def of(self, queries: Queries, candidates: Candidates) -> IntArray:
        """Return the key of each pair; shape (candidates,)."""
        questions = queries.keys(self.entity_count, self.relation_count)
        return questions[candidates.rows] * self.entity_count + candidates.ids

    def pairs(self, keys: IntArray) -> tuple[Queries, Candidates]:
        """Return the pairs that sorted keys stand for, with each question once."""
        questions, starts = np.unique(keys // self.entity_count, return_index=True)
        sided, anchors = np.divmod(questions, self.entity_count)
        queries = Queries(
            anchors=anchors.astype(np.int32),
            relations=(sided % self.relation_count).astype(np.int32),
            predicts_tail=sided >= self.relation_count,
        )
        return queries, Candidates(np.append(starts, len(keys)), (keys % self.entity_count).astype(np.int32))


#: The most pairs in a shard: a few seconds of a cross encoder's work.
SHARD_PAIRS = 8192


@dataclass(frozen=True, eq=False)
class FileShard:
    """A shard whose scores are written to a file."""

    path: Path
    keys: IntArray  # (pairs,) ascending

    def keep(self, scores: FloatArray) -> None:
        """Write pairs and scores atomically; equal pairs and scores give equal bytes."""
        write_arrays(self.path, {"keys": self.keys.astype(np.int64), "scores": scores.astype(np.float32)})


@dataclass(eq=False)
class MemoryShard:
    """A shard whose scores stay in memory."""

    keys: IntArray
    scores: FloatArray = field(default_factory=lambda: np.empty(0, dtype=np.float32))

    def keep(self, scores: FloatArray) -> None:
        """Set the scores."""
        self.scores = scores


def read_shard(path: Path, sha256: str) -> tuple[IntArray, FloatArray]:
    """Read the pairs and scores of a file, checking that it has not changed since it was written."""
    arrays = read_arrays(path, sha256)
    return arrays["keys"], arrays["scores"]


def cut(keys: IntArray, shard_pairs: int) -> list[IntArray]:
    """Cut pairs into as few parts as possible, all of about the same size.

    >>> [len(part) for part in cut(np.arange(10), shard_pairs=4)]
    [4, 3, 3]
    """
    if shard_pairs < 1:
        raise SettingsError(f"shard_pairs is {shard_pairs}, expected at least 1.")
    return np.array_split(keys, -(-len(keys) // shard_pairs)) if len(keys) else []


def score_shard(numbering: PairKeys, scorer: Scorer, shard: FileShard | MemoryShard) -> None:
    """Score a shard's pairs and store the scores, unless any is NaN."""
    queries, candidates = numbering.pairs(shard.keys)
    scores = scorer.score(queries, candidates)
    bad = np.flatnonzero(np.isnan(scores))
    if len(bad):
        row = candidates.rows[bad[0]]
        raise TrainingError(
            f"the model scores {len(bad):,} of {len(scores):,} pairs as NaN, the first: relation "
            f"{queries.relations[row]}, anchor {queries.anchors[row]}, candidate {candidates.ids[bad[0]]}. They are "
            "not stored. Train it again with a lower learning rate."
        )
    shard.keep(scores)
