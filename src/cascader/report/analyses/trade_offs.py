"""What accuracy costs: every cascade that was tried on valid, and the best within a budget."""

from collections.abc import Mapping
from typing import Any

from cascader.report.analyses.jsonable import left_out
from cascader.report.inputs import Material
from cascader.tuning import Budget, Trial

BUDGETS = (0, 1, 2, 5, 10, 20, 50, 100)
COSTS = ("pairs_per_query", "seconds_per_query")


def pareto(material: Material) -> dict[str, Any]:
    """MRR on valid against pairs and seconds a query, by tiers and kind of pruner; with the best for any cost."""
    if len(material.trials) < 2:  # one is no choice
        return left_out(why_nothing_was_tried(material))
    points = [point(material, trial) for trial in material.trials]
    return {"points": points, "envelope": {cost: envelope(points, cost) for cost in COSTS}}


def why_nothing_was_tried(material: Material) -> str:
    """Why there are no several trials."""
    if material.tuned is None:
        return "There are no valid triples, so nothing was tuned."
    return "The run has only one tier, so there was nothing to choose."


def point(material: Material, trial: Trial) -> dict[str, Any]:
    """A trial as a point between accuracy and cost."""
    told = trial.as_dict()
    keep = told["later"][-1]["keep"] if told["later"] else None
    return {
        "tiers": material.tiers_of(trial),
        "kind": kind_of(keep),
        "pruner": in_words(keep),
        **{name: told[name] for name in ("valid_mrr", *COSTS)},
    }


def envelope(points: list[dict[str, Any]], cost: str) -> list[dict[str, Any]]:
    """The points that none beats for the same cost or less, the cheapest first.

    >>> points = [{"s": 1, "valid_mrr": 0.2}, {"s": 2, "valid_mrr": 0.1}, {"s": 3, "valid_mrr": 0.3}]
    >>> [found["s"] for found in envelope(points, "s")]
    [1, 3]
    """
    best: list[dict[str, Any]] = []
    for found in sorted(points, key=lambda found: (found[cost], -found["valid_mrr"])):
        if not best or found["valid_mrr"] > best[-1]["valid_mrr"]:
            best.append(found)
    return best


def kind_of(keep: Mapping[str, Any] | None) -> str:
    """The kind of a pruner, a limit on it not counted: everyone, top_k, static, dynamic, conformal or thrifty."""
    if keep is None:
        return "everyone"
    return str(keep["of"]["pruner"] if keep["pruner"] == "capped" else keep["pruner"])


def in_words(keep: Mapping[str, Any] | None) -> str:
    """A pruner for a person.

    >>> in_words({"pruner": "capped", "k": 100, "of": {"pruner": "dynamic", "quantile": 0.9}})
    'dynamic, quantile 0.9, at most 100'
    """
    if keep is None:
        return "everyone"
    if keep["pruner"] == "capped":
        return f"{in_words(keep['of'])}, at most {keep['k']}"
    if keep["pruner"] == "top_k":
        return f"the best {keep['k']}"
    setting = next(name for name in ("quantile", "coverage", "mean") if name in keep)
    return f"{keep['pruner']}, {setting} {keep[setting]:g}"


def budgets(material: Material) -> dict[str, Any]:
    """For each number of pairs that may be read a query, the best that was tried within it."""
    if material.tuned is None:
        return left_out(why_nothing_was_tried(material))
    if not material.read_top:
        return left_out("No tier of this run reads pairs, so a budget of pairs changes nothing.")
    plans = {pairs: material.tuned.plan(Budget(pairs=pairs), query_count=1) for pairs in BUDGETS}
    return {"rows": [{"budget": pairs, **point(material, plan.trial)} for pairs, plan in plans.items()]}
