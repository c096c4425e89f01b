"""How the tiers differ: whether they fail on the same questions, and how they spread their scores."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from cascader.evaluation import Evaluation
from cascader.evaluation.protocol import iter_blocks
from cascader.graph import BoolArray, FloatArray, Queries
from cascader.report.inputs import ReportInputs
from cascader.report.section import (
    Chart,
    Figure,
    Numbers,
    Part,
    Section,
    Series,
    Table,
    coefficient_text,
    joined,
    pearson,
    skipped,
)


def correlations_numbers(inputs: ReportInputs) -> dict[str, Any]:
    """Pearson's correlation of the gold ranks and of their logarithms, for each pair of tiers."""
    if len(inputs.scorers) < 2:
        return skipped("The run has only one tier, so there is nothing to compare it with.")
    pairs = [_compare(inputs, *names) for names in combinations(inputs.scorers, 2)]
    found = [pair for pair in pairs if pair is not None]
    return {"pairs": found} if found else skipped("There are no valid triples, and no two tiers were evaluated alone.")


def _compare(inputs: ReportInputs, first: str, second: str) -> dict[str, Any] | None:
    """Two tiers on queries that both were evaluated on, or else on the sample, among what both have scored."""
    readers = [name for name in (first, second) if name in inputs.read_top]
    evaluated = None if readers else _evaluated_alike(inputs, first, second)
    if evaluated is not None:
        ranks, where = [found.ranks.filtered.mean for found in evaluated], f"{evaluated[0].split}, all queries"
    elif len(inputs.queries) == 0:
        return None
    else:
        ranks = _ranks(inputs, [first, second], readers)
        among = "the candidates that were read, if the gold answer is one of them" if readers else "all entities"
        where = f"a sample of valid, among {among}"
    return {
        "tiers": [first, second],
        "where": where,
        "queries": len(ranks[0]),
        "ranks": pearson(*ranks),
        "log_ranks": pearson(*(np.log(of_tier) for of_tier in ranks)),
    }


def _evaluated_alike(inputs: ReportInputs, first: str, second: str) -> tuple[Evaluation, Evaluation] | None:
    """Evaluations of each tier alone on the same queries; valid before test, as in the paper."""
    ours = [found for found in inputs.evaluations if found.data_hash == inputs.kg.data_hash]
    for split in ("valid", "test", "train"):
        one, other = (
            [found for found in ours if found.split == split and _is_of(found, inputs.models.get(name))]
            for name in (first, second)
        )
        if one and other and (one[0].triples, one[0].sides) == (other[0].triples, other[0].sides):
            return one[0], other[0]
    return None


def _is_of(evaluation: Evaluation, model: Mapping[str, Any] | None) -> bool:
    """Whether an evaluation is of this model alone: sums and cascades describe themselves differently."""
    told = evaluation.about
    if model is None or not told.get("settings") or told.get("model") != model.get("model"):
        return False
    # An older evaluation may lack settings that were added since.
    return all(model["settings"].get(name) == value for name, value in told["settings"].items())


def _ranks(inputs: ReportInputs, names: list[str], readers: list[str]) -> list[FloatArray]:
    """The gold ranks of each tier in the sample; with readers, only where all of them have read the gold answer."""
    ranks = np.full((len(names), len(inputs.queries)), np.nan)
    for block in iter_blocks(inputs.queries, inputs.filter, "ranking"):
        is_there = _read_by_all(inputs, readers, block.questions)
        for i, name in enumerate(names):
            scores = inputs.scores_read(name, block.questions)
            of_golds = block.rank(np.where(is_there, scores, -np.inf)).filtered.mean
            ranks[i, block.places] = np.where(is_there[block.rows, block.golds], of_golds, np.nan)
    return list(ranks[:, ~np.isnan(ranks).any(axis=0)])


def _read_by_all(inputs: ReportInputs, readers: list[str], questions: Queries) -> BoolArray:
    """Which candidates every reader has read; shape (questions, entities)."""
    is_there = np.ones((len(questions), len(inputs.kg.entities)), dtype=bool)
    for reader in readers:
        read = inputs.read(reader, questions)
        is_read = np.zeros_like(is_there)
        is_read[read.rows, read.ids] = True
        is_there &= is_read
    return is_there


def correlations_section(numbers: Numbers) -> Section:
    """The correlation for each pair of tiers."""
    pairs = numbers["pairs"]
    columns = ["tiers", "ranks", "log ranks", "queries", "measured on"]
    cells = [
        [
            joined(pair["tiers"]),
            coefficient_text(pair["ranks"], 4),
            coefficient_text(pair["log_ranks"], 4),
            f"{pair['queries']:,}",
            pair["where"],
        ]
        for pair in pairs
    ]
    table = Table(columns, cells, numbers=columns[1:4], caption="Pearson's correlation of the gold answers' ranks.")
    text = (
        f"Two tiers whose gold ranks correlate fail on the same questions and add little to each other.{_least(pairs)}"
    )
    return Section(CORRELATIONS.title, [text], tables=[table])


def _least(pairs: list[Numbers]) -> str:
    """A sentence about the two tiers that differ most."""
    known = [pair for pair in pairs if pair["log_ranks"] is not None]
    if not known:
        return ""
    least = min(known, key=lambda pair: pair["log_ranks"])
    return (
        f" The two most different are {least['tiers'][0]} and {least['tiers'][1]}, with a correlation of "
        f"{least['log_ranks']:.2f} between the logarithms of their ranks, which a few very bad ranks cannot dominate."
    )


CORRELATIONS = Part("correlations", "How alike the tiers are", correlations_numbers, correlations_section)


#: Quantiles of the first tier's gold rank: an easy, a middling and a hard question.
_QUANTILES = (0.25, 0.5, 0.75)
_POINTS = 60


def distributions_numbers(inputs: ReportInputs) -> dict[str, Any]:
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


def distributions_section(numbers: Numbers) -> Section:
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
    return Section(DISTRIBUTIONS.title, [text], figures, [Table(columns, cells, numbers=columns[1:], caption=caption)])


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


DISTRIBUTIONS = Part("distributions", "How the tiers spread their scores", distributions_numbers, distributions_section)
