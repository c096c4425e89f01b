"""How each tier spreads its scores over the candidates of a question."""

from typing import Any

import numpy as np

from cascader.evaluation.protocol import iter_blocks
from cascader.graph import FloatArray, Queries
from cascader.report.analyses.jsonable import left_out
from cascader.report.inputs import Material

#: Questions at these places when all are sorted by the first tier's gold rank: an easy, a middling and a hard one.
_PLACES = (0.25, 0.5, 0.75)
_POINTS = 60


def distributions(material: Material) -> dict[str, Any]:
    """Sorted scores of a few questions, the gold marked; and the mean skewness over all of the sample."""
    if len(material.queries) == 0:
        return left_out("There are no valid triples to show scores of.")
    ranks = _first_ranks(material)
    order = np.argsort(ranks, kind="stable")
    chosen = list(dict.fromkeys(int(order[int(place * (len(order) - 1))]) for place in _PLACES))
    return {
        "questions": [_question(material, material.queries[np.array([row])]) for row in chosen],
        "skewness": {name: _mean_skewness(material, name) for name in material.scorers},
        "sample": len(material.queries),
        "read_top": material.read_top,
    }


def _first_ranks(material: Material) -> FloatArray:
    """The gold ranks of the first tier; shape (queries,)."""
    ranks = np.empty(len(material.queries))
    for block in iter_blocks(material.queries, material.filter):
        scores = material.recorded[material.first].score_all(block.questions)
        ranks[block.places] = block.rank(scores).filtered.mean
    return ranks


def _question(material: Material, query: Queries) -> dict[str, Any]:
    head, relation, tail = query.triples()[0]
    entities, gold = material.kg.entities, int(query.required_golds()[0])
    asks_tail = bool(query.predicts_tail[0])
    return {
        "head": entities[head].name if asks_tail else "?",
        "relation": material.kg.relations[relation].name,
        "tail": "?" if asks_tail else entities[tail].name,
        "gold": entities[gold].name,
        "tiers": [{"tier": name, **_curve(_scores(material, name, query)[0], gold)} for name in material.scorers],
    }


def _scores(material: Material, name: str, queries: Queries) -> FloatArray:
    """A tier's scores, -inf for what it has not read and for other known answers; shape (queries, entities)."""
    if name in material.read_top:
        scores = material.scores_among(name, queries, material.read(name, queries))
    else:
        scores = material.recorded[name].score_all(queries).copy()
    answers = material.filter.of(queries)
    is_other = answers.ids != queries.required_golds()[answers.rows]
    scores[answers.rows[is_other], answers.ids[is_other]] = -np.inf
    return scores


def _curve(scores: FloatArray, gold: int) -> dict[str, Any]:
    """Scores from best to worst, scaled to 1 and 0, at a few places that lie ever farther apart."""
    there = np.sort(scores[scores > -np.inf])[::-1].astype(np.float64)
    if len(there) == 0:  # all that was read is known already
        return {"candidates": 0, "places": [], "scores": [], "gold_place": None, "gold_score": None}
    scaled = (there - there[-1]) / (np.ptp(there) or 1.0)
    places = np.unique(np.geomspace(1, len(there), _POINTS).round().astype(int))
    is_read = scores[gold] > -np.inf
    # The gold among those that it ties with stands last: its mark is then on the line.
    rank = int((there >= scores[gold]).sum()) if is_read else None
    return {
        "candidates": len(there),
        "places": places,
        "scores": scaled[places - 1],
        "gold_place": rank,
        "gold_score": None if rank is None else scaled[rank - 1],
    }


def _mean_skewness(material: Material, name: str) -> float | None:
    """The mean over all questions; above 0 where a few stand out on top, below 0 where most are near the top."""
    from scipy.stats import skew

    found = []
    for queries in material.queries.blocks(64):
        for row in _scores(material, name, queries):
            there = row[row > -np.inf].astype(np.float64)
            if len(there) > 2 and np.ptp(there) > 1e-6 * (1 + np.abs(there).max()):
                found.append(float(skew(there)))
    return float(np.mean(found)) if found else None
