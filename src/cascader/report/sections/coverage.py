"""Whether pruners keep the share of gold answers that they were asked to keep."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cascader.cascade import Cascade
from cascader.cascade.pruners import Pruner, score_in_blocks
from cascader.cascade.pruners.conformal import CALIBRATION_SHARE
from cascader.report.inputs import ReportInputs
from cascader.report.jsonable import skipped
from cascader.report.plots import Chart, Series
from cascader.report.pruners import colors_by_kind, kind_label, kind_of, target_share, uncapped
from cascader.report.section import Figure, Numbers, Section, Table, joined
from cascader.tuning.search import split_valid

TITLE = "What the pruners promise and keep"


def numbers(inputs: ReportInputs) -> dict[str, Any]:
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


def section(numbers: Numbers) -> Section:
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
    return Section(TITLE, [text], [_figure(rows)], [Table(columns, cells, numbers=columns[1:])])


def _figure(rows: Sequence[Numbers]) -> Figure:
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
        f"fall within the shaded band by chance.{_verdict(_of_kind(rows, 'conformal'))}"
    )
    return Figure(Chart("coverage", caption, "share asked for", "share kept", series), caption)


def _by_target(rows: Iterable[Numbers]) -> list[Numbers]:
    return sorted(rows, key=lambda row: row["target"])


def _of_kind(rows: Sequence[Numbers], kind: str) -> list[Numbers]:
    return _by_target(row for row in rows if row["kind"] == kind)


def _verdict(rows: Sequence[Numbers]) -> str:
    """Whether conformal pruners keep what they promise."""
    if not rows:
        return ""
    short = [row for row in rows if row["coverage"] < row["by_chance"][0]]
    if not short:
        return f" Here {len(rows)} of {len(rows)} conformal pruners keep what they promise, within chance."
    return f" Here {len(short)} of {len(rows)} conformal pruners keep less than they promise, and not by chance."
