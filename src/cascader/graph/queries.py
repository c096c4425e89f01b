"""Questions about a graph, (anchor, relation, ?) and (?, relation, anchor), and the answers that it already knows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from cascader.errors import DataError
from cascader.graph.arrays import (
    BoolArray,
    Candidates,
    IntArray,
    Triples,
    frozen,
    offsets_of,
    positions_within,
    sorted_distinct,
    triple_keys,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: The side that is asked for, never the one that is given.
Side = Literal["head", "tail"]


@dataclass(frozen=True, eq=False)
class Queries:
    """A block of queries, one per row, with optional gold answers.

    `known` holds the answers that are known when the queries are asked: those of train for valid, those of train and
    valid for test. A cascade never spends a place on them.

    >>> queries = Queries.from_triples(np.array([[0, 0, 1]], dtype=np.int32))
    >>> queries.anchors.tolist(), queries.predicts_tail.tolist(), queries.golds.tolist()
    ([0, 1], [True, False], [1, 0])
    """

    anchors: IntArray  # (queries,) the entity that is given
    relations: IntArray  # (queries,)
    predicts_tail: BoolArray  # (queries,) False if the head is asked for
    golds: IntArray | None = None  # (queries,)
    known: "KnownAnswers | None" = None

    def __post_init__(self) -> None:
        lengths = {len(self.anchors), len(self.relations), len(self.predicts_tail)}
        if self.golds is not None:
            lengths.add(len(self.golds))
        if len(lengths) > 1:
            raise DataError(f"queries have columns of different lengths {sorted(lengths)}, expected one length.")

    @classmethod
    def from_triples(cls, triples: Triples, side: Side | None = None) -> "Queries":
        """Ask for the tail of every triple, then for the head of every triple; or for one `side` only."""
        heads, relations, tails = triples.T
        sides: list[Side] = ["tail", "head"] if side is None else [side]
        anchors = {"tail": heads, "head": tails}
        golds = {"tail": tails, "head": heads}
        return cls(
            anchors=frozen(np.concatenate([anchors[s] for s in sides]), np.int32),
            relations=frozen(np.concatenate([relations for _ in sides]), np.int32),
            predicts_tail=frozen(np.repeat([s == "tail" for s in sides], len(triples)), np.bool_),
            golds=frozen(np.concatenate([golds[s] for s in sides]), np.int32),
        )

    def __len__(self) -> int:
        return len(self.anchors)

    def __getitem__(self, rows: slice | IntArray | BoolArray) -> "Queries":
        return Queries(
            anchors=self.anchors[rows],
            relations=self.relations[rows],
            predicts_tail=self.predicts_tail[rows],
            golds=None if self.golds is None else self.golds[rows],
            known=self.known,
        )

    def with_known(self, known: "KnownAnswers | None") -> "Queries":
        """Return the same queries with these known answers."""
        return replace(self, known=known)

    def blocks(self, size: int) -> Iterator["Queries"]:
        """Yield the queries in order, at most `size` at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    @property
    def sides(self) -> list[Side]:
        """The side that each query asks for."""
        return ["tail" if predicts_tail else "head" for predicts_tail in self.predicts_tail]

    def triples(self) -> Triples:
        """Return the triples that the gold answers complete; shape (queries, 3)."""
        golds = self.required_golds()
        heads = np.where(self.predicts_tail, self.anchors, golds)
        tails = np.where(self.predicts_tail, golds, self.anchors)
        return np.stack([heads, self.relations, tails], axis=1).astype(np.int32)

    def required_golds(self) -> IntArray:
        """Return the gold answers; an error if there are none."""
        if self.golds is None:
            raise DataError("these queries have no gold answers. Build them with Queries.from_triples.")
        return self.golds

    def unique(self) -> tuple["Queries", IntArray]:
        """Return the distinct questions, and for each query the row of its question.

        (h, r, ?) appears once however many gold tails it has, so that a scorer answers it only once.
        """
        entity_count, relation_count = (int(column.max(initial=0)) + 1 for column in (self.anchors, self.relations))
        keys = self.keys(entity_count, relation_count)
        _, first, question_of = np.unique(keys, return_index=True, return_inverse=True)
        return replace(self[first], golds=None), question_of

    def directed_relations(self, relation_count: int) -> IntArray:
        """Return each query's relation, plus `relation_count` (the inverse) if it asks for the head; shape (queries,).

        >>> Queries.from_triples(np.array([[0, 1, 2]], dtype=np.int32)).directed_relations(relation_count=3).tolist()
        [1, 4]
        """
        return np.where(self.predicts_tail, 0, relation_count) + self.relations.astype(np.int64)

    def keys(self, entity_count: int, relation_count: int) -> IntArray:
        """Encode each question's (side, relation, anchor) as one number; shape (queries,)."""
        sided = self.predicts_tail.astype(np.int64) * relation_count + self.relations
        return sided * entity_count + self.anchors


def _triples_of(keys: NDArray[np.int64], entity_count: int, relation_count: int) -> Triples:
    """The triples that `triple_keys` has numbered."""
    pairs, tails = np.divmod(keys, max(entity_count, 1))
    heads, relations = np.divmod(pairs, max(relation_count, 1))
    return np.stack([heads, relations, tails], axis=1).astype(np.int32)


class KnownAnswers:
    """The true answers to every question, found by binary search.

    >>> known = KnownAnswers(np.array([[0, 0, 1], [0, 0, 2]], dtype=np.int32), entity_count=3, relation_count=1)
    >>> known.of(Queries(np.array([0]), np.array([0]), np.array([True])))[0].tolist()
    [1, 2]
    """

    def __init__(self, triples: Triples, entity_count: int, relation_count: int) -> None:
        self.entity_count = entity_count
        self.relation_count = relation_count
        # A duplicate triple must count only once: each known answer is subtracted from a rank.
        keys = sorted_distinct(triple_keys(triples, entity_count, relation_count))
        self.triples = _triples_of(keys, entity_count, relation_count)  #: the facts that these come from, each once
        self._links: dict[int, csr_array] = {}
        # By question, those for heads first, then by answer; sorting numbers is much faster than sorting rows.
        heads, relations, tails = self.triples.astype(np.int64).T
        sides = [(relations * entity_count + anchors) * entity_count for anchors in (tails, heads)]
        answers = [np.sort(side + answer) for side, answer in zip(sides, (heads, tails), strict=True)]
        self._answers = np.concatenate([side % max(entity_count, 1) for side in answers]).astype(np.int32)
        questions = [side // max(entity_count, 1) for side in answers]
        questions[1] += relation_count * entity_count
        self._set_questions(np.concatenate(questions))

    def _set_questions(self, questions: NDArray[np.int64]) -> None:
        """Note where the answers of each question start; `questions` has that of each answer."""
        starts = np.flatnonzero(np.diff(questions, prepend=-1))
        self._questions, self._offsets = questions[starts], np.append(starts, len(questions))

    def of(self, queries: Queries) -> Candidates:
        """Return the known answers of each query, including gold answers, in ascending order."""
        keys = queries.keys(self.entity_count, self.relation_count)
        if len(self._questions) == 0:
            return Candidates.empty(len(queries))
        places = np.searchsorted(self._questions, keys).clip(max=len(self._questions) - 1)
        starts = self._offsets[places]
        is_known = self._questions[places] == keys
        counts = np.where(is_known, self._offsets[places + 1] - starts, 0)
        # The i-th answer of a query is i places after its question's first answer.
        return Candidates(offsets_of(counts), self._answers[np.repeat(starts, counts) + positions_within(counts)])

    @cached_property
    def counts(self) -> "csr_array":
        """How many known facts each entity is the answer of; shape (2 × relations, entities), int32.

        Row r counts the facts of relation r that have the entity as their tail, row `relation_count` + r those that
        have it as their head: the same numbers as `Queries.directed_relations`.
        """
        from scipy.sparse import csr_array

        queries = Queries.from_triples(self.triples)
        rows = queries.directed_relations(self.relation_count)
        ones = np.ones(len(queries), dtype=np.int32)
        shape = (2 * self.relation_count, self.entity_count)
        return csr_array((ones, (rows, queries.required_golds())), shape=shape)

    def links(self, directed_relation: int) -> "csr_array":
        """Which entities a relation links: 1 at (anchor, answer), shape (entities, entities), float32.

        Relation r leads from heads to tails, `relation_count` + r from tails to heads.
        """
        from scipy.sparse import csr_array

        if directed_relation not in self._links:
            inverse, relation = divmod(directed_relation, self.relation_count)
            own = self.triples[self.triples[:, 1] == relation]
            anchors, answers = (own[:, 2], own[:, 0]) if inverse else (own[:, 0], own[:, 2])
            ones = np.ones(len(own), dtype=np.float32)
            shape = (self.entity_count, self.entity_count)
            self._links[directed_relation] = csr_array((ones, (anchors, answers)), shape=shape)
        return self._links[directed_relation]
