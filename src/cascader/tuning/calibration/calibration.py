"""Probabilities of a cascade's answers, learned on valid, and their file."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cascader.cascade import Cascade, known_mask
from cascader.errors import DataError
from cascader.graph import BoolArray, FloatArray, IntArray, KnowledgeGraph, Queries, Triples
from cascader.storage import read_json, write_json
from cascader.tuning import described
from cascader.tuning.calibration.curves import Curve, evidence, fit_logistic, log_loss, with_steps
from cascader.tuning.calibration.reliability import Reliability


@dataclass(frozen=True)
class Threshold:
    """From which probability on a triple is held for true, and how well that did."""

    probability: float
    accuracy: float  # on triples that it was not chosen on, as many true as corrupted
    triples: int  # that it was chosen and judged on


@dataclass(frozen=True)
class Calibration:
    """A curve for each side that is asked for. Within a question, a higher score never has a lower probability."""

    head: Curve
    tail: Curve
    reliability: Reliability
    threshold: Threshold | None = None  # None: nobody has asked for verdicts yet

    def probabilities(self, queries: Queries, scores: FloatArray, is_known: BoolArray) -> FloatArray:
        """The probability that each entity is a true answer; all shapes (queries, entities)."""
        rows = [
            (self.tail if predicts_tail else self.head).probabilities(evidence(scores[row], is_known[row]))
            for row, predicts_tail in enumerate(queries.predicts_tail)
        ]
        return np.stack(rows) if rows else np.empty(scores.shape)

    def in_words(self) -> str:
        """One line for a person."""
        seen = self.reliability
        return (
            f"Probabilities are off by {seen.error_after:.3f} on average ({seen.error_before:.3f} before calibration), "
            f"measured on {seen.answers:,} top answers of valid, {seen.golds:,} of them right."
        )

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "head": self.head.as_dict(),
            "tail": self.tail.as_dict(),
            "reliability": self.reliability.as_dict(),
            "threshold": None if self.threshold is None else asdict(self.threshold),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Calibration":
        """What `as_dict` gave."""
        return cls(
            Curve.from_dict(saved["head"]),
            Curve.from_dict(saved["tail"]),
            Reliability.from_dict(saved["reliability"]),
            None if saved["threshold"] is None else Threshold(**saved["threshold"]),
        )


#: More would sharpen nothing: two numbers and a few steps are learnt for each side.
CALIBRATION_TRIPLES = 2000
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
    chosen = Queries.from_triples(draw.permutation(triples)[:CALIBRATION_TRIPLES])
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


FORMAT = 2
#: Formats of earlier versions: they say less of the reliability, so that calibrations are made anew.
_EARLIER = (1,)
FILE = "calibration.json"


def hash_of_cascade(cascade: Cascade) -> str:
    """One sha256 for how the tiers come together: weights, pruners and what these have learnt; not for the models."""
    tiers = [cascade.name, *(described(tier) for tier in cascade.tiers)]
    digest = hashlib.sha256(json.dumps(tiers, sort_keys=True).encode())
    for tier in cascade.tiers:
        for name, array in sorted(tier.keep.tensors().items() if tier.keep is not None else ()):
            digest.update(f"{tier.name} {name}".encode() + array.tobytes())
    return digest.hexdigest()


def save_calibration(calibration: Calibration, folder: Path, identity: Mapping[str, str]) -> None:
    """Write it to `calibration.json`, beside those of other cascades of the same run."""
    others = [saved for saved in _saved(folder) if saved["identity"] != dict(identity)]
    entry = {"identity": dict(identity), **calibration.as_dict()}
    write_json(folder / FILE, {"format": FORMAT, "calibrations": [*others, entry]})


def load_calibration(folder: Path, identity: Mapping[str, str]) -> Calibration | None:
    """Read back what was saved for this cascade; None if there is nothing."""
    return next((Calibration.from_dict(saved) for saved in _saved(folder) if saved["identity"] == dict(identity)), None)


def _saved(folder: Path) -> list[dict[str, Any]]:
    if not (folder / FILE).exists():
        return []
    content = read_json(folder / FILE)
    if content.get("format") in _EARLIER:
        return []
    if content.get("format") != FORMAT:
        raise DataError(
            f"{folder / FILE} is of format {content.get('format')!r}, expected {FORMAT}. It was written by another "
            "version of cascader: use that one, or delete the file, and it is made anew."
        )
    return list(content["calibrations"])
