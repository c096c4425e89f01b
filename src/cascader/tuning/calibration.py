"""Turn scores into probabilities, learned on valid, without changing the ranking of a question's answers.

How far these are from the observed share of gold answers is measured, too, and both are stored in one file.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from cascader.cascade import Cascade, best_places, known_mask
from cascader.errors import DataError, SettingsError
from cascader.graph import BoolArray, FloatArray, IntArray, KnowledgeGraph, Queries, Triples
from cascader.records import read_record, write_record
from cascader.tuning import tier_to_dict
from cascader.tuning.curves import Curve, Reliability, evidence, fit_logistic, log_loss, with_steps
from cascader.tuning.verdicts import VerdictModel
from cascader.wording import counted


@dataclass(frozen=True)
class Curves:
    """A curve for each side that is asked for; within a question, a higher score never has a lower probability."""

    head: Curve
    tail: Curve
    reliability: Reliability

    def probabilities(self, queries: Queries, scores: FloatArray, is_known: BoolArray) -> FloatArray:
        """Return the probability that each entity is a true answer; all shapes (queries, entities)."""
        everything = slice(None)
        rows = [
            self.probabilities_at(everything, bool(predicts_tail), scores[row], is_known[row])
            for row, predicts_tail in enumerate(queries.predicts_tail)
        ]
        return np.stack(rows) if rows else np.empty(scores.shape)

    def probabilities_at(
        self, places: IntArray | slice, predicts_tail: bool, scores: FloatArray, is_known: BoolArray
    ) -> FloatArray:
        """Return the probabilities of some entities as answers to one query, whose scores are (entities,)."""
        return (self.tail if predicts_tail else self.head).probabilities(evidence(scores, is_known, places))

    def in_words(self) -> str:
        """Describe the reliability in one readable line."""
        found = self.reliability
        return (
            f"Probabilities are off by {found.error_after:.3f} on average ({found.error_before:.3f} before "
            f"calibration), measured on {counted(found.answers, 'top answer')} of valid, {found.golds:,} of them right."
        )


@dataclass(frozen=True)
class Calibration(Curves):
    """The curves for questions with an answer that the graph lacks, those for open questions, and what judges triples.

    An open question may have no further answer, such as each of those that `cascader predict --all` asks.
    """

    open: Curves | None = None  # None: no open question has been asked yet
    verdicts: VerdictModel | None = None  # None: no verdict has been asked for yet

    def for_open_questions(self) -> "Calibration":
        """Return the same calibration with the curves for open questions in the place of the others."""
        if self.open is None:
            raise SettingsError("probabilities for open questions have yet to be calibrated: call calibrate_open.")
        return replace(self, head=self.open.head, tail=self.open.tail, reliability=self.open.reliability)


#: More would not help: only a few weights and steps are learned for each side.
CALIBRATION_TRIPLES = 2000
#: In a large graph fewer must do: so many scores at most, in blocks of so many.
_MOST_SCORES, _SCORES_AT_ONCE = 500_000_000, 16_000_000
#: Of the open questions that have no answer in valid, where pairs are read for them.
_OPEN_QUESTIONS_READ = 100
_QUESTIONS_AT_ONCE = 256
#: The best answers of a question are all used; a sample of the many others is weighted to represent them.
_ALWAYS, _DRAWN = 50, 50
#: Probabilities are judged on as many answers per question as people usually see.
_JUDGED = 10

_Fit = Callable[[FloatArray, BoolArray, FloatArray], Curve]


@dataclass(frozen=True, eq=False)
class _Answers:
    """Answers to many questions; all shapes are (answers,), except that of the evidence, (answers, evidence)."""

    evidence: FloatArray
    is_gold: BoolArray
    counts: FloatArray  # how many answers each represents
    is_top: BoolArray

    @classmethod
    def joined(cls, parts: Sequence["_Answers"]) -> "_Answers":
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))


def calibrate(cascade: Cascade, kg: KnowledgeGraph, triples: Triples | None = None, *, seed: int = 0) -> Calibration:
    """Fit a curve for each side on valid, or on a subset of its `triples`.

    Gold answers count as true, and what no split has as false; answers of test are left out. Half of the questions
    choose the kind of curve and fit it, and the other half measures its error; then it is fitted to all of them.
    """
    draw = np.random.default_rng(seed)
    chosen = Queries.from_triples(draw.permutation(_held_out(kg, triples))[: calibration_triples(len(kg.entities))])
    questions = chosen.with_known(kg.known_before("valid")).unique()[0]
    curves = _curves(questions, _answers(cascade, kg, questions, draw), draw)
    return Calibration(curves.head, curves.tail, curves.reliability)


def calibrate_open(cascade: Cascade, kg: KnowledgeGraph, triples: Triples | None = None, *, seed: int = 0) -> Curves:
    """Fit a curve for each side on open questions: a sample of all that train has an answer to.

    What valid holds of their further answers is true. With `triples`, which pairs have already been read for, the
    questions with an answer in valid are those of these triples, and fewer of the others are drawn.
    """
    draw = np.random.default_rng(seed)
    every = Queries.from_triples(kg.train).unique()[0].with_known(kg.known_before("valid"))
    has_gold = kg.known(("valid",)).of(every).counts > 0
    if triples is None:
        places: IntArray = draw.permutation(len(every))[: 2 * calibration_triples(len(kg.entities))]
        weights: FloatArray = np.ones(len(places))
    else:
        places, weights = _stratified(every, has_gold, _held_out(kg, triples), kg, draw)
    questions = every[places]
    answers = _answers(cascade, kg, questions, draw)
    weighed = [replace(each, counts=each.counts * weight) for each, weight in zip(answers, weights, strict=True)]
    return _curves(questions, weighed, draw)


def _held_out(kg: KnowledgeGraph, triples: Triples | None) -> Triples:
    triples = kg.valid if triples is None else triples
    if len(triples) == 0:
        raise DataError(
            f"{kg.name} has no valid triples to calibrate on. Hold some triples out, or do without probabilities."
        )
    return triples


def _stratified(
    every: Queries, has_gold: BoolArray, triples: Triples, kg: KnowledgeGraph, draw: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Choose the questions of these triples and some that have no answer in valid, each with how many it represents."""
    counts = len(kg.entities), len(kg.relations)
    is_read = np.isin(every.keys(*counts), Queries.from_triples(triples).keys(*counts)) & has_gold
    read, others = np.flatnonzero(is_read), np.flatnonzero(~has_gold)
    drawn = draw.permutation(others)[:_OPEN_QUESTIONS_READ]
    shares = np.concatenate(
        [
            np.full(len(read), has_gold.sum() / max(len(read), 1)),
            np.full(len(drawn), len(others) / max(len(drawn), 1)),
        ]
    )
    return np.concatenate([read, drawn]), shares


def _curves(questions: Queries, answers: list[_Answers], draw: np.random.Generator) -> Curves:
    """Fit the curve of each side to the answers to these questions, and measure both together."""
    curves, judged = {}, []
    for predicts_tail in (False, True):
        own = draw.permutation(np.flatnonzero(questions.predicts_tail == predicts_tail))
        learning, checking = _halves([answers[place] for place in own])
        fit = _chosen_fit(learning)
        judged.append(_judged(_fitted(fit, learning), _represented(checking, draw)))
        curves[predicts_tail] = _fitted(fit, [answers[place] for place in own])
    shares, probabilities, is_gold, question_counts = zip(*judged, strict=True)
    reliability = Reliability.of(
        np.concatenate(shares), np.concatenate(probabilities), np.concatenate(is_gold), sum(question_counts)
    )
    return Curves(curves[False], curves[True], reliability)


def _represented(answers: list[_Answers], draw: np.random.Generator) -> list[_Answers]:
    """Draw from questions that represent unequally many, so that all of those drawn represent as many."""
    weights = np.array([each.counts[:1].sum() for each in answers])  # the best answer represents no other of its own
    if len(set(weights.tolist())) == 1:
        return answers
    return [answers[place] for place in draw.choice(len(answers), len(answers), p=weights / weights.sum())]


def calibration_triples(entity_count: int) -> int:
    """How many triples a calibration uses at most: fewer in a large graph, since it scores all entities for each."""
    return min(CALIBRATION_TRIPLES, max(1, _MOST_SCORES // (2 * max(entity_count, 1))))


def _halves(answers: list[_Answers]) -> tuple[list[_Answers], list[_Answers]]:
    """Split into questions to learn from and questions to check on; a single question serves as both."""
    middle = (len(answers) + 1) // 2
    return answers[:middle], answers[middle:] or answers


def _chosen_fit(answers: list[_Answers]) -> _Fit:
    """Choose the kind of curve that, fitted to half of the questions, has the lowest loss on the others."""
    learning, checking = _halves(answers)
    checked = _Answers.joined(checking)

    def loss(fit: _Fit) -> float:
        return log_loss(_fitted(fit, learning).probabilities(checked.evidence), checked.is_gold, checked.counts)

    return min((fit_logistic, _fit_isotonic), key=loss)


def _fitted(fit: _Fit, answers: list[_Answers]) -> Curve:
    joined = _Answers.joined(answers)
    return fit(joined.evidence, joined.is_gold, joined.counts)


def _judged(curve: Curve, answers: list[_Answers]) -> tuple[FloatArray, FloatArray, BoolArray, int]:
    """Return the shares, probabilities and golds of the best answers, (answers,) each, and the number of questions."""
    joined = _Answers.joined(answers)
    top = joined.evidence[joined.is_top]
    return np.exp(top[:, 0]), curve.probabilities(top), joined.is_gold[joined.is_top], len(answers)


def _fit_isotonic(evidence: FloatArray, is_gold: BoolArray, counts: FloatArray) -> Curve:
    return with_steps(fit_logistic(evidence, is_gold, counts), evidence, is_gold, counts)


def _answers(cascade: Cascade, kg: KnowledgeGraph, questions: Queries, draw: np.random.Generator) -> list[_Answers]:
    """Choose the answers of each question to learn from, leaving out those of train and test."""
    known, golds, others = questions.known, kg.known(("valid",)), kg.known(("train", "test"))
    found = []
    size = max(1, min(_QUESTIONS_AT_ONCE, _SCORES_AT_ONCE // max(len(kg.entities), 1)))
    for block in questions.blocks(size):
        scores = cascade.score_all(block)
        is_known, is_gold, is_other = (known_mask(block, answers, scores.shape) for answers in (known, golds, others))
        for row in range(len(block)):
            chosen, counts = _chosen(scores[row], ~is_other[row] & np.isfinite(scores[row]), is_gold[row], draw)
            found.append(
                _Answers(
                    evidence(scores[row], is_known[row], chosen),
                    is_gold[row, chosen],
                    counts,
                    np.arange(len(chosen)) < _JUDGED,  # the best come first
                )
            )
    return found


def _chosen(
    scores: FloatArray, is_possible: BoolArray, is_gold: BoolArray, draw: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Choose the best answers, all golds and a sample of the rest, and how many answers each represents."""
    always = best_places(scores, is_possible, _ALWAYS)
    is_rest = is_possible.copy()
    is_rest[always] = False
    golds, others = np.flatnonzero(is_rest & is_gold), np.flatnonzero(is_rest & ~is_gold)
    drawn = draw.choice(others, min(_DRAWN, len(others)), replace=False)
    counts = np.ones(len(always) + len(golds) + len(drawn))
    counts[len(counts) - len(drawn) :] = len(others) / max(len(drawn), 1)
    return np.concatenate([always, golds, drawn]), counts


FORMAT = 4
FILE = "calibration.json"


@dataclass(frozen=True)
class _SavedCalibration:
    identity: dict[str, str]
    calibration: Calibration


@dataclass(frozen=True)
class _SavedCalibrations:
    calibrations: tuple[_SavedCalibration, ...]


def hash_of_cascade(cascade: Cascade) -> str:
    """Compute a sha256 of how the tiers are combined: weights, pruners and what these learned, but not the models."""
    tiers = [cascade.name, *(tier_to_dict(tier) for tier in cascade.tiers)]
    digest = hashlib.sha256(json.dumps(tiers, sort_keys=True).encode())
    for tier in cascade.tiers:
        for name, array in sorted(tier.keep.tensors().items() if tier.keep is not None else ()):
            digest.update(f"{tier.name} {name}".encode() + array.tobytes())
    return digest.hexdigest()


def save_calibration(calibration: Calibration, folder: Path, identity: Mapping[str, str]) -> None:
    """Write a calibration to `calibration.json`, next to those of other cascades of the same run."""
    others = [asdict(saved) for saved in _saved(folder) if saved.identity != dict(identity)]
    entry = {"identity": dict(identity), "calibration": asdict(calibration)}
    write_record(folder / FILE, {"format": FORMAT, "calibrations": [*others, entry]})


def load_calibration(folder: Path, identity: Mapping[str, str]) -> Calibration | None:
    """Load the calibration that was saved for this cascade; None if there is none."""
    for saved in _saved(folder):
        if saved.identity == dict(identity):
            return saved.calibration
    return None


def _saved(folder: Path) -> tuple[_SavedCalibration, ...]:
    path = folder / FILE
    if not path.exists():
        return ()
    return read_record(path, _SavedCalibrations, FORMAT, "Delete it to calibrate again.").calibrations
