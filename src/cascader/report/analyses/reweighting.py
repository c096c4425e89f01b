"""What the weights between tiers are good for: figures without them, and what becomes of the margins."""

from dataclasses import replace
from typing import Any

import numpy as np

from cascader.cascade import Alpha, Cascade
from cascader.evaluation.protocol import iter_blocks, mean_reciprocal_rank
from cascader.graph import BoolArray, FloatArray, IntArray
from cascader.report.analyses.jsonable import left_out, pearson
from cascader.report.analyses.trade_offs import point, why_nothing_was_tried
from cascader.report.inputs import Material
from cascader.tuning import Trial

#: Both tiers count alike: the sum without weights that the paper compares with.
_EQUAL = Alpha(0.5, 0.5)
_LATER_ALONE = Alpha(0.0, 0.0)
#: The lowest gold rank of each group, as hits@k counts them.
_RANK_GROUPS = np.array([1, 2, 4, 11, 31, 101])
RANK_LABELS = ("1", "2–3", "4–10", "11–30", "31–100", "101+")


def reweighting(material: Material) -> dict[str, Any]:
    """Valid MRR with the tuned alpha, with equal weights, and with the later tier alone, for each pruner."""
    best = material.best_joined()
    if best is None:
        return left_out(why_nothing_was_tried(material))
    trials, tiers = material.like(best), material.tiers_of(best)
    return {
        "earlier": tiers[:-1],
        "later": tiers[-1],
        "queries": len(material.queries),
        "rows": [_compared(material, trial) for trial in trials],
        "best": trials.index(best),  # the row of the best trial
    }


def _compared(material: Material, trial: Trial) -> dict[str, Any]:
    tuned = trial.cascade.tiers[-1].weight
    alphas = {"tuned": tuned, "equal": _EQUAL, "later_alone": _LATER_ALONE}
    figures = {
        name: mean_reciprocal_rank(_with_alpha(material, trial, alpha), material.queries, material.filter)
        for name, alpha in alphas.items()
    }
    described = point(material, trial)
    return {"pruner": described["pruner"], "kind": described["kind"], "alpha": tuned.as_dict(), **figures}


def _with_alpha(material: Material, trial: Trial, alpha: Alpha) -> Cascade:
    """A trial on recorded scores, its last tier with another weight."""
    *earlier, last = trial.cascade.tiers
    return material.replayed([*earlier, replace(last, alpha=alpha)])


def margins(material: Material) -> dict[str, Any]:
    """How far the gold answer stands above the mean of the wrong ones, against its rank, with and without weights.

    In units of the margins' own deviation: the two ways to add up have different scales, and only shapes compare.
    """
    best = material.best_joined()
    if best is None:
        return left_out(why_nothing_was_tried(material))
    ways = {
        name: _margins(material, _with_alpha(material, best, alpha))
        for name, alpha in {"tuned": best.cascade.tiers[-1].weight, "equal": _EQUAL}.items()
    }
    if not all(len(found) for _, found in ways.values()):
        return left_out("No gold answer of the sample came as far as the last tier.")
    summary = {name: _by_rank(ranks, found) for name, (ranks, found) in ways.items()}
    return {"tiers": material.tiers_of(best), "pruner": point(material, best)["pruner"], "ways": summary}


def _margins(material: Material, cascade: Cascade) -> tuple[FloatArray, FloatArray]:
    """The ranks and margins of the golds that the last tier has scored; shapes (golds,)."""
    found: list[tuple[float, float]] = []
    for block in iter_blocks(material.queries, material.filter, "measuring margins"):
        *_, step = cascade.steps(block.questions)
        is_scored = np.ones(step.blended.shape, dtype=bool)
        if step.candidates is not None:
            is_scored[:] = False
            is_scored[step.candidates.rows, step.candidates.ids] = True
        ranks = block.rank(step.blended).filtered.mean
        for i, (row, gold) in enumerate(zip(block.rows, block.golds, strict=True)):
            margin = _margin(step.blended[row], is_scored[row], int(gold), block.known[i])
            if margin is not None:
                found.append((float(ranks[i]), margin))
    both = np.array(found).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _margin(scores: FloatArray, is_scored: BoolArray, gold: int, known: IntArray) -> float | None:
    """The gold's score less the mean of the wrong candidates'; None where it was not scored, or there are none."""
    is_wrong = is_scored.copy()
    is_wrong[known] = False
    is_wrong[gold] = False
    if not is_scored[gold] or not is_wrong.any():
        return None
    return float(scores[gold] - scores[is_wrong].mean())


def _by_rank(ranks: FloatArray, found: FloatArray) -> dict[str, Any]:
    scaled = found / (found.std() or 1.0)
    group_of = np.searchsorted(_RANK_GROUPS, ranks, side="right") - 1
    groups = [
        {
            "ranks": RANK_LABELS[group],
            "golds": int((group_of == group).sum()),
            "mean": scaled[group_of == group].mean(),
            "quartiles": np.quantile(scaled[group_of == group], [0.25, 0.75]),
        }
        for group in np.unique(group_of)
    ]
    return {
        "golds": len(found),
        "with_rank": pearson(found, ranks),
        "with_reciprocal_rank": pearson(found, 1 / ranks),
        "groups": groups,
    }
