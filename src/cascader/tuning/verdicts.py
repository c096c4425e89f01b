"""Verdicts on triples, from evidence of their own: what every tier says of a triple, asked from both sides.

The probability of an answer compares it with the other answers to its question, so rank and share are enough for it. A
verdict compares triples of different questions, and there the scores themselves say more. How much each counts is
learned from facts of valid and from near misses: triples that the tiers like just as well, and that no fact is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge
from scipy.optimize import minimize
from scipy.special import expit

from cascader.errors import DataError
from cascader.graph import BoolArray, FloatArray, IntArray, Side
from cascader.records import Count, Name, Share

#: What is looked at: a tier's own score; by how many standard deviations it exceeds the mean of its question; minus the
#: logarithm of its rank there; and the log-odds of its calibrated probability. More of any never speaks against it.
Kind = Literal["score", "lead", "rank", "probability"]
#: A judge's threshold: probabilities are learned from as many near misses as facts.
EVEN = 0.5
#: Into so many stretches the values of each piece of evidence are divided, equally many examples in each.
_STRETCHES = 6
#: Pulls gains towards none, as that many examples would; and the offset of a relation towards that of all relations.
_PENALTY, _RELATION_PENALTY = 1.0, 3.0
_FOLDS = 5
#: So many labels of the user count as much as everything that valid has to say.
_LABELS_LIKE_VALID = 100


@dataclass(frozen=True)
class Evidence:
    """One thing that is looked at: what a tier, or the whole cascade, says of a triple when one side is asked for."""

    tier: Name
    kind: Kind
    side: Side


@dataclass(frozen=True)
class WeighedEvidence(Evidence):
    """What a piece of evidence adds to the log-odds of a triple, which never falls as the evidence grows."""

    knots: tuple[float, ...]  # values that divide it into stretches, ascending
    gains: tuple[Annotated[float, Ge(0)], ...]  # what is added along each stretch

    def __post_init__(self) -> None:
        is_rising = all(low < high for low, high in zip(self.knots, self.knots[1:], strict=False))
        if not is_rising or len(self.gains) != max(len(self.knots) - 1, 0):
            raise DataError("the knots of a piece of evidence do not rise, or do not match its gains.")

    def adds(self, values: FloatArray) -> FloatArray:
        """Compute what each value adds; shape (triples,).

        >>> weighed = WeighedEvidence("kge", "score", "tail", knots=(0.0, 1.0, 3.0), gains=(0.5, 2.0))
        >>> weighed.adds(np.array([-9.0, 0.5, 2.0, 9.0])).tolist()
        [0.0, 0.25, 1.5, 2.5]
        """
        if not self.gains:
            return np.zeros(len(values))
        return np.interp(values, self.knots, np.concatenate([[0.0], np.cumsum(self.gains)]))


@dataclass(frozen=True)
class VerdictModel:
    """Weighs the evidence for a triple; a relation's own offset is its threshold, shrunk towards that of all."""

    evidence: tuple[WeighedEvidence, ...]
    intercept: float
    relations: dict[str, float]  # the offset of each relation, by id; 0 for those that no example had
    accuracy: Share  # on examples that it was not learned from, half of them facts and half near misses
    examples: Count  # that it was learned from, without labels
    labels: Count = 0  # of the user, that it was learned from
    basis: dict[str, str] = field(default_factory=dict)  # sums of the tiers that were heard, and of the labels
    threshold: Share = EVEN

    def probabilities(self, values: FloatArray, relations: Sequence[str]) -> FloatArray:
        """Compute the probability of each triple from its evidence, (triples, evidence), and its relation's id."""
        odds = np.full(len(values), self.intercept)
        for column, weighed in enumerate(self.evidence):
            odds += weighed.adds(values[:, column])
        return expit(odds + [self.relations.get(relation, 0.0) for relation in relations])

    def hears(self, columns: Sequence[Evidence]) -> bool:
        """Whether it was learned from this very evidence, in this order."""
        own = [Evidence(each.tier, each.kind, each.side) for each in self.evidence]
        return own == list(columns)

    def strongest(self) -> list[tuple[Evidence, float]]:
        """What can count most, strongest first, with the most that it can add to the log-odds."""
        found = [(Evidence(each.tier, each.kind, each.side), sum(each.gains)) for each in self.evidence]
        return sorted((pair for pair in found if pair[1] > 0), key=lambda pair: -pair[1])


# Learning.


@dataclass(frozen=True, eq=False)
class Examples:
    """Triples to learn from: their evidence, whether they are true, and how much each counts."""

    values: FloatArray  # (examples, evidence)
    relations: IntArray  # (examples,)
    is_true: BoolArray  # (examples,)
    weights: FloatArray  # (examples,)
    groups: IntArray  # (examples,) near misses are in the group of their fact: they are left out together

    def __getitem__(self, chosen: BoolArray | IntArray) -> "Examples":
        return Examples(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def __len__(self) -> int:
        return len(self.is_true)

    def joined(self, other: "Examples") -> "Examples":
        """Put two sets of examples together."""
        return Examples(
            *(np.concatenate([getattr(self, name), getattr(other, name)]) for name in self.__dataclass_fields__)
        )

    def weighing(self, total: float) -> "Examples":
        """The same examples with other weights, which add up to a total."""
        return replace(self, weights=self.weights * (total / self.weights.sum()))


@dataclass(frozen=True)
class VerdictLearner:
    """Learns how much each piece of evidence counts."""

    columns: Sequence[Evidence]
    relations: Sequence[str]  # the ids of all relations of the graph

    def learned(self, examples: Examples, labels: Examples | None = None) -> VerdictModel:
        """Learn from examples of valid and from labels: the more of these, the more they count beside valid."""
        is_right = np.empty(len(examples), dtype=bool)
        for others, held_out in _folds(examples):
            is_right[held_out] = self._is_right(self._fitted(examples[others]), examples[held_out])
        accuracy = round(float(np.average(is_right, weights=examples.weights)), 6)
        model = self._fitted(with_labels(examples, labels))
        return replace(model, accuracy=accuracy, examples=len(examples), labels=0 if labels is None else len(labels))

    def label_accuracies(self, examples: Examples, labels: Examples) -> tuple[float, float]:
        """Compute the share of labels judged right by valid alone, and by valid with all labels of other folds."""
        before = self._is_right(self._fitted(examples), labels)
        after = np.empty(len(labels), dtype=bool)
        for others, held_out in _folds(labels):
            model = self._fitted(with_labels(examples, labels[others]))
            after[held_out] = self._is_right(model, labels[held_out])
        return float(before.mean()), float(after.mean())

    def _is_right(self, model: VerdictModel, judged: Examples) -> BoolArray:
        probabilities = model.probabilities(judged.values, [self.relations[index] for index in judged.relations])
        right: BoolArray = (probabilities >= model.threshold) == judged.is_true
        return right

    def _fitted(self, examples: Examples) -> VerdictModel:
        knots = [_knots(column, examples.weights) for column in examples.values.T]
        ramps = [_ramps(column, own) for column, own in zip(examples.values.T, knots, strict=True)]
        gains, intercept, offsets = _most_likely(np.column_stack(ramps), examples, len(self.relations))
        own_gains = np.split(gains, np.cumsum([ramp.shape[1] for ramp in ramps])[:-1])
        evidence = tuple(
            WeighedEvidence(what.tier, what.kind, what.side, tuple(own.tolist()), tuple(gain.tolist()))
            for what, own, gain in zip(self.columns, knots, own_gains, strict=True)
        )
        seen = np.unique(examples.relations)
        relations = {self.relations[index]: float(offsets[index]) for index in seen}
        return VerdictModel(evidence, intercept, relations, accuracy=0.0, examples=len(examples))


def with_labels(examples: Examples, labels: Examples | None) -> Examples:
    """Blend what valid says with labels, which weigh more the more there are of them."""
    if labels is None:
        return examples
    total = examples.weights.sum()
    return examples.joined(labels.weighing(total * len(labels) / _LABELS_LIKE_VALID))


def _folds(examples: Examples) -> Iterator[tuple[BoolArray, BoolArray]]:
    """Yield what to learn from and what is held out, (examples,) each; about as many facts are in every fold.

    A single group serves as both.
    """
    _, group_of = np.unique(examples.groups, return_inverse=True)
    has_fact = np.bincount(group_of, weights=examples.is_true) > 0
    order = np.random.default_rng(0).permutation(len(has_fact))
    order = order[np.argsort(~has_fact[order], kind="stable")]
    fold_of = np.empty(len(order), dtype=np.int64)
    fold_of[order] = np.arange(len(order)) % _FOLDS
    for fold in range(min(_FOLDS, len(order))):
        held_out = fold_of[group_of] == fold
        yield held_out if held_out.all() else ~held_out, held_out


def _knots(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Values with equally much weight between each two; fewer where many values are equal."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    places = np.searchsorted(reached, np.linspace(0, 1, _STRETCHES + 1)).clip(max=len(values) - 1)
    return np.unique(values[order][places])


def _ramps(values: FloatArray, knots: FloatArray) -> FloatArray:
    """How far each value is along each stretch, from 0 to 1; shape (examples, stretches)."""
    if len(knots) < 2:
        return np.empty((len(values), 0))
    return ((values[:, None] - knots[:-1]) / np.diff(knots)).clip(0, 1)


def _most_likely(ramps: FloatArray, examples: Examples, relations: int) -> tuple[FloatArray, float, FloatArray]:
    """The gains, none negative, the intercept and the offsets of relations that explain the examples best."""
    count, truth, weights = ramps.shape[1], examples.is_true.astype(float), examples.weights
    pull = np.repeat([_PENALTY, 0.0, _RELATION_PENALTY], [count, 1, relations])

    def loss(found: FloatArray) -> tuple[float, FloatArray]:
        odds = ramps @ found[:count] + found[count] + found[count + 1 :][examples.relations]
        error = weights * (expit(odds) - truth)
        value = weights @ (np.logaddexp(0, odds) - truth * odds) + pull @ found**2 / 2
        by_relation = np.bincount(examples.relations, weights=error, minlength=relations)
        return float(value), np.concatenate([ramps.T @ error, [error.sum()], by_relation]) + pull * found

    bounds = [(0, None)] * count + [(None, None)] * (1 + relations)
    found = minimize(loss, np.zeros(len(bounds)), jac=True, bounds=bounds, method="L-BFGS-B").x
    return found[:count], float(found[count]), found[count + 1 :]
