"""The known facts, arranged for walking along them: from an entity to its neighbors, from a pair to what links it.

Relations are directed: r leads from heads to tails, `relation_count` + r from tails to heads. A fact that links an
entity with itself is no step of a walk, and kept apart.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cascader.graph import FloatArray, IntArray, KnownAnswers
from cascader.graph.arrays import offsets_of, positions_within

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: What is reached by under a tenth of the ways that lead from an anchor along a path, by less than half of them, and by
#: half of them or more, are three different things: one of many, one of few, and the main one.
BANDS = (0.1, 0.5)
#: Edges looked at for each end of a fact, where chains of two and of three facts are looked for.
_FAN = {2: 400, 3: 60}
#: Facts whose ends are linked at the same time, so that memory is bounded.
_FACTS_AT_ONCE = 250


class Facts:
    """Known facts as edges, in both directions, sorted by source and target.

    >>> facts = Facts(KnownAnswers(np.array([[0, 0, 1], [1, 0, 2]], dtype=np.int32), 3, 1))
    >>> facts.walks(np.array([0]), (0, 0)).toarray().tolist()
    [[0.0, 0.0, 1.0]]
    """

    def __init__(self, known: KnownAnswers) -> None:
        self.entity_count, self.relation_count = known.entity_count, known.relation_count
        self.direction_count = 2 * known.relation_count
        is_loop = known.triples[:, 0] == known.triples[:, 2]
        self.loops = known.triples[is_loop]
        heads, relations, tails = known.triples[~is_loop].astype(np.int64).T
        sources, targets = np.concatenate([heads, tails]), np.concatenate([tails, heads])
        pairs = sources * self.entity_count + targets
        order = np.argsort(pairs, kind="stable")
        self.pairs = pairs[order]  # (edges,) ascending
        self.sources, self.targets = sources[order], targets[order]
        self.relations = np.concatenate([relations, relations + self.relation_count])[order]
        self.degrees = np.bincount(self.sources, minlength=self.entity_count)
        self.offsets = offsets_of(self.degrees)
        self._links: dict[int, csr_array] = {}
        self._returns: dict[tuple[int, int], FloatArray] = {}

    def inverse(self, relation: int) -> int:
        """The same relation in the other direction."""
        return (relation + self.relation_count) % self.direction_count

    def inverses(self, relations: IntArray) -> IntArray:
        """The same relations in the other direction; the same shape."""
        return (relations + self.relation_count) % self.direction_count

    @cached_property
    def _edges_by_relation(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self.relations, kind="stable")
        return order, offsets_of(np.bincount(self.relations, minlength=self.direction_count))

    def links(self, relation: int) -> "csr_array":
        """1 where a directed relation leads from a row's entity to a column's; shape (entities, entities), float32."""
        from scipy.sparse import csr_array

        if relation not in self._links:
            order, offsets = self._edges_by_relation
            edges = order[offsets[relation] : offsets[relation + 1]]
            rows = offsets_of(np.bincount(self.sources[edges], minlength=self.entity_count))
            ones = np.ones(len(edges), dtype=np.float32)
            shape = (self.entity_count, self.entity_count)
            self._links[relation] = csr_array((ones, self.targets[edges], rows), shape=shape)
        return self._links[relation]

    def anchors(self, relation: int) -> IntArray:
        """The entities that a directed relation leads away from, ascending."""
        return np.flatnonzero(np.diff(self.links(relation).indptr))

    def walks(self, anchors: IntArray, path: Sequence[int]) -> "csr_array":
        """How many ways lead from each anchor along a path of directed relations; shape (anchors, entities).

        No way visits an entity twice. So none repeats a step back and forth, and none goes over a fact that links
        anchor and answer themselves.
        """
        reached = self.links(path[0])[anchors]
        for place in range(1, len(path)):
            reached = self.step(anchors, reached, path[: place + 1])
        return reached

    def step(self, anchors: IntArray, reached: "csr_array", path: Sequence[int]) -> "csr_array":
        """The last step of a path, from what its other steps have `reached`; shape (anchors, entities)."""
        onward = _without_own(reached @ self.links(path[-1]), anchors)
        return onward if len(path) < 3 else self._without_returns(anchors, onward, path)

    def _without_returns(self, anchors: IntArray, onward: "csr_array", path: Sequence[int]) -> "csr_array":
        """Take away the ways of three steps that end where their first step led: x → y → z → y."""
        first, second, third = path
        starts = self.links(first)[anchors]
        returns = starts.copy()
        returns.data = self._return_counts(second, third)[starts.indices]
        if not returns.data.any():
            return onward
        # Ways over the anchor itself, x → y → x → y, are gone already.
        over_anchor = starts.multiply(self.links(self.inverse(second))[anchors]).multiply(self.links(third)[anchors])
        return _positive(onward - (returns - over_anchor))

    def _return_counts(self, second: int, third: int) -> FloatArray:
        """How many ways lead from each entity over two steps back to itself; shape (entities,)."""
        if (second, third) not in self._returns:
            back = self.links(second).multiply(self.links(self.inverse(third)))
            self._returns[second, third] = np.asarray(back.sum(axis=1), dtype=np.float32).ravel()
        return self._returns[second, third]

    def edges_from(self, entities: IntArray, most: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """At most about `most` edges of each entity: its position in `entities`, and the edge; both (edges,)."""
        degrees = self.degrees[entities]
        counts = degrees.clip(max=most)
        places = np.repeat(np.arange(len(entities)), counts)
        within = positions_within(counts)
        is_drawn = (degrees > most)[places]
        within[is_drawn] = (rng.random(is_drawn.sum()) * degrees[places[is_drawn]]).astype(np.int64)
        return places, self.offsets[entities][places] + within

    def edges_between(self, sources: IntArray, targets: IntArray) -> tuple[IntArray, IntArray]:
        """The edges that link pairs of entities: the position of the pair, and the edge; both (edges,)."""
        wanted = sources * self.entity_count + targets
        first = np.searchsorted(self.pairs, wanted)
        counts = np.searchsorted(self.pairs, wanted, side="right") - first
        return np.repeat(np.arange(len(wanted)), counts), np.repeat(first, counts) + positions_within(counts)

    def feature_keys(self, relations: IntArray, others: IntArray) -> IntArray:
        """One number for each (directed relation, other entity), or (relation, -1) for any other; shape (features,)."""
        return relations.astype(np.int64) * (self.entity_count + 1) + others + 1

    def features(self, keys: IntArray) -> "csr_array":
        """1 where an entity has a feature of `keys`, which are ascending; shape (entities, features), float32."""
        from scipy.sparse import csr_array

        nothing = np.full(len(self.relations), -1)
        having = np.concatenate([self.sources, self.sources])
        found = np.concatenate(
            [self.feature_keys(self.relations, self.targets), self.feature_keys(self.relations, nothing)]
        )
        columns = np.searchsorted(keys, found).clip(max=max(len(keys) - 1, 0))
        is_wanted = keys[columns] == found if len(keys) else np.zeros(len(found), dtype=np.bool_)
        ones = np.ones(int(is_wanted.sum()), dtype=np.float32)
        shape = (self.entity_count, len(keys))
        matrix = csr_array((ones, (having[is_wanted], columns[is_wanted])), shape=shape)
        matrix.sum_duplicates()
        matrix.data[:] = 1  # an entity that has a relation twice has it
        return matrix


def rows_of(matrix: "csr_array") -> IntArray:
    """The row of each stored number; shape (numbers,)."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def bands_of(ways: "csr_array") -> IntArray:
    """The band of each stored number: how large a share of the ways from its row's anchor it is; shape (numbers,)."""
    rows = rows_of(ways)
    all_ways = np.bincount(rows, weights=ways.data, minlength=ways.shape[0])
    return np.searchsorted(BANDS, ways.data / all_ways[rows], side="right").astype(np.int8)


def _without_own(reached: "csr_array", anchors: IntArray) -> "csr_array":
    """Take away the ways that lead back to the anchor of their row."""
    return _where(reached, reached.indices != anchors[rows_of(reached)])


def _positive(reached: "csr_array") -> "csr_array":
    return _where(reached, reached.data > 0.5)


def _where(matrix: "csr_array", wanted: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> "csr_array":
    """The same matrix with only the wanted of its stored numbers."""
    from scipy.sparse import csr_array

    if wanted.all():
        return matrix
    kept = offsets_of(wanted)[matrix.indptr]
    return csr_array((matrix.data[wanted], matrix.indices[wanted], kept), shape=matrix.shape)


def lookups(facts: Facts, pairs: IntArray, length: int) -> IntArray:
    """How many pairs of entities are looked up to find the chains of each fact; shape (facts,)."""
    head_degrees, tail_degrees = (facts.degrees[ends].clip(max=_FAN.get(length, 1)) for ends in pairs.T)
    return head_degrees * tail_degrees if length == 3 else np.minimum(head_degrees, tail_degrees)


class Found(NamedTuple):
    """Chains that link the ends of facts: which fact, and the directed relations from its first end to its second."""

    places: IntArray  # (found,)
    steps: IntArray  # (found, length)


def frequent_chains(
    facts: Facts, relation: int, pairs: IntArray, length: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """The chains of one length that link the pairs of a relation, and how many pairs each links, the most first.

    `pairs` are the heads and tails of facts, (facts, 2). Shapes: (chains, length) and (chains,).
    """
    base = facts.direction_count ** np.arange(length - 1, -1, -1)
    blocks = [pairs[at : at + _FACTS_AT_ONCE] for at in range(0, len(pairs), _FACTS_AT_ONCE)]
    # Each chain of each pair counts once, however many entities it leads over.
    codes = [np.empty(0, dtype=np.int64)]
    for block in blocks:
        found = _links(facts, relation, block, length, rng)
        highest = facts.direction_count**length
        codes.append(np.unique(found.places * highest + found.steps @ base) % highest)
    chains, counts = np.unique(np.concatenate(codes), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return chains[order, None] // base % facts.direction_count, counts[order]


def _links(facts: Facts, relation: int, pairs: IntArray, length: int, rng: np.random.Generator) -> Found:
    heads, tails = pairs.T
    if length == 1:
        return _direct(facts, relation, heads, tails)
    if length == 2:
        return _over_one(facts, heads, tails, rng)
    return _over_two(facts, heads, tails, rng)


def _direct(facts: Facts, relation: int, heads: IntArray, tails: IntArray) -> Found:
    places, edges = facts.edges_between(heads, tails)
    steps = facts.relations[edges]
    is_other = steps != relation
    return Found(places[is_other], steps[is_other, None])


def _over_one(facts: Facts, heads: IntArray, tails: IntArray, rng: np.random.Generator) -> Found:
    """From the end with fewer edges, so that no hub is walked away from."""
    is_swapped = facts.degrees[heads] > facts.degrees[tails]
    starts, ends = np.where(is_swapped, tails, heads), np.where(is_swapped, heads, tails)
    places, first = facts.edges_from(starts, _FAN[2], rng)
    middle = facts.targets[first]
    pair, second = facts.edges_between(middle, ends[places])
    steps = np.column_stack([facts.relations[first[pair]], facts.relations[second]])
    backward = facts.inverses(steps[:, ::-1])
    return Found(places[pair], np.where(is_swapped[places[pair], None], backward, steps))


def _over_two(facts: Facts, heads: IntArray, tails: IntArray, rng: np.random.Generator) -> Found:
    """Every neighbor of one end with every neighbor of the other."""
    places, first = facts.edges_from(heads, _FAN[3], rng)
    keep = facts.targets[first] != tails[places]
    places, first = places[keep], first[keep]
    there, last = facts.edges_from(tails, _FAN[3], rng)
    keep = facts.targets[last] != heads[there]
    there, last = there[keep], last[keep]
    one, other = _same_place(places, there)
    pair, second = facts.edges_between(facts.targets[first[one]], facts.targets[last[other]])
    one, other = one[pair], other[pair]
    to_tail = facts.inverses(facts.relations[last[other]])
    steps = np.column_stack([facts.relations[first[one]], facts.relations[second], to_tail])
    return Found(places[one], steps)


def _same_place(places: IntArray, there: IntArray) -> tuple[IntArray, IntArray]:
    """All pairs of positions at which two ascending arrays hold the same number; both (pairs,)."""
    first = np.searchsorted(there, places)
    counts = np.searchsorted(there, places, side="right") - first
    ones = np.repeat(np.arange(len(places)), counts)
    others = np.arange(len(ones)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    return ones, others
