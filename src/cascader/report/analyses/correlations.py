"""Whether two tiers fail on the same questions: the correlation of their gold ranks."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from cascader.evaluation import Evaluation
from cascader.evaluation.protocol import iter_blocks
from cascader.graph import FloatArray
from cascader.report.analyses.jsonable import left_out, pearson
from cascader.report.inputs import Material


def correlations(material: Material) -> dict[str, Any]:
    """Pearson's coefficient of gold ranks and of their logarithms, for each two tiers."""
    if len(material.scorers) < 2:  # a pair
        return left_out("The run has only one tier, so there are no two to compare.")
    pairs = [_pair(material, *names) for names in combinations(material.scorers, 2)]
    found = [pair for pair in pairs if pair is not None]
    return {"pairs": found} if found else left_out("There are no valid triples, and no two tiers were measured alone.")


def _pair(material: Material, first: str, second: str) -> dict[str, Any] | None:
    """What two tiers were measured on alike; else some of valid, among what both have scored."""
    readers = [name for name in (first, second) if name in material.read_top]
    measured = None if readers else _measured_alike(material, first, second)
    if measured is not None:
        ranks, where = [found.ranks.filtered.mean for found in measured], f"{measured[0].split}, all queries"
    elif len(material.queries) == 0:
        return None
    else:
        ranks = _ranks(material, [first, second], readers)
        among = "all entities" if not readers else "the candidates that were read, where the gold is one of them"
        where = f"a sample of valid, among {among}"
    return {
        "tiers": [first, second],
        "where": where,
        "queries": len(ranks[0]),
        "ranks": pearson(*ranks),
        "log_ranks": pearson(*(np.log(of_tier) for of_tier in ranks)),
    }


def _measured_alike(material: Material, first: str, second: str) -> tuple[Evaluation, Evaluation] | None:
    """Evaluations of the two tiers alone, of the same queries; of valid before test, as in the paper."""
    ours = [found for found in material.evaluations if found.data_hash == material.kg.data_hash]
    for split in ("valid", "test", "train"):
        one, other = (
            [found for found in ours if found.split == split and _is_of(found, material.models.get(name))]
            for name in (first, second)
        )
        if one and other and (one[0].triples, one[0].sides) == (other[0].triples, other[0].sides):
            return one[0], other[0]
    return None


def _is_of(evaluation: Evaluation, model: Mapping[str, Any] | None) -> bool:
    """Whether an evaluation is of this model alone: sums and cascades tell of themselves in another way."""
    told = evaluation.about
    if model is None or not told.get("settings") or told.get("model") != model.get("model"):
        return False
    # An older evaluation may not know all of today's settings.
    return all(model["settings"].get(name) == value for name, value in told["settings"].items())


def _ranks(material: Material, names: list[str], readers: list[str]) -> list[FloatArray]:
    """The gold ranks of some tiers in the sample; with readers, among what all have read, where the gold is."""
    ranks = np.full((len(names), len(material.queries)), np.nan)
    for block in iter_blocks(material.queries, material.filter, "ranking"):
        is_there = np.ones((len(block.questions), block.entity_count), dtype=bool)
        for reader in readers:
            read = material.read(reader, block.questions)
            is_read = np.zeros_like(is_there)
            is_read[read.rows, read.ids] = True
            is_there &= is_read
        for i, name in enumerate(names):
            read_by = material.read(name, block.questions) if name in material.read_top else None
            scores = (
                material.recorded[name].score_all(block.questions)
                if read_by is None
                else material.scores_among(name, block.questions, read_by)
            )
            of_golds = block.rank(np.where(is_there, scores, -np.inf)).filtered.mean
            ranks[i, block.places] = np.where(is_there[block.rows, block.golds], of_golds, np.nan)
    return list(ranks[:, ~np.isnan(ranks).any(axis=0)])
