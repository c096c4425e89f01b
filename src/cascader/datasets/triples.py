"""Statements become a graph: their ids are numbered, each triple counts once, and some are held out."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count

import numpy as np

from cascader.datasets.columns import Column
from cascader.datasets.statements import Statements
from cascader.datasets.texts import Texts
from cascader.errors import DataError
from cascader.graph import SPLITS, IntArray, KnowledgeGraph, Triples
from cascader.graph.arrays import frozen_triples, offsets_of, triple_keys
from cascader.wording import counted

_PAIRS_AT_ONCE = 100_000


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
    wanted = [round(split.test * len(triples)), round(split.valid * len(triples))]
    held_out: tuple[list[int], list[int]] = [], []  # rows of test, and of valid
    uses = _Uses(triples)
    for rows, members in _drawn_pairs(triples, pair_of, rng):
        if wanted[0] < len(rows) and wanted[1] < len(rows):
            if not any(wanted):
                break
            continue
        if split.unseen_entities or uses.spare(members):
            target = 0 if wanted[0] >= wanted[1] else 1  # whichever lacks more, so that both fill evenly
            wanted[target] -= len(rows)
            held_out[target].extend(rows)
    test, valid = (np.sort(np.array(rows, dtype=np.int64)) for rows in held_out)
    return np.delete(triples, np.concatenate([test, valid]), axis=0), triples[valid], triples[test]


def _drawn_pairs(
    triples: Triples, pair_of: IntArray, rng: np.random.Generator
) -> Iterator[tuple[list[int], list[list[int]]]]:
    """The pairs of entities in random order: the rows of each one's triples, and these triples."""
    counts = np.bincount(pair_of)
    drawn = rng.permutation(len(counts))
    turn = np.empty(len(counts), dtype=np.int64)
    turn[drawn] = np.arange(len(counts))
    rows = np.argsort(turn[pair_of], kind="stable")
    ends = offsets_of(counts[drawn])
    # Python's own lists are several times faster than arrays of one element, but only some at once, for their memory.
    for first in range(0, len(drawn), _PAIRS_AT_ONCE):
        some = ends[first : first + _PAIRS_AT_ONCE + 1]
        own = rows[some[0] : some[-1]]
        places, members, bounds = own.tolist(), triples[own].tolist(), (some - some[0]).tolist()
        for start, end in zip(bounds, bounds[1:], strict=False):
            yield places[start:end], members[start:end]


class _Uses:
    """How many of the triples left in train use each entity and each relation."""

    def __init__(self, triples: Triples) -> None:
        self._entities = np.bincount(triples[:, [0, 2]].ravel()).tolist()
        self._relations = np.bincount(triples[:, 1]).tolist()

    def spare(self, members: list[list[int]]) -> bool:
        """Take these triples out of train, if every entity and relation of them also occurs in others of train."""
        self._count(members, -1)
        entities, relations = self._entities, self._relations
        for head, relation, tail in members:
            if entities[head] <= 0 or entities[tail] <= 0 or relations[relation] <= 0:
                self._count(members, 1)
                return False
        return True

    def _count(self, members: list[list[int]], step: int) -> None:
        for head, relation, tail in members:
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
    counts = len(entities.ids), len(relations.ids)
    _check_no_overlap(parts, *counts)
    stated = np.concatenate([part.triples for part in parts])
    entities.ask_about_headers(stated[:, [0, 2]])
    relations.ask_about_headers(stated[:, 1])
    _ask_about_only_row(parts)
    train, valid, test = _three_splits({part.role: part.distinct(*counts) for part in parts}, split)
    return KnowledgeGraph(
        name,
        entities.texts.entities(entities.ids),
        relations.texts.relations(relations.ids),
        train,
        valid,
        test,
    )


class Index:
    """Ids with their numbers and texts: those of a table, which then must list them all, or by first appearance.

    `headers` are ids that may be the first words of a header, and where each was read.
    """

    def __init__(
        self,
        kind: str,
        texts: Texts,
        ids: Sequence[str] = (),
        table: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._kind = kind
        self._table = table  # its name in errors; None if any id is allowed
        self._headers = headers
        self.texts = texts
        self.ids = {id_: number for number, id_ in enumerate(ids)}

    def add(self, *columns: Column) -> None:
        """Number the ids of columns that are new, in the order in which rows have them, from left to right."""
        texts = [text for column in columns for text in column.texts]
        places = [column.first_rows() * len(columns) + side for side, column in enumerate(columns)]
        found = dict.fromkeys(texts[place] for place in np.argsort(np.concatenate(places)).tolist())
        new = [text for text in found if text not in self.ids]
        self.ids.update(zip(new, count(len(self.ids)), strict=False))

    def numbers(self, column: Column) -> IntArray:
        """The number of each row's id; shape (rows,)."""
        return np.fromiter(map(self.ids.__getitem__, column.texts), np.int32, len(column.texts))[column.codes]

    def first_unknown(self, column: Column) -> int | None:
        """The first row whose id the table does not list; None if there is none."""
        if self._table is None:
            return None
        is_unknown = np.fromiter((text not in self.ids for text in column.texts), np.bool_, len(column.texts))
        return int(column.first_rows()[is_unknown].min()) if is_unknown.any() else None

    def unknown(self, id_: str, row: int, statements: Statements) -> DataError:
        """The error about an id that the table does not list."""
        is_fact = row or not statements.may_have_header
        question = "" if is_fact else " If this row is a header, name its columns with --columns HEAD,RELATION,TAIL."
        return DataError(
            f"{statements.where(row)}: {self._kind} {id_!r} is not in {self._table} ({counted(len(self.ids), 'row')}). "
            f"Add it there, or delete the triple.{question}"
        )

    def ask_about_headers(self, stated: IntArray) -> None:
        """Ask about a table's first row that no triple mentions: one of column names looks like that."""
        for id_, where in self._headers:
            if not (stated == self.ids[id_]).any():
                logger.warning(
                    "%s: is this a header? %r occurs in no triple. It was read as %s. If the row names the columns, "
                    "call the first one id.",
                    where,
                    id_,
                    "an entity" if self._kind == "entity" else f"a {self._kind}",
                )


class _Part:
    """The triples of one file as numbers, and where each was read."""

    def __init__(self, role: str, statements: Statements, entities: Index, relations: Index) -> None:
        self.role = role
        self.where = statements.where
        self.may_have_header = statements.may_have_header
        indices = ((statements.heads, entities), (statements.relations, relations), (statements.tails, entities))
        unknown = [(row, each) for each in indices if (row := each[1].first_unknown(each[0])) is not None]
        if unknown:
            row, (column, index) = min(unknown, key=lambda found: found[0])
            raise index.unknown(column[row], row, statements)
        entities.add(statements.heads, statements.tails)
        relations.add(statements.relations)
        self.triples = frozen_triples(np.stack([index.numbers(column) for column, index in indices], axis=1))

    def distinct(self, entity_count: int, relation_count: int) -> Triples:
        """Every triple once, in order of first appearance."""
        _, first = np.unique(triple_keys(self.triples, entity_count, relation_count), return_index=True)
        repeated = len(self.triples) - len(first)
        if repeated:
            logger.warning("dropped %s of %s.", counted(repeated, "duplicate triple"), self.role)
        return self.triples[np.sort(first)]


def _ask_about_only_row(parts: list[_Part]) -> None:
    """Ask about a row without any other: a header in words of its own, whose rows are missing, looks like that."""
    filled = [part for part in parts if len(part.triples)]
    if [(len(part.triples), part.may_have_header) for part in filled] == [(1, True)]:
        logger.warning(
            "%s: is this a header? It is the only row, and was read as a triple. If it names the columns, add the rows "
            "below it.",
            filled[0].where(0),
        )


def _check_no_overlap(parts: list[_Part], entity_count: int, relation_count: int) -> None:
    for part, later in combinations(parts, 2):
        keys, later_keys = (triple_keys(p.triples, entity_count, relation_count) for p in (part, later))
        shared, rows, later_rows = np.intersect1d(keys, later_keys, return_indices=True)
        if len(shared):
            first = later_rows.argmin()
            both = part.may_have_header and later.may_have_header and not rows[first] and not later_rows[first]
            question = " If these rows are headers, name the columns with --columns HEAD,RELATION,TAIL." if both else ""
            raise DataError(
                f"{later.where(later_rows[first])}: this triple of {later.role} is also in {part.role}, at "
                f"{part.where(rows[first])} ({counted(len(shared), 'such triple')}). Remove such triples from one of "
                f"the two: a model must not be tested on triples it was trained on.{question}"
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
