"""Rules applied to what is known when a question is asked: the surest few of a candidate, joined by noisy-or."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cascader.graph import BoolArray, FloatArray, IntArray, KnownAnswers
from cascader.graph.arrays import positions_within
from cascader.models.rules.facts import Facts, bands_of, rows_of
from cascader.models.rules.tables import NONE, Chains, ConstantRules, RulesSettings

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: No rule is so sure that the others do not count.
_SUREST = 0.9999


@dataclass(frozen=True, eq=False)
class Hits:
    """What rules propose: cells of a table (anchors, entities), numbered row by row, and how sure each rule is."""

    cells: IntArray  # (hits,)
    confidences: FloatArray  # (hits,)
    rules: IntArray  # (hits,) the row of the rule in its table

    def __getitem__(self, rows: IntArray | BoolArray) -> "Hits":
        return Hits(self.cells[rows], self.confidences[rows], self.rules[rows])

    def __add__(self, other: "Hits") -> "Hits":
        columns = ("cells", "confidences", "rules")
        return Hits(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in columns))

    def surest(self, count: int) -> "Hits":
        """At most so many hits of every cell."""
        order, places = self._places()
        return self[order[places < count]]

    def layers(self, count: int) -> "list[Layer]":
        """The surest hit of every cell, then the second of every cell, and so on."""
        order, places = self._places()
        return [Layer(self[order[places == layer]]) for layer in range(count)]

    def _places(self) -> tuple[IntArray, IntArray]:
        """The hits cell by cell, from sure to unsure, and the place of each among those of its cell; both (hits,)."""
        order = np.lexsort((-self.confidences, self.cells))
        cells = self.cells[order]
        return order, np.arange(len(cells)) - np.searchsorted(cells, cells)


class Layer:
    """Hits of which no two are in the same cell, taken from the surest to the least sure."""

    def __init__(self, hits: Hits) -> None:
        self.hits = hits[np.argsort(-hits.confidences, kind="stable")]
        self._taken = 0

    def take(self, confidence: float) -> tuple[IntArray, FloatArray]:
        """The cells and confidences of the hits that are at least so sure and were not taken yet."""
        first = self._taken
        self._taken = int(np.searchsorted(-self.hits.confidences, -confidence, side="right"))
        return self.hits.cells[first : self._taken], self.hits.confidences[first : self._taken]


class NoisyOr:
    """Joins the `best` surest rules of every cell: 1 - Π (1 - confidence), where each further one counts less.

    Rules must be added from the surest to the least sure.

    >>> joined = NoisyOr(cell_count=2, best=2, discount=1.0)
    >>> joined.add(np.array([0, 1]), 0.5)
    >>> joined.add(np.array([0]), 0.2)
    >>> joined.add(np.array([0]), 0.1)  # the third rule of the cell
    >>> [round(float(probability), 2) for probability in joined.probabilities()]
    [0.6, 0.5]
    """

    def __init__(self, cell_count: int, best: int, discount: float) -> None:
        self._weights = np.append(discount ** np.arange(best), 0).astype(np.float32)
        self._misses = np.zeros(cell_count, dtype=np.float32)  # log of the probability that all rules err
        self._counts = np.zeros(cell_count, dtype=np.uint8)

    def add(self, cells: IntArray, confidence: float | FloatArray) -> None:
        """Add rules that propose these cells, each cell once."""
        counts = self._counts[cells]
        miss = np.log1p(-np.minimum(confidence, _SUREST)).astype(np.float32)
        self._misses[cells] += miss * self._weights[counts]
        self._counts[cells] = np.minimum(counts + 1, len(self._weights) - 1)

    def probabilities(self) -> FloatArray:
        """How probable each cell is; shape (cells,), 0 where no rule proposes it."""
        probabilities: FloatArray = -np.expm1(self._misses)
        return probabilities


#: The most numbers that are kept for other chains, and other bands of the same chain.
_KEPT_NUMBERS = 20_000_000
#: The most rules with a constant that are joined for a candidate, by features of the anchor and of the candidate each:
#: two features of the same entity mostly say the same.
_BY_FEATURES = 2
#: Among so few entities, rules are applied to all anchors at once, which takes hardly longer than for one of them, and
#: what they say is kept, up to so many numbers.
_FEW_ENTITIES, _KEPT_CELLS = 256, 10_000_000


class AppliedRules:
    """Rules and the facts that they are applied to."""

    def __init__(self, chains: Chains, constants: ConstantRules, known: KnownAnswers, settings: RulesSettings) -> None:
        self.facts = Facts(known)
        self.settings = settings
        self.chains = chains
        self.constants = AppliedConstants(constants, self.facts, settings.prior_count)
        self._kept: dict[int, FloatArray] = {}  # by directed relation

    def probabilities(self, target: int, anchors: IntArray) -> FloatArray:
        """How probable rules say that each entity answers each anchor; shape (anchors, entities)."""
        count = self.facts.entity_count
        if count > _FEW_ENTITIES or count**2 * self.facts.direction_count > _KEPT_CELLS:
            return self._apply(target, anchors)
        if target not in self._kept:
            self._kept[target] = self._apply(target, np.arange(count))
        return self._kept[target][anchors]

    def _apply(self, target: int, anchors: IntArray) -> FloatArray:
        joined = NoisyOr(len(anchors) * self.facts.entity_count, self.settings.best, self.settings.discount)
        layers = self.constants.hits(target, anchors).layers(self.settings.best)
        for cells, confidence in self._chain_hits(target, anchors):
            for layer in layers:
                joined.add(*layer.take(confidence))
            joined.add(cells, confidence)
        for layer in layers:
            joined.add(*layer.take(0.0))
        return joined.probabilities().reshape(len(anchors), self.facts.entity_count)

    def _chain_hits(self, target: int, anchors: IntArray) -> Iterator[tuple[IntArray, float]]:
        """The cells that each chain proposes, and its confidence, from the surest chain to the least sure."""
        chains = self.chains.of(target)
        confidences = chains.confidences(self.settings.prior_count).tolist()
        walker = Walker(self.facts, anchors)
        for path, band, confidence in zip(chains.path_tuples(), chains.bands, confidences, strict=True):
            yield walker.cells(path, band), confidence


class Walker:
    """Walks along chains from the same anchors; what chains have in common is walked once, while there is room."""

    def __init__(self, facts: Facts, anchors: IntArray) -> None:
        self.facts, self.anchors = facts, anchors
        self._begun: dict[tuple[int, ...], csr_array] = {}
        self._ended: dict[tuple[int, ...], tuple[IntArray, IntArray]] = {}
        self._room = _KEPT_NUMBERS

    def cells(self, path: tuple[int, ...], band: int) -> IntArray:
        """The cells of a table (anchors, entities) that a chain leads to; without any step, the anchors themselves."""
        if not path:
            return np.arange(len(self.anchors)) * self.facts.entity_count + self.anchors
        cells, bands = self._end(path)
        return cells[bands == band]

    def _end(self, path: tuple[int, ...]) -> tuple[IntArray, IntArray]:
        """The cells that a chain leads to, and their bands."""
        if path in self._ended:
            return self._ended[path]
        ways = self._walk(path)
        end = rows_of(ways) * self.facts.entity_count + ways.indices, bands_of(ways)
        if self._has_room(ways.nnz):
            self._ended[path] = end
        return end

    def _walk(self, path: tuple[int, ...]) -> "csr_array":
        if len(path) == 1:
            return self.facts.links(path[0])[self.anchors]
        return self.facts.step(self.anchors, self._begin(path[:-1]), path)

    def _begin(self, path: tuple[int, ...]) -> "csr_array":
        """What the first steps of a chain reach."""
        if path in self._begun:
            return self._begun[path]
        ways = self._walk(path)
        if self._has_room(ways.nnz):
            self._begun[path] = ways
        return ways

    def _has_room(self, numbers: int) -> bool:
        has_room = numbers <= self._room
        self._room -= numbers if has_room else 0
        return has_room


class AppliedConstants:
    """Rules with a constant, and which entities have the features that they speak of."""

    def __init__(self, rules: ConstantRules, facts: Facts, prior_count: float) -> None:
        self.facts, self.rules = facts, rules
        keys, self._features_of_rules = np.unique(
            facts.feature_keys(rules.relations, rules.entities), return_inverse=True
        )
        self._features = facts.features(keys)  # (entities, features)
        self._having = self._features.T.tocsr()  # (features, entities)
        self._for_anchors = rules.supports / (rules.bodies + prior_count)
        self._for_answers = rules.supports / (rules.reaches + prior_count)
        self._is_any = rules.relations == np.where(rules.entities == NONE, rules.targets, NONE)

    def hits(self, target: int, anchors: IntArray) -> Hits:
        """What all rules propose for the anchors of one directed relation."""
        return self.by_features_of_anchors(target, anchors) + self.by_features_of_answers(target, anchors)

    def by_features_of_anchors(self, target: int, anchors: IntArray) -> Hits:
        """The anchor has a feature that an answer goes with."""
        rules = self._sorted_by(self._features_of_rules, target)
        features = self._features[anchors]
        found, rule = _matches(features.indices, self._features_of_rules, rules)
        rows, answers = rows_of(features)[found], self.rules.constants[rule]
        is_other = self._is_other(target, anchors[rows], answers, rule)
        return self._hits(rows, answers, self._for_anchors[rule], rule)[is_other].surest(_BY_FEATURES)

    def by_features_of_answers(self, target: int, anchors: IntArray) -> Hits:
        """The candidate has a feature that goes with the anchor."""
        inverse = self.facts.inverse(target)
        rules = self._sorted_by(self.rules.constants, inverse)
        rows, rule = _matches(anchors, self.rules.constants, rules)
        having = self._having[self._features_of_rules[rule]]
        found = rows_of(having)
        rows, rule, answers = rows[found], rule[found], having.indices
        is_other = self._is_other(inverse, answers, anchors[rows], rule)
        return self._hits(rows, answers, self._for_answers[rule], rule)[is_other].surest(_BY_FEATURES)

    def _hits(self, rows: IntArray, answers: IntArray, confidences: FloatArray, rule: IntArray) -> Hits:
        return Hits(rows.astype(np.int64) * self.facts.entity_count + answers, confidences, rule)

    def _sorted_by(self, column: IntArray, target: int) -> IntArray:
        """The rows of a relation's rules, sorted by a column."""
        first, last = np.searchsorted(self.rules.targets, [target, target + 1])
        return first + np.argsort(column[first:last], kind="stable")

    def _is_other(self, target: int, entities: IntArray, answers: IntArray, rule: IntArray) -> IntArray:
        """Where the feature "has any answer" rests on more than the answer in question; shape (hits,)."""
        links = self.facts.links(target)
        counts = np.diff(links.indptr)
        sole = np.full(self.facts.entity_count, NONE)
        sole[counts == 1] = links.indices[links.indptr[:-1][counts == 1]]
        return ~(self._is_any[rule] & (sole[entities] == answers))


def _matches(wanted: IntArray, column: IntArray, rules: IntArray) -> tuple[IntArray, IntArray]:
    """The rules that have each wanted value in a column by which they are sorted: its position, and the rule."""
    values = column[rules]
    first = np.searchsorted(values, wanted)
    counts = np.searchsorted(values, wanted, side="right") - first
    return np.repeat(np.arange(len(wanted)), counts), rules[np.repeat(first, counts) + positions_within(counts)]
