"""Whether the probabilities that people are told come true."""

from typing import Any

from cascader.report.analyses.jsonable import left_out
from cascader.report.inputs import Material
from cascader.tuning.calibration import Bin

_CONFIDENCE = 0.95


def reliability(material: Material) -> dict[str, Any]:
    """Probabilities against shares of true answers, before and after calibration, on questions not fitted on."""
    calibration = material.calibration
    if calibration is None:
        return left_out("No probabilities were given: calibration learns them on valid triples.")
    seen = calibration.reliability
    return {
        "questions": seen.questions,
        "answers": seen.answers,
        "golds": seen.golds,
        "error_before": seen.error_before,
        "error_after": seen.error_after,
        "curves": {"head": calibration.head.kind, "tail": calibration.tail.kind},
        "before": [_bin(each) for each in seen.before],
        "after": [_bin(each) for each in seen.after],
    }


def _bin(found: Bin) -> dict[str, Any]:
    golds = round(found.found * found.answers)
    return {
        "answers": found.answers,
        "golds": golds,
        "predicted": found.predicted,
        "found": found.found,
        "interval": by_chance(golds, found.answers),
    }


def by_chance(golds: int, answers: int) -> tuple[float, float]:
    """Where the true share lies that so many golds were drawn from, with 95 % confidence (Wilson's score interval).

    >>> tuple(round(end, 3) for end in by_chance(5, 10))
    (0.237, 0.763)
    """
    from scipy.stats import binomtest

    interval = binomtest(golds, answers).proportion_ci(_CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)
