"""Join the rules that propose a candidate: the surest few, by noisy-or."""

from dataclasses import dataclass

import numpy as np

from cascader.graph import BoolArray, FloatArray, IntArray

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
