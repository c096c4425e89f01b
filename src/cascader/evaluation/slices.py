"""Slices of the queries: by side, relation, kind of relation, degree of the gold answer, and presence in train."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cascader.graph import IntArray, KnowledgeGraph, Queries

#: With more answers per question than this, a side counts as "n" (Bordes et al., 2013).
_MANY = 1.5
_DEGREES = [0, 1, 3, 10, 30, 100, 300]

Labels = NDArray[np.str_ | np.object_]


def slices_of(kg: KnowledgeGraph, queries: Queries) -> dict[str, Labels]:
    """The labels of the queries for each way to slice them; each array has shape (queries,)."""
    ways: dict[str, Callable[[KnowledgeGraph, Queries], Labels]] = {
        "side": _side,
        "relation": _relation,
        "relation_kind": _relation_kind,
        "gold_degree": _gold_degree,
        "seen_in_train": _seen_in_train,
    }
    return {name: label(kg, queries) for name, label in ways.items()}


def _side(kg: KnowledgeGraph, queries: Queries) -> Labels:
    return np.where(queries.predicts_tail, "tail", "head")


def _relation(kg: KnowledgeGraph, queries: Queries) -> Labels:
    # Objects, not fixed-width strings, in which one long id would make every element as wide.
    return np.array([relation.id for relation in kg.relations], dtype=object)[queries.relations]


def _relation_kind(kg: KnowledgeGraph, queries: Queries) -> Labels:
    return relation_kinds(kg)[queries.relations]


def relation_kinds(kg: KnowledgeGraph) -> Labels:
    """1-1, 1-n, n-1 or n-n for each relation, by its answers per question in train; shape (relations,).

    >>> kg = KnowledgeGraph.from_triples([("Ann", "born in", "Rome"), ("Bob", "born in", "Rome")])
    >>> relation_kinds(kg).tolist()
    ['n-1']
    """
    questions, question_of = Queries.from_triples(kg.train).unique()
    answers = np.bincount(question_of, minlength=len(questions))
    tails_of_a_head, heads_of_a_tail = (
        _mean_by(questions.relations[rows], answers[rows], len(kg.relations))
        for rows in (questions.predicts_tail, ~questions.predicts_tail)
    )
    kinds = np.char.add(
        np.where(heads_of_a_tail > _MANY, "n-", "1-"),
        np.where(tails_of_a_head > _MANY, "n", "1"),
    )
    return np.where(np.isnan(tails_of_a_head), "not in train", kinds)


def _mean_by(groups: IntArray, values: IntArray, group_count: int) -> NDArray[np.float64]:
    """The mean of `values` in each group, NaN for an empty one."""
    counts = np.bincount(groups, minlength=group_count)
    sums = np.bincount(groups, weights=values, minlength=group_count)
    return np.divide(sums, counts, out=np.full(group_count, np.nan), where=counts > 0)


def _gold_degree(kg: KnowledgeGraph, queries: Queries) -> Labels:
    names = [
        f"{low}-{high - 1}" if high - low > 1 else f"{low}" for low, high in zip(_DEGREES, _DEGREES[1:], strict=False)
    ]
    degrees = kg.degrees()[queries.required_golds()]
    return np.array([*names, f"{_DEGREES[-1]}+"])[np.digitize(degrees, _DEGREES) - 1]


def _seen_in_train(kg: KnowledgeGraph, queries: Queries) -> Labels:
    seen = kg.degrees() > 0
    anchor, gold = seen[queries.anchors], seen[queries.required_golds()]
    return np.select([anchor & gold, anchor, gold], ["both", "anchor only", "gold only"], "neither")
