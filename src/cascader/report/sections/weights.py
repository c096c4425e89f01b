"""What the weights between tiers are worth, and how far they put the gold answer above the wrong ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cascader.cascade import Alpha, Cascade
from cascader.evaluation.protocol import iter_blocks, mean_reciprocal_rank
from cascader.graph import BoolArray, FloatArray, IntArray
from cascader.report.inputs import ReportInputs, describe_pruner, kind_of
from cascader.report.section import (
    Cell,
    Chart,
    Figure,
    Numbers,
    Part,
    Section,
    Series,
    Table,
    coefficient_text,
    joined,
    mrr_text,
    pearson,
    skipped,
)
from cascader.tuning import Trial

#: Both tiers count the same: the unweighted sum that the paper compares with.
_EQUAL_WEIGHTS = Alpha(0.5, 0.5)
_LATER_ALONE = Alpha(0.0, 0.0)


def weights_numbers(inputs: ReportInputs) -> dict[str, Any]:
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
    alphas = {"tuned": last.weight, "equal": _EQUAL_WEIGHTS, "later_alone": _LATER_ALONE}
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


def weights_section(numbers: Numbers) -> Section:
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
        f"{joined(numbers['earlier'])} ranks first, and {later} adds its scores; alpha is what the earlier ranking "
        f"counts for, and {later} counts for the rest. On {numbers['queries']:,} queries of valid, a sample of those "
        f"that alpha was tuned on, the MRR ({best['pruner']}) is {mrr_text(best['tuned'])} with the tuned alpha, "
        f"{_beside(best, 'equal')} if both count the same, and {_beside(best, 'later_alone')} if {later} decides alone."
    )
    return Section(WEIGHTS.title, [text], tables=[Table(columns, cells, numbers=columns[1:])])


def _beside(row: Numbers, name: str) -> str:
    """The MRR of another choice of weights, and how far it is above or below the tuned one's."""
    difference = round(row[name], 4) - round(row["tuned"], 4)  # of the figures that are shown
    beside = f"{abs(difference):.4f} {'higher' if difference > 0 else 'lower'}" if difference else "the same"
    return f"{mrr_text(row[name])} ({beside})"


WEIGHTS = Part("weights", "With and without reweighting", weights_numbers, weights_section)


#: The lowest gold rank of each group, in the steps of hits@k.
_RANK_GROUPS = np.array([1, 2, 4, 11, 31, 101])
_RANK_LABELS = ("1", "2–3", "4–10", "11–30", "31–100", "101+")
_WAYS = {"tuned": "tuned weights", "equal": "equal weights"}


def margins_numbers(inputs: ReportInputs) -> dict[str, Any]:
    """The gold answer's margin over the mean of the wrong candidates against its rank, with and without weights.

    Margins are in units of their own standard deviation: tuned and equal weights scale scores differently, so only
    the shapes can be compared.
    """
    best = inputs.best_joined()
    if best is None:
        return skipped(inputs.why_no_choice)
    last = best.cascade.tiers[-1]
    ways = {
        name: _measure(inputs, inputs.replay_with_alpha(best, alpha))
        for name, alpha in {"tuned": last.weight, "equal": _EQUAL_WEIGHTS}.items()
    }
    if not all(len(found) for _, found in ways.values()):
        return skipped("No gold answer of the sample got as far as the last tier.")
    summary = {name: _by_rank(ranks, found) for name, (ranks, found) in ways.items()}
    return {"tiers": inputs.tiers_of(best), "pruner": describe_pruner(last.keep), "ways": summary}


def _measure(inputs: ReportInputs, cascade: Cascade) -> tuple[FloatArray, FloatArray]:
    """The ranks and margins of the gold answers that the last tier scored; shapes (golds,)."""
    found: list[tuple[float, float]] = []
    for block in iter_blocks(inputs.queries, inputs.filter, "measuring margins"):
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
    """The gold answer's score minus the mean of the wrong candidates'; None if either was not scored."""
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
            "ranks": _RANK_LABELS[group],
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


def margins_section(numbers: Numbers) -> Section:
    """The mean margin by group of gold ranks, with tuned and with equal weights."""
    ways = numbers["ways"]
    columns = ["weights", "with the rank", "with the reciprocal rank", "gold answers"]
    cells = [
        [
            label,
            coefficient_text(ways[way]["with_rank"], 2),
            coefficient_text(ways[way]["with_reciprocal_rank"], 2),
            f"{ways[way]['golds']:,}",
        ]
        for way, label in _WAYS.items()
    ]
    table = Table(columns, cells, numbers=columns[1:], caption="Pearson's correlation of the margin.")
    return Section(MARGINS.title, [], [_figure(numbers)], [table])


def _figure(numbers: Numbers) -> Figure:
    ways = numbers["ways"]
    labels = _labels(ways)
    series = [_line(label, ways[way]["groups"], labels, color) for color, (way, label) in enumerate(_WAYS.items())]
    tuned, equal = (coefficient_text(ways[way]["with_reciprocal_rank"], 2) for way in _WAYS)
    caption = (
        f"{joined(numbers['tiers'])} ({numbers['pruner']}): how far the gold answer scores above the mean of the wrong "
        "candidates, in standard deviations, by the gold answer's rank; the shaded band holds half of the gold "
        "answers. The steeper a line falls, the more a margin says about being right. Its correlation with the "
        f"reciprocal rank is {tuned} with tuned weights and {equal} with equal weights."
    )
    chart = Chart("margins", caption, "rank of the gold answer", "mean margin", series, x_ticks=labels)
    return Figure(chart, caption)


def _line(label: str, groups: list[Numbers], labels: list[str], color: int) -> Series:
    places, means = [labels.index(group["ranks"]) for group in groups], [group["mean"] for group in groups]
    return Series(label, places, means, color, spread=[(*group["quartiles"],) for group in groups])


def _labels(ways: Mapping[str, Any]) -> list[str]:
    """The groups of ranks that occur, best first."""
    found = {group["ranks"] for way in ways.values() for group in way["groups"]}
    return sorted(found, key=lambda label: int(label.rstrip("+").split("–")[0]))


MARGINS = Part("margins", "Margins and ranks", margins_numbers, margins_section)
