"""Learn on valid what share of answers with such evidence is true."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cascader.calibration.calibration import Calibration
from cascader.calibration.curves import Curve, fit_logistic, log_loss, with_steps
from cascader.calibration.evidence import evidence
from cascader.calibration.reliability import Reliability
from cascader.cascade import Cascade, mask_of
from cascader.errors import DataError
from cascader.graph import BoolArray, FloatArray, IntArray, KnowledgeGraph, Queries, Triples

#: More would sharpen nothing: two numbers and a few steps are learnt for each side.
_MOST_TRIPLES = 2000
_QUESTIONS_AT_ONCE = 256
#: The best answers of a question all count; of the many others some are drawn, and count for all.
_ALWAYS, _DRAWN = 50, 50
#: Probabilities are judged on what people get to see.
_JUDGED = 10

_Fit = Callable[[FloatArray, BoolArray, FloatArray], Curve]


@dataclass(frozen=True, eq=False)
class _Answers:
    """Answers of many questions; all shapes (answers,) but that of the evidence, (answers, evidence)."""

    evidence: FloatArray
    is_gold: BoolArray
    counts: FloatArray  # how many answers each stands for
    is_top: BoolArray

    @classmethod
    def joined(cls, parts: Sequence["_Answers"]) -> "_Answers":
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))


def calibrate(cascade: Cascade, kg: KnowledgeGraph, triples: Triples | None = None, *, seed: int = 0) -> Calibration:
    """Fit a curve for each side on valid, or on those of its `triples`.

    Golds are true; whatever else is in neither train nor valid counts as false. The kind of curve is chosen, and its
    error measured, on half of the questions; then it is fitted to all of them.
    """
    triples = kg.valid if triples is None else triples
    if len(triples) == 0:
        raise DataError(f"{kg.name} has no valid triples to calibrate on. Hold some back, or do without probabilities.")
    draw = np.random.default_rng(seed)
    chosen = Queries.from_triples(draw.permutation(triples)[:_MOST_TRIPLES])
    questions = chosen.questions()[0]
    answers = _answers(cascade.knowing(kg.known(("train",))), kg, questions, draw)
    curves, judged = {}, []
    for predicts_tail in (False, True):
        own = draw.permutation(np.flatnonzero(questions.predicts_tail == predicts_tail))
        curve, shares, probabilities, is_gold = _fitted([answers[place] for place in own])
        curves[predicts_tail] = curve
        judged.append((shares, probabilities, is_gold))
    reliability = Reliability.of(*(np.concatenate(column) for column in zip(*judged, strict=True)))
    return Calibration(curves[False], curves[True], reliability)


def _fitted(answers: list[_Answers]) -> tuple[Curve, FloatArray, FloatArray, BoolArray]:
    """The curve for all questions; and shares, probabilities and golds of the half that it was judged on."""
    middle = (len(answers) + 1) // 2
    learning = _Answers.joined(answers[:middle])
    checking = _Answers.joined(answers[middle:] or answers)  # of a single question, twice the same

    def loss(fit: _Fit) -> float:
        curve = fit(learning.evidence, learning.is_gold, learning.counts)
        return log_loss(curve.probabilities(checking.evidence), checking.is_gold, checking.counts)

    fit = min((fit_logistic, _fit_isotonic), key=loss)
    seen = checking.evidence[checking.is_top]
    probabilities = fit(learning.evidence, learning.is_gold, learning.counts).probabilities(seen)
    everyone = _Answers.joined(answers)
    curve = fit(everyone.evidence, everyone.is_gold, everyone.counts)
    return curve, np.exp(seen[:, 0]), probabilities, checking.is_gold[checking.is_top]


def _fit_isotonic(evidence: FloatArray, is_gold: BoolArray, counts: FloatArray) -> Curve:
    return with_steps(fit_logistic(evidence, is_gold, counts), evidence, is_gold, counts)


def _answers(cascade: Cascade, kg: KnowledgeGraph, questions: Queries, draw: np.random.Generator) -> list[_Answers]:
    """The answers of each question that are learnt from; what train knows is none of them."""
    known, golds = kg.known(("train",)), kg.known(("valid",))
    found = []
    for block in questions.blocks(_QUESTIONS_AT_ONCE):
        scores = cascade.score_all(block)
        is_known, is_gold = (mask_of(block, answers, scores.shape) for answers in (known, golds))
        for row in range(len(block)):
            chosen, counts = _chosen(np.where(is_known[row], -np.inf, scores[row]), is_gold[row], draw)
            found.append(
                _Answers(
                    evidence(scores[row], is_known[row])[chosen],
                    is_gold[row, chosen],
                    counts,
                    np.arange(len(chosen)) < _JUDGED,  # the best stand first
                )
            )
    return found


def _chosen(scores: FloatArray, is_gold: BoolArray, draw: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """The best answers, all golds, some of the others; and how many answers each stands for."""
    order = np.argsort(-scores, kind="stable")[: np.isfinite(scores).sum()]
    always = order[:_ALWAYS]
    rest = order[_ALWAYS:]
    golds, others = rest[is_gold[rest]], rest[~is_gold[rest]]
    drawn = draw.permutation(others)[:_DRAWN]
    counts = np.ones(len(always) + len(golds) + len(drawn))
    counts[len(counts) - len(drawn) :] = len(others) / max(len(drawn), 1)
    return np.concatenate([always, golds, drawn]), counts
