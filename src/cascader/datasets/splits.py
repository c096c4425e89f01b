"""Hold out triples for valid and test, without leaking answers and without unseen entities."""

from dataclasses import dataclass

import numpy as np

from cascader.errors import DataError
from cascader.graph import IntArray, Triples


@dataclass(frozen=True)
class Split:
    """How to split a graph that comes without splits: the shares of valid and test, and the seed.

    Triples that link the same two entities, in either direction, always stay together: the inverse of a test triple
    in train would leak the answer. Unless `unseen_entities` is set, every entity and relation of valid and test
    also occurs in train, and fewer triples than requested are held out if the graph leaves no choice.

    >>> facts = np.array([(head, 0, tail) for head in range(4) for tail in range(4, 8)], dtype=np.int32)
    >>> [len(part) for part in split_triples(facts, Split(valid=0.25, test=0.125))]
    [10, 4, 2]
    """

    valid: float = 0.1
    test: float = 0.1
    seed: int = 0
    unseen_entities: bool = False

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise DataError(f"seed is {self.seed}, expected an integer of at least 0.")
        if not (0 <= self.valid < 1 and 0 <= self.test < 1 and self.valid + self.test < 1):
            raise DataError(
                f"cannot hold out {self.valid:g} for valid and {self.test:g} for test: each must be "
                "at least 0, and their sum below 1, so that something is left for train."
            )


def split_triples(triples: Triples, split: Split) -> tuple[Triples, Triples, Triples]:
    """Split into train, valid and test, each in the order of `triples`."""
    rng = np.random.default_rng(split.seed)
    pair_of = _pairs(triples)
    by_pair = np.argsort(pair_of, kind="stable")
    ends = np.cumsum(np.bincount(pair_of))
    part = np.zeros(len(triples), dtype=np.int8)  # 0 train, 1 valid, 2 test
    wanted = [round(split.test * len(triples)), round(split.valid * len(triples))]
    uses = _Uses(triples)
    for pair in rng.permutation(len(ends)):
        rows = by_pair[ends[pair - 1] if pair else 0 : ends[pair]]
        if wanted[0] < len(rows) and wanted[1] < len(rows):
            if not any(wanted):
                break
            continue
        if split.unseen_entities or uses.can_spare(rows):
            uses.spare(rows)
            target = 0 if wanted[0] >= wanted[1] else 1  # whichever lacks more, so that both fill evenly
            wanted[target] -= len(rows)
            part[rows] = 2 - target
    train, valid, test = (triples[part == value] for value in range(3))
    return train, valid, test


class _Uses:
    """How many of the triples left in train use each entity and each relation."""

    def __init__(self, triples: Triples) -> None:
        self._triples = triples
        self._entities = np.bincount(triples[:, [0, 2]].ravel()).tolist()
        self._relations = np.bincount(triples[:, 1]).tolist()

    def can_spare(self, rows: IntArray) -> bool:
        """Whether every entity and relation of these triples also occurs in other triples of train."""
        self.spare(rows)
        enough = all(
            self._entities[head] > 0 and self._entities[tail] > 0 and self._relations[relation] > 0
            for head, relation, tail in self._triples[rows].tolist()
        )
        self._count(rows, 1)
        return enough

    def spare(self, rows: IntArray) -> None:
        """Take these triples out of train."""
        self._count(rows, -1)

    def _count(self, rows: IntArray, step: int) -> None:
        for head, relation, tail in self._triples[rows].tolist():
            self._entities[head] += step
            self._entities[tail] += step
            self._relations[relation] += step


def _pairs(triples: Triples) -> IntArray:
    """A number for each triple that is the same for all triples between the same two entities."""
    ends = np.sort(triples[:, [0, 2]].astype(np.int64), axis=1)
    _, number = np.unique(ends[:, 0] * (int(ends.max(initial=0)) + 1) + ends[:, 1], return_inverse=True)
    return number
