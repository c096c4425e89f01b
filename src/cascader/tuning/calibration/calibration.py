"""Probabilities of a cascade's answers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cascader.graph import BoolArray, FloatArray, Queries
from cascader.tuning.calibration.curves import Curve
from cascader.tuning.calibration.evidence import evidence
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
            f"Probabilities: {seen.error_after:.3f} from the truth on average, {seen.error_before:.3f} before they "
            f"were calibrated, on {seen.answers:,} top answers of valid with {seen.golds:,} golds."
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
