"""Whether promises are kept: the share of gold answers that pruners keep, and probabilities that come true."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cascader.cascade import Cascade
from cascader.cascade.pruners import Pruner, score_in_blocks
from cascader.cascade.pruners.dynamic import CALIBRATION_SHARE
from cascader.report.inputs import ReportInputs, kind_of, target_share, uncapped
from cascader.report.section import (
    Cell,
    Chart,
    Figure,
    Numbers,
    Part,
    Section,
    Series,
    Table,
    colors_by_kind,
    joined,
    kind_label,
    skipped,
)
from cascader.tuning.curves import Bin
from cascader.tuning.search import split_valid


def coverage_numbers(inputs: ReportInputs) -> dict[str, Any]:
    """The share of gold answers that each pruner keeps on valid queries it has not learned from, and its target."""
    best = inputs.best_joined()
    if best is None:
        return skipped(inputs.why_no_choice)
    targets = _targets([trial.cascade.tiers[-1].keep for trial in inputs.like(best)])
    if not targets:
        return skipped("No pruner of this run has learned how many candidates to keep.")
    earlier, count, calibrated = inputs.replay(best.cascade.tiers[:-1]), len(inputs.queries), _calibrated(inputs)
    rows = [
        {
            "kind": kind_of(pruner),
            "target": target,
            **_kept(inputs, earlier, pruner),
            "by_chance": _by_chance(target, count, calibrated),
        }
        for pruner, target in targets
    ]
    return {"earlier": inputs.tiers_of(best)[:-1], "queries": count, "calibrated": calibrated, "rows": rows}


def _targets(pruners: Sequence[Pruner | None]) -> list[tuple[Pruner, float]]:
    """The pruners that aim at a share of the gold answers, without limits on what is read, which promise nothing."""
    found = [uncapped(pruner) for pruner in pruners if pruner is not None]
    return [(pruner, target) for pruner in found if (target := target_share(pruner)) is not None]


def _kept(inputs: ReportInputs, earlier: Cascade, pruner: Pruner) -> dict[str, float]:
    """The share of gold answers that are kept, and how many candidates that takes."""
    kept_golds, candidates, count = 0, 0, len(inputs.queries)
    for seen in score_in_blocks(earlier, inputs.queries):
        kept = pruner.keep(seen.queries, seen.scores)
        kept_golds += int(np.sum(kept.ids == seen.queries.required_golds()[kept.rows]))
        candidates += len(kept.ids)
    return {"coverage": kept_golds / count, "candidates_per_query": candidates / count}


def _calibrated(inputs: ReportInputs) -> int:
    """How many queries a conformal pruner was calibrated on, both sides together."""
    learning, _ = split_valid(inputs.kg, inputs.seed)
    return 2 * int(CALIBRATION_SHARE * len(learning))


def _by_chance(target: float, count: int, calibrated: int) -> tuple[float, float]:
    """The 95 % range of the share kept on `count` queries if the promise holds exactly.

    Over all calibration samples, the share that a calibrated factor keeps is Beta distributed (Vovk, 2012); on the
    queries that judge it, the number kept is binomial.
    """
    from scipy.stats import betabinom

    place = math.ceil((calibrated + 1) * target)
    if place > calibrated:  # too few for a promise: all candidates are kept
        return 1.0, 1.0
    low, high = betabinom(count, place, calibrated + 1 - place).interval(0.95)
    return float(low / count), float(high / count)


def coverage_section(numbers: Numbers) -> Section:
    """The share of gold answers asked for against the share kept."""
    rows = numbers["rows"]
    columns = ["pruner", "asked for", "kept", "candidates per query"]
    cells = [
        [
            kind_label(row["kind"]),
            f"{row['target']:.2f}",
            f"{row['coverage']:.3f}",
            f"{row['candidates_per_query']:,.1f}",
        ]
        for kind in colors_by_kind(row["kind"] for row in rows)
        for row in _of_kind(rows, kind)
    ]
    text = (
        f"Candidates of {joined(numbers['earlier'])}: {numbers['queries']:,} queries, and {numbers['calibrated']:,} "
        "others that conformal pruners were calibrated on."
    )
    return Section(COVERAGE.title, [text], [_coverage_figure(rows)], [Table(columns, cells, numbers=columns[1:])])


def _coverage_figure(rows: Sequence[Numbers]) -> Figure:
    series = [
        Series(kind_label(kind), [row["target"] for row in ours], [row["coverage"] for row in ours], color)
        for kind, color in colors_by_kind(row["kind"] for row in rows).items()
        if (ours := _of_kind(rows, kind))
    ]
    chance = {row["target"]: (row["by_chance"][0], row["by_chance"][1]) for row in _by_target(rows)}
    series.append(Series("as asked", list(chance), list(chance), None, "dashed", list(chance.values())))
    caption = (
        "The share of gold answers that a pruner was asked to keep, and the share that it keeps on valid queries it "
        "has not learned from, before any limit on what may be read. With so few queries, 95 of 100 conformal pruners "
        f"fall within the shaded band by chance.{_coverage_verdict(_of_kind(rows, 'conformal'))}"
    )
    return Figure(Chart("coverage", caption, "share asked for", "share kept", series), caption)


def _by_target(rows: Iterable[Numbers]) -> list[Numbers]:
    return sorted(rows, key=lambda row: row["target"])


def _of_kind(rows: Sequence[Numbers], kind: str) -> list[Numbers]:
    return _by_target(row for row in rows if row["kind"] == kind)


def _coverage_verdict(rows: Sequence[Numbers]) -> str:
    """Whether conformal pruners keep what they promise."""
    if not rows:
        return ""
    short = [row for row in rows if row["coverage"] < row["by_chance"][0]]
    if not short:
        return f" Here {len(rows)} of {len(rows)} conformal pruners keep what they promise, within chance."
    return f" Here {len(short)} of {len(rows)} conformal pruners keep less than they promise, and not by chance."


COVERAGE = Part("coverage", "What the pruners promise and keep", coverage_numbers, coverage_section)


_CONFIDENCE = 0.95
_COLUMNS = ["mean probability", "true", "95 % interval", "true answers", "answers"]


def reliability_numbers(inputs: ReportInputs) -> dict[str, Any]:
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


def reliability_section(numbers: Numbers) -> Section:
    """The reliability diagram, and the expected calibration error before and after calibration."""
    before, after = numbers["error_before"], numbers["error_after"]
    text = [
        "Of all answers with a probability of 0.3, three in ten should be true. Here the probabilities are off by "
        f"{after:.3f} on average (expected calibration error). Before calibration, when an answer's probability was "
        f"its share of the question's scores, they were off by {before:.3f}. {_reliability_verdict(before, after)}",
        f"Measured on the best answers to {numbers['questions']:,} questions of valid: {numbers['answers']:,} answers, "
        f"{numbers['golds']:,} of them true. The curves were chosen and fitted on the other half of the questions; the "
        "weights of the tiers were chosen on all of valid. Answers that are not in the graph count as false.",
    ]
    caption = f"Probabilities after calibration ({_kinds(numbers['curves'])}), the least probable answers first."
    table = Table(_COLUMNS, [_row(each) for each in numbers["after"]], numbers=_COLUMNS, caption=caption)
    return Section(RELIABILITY.title, text, [_reliability_figure(numbers)], [table])


def _reliability_verdict(before: float, after: float) -> str:
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


def _reliability_figure(numbers: Numbers) -> Figure:
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


RELIABILITY = Part("reliability", "Are the probabilities right?", reliability_numbers, reliability_section)
