"""The reliability diagram: how often what is held for so probable is true."""

from collections.abc import Mapping, Sequence
from typing import Any

from cascader.report.plots import Chart, Series
from cascader.report.sections.section import Cell, Figure, Section, Table

_COLUMNS = ["mean probability", "true", "95 % interval", "true answers", "answers"]


def reliability(numbers: Mapping[str, Any]) -> Section:
    """Probabilities against shares of true answers, with the expected calibration error before and after."""
    before, after = numbers["error_before"], numbers["error_after"]
    text = [
        "Of all answers that have a probability of 0.3, three in ten should be true. Here probabilities are "
        f"{after:.3f} from that on average (expected calibration error); before they were calibrated, with a score's "
        f"share of its question for a probability, it was {before:.3f}. {_verdict(before, after)}",
        f"Measured on the best answers to {numbers['questions']:,} questions of valid, {numbers['answers']:,} answers "
        f"of which {numbers['golds']:,} are true. The curves that are judged were chosen and fitted on the other half "
        "of the questions; the tiers' weights were chosen on all of valid. What nobody has written down counts as "
        "false.",
    ]
    caption = f"Probabilities after calibration ({_kinds(numbers['curves'])}), the least probable answers first."
    table = Table(_COLUMNS, [_row(each) for each in numbers["after"]], numbers=_COLUMNS, caption=caption)
    return Section("", "", text, [_figure(numbers)], [table])


def _verdict(before: float, after: float) -> str:
    return "Calibration helps." if after < before else "Calibration does not help here: go by ranks instead."


def _kinds(curves: Mapping[str, str]) -> str:
    return ", ".join(f"{kind} for {side}s" for side, kind in curves.items())


def _row(found: Mapping[str, Any]) -> list[Cell | str]:
    low, high = found["interval"]
    return [
        f"{found['predicted']:.3f}",
        Cell(f"{found['found']:.3f}", found["found"]),
        f"{low:.3f}–{high:.3f}",
        f"{found['golds']:,}",
        f"{found['answers']:,}",
    ]


def _figure(numbers: Mapping[str, Any]) -> Figure:
    highest = max(each[name] for way in ("before", "after") for each in numbers[way] for name in ("predicted", "found"))
    series = [
        _line("calibrated", numbers["after"], 0, spread=True),
        _line("not calibrated", numbers["before"], 1, spread=False),
        Series("as it should be", [0.0, highest], [0.0, highest], None, "dashed"),
    ]
    caption = (
        "The share of answers that are true, against the probability that they were given. On the dashed line both are "
        f"the same; above it answers are true more often than said, below it less often. Each mark stands for "
        f"{_counts(numbers['after'])} answers; in the shade lies the true share, with 95 % confidence."
    )
    return Figure(Chart("reliability", caption, "mean probability", "share of true answers", series), caption)


def _line(label: str, bins: Sequence[Mapping[str, Any]], colour: int, *, spread: bool) -> Series:
    ends = [(each["interval"][0], each["interval"][1]) for each in bins] if spread else []
    label = f"{label}, {_counts(bins)} answers a mark"
    return Series(label, [each["predicted"] for each in bins], [each["found"] for each in bins], colour, spread=ends)


def _counts(bins: Sequence[Mapping[str, Any]]) -> str:
    """How many answers a bin has, from the fewest to the most.

    >>> _counts([{"answers": 7}, {"answers": 8}])
    '7–8'
    """
    counts = sorted({each["answers"] for each in bins})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,}–{counts[-1]:,}"
