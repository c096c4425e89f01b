"""Find rules in the facts: the short ones first, until all are measured or the time is up."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cascader.graph import IntArray
from cascader.models.rules.constants import ConstantMiner
from cascader.models.rules.facts import BANDS, Facts, bands_of
from cascader.models.rules.tables import NONE, Chains, ConstantRules, RulesSettings

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Edges looked at for each end of a fact, where chains of two and of three facts are looked for.
_FAN = {2: 400, 3: 60}
#: Facts whose ends are linked at the same time, so that memory is bounded.
_FACTS_AT_ONCE = 250


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


#: The most pairs of entities that are looked up to find the chains of a relation: beyond that, facts are sampled.
_LOOKUPS = 1_000_000
#: The most multiplications for one step of one chain: beyond that, fewer anchors are looked at.
_WORK = 400_000
_ANCHORS = 20_000
#: Chains of a relation that are measured before it is the next one's turn.
_TURN = 40
#: What is looked for in turn, by name; nothing, if all was looked for.
STAGES = ("", "chains of one fact", "rules with a constant", "chains of two facts", "chains of three facts")
#: What may be too much to look at in full: facts whose ends are linked, anchors that a rule is measured on.
SAMPLED = ("facts", "anchors")


@dataclass(frozen=True)
class Mined:
    """What was found, what was sampled on the way, and what was looked for when the time was up."""

    chains: Chains
    constants: ConstantRules
    sampled: tuple[str, ...]  # some of SAMPLED
    stopped: str  # one of STAGES


class Measured(NamedTuple):
    """A chain with its support and body, in one band of what it reaches."""

    target: int
    path: tuple[int, ...]
    band: int
    support: int
    body: int


class Reached(NamedTuple):
    """What the first steps of a chain reach, and from which anchors; shape (anchors, entities)."""

    anchors: IntArray
    ways: "csr_array"


class Miner:
    """One search for rules in one graph, within a number of seconds."""

    def __init__(self, facts: Facts, settings: RulesSettings, seconds: float) -> None:
        self.facts, self.settings = facts, settings
        self._deadline = time.monotonic() + seconds
        self._measured: list[Measured] = []
        self._constants: list[ConstantRules] = []
        self._sampled: set[str] = set()
        self._stopped = ""
        counts = np.bincount(facts.relations, minlength=facts.direction_count)[: facts.relation_count]
        order = np.argsort(-counts, kind="stable")
        self._relations = order[counts[order] > 0].tolist()  # the largest first

    def mine(self) -> Mined:
        """Look for everything, in the order of what it costs."""
        self._mine_loops()
        self._mine_chains(1)
        self._mine_constants()
        for length in range(2, self.settings.max_length + 1):
            self._mine_chains(length)
        constants = ConstantRules.concatenate(self._constants)
        sampled = tuple(name for name in SAMPLED if name in self._sampled)
        return Mined(self._best_chains(), constants, sampled, self._stopped)

    def _is_up(self, doing: str) -> bool:
        if time.monotonic() >= self._deadline:
            self._stopped = self._stopped or doing
        return bool(self._stopped)

    def _mine_loops(self) -> None:
        """Count how often the anchor itself is the answer."""
        for relation in np.unique(self.facts.loops[:, 1]).tolist():
            loops = self.facts.loops[self.facts.loops[:, 1] == relation, 0]
            for target in (relation, self.facts.inverse(relation)):
                body = len(np.union1d(loops, self.facts.anchors(target)))
                if len(loops) >= self.settings.min_support:
                    self._measured.append(Measured(target, (), 0, len(loops), body))

    def _mine_constants(self) -> None:
        doing = STAGES[2]
        if self.settings.max_constants == 0 or self._is_up(doing):
            return
        miner = ConstantMiner(self.facts, self.settings)
        for relation in self._relations:
            if self._is_up(doing):
                break
            self._constants += [miner.mine(relation), miner.mine(self.facts.inverse(relation))]
        if miner.has_sampled:
            self._sampled.add("anchors")

    def _mine_chains(self, length: int) -> None:
        doing = {1: STAGES[1], 2: STAGES[3], 3: STAGES[4]}[length]
        turns = [self._turns(relation, length) for relation in self._relations]
        while turns and not self._is_up(doing):
            turns = [turn for turn in turns if not self._is_up(doing) and self._take(turn)]

    def _take(self, turn: Iterator[list[Measured]]) -> bool:
        """Keep what a relation finds in its turn; False if it has no more chains to measure."""
        found = next(turn, None)
        self._measured += found or []
        return found is not None

    def _turns(self, relation: int, length: int) -> Iterator[list[Measured]]:
        """Measure the chains that link most of a relation's facts, some at a time, for both of its directions."""
        rng = np.random.default_rng([self.settings.seed, relation, length])
        paths = self._candidates(relation, length, rng)
        inverse = self.facts.inverse(relation)
        anchors = {target: self._sample(self.facts.anchors(target), rng) for target in (relation, inverse)}
        for start in range(0, len(paths), _TURN):
            batch = paths[start : start + _TURN]
            backward = self.facts.inverses(batch[:, ::-1])
            yield [
                *self._measure_all(relation, anchors[relation], batch),
                *self._measure_all(inverse, anchors[inverse], backward),
            ]

    def _candidates(self, relation: int, length: int, rng: np.random.Generator) -> IntArray:
        """The chains that are worth measuring, the most frequent first; shape (chains, length)."""
        links = self.facts.links(relation).tocoo()
        pairs = np.column_stack([links.row, links.col]).astype(np.int64)
        work = lookups(self.facts, pairs, length)
        if work.sum() > _LOOKUPS:
            order = rng.permutation(len(pairs))
            pairs = pairs[order[work[order].cumsum() <= _LOOKUPS]]
            self._sampled.add("facts")
        paths, counts = frequent_chains(self.facts, relation, pairs, length, rng)
        return paths[counts >= min(self.settings.min_support, 2)][: self.settings.max_candidates]

    def _sample(self, anchors: IntArray, rng: np.random.Generator) -> IntArray:
        """The anchors in random order, so that any first ones of them are a sample."""
        if len(anchors) > _ANCHORS:
            self._sampled.add("anchors")
        return rng.permutation(anchors)[:_ANCHORS]

    def _measure_all(self, target: int, anchors: IntArray, paths: IntArray) -> list[Measured]:
        """Measure chains; those that begin alike share their first steps."""
        begun: dict[tuple[int, ...], Reached] = {(): Reached(anchors, None)}
        measured: list[Measured] = []
        for path in map(tuple, paths.tolist()):
            for length in range(1, len(path)):
                if path[:length] not in begun:
                    begun[path[:length]] = self._step(begun[path[: length - 1]], path[:length])
            measured.extend(self._measure(target, path, self._step(begun[path[:-1]], path)))
        return measured

    def _step(self, before: Reached, path: tuple[int, ...]) -> Reached:
        """The next step of a chain, from as many anchors as the work allows."""
        links = self.facts.links(path[-1])
        if len(path) == 1:
            return Reached(before.anchors, links[before.anchors])
        anchors, ways = before
        work = np.diff(links.indptr)[ways.indices].cumsum()
        if len(work) and work[-1] > _WORK:
            # The rows that end before the work is too much; one at least.
            fitting = max(int(np.searchsorted(ways.indptr[1:], np.searchsorted(work, _WORK), side="right")), 1)
            anchors, ways = anchors[:fitting], ways[:fitting]
            self._sampled.add("anchors")
        return Reached(anchors, self.facts.step(anchors, ways, path))

    def _measure(self, target: int, path: tuple[int, ...], reached: Reached) -> Iterator[Measured]:
        """The rules that a chain makes, one for each band in which it has enough support."""
        marks = reached.ways.copy()
        marks.data = bands_of(reached.ways) + np.float32(1)
        true = marks.multiply(self.facts.links(target)[reached.anchors])
        for band in range(len(BANDS) + 1):
            support, body = (int(np.count_nonzero(marked.data == band + 1)) for marked in (true, marks))
            if support >= self.settings.min_support:
                yield Measured(target, path, band, support, body)

    def _best_chains(self) -> Chains:
        """The most confident rules of each directed relation, sorted by it, then by confidence."""
        if not self._measured:
            return Chains.empty()
        paths = np.array([(*rule.path, NONE, NONE, NONE)[:3] for rule in self._measured], dtype=np.int32)
        targets = np.array([rule.target for rule in self._measured], dtype=np.int32)
        bands = np.array([rule.band for rule in self._measured], dtype=np.int8)
        supports, bodies = np.array([(rule.support, rule.body) for rule in self._measured], dtype=np.float32).T
        chains = Chains(targets, paths, bands, supports, bodies)
        order = np.lexsort((-chains.confidences(self.settings.prior_count), targets))
        chains = chains[order]
        place = np.arange(len(chains)) - np.searchsorted(chains.targets, chains.targets)
        return chains[place < self.settings.max_chains]
