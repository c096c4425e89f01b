"""Learn on valid what share of answers with such evidence is true."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cascader.cascade import Cascade, known_mask
from cascader.errors import DataError
from cascader.graph import BoolArray, FloatArray, IntArray, KnowledgeGraph, Queries, Triples
from cascader.tuning.calibration.calibration import Calibration
from cascader.tuning.calibration.curves import Curve, fit_logistic, log_loss, with_steps
from cascader.tuning.calibration.evidence import evidence
from cascader.tuning.calibration.reliability import Reliability

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

    Golds are true; whatever else is in neither train nor valid counts as false. Half of the questions choose the kind
    of curve and fit it, the others tell its error; then it is fitted to all of them.
    """
    triples = kg.valid if triples is None else triples
    if len(triples) == 0:
        raise DataError(f"{kg.name} has no valid triples to calibrate on. Hold some back, or do without probabilities.")
    draw = np.random.default_rng(seed)
    chosen = Queries.from_triples(draw.permutation(triples)[:_MOST_TRIPLES])
    questions = chosen.with_known(kg.known_before("valid")).unique()[0]
    answers = _answers(cascade, kg, questions, draw)
    curves, judged = {}, []
    for predicts_tail in (False, True):
        own = draw.permutation(np.flatnonzero(questions.predicts_tail == predicts_tail))
        learning, checking = _halves([answers[place] for place in own])
        fit = _chosen_fit(learning)
        judged.append(_judged(_fitted(fit, learning), checking))
        curves[predicts_tail] = _fitted(fit, [answers[place] for place in own])
    shares, probabilities, is_gold, question_counts = zip(*judged, strict=True)
    reliability = Reliability.of(
        np.concatenate(shares), np.concatenate(probabilities), np.concatenate(is_gold), sum(question_counts)
    )
    return Calibration(curves[False], curves[True], reliability)


def _halves(answers: list[_Answers]) -> tuple[list[_Answers], list[_Answers]]:
    """Questions to learn from, and others; a single question has to be both."""
    middle = (len(answers) + 1) // 2
    return answers[:middle], answers[middle:] or answers


def _chosen_fit(answers: list[_Answers]) -> _Fit:
    """The kind of curve that, fitted to half of the questions, is least surprised by the others."""
    learning, checking = _halves(answers)
    seen = _Answers.joined(checking)

    def loss(fit: _Fit) -> float:
        return log_loss(_fitted(fit, learning).probabilities(seen.evidence), seen.is_gold, seen.counts)

    return min((fit_logistic, _fit_isotonic), key=loss)


def _fitted(fit: _Fit, answers: list[_Answers]) -> Curve:
    seen = _Answers.joined(answers)
    return fit(seen.evidence, seen.is_gold, seen.counts)


def _judged(curve: Curve, answers: list[_Answers]) -> tuple[FloatArray, FloatArray, BoolArray, int]:
    """Shares, probabilities and golds of the best answers, (answers,) each; and of how many questions they are."""
    seen = _Answers.joined(answers)
    top = seen.evidence[seen.is_top]
    return np.exp(top[:, 0]), curve.probabilities(top), seen.is_gold[seen.is_top], len(answers)


def _fit_isotonic(evidence: FloatArray, is_gold: BoolArray, counts: FloatArray) -> Curve:
    return with_steps(fit_logistic(evidence, is_gold, counts), evidence, is_gold, counts)


def _answers(cascade: Cascade, kg: KnowledgeGraph, questions: Queries, draw: np.random.Generator) -> list[_Answers]:
    """The answers of each question that are learnt from; what train knows is none of them."""
    known, golds = questions.known, kg.known(("valid",))
    found = []
    for block in questions.blocks(_QUESTIONS_AT_ONCE):
        scores = cascade.score_all(block)
        is_known, is_gold = (known_mask(block, answers, scores.shape) for answers in (known, golds))
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
