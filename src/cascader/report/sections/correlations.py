"""Whether two tiers fail on the same questions: the correlation of their gold ranks."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from cascader.evaluation import Evaluation
from cascader.evaluation.protocol import iter_blocks
from cascader.graph import BoolArray, FloatArray, Queries
from cascader.report.inputs import ReportInputs
from cascader.report.jsonable import pearson, skipped
from cascader.report.section import Numbers, Section, Table, coefficient_text, joined

TITLE = "How alike the tiers are"


def numbers(inputs: ReportInputs) -> dict[str, Any]:
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


def section(numbers: Numbers) -> Section:
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
    return Section(TITLE, [text], tables=[table])


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
