"""Statements become a graph: their ids are numbered, each triple counts once, and some are held out."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from cascader.datasets.statements import Statements
from cascader.datasets.tables import Texts
from cascader.errors import DataError
from cascader.graph import SPLITS, IntArray, KnowledgeGraph, Triples
from cascader.graph.arrays import frozen_triples, triple_keys


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


logger = logging.getLogger(__name__)

_NO_TRIPLES = frozen_triples([])


def assemble(
    statements: Mapping[str, Statements], entities: "Index", relations: "Index", split: Split, name: str
) -> KnowledgeGraph:
    """Build the graph from statements by role: train, valid and test, or `triples` that are yet to be split."""
    by_role = [part for role, stated in statements.items() for part in stated.by_split(role).items()]
    parts = [_Part(role, stated, entities, relations) for role, stated in by_role]
    _check_no_overlap(parts, len(entities.ids), len(relations.ids))
    train, valid, test = _three_splits({part.role: part.distinct() for part in parts}, split)
    return KnowledgeGraph(
        name,
        tuple(entities.texts.entity(id_) for id_ in entities.ids),
        tuple(relations.texts.relation(id_) for id_ in relations.ids),
        train,
        valid,
        test,
    )


class Index:
    """Ids with their numbers and texts: those of a table, which then must list them all, or by first appearance."""

    def __init__(self, kind: str, texts: Texts, ids: Sequence[str] = (), table: str | None = None) -> None:
        self._kind = kind
        self._table = table  # its name in errors; None if any id is allowed
        self.texts = texts
        self.ids = {id_: number for number, id_ in enumerate(ids)}

    def of(self, id_: str, row: int, statements: Statements) -> int:
        """The number of the id found in a row of `statements`."""
        if self._table is not None and id_ not in self.ids:
            question = "" if row else " If this row is a header, name its columns with --columns HEAD,RELATION,TAIL."
            raise DataError(
                f"{statements.where(row)}: {self._kind} {id_!r} is not in {self._table} ({len(self.ids):,} rows). "
                f"Add it there, or delete the triple.{question}"
            )
        return self.ids.setdefault(id_, len(self.ids))


class _Part:
    """The triples of one file as numbers, and where each was read."""

    def __init__(self, role: str, statements: Statements, entities: Index, relations: Index) -> None:
        self.role = role
        self.where = statements.where
        self.triples = frozen_triples(
            [
                (
                    entities.of(head, row, statements),
                    relations.of(relation, row, statements),
                    entities.of(tail, row, statements),
                )
                for row, (head, relation, tail) in enumerate(statements.triples)
            ]
        )

    def distinct(self) -> Triples:
        """Every triple once, in order of first appearance."""
        _, first = np.unique(self.triples, axis=0, return_index=True)
        repeated = len(self.triples) - len(first)
        if repeated:
            logger.warning("dropped %s duplicate triples of %s.", f"{repeated:,}", self.role)
        return self.triples[np.sort(first)]


def _check_no_overlap(parts: list[_Part], entity_count: int, relation_count: int) -> None:
    for part, later in combinations(parts, 2):
        keys, later_keys = (triple_keys(p.triples, entity_count, relation_count) for p in (part, later))
        shared, rows, later_rows = np.intersect1d(keys, later_keys, return_indices=True)
        if len(shared):
            first = later_rows.argmin()
            raise DataError(
                f"{later.where(later_rows[first])}: this triple of {later.role} is also in {part.role}, at "
                f"{part.where(rows[first])} ({len(shared):,} such triples). Remove them from one of the two: "
                "a model must not be tested on triples it was trained on."
            )


def _three_splits(parts: dict[str, Triples], split: Split) -> tuple[Triples, Triples, Triples]:
    """Train, valid and test as given; what is missing is held out as `split` says."""
    if "triples" in parts or parts.keys() == {"train"}:
        return split_triples(parts.get("triples", parts.get("train", _NO_TRIPLES)), split)
    train, valid, test = (parts.get(role, _NO_TRIPLES) for role in SPLITS)
    if "valid" not in parts and split.valid:
        logger.warning("there is no valid file: holding out %g of train for it.", split.valid)
        train, valid, _ = split_triples(train, replace(split, test=0.0))
    return train, valid, test
