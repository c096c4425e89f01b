"""Find rules in the facts: the short ones first, until all are measured or the time is up.

Chains are measured one by one; rules with a constant come from one sparse product per relation, which says which
answers go with the features of an anchor.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cascader.graph import FloatArray, IntArray
from cascader.models.rules.facts import BANDS, Facts, bands_of, frequent_chains, lookups, rows_of
from cascader.models.rules.tables import NONE, Chains, ConstantRules, RulesSettings

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: The most pairs of entities that are looked up to find the chains of a relation: beyond that, facts are sampled.
_LOOKUPS = 1_000_000
#: The most multiplications for one step of one chain: beyond that, fewer anchors are looked at.
_WORK = 400_000
_ANCHORS = 20_000
#: The most multiplications for the product of one relation: beyond that, fewer anchors are looked at.
_WORK_OF_CONSTANTS = 20_000_000
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


class ConstantMiner:
    """Counts, for one graph, how often features and answers go together."""

    def __init__(self, facts: Facts, settings: RulesSettings) -> None:
        self.facts, self.settings = facts, settings
        self.keys = _shared_keys(facts, settings.min_support)
        self.features = facts.features(self.keys)  # (entities, features)
        self.reaches = self.features.sum(axis=0)  # (features,)
        self.has_sampled = False

    def mine(self, target: int) -> ConstantRules:
        """The rules for one directed relation, the most confident of them."""
        anchors = self._anchors(target)
        links, features = self.facts.links(target)[anchors], self.features[anchors]
        least = self.settings.min_support
        links, features = _frequent(links, least), _frequent(features, least)
        together = (features.T.tocsr() @ links).tocoo()  # (features, entities)
        is_often = together.data >= least
        places, constants = together.row[is_often], together.col[is_often]
        supports, bodies = together.data[is_often], features.sum(axis=0)[places]
        rules = self._rules(target, places, constants, supports, bodies, len(anchors))
        return self._best(self._leaving_out(target, links, rules))

    def _anchors(self, target: int) -> IntArray:
        """All anchors of a relation, or a sample of them where there are too many features and answers."""
        anchors = self.facts.anchors(target)
        work = (np.diff(self.facts.links(target).indptr) * np.diff(self.features.indptr))[anchors]
        if work.sum() <= _WORK_OF_CONSTANTS:
            return anchors
        self.has_sampled = True
        order = np.random.default_rng([self.settings.seed, target]).permutation(len(anchors))
        return np.sort(anchors[order[work[order].cumsum() <= _WORK_OF_CONSTANTS]])

    def _rules(
        self,
        target: int,
        places: IntArray,
        constants: IntArray,
        supports: FloatArray,
        bodies: FloatArray,
        anchor_count: int,
    ) -> ConstantRules:
        relations, entities = np.divmod(self.keys[places], self.facts.entity_count + 1)
        share = anchor_count / max(len(self.facts.anchors(target)), 1)
        return ConstantRules(
            np.full(len(places), target, dtype=np.int32),
            relations.astype(np.int32),
            entities.astype(np.int32) - 1,
            constants.astype(np.int32),
            supports.astype(np.float32),
            bodies.astype(np.float32),
            (self.reaches[places] * share).astype(np.float32),
        )

    def _leaving_out(self, target: int, links: "csr_array", rules: ConstantRules) -> ConstantRules:
        """Leave each fact out of its own evidence: it says neither that the anchor has this answer nor that it has any.

        Where the feature is any other answer of the asked relation, only anchors with two or more can support it.
        """
        own = rules.relations == target
        answers = np.diff(links.indptr)[rows_of(links)]
        several = np.bincount(links.indices[answers > 1], minlength=links.shape[1])[rules.constants]
        alone = np.bincount(links.indices[answers == 1], minlength=links.shape[1])[rules.constants]
        is_any = own & (rules.entities == NONE)
        rules.supports[is_any] = several[is_any]
        rules.bodies[is_any] -= alone[is_any]
        rules.reaches[is_any] -= alone[is_any]
        return rules[~(own & (rules.entities == rules.constants)) & (rules.supports >= self.settings.min_support)]

    def _best(self, rules: ConstantRules) -> ConstantRules:
        confidences = rules.supports / (np.minimum(rules.bodies, rules.reaches) + self.settings.prior_count)
        return rules[np.sort(np.argsort(-confidences, kind="stable")[: self.settings.max_constants])]


def _shared_keys(facts: Facts, least: int) -> IntArray:
    """The features that at least so many entities have, ascending; shape (features,)."""
    keys, counts = np.unique(facts.feature_keys(facts.relations, facts.targets), return_counts=True)
    anything = facts.feature_keys(np.arange(facts.direction_count), np.full(facts.direction_count, NONE))
    return np.union1d(keys[counts >= least], anything)


def _frequent(matrix: "csr_array", least: int) -> "csr_array":
    """The same matrix without the columns that have too few entries to support a rule."""
    kept = matrix.copy()
    kept.data = kept.data * (matrix.sum(axis=0) >= least)[matrix.indices]
    kept.eliminate_zeros()
    return kept
