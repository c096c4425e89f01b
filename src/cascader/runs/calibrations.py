"""What a run has learned about probabilities and verdicts, on valid and from the labels of its users."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cascader.cascade import Cascade
from cascader.errors import DataError, StorageError
from cascader.graph import KnowledgeGraph, Triples
from cascader.models.model import Model
from cascader.records import Count, Share, naming, read_record, write_record
from cascader.runs.decisions import among_triples
from cascader.runs.folder import RunFolder
from cascader.runs.predictor import Predictor, label_examples, valid_examples, with_threshold
from cascader.tuning import split_valid
from cascader.tuning.calibration import (
    Calibration,
    calibrate,
    calibrate_open,
    hash_of_cascade,
    load_calibration,
    save_calibration,
)
from cascader.tuning.witnesses import Labels
from cascader.wording import counted

LABELS = "labels.json"
_FORMAT = 1
_ADVICE = "Delete it to judge without labels, and give them again with: cascader calibrate RUN labels.tsv"
#: With fewer labels, or with fewer that say the same, chance would decide.
_FEWEST_LABELS, _FEWEST_OF_EACH = 10, 3


@dataclass(frozen=True)
class _SavedLabels:
    labels: tuple[tuple[str, str, str, bool], ...]  # triples by id, and whether they are true


@dataclass(frozen=True)
class LabelGain:
    """What labels have taught: the share of them that is judged right before and after, by cross-validation.

    >>> LabelGain(labels=40, before=0.7, after=0.85).in_words()
    'Of 40 labels, 70.0 % were judged right before, and 85.0 % when the others had been learned from.'
    """

    labels: Count
    before: Share  # by what valid alone has taught
    after: Share  # by what valid and the labels of the other folds have taught
    left_out: Count = 0  # labels of facts of train

    def in_words(self) -> str:
        """Describe the gain in a sentence; a second one is for a loss, a third for labels that were left out."""
        lost = " The labels do not help; delete labels.json to judge without them." if self.after < self.before else ""
        return (
            f"Of {counted(self.labels, 'label')}, {100 * self.before:.1f} % were judged right before, and "
            f"{100 * self.after:.1f} % when the others had been learned from.{lost}{_left_out(self.left_out)}"
        )


@dataclass(frozen=True, eq=False)
class Calibrations:
    """The calibrations of a run, each made when it is first needed, and kept."""

    folder: RunFolder
    place: Path  # where they are kept
    kg: KnowledgeGraph
    tiers: Mapping[str, Model]

    def of(self, cascade: Cascade) -> Calibration:
        """Return the calibration of a cascade."""
        found = load_calibration(self.place, self._identity(cascade))
        return self._kept(cascade, calibrate(cascade, self.kg, self._read(cascade))) if found is None else found

    def for_open_questions(self, predictor: Predictor) -> Predictor:
        """Return the same predictor with probabilities for questions that may have no further answer."""
        if predictor.calibration is None:
            return predictor
        found = self.of(predictor.cascade)
        if found.open is None:
            curves = calibrate_open(predictor.cascade, self.kg, self._read(predictor.cascade))
            found = self._kept(predictor.cascade, replace(found, open=curves))
        return replace(predictor, calibration=found.for_open_questions())

    def with_threshold(self, predictor: Predictor) -> Predictor:
        """Return the same predictor with verdicts, which have learned from valid and from the labels that are kept."""
        if predictor.calibration is None:
            return with_threshold(predictor)  # which says what is missing
        found, labels = self.of(predictor.cascade), self.labels()
        basis, judging = self._basis(labels), replace(predictor, calibration=found)
        known = found.verdicts
        if known is None or known.basis != basis or not known.hears(judging.witnesses().columns):
            learned = with_threshold(judging, self._read(predictor.cascade), labels).calibration
            assert learned is not None and learned.verdicts is not None  # noqa: S101 - just made
            found = self._kept(predictor.cascade, replace(found, verdicts=replace(learned.verdicts, basis=basis)))
        return replace(predictor, calibration=found)

    def learn(self, predictor: Predictor, labels: Labels) -> LabelGain:
        """Let verdicts learn from labels, which take the place of earlier ones, and say what that has changed.

        What a tier was trained on, it may know by heart: that is no evidence for how far to trust it on anything else.
        """
        given, labels = len(labels), labels.without(among_triples(labels.triples, self.kg.train, self.kg))
        check_labels(labels, left_out=given - len(labels))
        if self.folder.is_read_only:
            raise StorageError(
                f"{self.folder.path} is read-only, so it cannot keep labels. Copy the run, and calibrate the copy."
            )
        examples = valid_examples(predictor, self._read(predictor.cascade), labels)
        learner = predictor.witnesses().learner
        before, after = learner.label_accuracies(examples, label_examples(predictor, labels))
        _keep_labels(labels, self.folder, self.kg)
        self.with_threshold(predictor)
        return LabelGain(len(labels), before, after, given - len(labels))

    # Labels.

    def labels(self) -> Labels | None:
        """Return the labels that the run keeps; None if there are none."""
        path = self.folder.path / LABELS
        if not path.exists():
            return None
        rows = read_record(path, _SavedLabels, _FORMAT, _ADVICE).labels
        with naming(path, _ADVICE):
            indices = [
                (self.kg.entity_index(h), self.kg.relation_index(r), self.kg.entity_index(t)) for h, r, t, _ in rows
            ]
        is_true = np.array([is_true for *_, is_true in rows], dtype=bool)
        return Labels(np.array(indices, dtype=np.int32).reshape(-1, 3), is_true)

    # What a calibration is for.

    def _kept(self, cascade: Cascade, calibration: Calibration) -> Calibration:
        self.folder.keep(lambda: save_calibration(calibration, self.place, self._identity(cascade)))
        return calibration

    def _identity(self, cascade: Cascade) -> dict[str, str]:
        """Identify the models and the cascade that a calibration is for."""
        names = [cascade.name, *(tier.name for tier in cascade.tiers)]
        return {**{name: self.folder.tier_hash(name) for name in names}, "cascade": hash_of_cascade(cascade)}

    def _basis(self, labels: Labels | None) -> dict[str, str]:
        """Identify what verdicts rest on: all tiers that are heard, also those that the cascade leaves out; labels."""
        heard = {name: self.folder.tier_hash(name) for name, model in self.tiers.items() if not model.reads_pairs}
        if labels is None:
            return heard
        content = json.dumps([labels.triples.tolist(), labels.is_true.tolist()])
        return {**heard, "labels of users": hashlib.sha256(content.encode()).hexdigest()}

    def _read(self, cascade: Cascade) -> Triples | None:
        """The triples of valid for which tuning has already read pairs, if this cascade reads any; None: all."""
        reads = any(tier.reads_pairs for tier in cascade.tiers)
        return np.concatenate(split_valid(self.kg, seed=0)) if reads else None


def _keep_labels(labels: Labels, folder: RunFolder, kg: KnowledgeGraph) -> None:
    rows = [
        [kg.entities[h].id, kg.relations[r].id, kg.entities[t].id, is_true]
        for (h, r, t), is_true in zip(labels.triples.tolist(), labels.is_true.tolist(), strict=True)
    ]
    write_record(folder.path / LABELS, {"format": _FORMAT, "labels": rows})


def check_labels(labels: Labels, left_out: int = 0) -> None:
    """Refuse labels that are too few to learn from, or all of one kind, once those of train are left out."""
    true, count, also = int(labels.is_true.sum()), len(labels), _left_out(left_out)
    if count < _FEWEST_LABELS:
        raise DataError(
            f"found {counted(count, 'labelled triple')}, expected at least {_FEWEST_LABELS}. Label more of them.{also}"
        )
    if min(true, count - true) < _FEWEST_OF_EACH:
        raise DataError(
            f"{true:,} of {count:,} labelled triples are true and {count - true:,} false, expected at least "
            f"{_FEWEST_OF_EACH} of each. Label some of the other kind: the difference is what can be learned.{also}"
        )


def _left_out(count: int) -> str:
    """Say how many labels were left out, and why; nothing if there are none."""
    if count == 0:
        return ""
    return (
        f" Not counted: {counted(count, 'label')} of facts of train. The tiers have learned these, so that they say "
        "nothing of how far to trust the tiers."
    )
