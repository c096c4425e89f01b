"""Whether pruners keep the share of gold answers that they were asked for."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cascader.cascade import Cascade
from cascader.cascade.pruners import Capped, ConformalTopK, DynamicTopK, Pruner, StaticTopK, score_in_blocks
from cascader.cascade.pruners.conformal import CALIBRATION_SHARE
from cascader.report.analyses.jsonable import left_out
from cascader.report.analyses.trade_offs import why_nothing_was_tried
from cascader.report.inputs import Material
from cascader.tuning.search import split_valid


def coverage(material: Material) -> dict[str, Any]:
    """The share of golds that each pruner keeps on valid queries that it has not learnt from, beside its target."""
    best = material.best_joined()
    if best is None:
        return left_out(why_nothing_was_tried(material))
    aims = _aims([trial.cascade.tiers[-1].keep for trial in material.like(best)])
    if not aims:
        return left_out("No pruner of this run has learnt how many candidates to keep.")
    earlier, count, calibrated = (
        material.replayed(best.cascade.tiers[:-1]),
        len(material.queries),
        _calibrated(material),
    )
    rows = [
        {
            "kind": kind,
            "target": target,
            **_kept(material, earlier, keep),
            "by_chance": _by_chance(target, count, calibrated),
        }
        for kind, target, keep in aims
    ]
    return {"earlier": material.tiers_of(best)[:-1], "queries": count, "calibrated": calibrated, "rows": rows}


def _aims(pruners: Sequence[Pruner | None]) -> list[tuple[str, float, Pruner]]:
    """The pruners that were asked for a share of the golds; without limits on what is read, which promise nothing."""
    found: list[tuple[str, float, Pruner]] = []
    for keep in (keep.pruner if isinstance(keep, Capped) else keep for keep in pruners):
        if isinstance(keep, ConformalTopK):
            found.append(("conformal", keep.coverage, keep))
        elif isinstance(keep, StaticTopK | DynamicTopK):
            found.append(("static" if isinstance(keep, StaticTopK) else "dynamic", keep.quantile, keep))
    return found


def _kept(material: Material, earlier: Cascade, keep: Pruner) -> dict[str, float]:
    """The share of golds that are kept, and how many candidates it takes."""
    kept_golds, candidates, count = 0, 0, len(material.queries)
    for seen in score_in_blocks(earlier, material.queries):
        kept = keep.keep(seen.queries, seen.scores)
        kept_golds += int(np.sum(kept.ids == seen.queries.required_golds()[kept.rows]))
        candidates += len(kept.ids)
    return {"coverage": kept_golds / count, "candidates_a_query": candidates / count}


def _calibrated(material: Material) -> int:
    """How many queries a conformal pruner was calibrated on, both sides together."""
    learning, _ = split_valid(material.kg, material.seed)
    return 2 * int(CALIBRATION_SHARE * len(learning))


def _by_chance(target: float, count: int, calibrated: int) -> tuple[float, float]:
    """Where the kept share of `count` queries lies in 95 of 100 cases, if the promise holds exactly.

    Of all that could have been drawn, a calibrated factor keeps a share that is Beta distributed (Vovk, 2012); of
    those that are drawn to judge it, a binomial number is kept.
    """
    from scipy.stats import betabinom

    place = math.ceil((calibrated + 1) * target)
    if place > calibrated:  # too few for a promise: all candidates are kept
        return 1.0, 1.0
    low, high = betabinom(count, place, calibrated + 1 - place).interval(0.95)
    return float(low / count), float(high / count)
