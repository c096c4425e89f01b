"""How each tier spreads its scores over the candidates of a question."""

from typing import Any

import numpy as np

from cascader.evaluation.protocol import iter_blocks
from cascader.graph import FloatArray, Queries
from cascader.report.inputs import ReportInputs
from cascader.report.jsonable import skipped
from cascader.report.plots import Chart, Series
from cascader.report.section import Figure, Numbers, Section, Table

TITLE = "How the tiers spread their scores"
#: Quantiles of the first tier's gold rank: an easy, a middling and a hard question.
_QUANTILES = (0.25, 0.5, 0.75)
_POINTS = 60


def numbers(inputs: ReportInputs) -> dict[str, Any]:
    """The sorted scores of a few questions with the gold answer marked, and the mean skewness over the sample."""
    if len(inputs.queries) == 0:
        return skipped("There are no valid triples whose scores could be shown.")
    order = np.argsort(_first_ranks(inputs), kind="stable")
    chosen = list(dict.fromkeys(int(order[int(quantile * (len(order) - 1))]) for quantile in _QUANTILES))
    return {
        "questions": [_question(inputs, inputs.queries[np.array([row])]) for row in chosen],
        "skewness": {name: _mean_skewness(inputs, name) for name in inputs.scorers},
        "sample": len(inputs.queries),
        "read_top": inputs.read_top,
    }


def _first_ranks(inputs: ReportInputs) -> FloatArray:
    """The gold ranks of the first tier; shape (queries,)."""
    ranks = np.empty(len(inputs.queries))
    for block in iter_blocks(inputs.queries, inputs.filter):
        scores = inputs.recorded[inputs.first].score_all(block.questions)
        ranks[block.places] = block.rank(scores).filtered.mean
    return ranks


def _question(inputs: ReportInputs, query: Queries) -> dict[str, Any]:
    head, relation, tail = query.triples()[0]
    entities, gold = inputs.kg.entities, int(query.required_golds()[0])
    predicts_tail = bool(query.predicts_tail[0])
    return {
        "head": entities[head].name if predicts_tail else "?",
        "relation": inputs.kg.relations[relation].name,
        "tail": "?" if predicts_tail else entities[tail].name,
        "gold": entities[gold].name,
        "tiers": [{"tier": name, **_curve(_scores(inputs, name, query)[0], gold)} for name in inputs.scorers],
    }


def _scores(inputs: ReportInputs, name: str, queries: Queries) -> FloatArray:
    """A tier's scores, -inf for what it has not read and for other known answers; shape (queries, entities)."""
    scores = inputs.scores_read(name, queries).copy()
    answers = inputs.filter.of(queries)
    is_other = answers.ids != queries.required_golds()[answers.rows]
    scores[answers.rows[is_other], answers.ids[is_other]] = -np.inf
    return scores


def _curve(scores: FloatArray, gold: int) -> dict[str, Any]:
    """Scores from best to worst, scaled to 1 and 0, at places that lie ever farther apart."""
    there = np.sort(scores[scores > -np.inf])[::-1].astype(np.float64)
    if len(there) == 0:  # everything that was read is a known answer
        return {"candidates": 0, "places": [], "scores": [], "gold_place": None, "gold_score": None}
    scaled = (there - there[-1]) / (np.ptp(there) or 1.0)
    places = np.unique(np.geomspace(1, len(there), _POINTS).round().astype(int))
    is_read = scores[gold] > -np.inf
    # The gold answer comes last among those it ties with, so that its marker lies on the line.
    rank = int((there >= scores[gold]).sum()) if is_read else None
    return {
        "candidates": len(there),
        "places": places,
        "scores": scaled[places - 1],
        "gold_place": rank,
        "gold_score": None if rank is None else scaled[rank - 1],
    }


def _mean_skewness(inputs: ReportInputs, name: str) -> float | None:
    """The mean over all questions: positive if a few candidates stand out, negative if most are near the top."""
    from scipy.stats import skew

    found = []
    for queries in inputs.queries.blocks(64):
        for row in _scores(inputs, name, queries):
            there = row[row > -np.inf].astype(np.float64)
            if len(there) > 2 and np.ptp(there) > 1e-6 * (1 + np.abs(there).max()):
                found.append(float(skew(there)))
    return float(np.mean(found)) if found else None


def section(numbers: Numbers) -> Section:
    """A figure for each question, and a table of the mean skewness."""
    figures = [_figure(question, number) for number, question in enumerate(numbers["questions"])]
    read = [f"{name} reads the {top} best of the first tier" for name, top in numbers["read_top"].items()]
    text = (
        "Each tier's scores for one question of valid, from best to worst, scaled to 1 and 0"
        f"{' (' + ', '.join(read) + ')' if read else ''}. A circle marks the gold answer. Other known answers are "
        "omitted."
    )
    columns = ["tier", "mean skewness"]
    cells = [[name, "undefined" if value is None else f"{value:+.2f}"] for name, value in numbers["skewness"].items()]
    caption = (
        f"Over {numbers['sample']:,} queries of valid: positive if a few candidates stand out, negative if most are "
        "near the top."
    )
    return Section(TITLE, [text], figures, [Table(columns, cells, numbers=columns[1:], caption=caption)])


def _figure(question: Numbers, number: int) -> Figure:
    series, places = [], []
    for color, tier in enumerate(question["tiers"]):
        series.append(Series(tier["tier"], tier["places"], tier["scores"], color, "plain"))
        if tier["gold_place"] is not None:
            series.append(Series("", [tier["gold_place"]], [tier["gold_score"]], color, "marks"))
        places.append(_place(tier))
    asked = f"({question['head']}, {question['relation']}, {question['tail']})"
    caption = f"{asked}: the gold answer, {question['gold']}, is {', '.join(places)}."
    return Figure(Chart(f"distribution-{number}", caption, "place", "score", series, "log"), caption)


def _place(tier: Numbers) -> str:
    """Where a tier puts the gold answer.

    >>> _place({"tier": "kge", "gold_place": 3, "candidates": 4000})
    'number 3 of 4,000 for kge'
    """
    if tier["gold_place"] is None:
        return f"not among the {tier['candidates']:,} of {tier['tier']}"
    return f"number {tier['gold_place']:,} of {tier['candidates']:,} for {tier['tier']}"
