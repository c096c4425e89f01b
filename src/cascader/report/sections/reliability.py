"""Whether probabilities come true: the reliability diagram."""

from collections.abc import Mapping, Sequence
from typing import Any

from cascader.report.inputs import ReportInputs
from cascader.report.jsonable import skipped
from cascader.report.plots import Chart, Series
from cascader.report.section import Cell, Figure, Numbers, Section, Table
from cascader.tuning.calibration import Bin

TITLE = "Are the probabilities right?"
_CONFIDENCE = 0.95
_COLUMNS = ["mean probability", "true", "95 % interval", "true answers", "answers"]


def numbers(inputs: ReportInputs) -> dict[str, Any]:
    """Probabilities against the share of true answers, before and after calibration, on held-out questions."""
    calibration = inputs.calibration
    if calibration is None:
        return skipped("Answers have no probabilities, because calibration needs valid triples.")
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
        "interval": wilson_interval(golds, found.answers),
    }


def wilson_interval(golds: int, answers: int) -> tuple[float, float]:
    """The 95 % confidence interval of the true share behind so many gold answers (Wilson's score interval).

    >>> tuple(round(end, 3) for end in wilson_interval(5, 10))
    (0.237, 0.763)
    """
    from scipy.stats import binomtest

    interval = binomtest(golds, answers).proportion_ci(_CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def section(numbers: Numbers) -> Section:
    """The reliability diagram, and the expected calibration error before and after calibration."""
    before, after = numbers["error_before"], numbers["error_after"]
    text = [
        "Of all answers with a probability of 0.3, three in ten should be true. Here the probabilities are off by "
        f"{after:.3f} on average (expected calibration error). Before calibration, when an answer's probability was "
        f"its share of the question's scores, they were off by {before:.3f}. {_verdict(before, after)}",
        f"Measured on the best answers to {numbers['questions']:,} questions of valid: {numbers['answers']:,} answers, "
        f"{numbers['golds']:,} of them true. The curves were chosen and fitted on the other half of the questions; the "
        "weights of the tiers were chosen on all of valid. Answers that are not in the graph count as false.",
    ]
    caption = f"Probabilities after calibration ({_kinds(numbers['curves'])}), the least probable answers first."
    table = Table(_COLUMNS, [_row(each) for each in numbers["after"]], numbers=_COLUMNS, caption=caption)
    return Section(TITLE, text, [_figure(numbers)], [table])


def _verdict(before: float, after: float) -> str:
    return "Calibration helps." if after < before else "Calibration does not help here: trust the ranks instead."


def _kinds(curves: Mapping[str, str]) -> str:
    return ", ".join(f"{kind} for {side}s" for side, kind in curves.items())


def _row(found: Numbers) -> list[Cell | str]:
    low, high = found["interval"]
    return [
        f"{found['predicted']:.3f}",
        Cell(f"{found['found']:.3f}", found["found"]),
        f"{low:.3f}–{high:.3f}",
        f"{found['golds']:,}",
        f"{found['answers']:,}",
    ]


def _figure(numbers: Numbers) -> Figure:
    highest = max(each[name] for way in ("before", "after") for each in numbers[way] for name in ("predicted", "found"))
    bands = [(each["interval"][0], each["interval"][1]) for each in numbers["after"]]
    series = [
        _line("calibrated", numbers["after"], 0, bands),
        _line("not calibrated", numbers["before"], 1),
        Series("as it should be", [0.0, highest], [0.0, highest], None, "dashed"),
    ]
    caption = (
        "The share of answers that are true against their probability. On the dashed line the two are equal; above it "
        "answers are true more often than predicted, below it less often. Each marker stands for "
        f"{_counts(numbers['after'])} answers; the shaded band holds the true share with 95 % confidence."
    )
    return Figure(Chart("reliability", caption, "mean probability", "share of true answers", series), caption)


def _line(label: str, bins: Sequence[Numbers], color: int, bands: Sequence[tuple[float, float]] = ()) -> Series:
    label = f"{label}, {_counts(bins)} answers per marker"
    return Series(label, [each["predicted"] for each in bins], [each["found"] for each in bins], color, spread=bands)


def _counts(bins: Sequence[Numbers]) -> str:
    """How many answers a bin has, from the fewest to the most.

    >>> _counts([{"answers": 7}, {"answers": 8}])
    '7–8'
    """
    counts = sorted({each["answers"] for each in bins})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,}–{counts[-1]:,}"
