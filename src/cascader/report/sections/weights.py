"""What the weights between tiers are worth."""

from typing import Any

from cascader.cascade import Alpha
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.report.inputs import ReportInputs
from cascader.report.jsonable import skipped
from cascader.report.pruners import describe_pruner, kind_of
from cascader.report.section import Cell, Numbers, Section, Table, joined, mrr_text
from cascader.tuning import Trial

TITLE = "With and without reweighting"
#: Both tiers count the same: the unweighted sum that the paper compares with.
EQUAL_WEIGHTS = Alpha(0.5, 0.5)
_LATER_ALONE = Alpha(0.0, 0.0)


def numbers(inputs: ReportInputs) -> dict[str, Any]:
    """MRR on valid with the tuned alpha, with equal weights, and with the later tier alone, for each pruner."""
    best = inputs.best_joined()
    if best is None:
        return skipped(inputs.why_no_choice)
    trials, tiers = inputs.like(best), inputs.tiers_of(best)
    return {
        "earlier": tiers[:-1],
        "later": tiers[-1],
        "queries": len(inputs.queries),
        "rows": [_compare(inputs, trial) for trial in trials],
        "best": trials.index(best),  # the row of the best trial
    }


def _compare(inputs: ReportInputs, trial: Trial) -> dict[str, Any]:
    last = trial.cascade.tiers[-1]
    alphas = {"tuned": last.weight, "equal": EQUAL_WEIGHTS, "later_alone": _LATER_ALONE}
    figures = {
        name: mean_reciprocal_rank(inputs.replay_with_alpha(trial, alpha), inputs.queries, inputs.filter)
        for name, alpha in alphas.items()
    }
    return {
        "pruner": describe_pruner(last.keep),
        "kind": kind_of(last.keep),
        "alpha": last.weight.as_dict(),
        **figures,
    }


def section(numbers: Numbers) -> Section:
    """The MRR with each choice of weights."""
    rows, later = numbers["rows"], numbers["later"]
    columns = ["candidates", "alpha (head, tail)", "tuned", "equal weights", f"{later} alone"]
    cells = [
        [
            row["pruner"],
            f"{row['alpha']['head']:.2f}, {row['alpha']['tail']:.2f}",
            *(Cell(mrr_text(row[name]), row[name]) for name in ("tuned", "equal", "later_alone")),
        ]
        for row in rows
    ]
    best = rows[numbers["best"]]
    text = (
        f"{later} reorders the candidates of {joined(numbers['earlier'])}; alpha is the weight of the earlier tiers. "
        f"On {numbers['queries']:,} queries of valid, a sample of those that alpha was tuned on, the MRR is "
        f"{mrr_text(best['tuned'])} with the tuned weights ({best['pruner']}), "
        f"{best['equal'] - best['tuned']:+.4f} with equal weights, and "
        f"{best['later_alone'] - best['tuned']:+.4f} if {later} decides alone."
    )
    return Section(TITLE, [text], tables=[Table(columns, cells, numbers=columns[1:])])
