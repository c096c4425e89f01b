"""Similar entities have the same answers: a closed-form model whose reasons are entities and facts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from cascader.display import emit
from cascader.durations import format_duration
from cascader.errors import DataError
from cascader.graph import Candidates, Entity, FloatArray, IntArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.graph.arrays import triple_keys
from cascader.models.files import array_of
from cascader.models.model import ClosedFormModel
from cascader.models.regression import Features, Likeness, closed_form, nearest_neighbors, rows_of
from cascader.models.settings import Between, Settings
from cascader.scoring.scorer import Reason, Scorer

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch import Tensor

#: Added to both sides of the odds: what no similar entity speaks for is unlikely, not impossible.
_SMOOTHING = 0.03
#: Most float32 operations of one core in a second, so that the inverse is not begun where it cannot end in time.
_OPERATIONS_PER_SECOND = 2e10
#: A new entity is compared with those whose texts are nearest, the nearest counting most, as embeddings do.
_NEAREST_TEXTS = 10
_TEMPERATURE = 0.05
_REASONS_EACH_WAY = 3
_SCORES_AT_ONCE = 16_000_000


@dataclass(frozen=True)
class SimilaritySettings(Settings):
    """How similarity is learned; the defaults were chosen on the valid splits of three small graphs together."""

    ridge: Annotated[float, Between(0.01, 1e6)] = 5.0  #: the larger, the more similar entities share the work
    rarity: Annotated[float, Between(0, 2)] = 0.25  #: a column of n facts weighs n to the power of minus this
    closed_form_up_to: Annotated[int, Between(0, 50_000)] = 3_000  #: entities; their similarities take 4 n² bytes
    neighbors: Annotated[int, Between(1, 100_000)] = 300  #: that an entity of a larger graph is compared with


class Similarity(ClosedFormModel):
    """Scores an answer by the similar entities that have it, and by the similar answers that the anchor has.

    What is known of an entity is predicted from what is known of all others, by ridge regression: the weights are how
    similar they are. An answer has two predictions, one from each end of the fact that it would make; the score is
    their mean as log-odds. Facts that are learned later count at once, and no fact speaks for itself.

    >>> facts = [("a", "treats", "x"), ("a", "treats", "y"), ("b", "treats", "x"), ("b", "treats", "y")]
    >>> kg = KnowledgeGraph.from_triples([*facts, ("c", "treats", "x"), ("d", "treats", "z")])
    >>> model = Similarity().fit(kg)
    >>> kg.entities[int(model.score_all(kg.query("c", "treats"))[0].argmax())].id
    'y'
    >>> model.explain(kg.query("c", "treats"), kg.entity_index("y"))[0].text
    'y is similar to x, which is known for c'
    """

    name = "similarity"
    tier = "similarity"
    settings_class = SimilaritySettings
    settings: SimilaritySettings

    weights_: "csr_array | FloatArray"  # (entities, entities) float32: row e is what the facts of e are predicted from
    columns_: "csr_array | FloatArray"  # its transpose: row e is what the facts of e say about others
    shares_: FloatArray  # (train facts,) what each fact adds to its own two predictions
    keys_: IntArray  # (train facts,) ascending
    train_: KnownAnswers
    names_: tuple[str, ...]  # of the entities

    def _fit(self, kg: KnowledgeGraph, seconds: float) -> None:
        """Compare all entities of train, or each with its neighbors where the graph is large or the time is short."""
        likeness = self._likeness(Features(kg.known(("train",)), self.settings.rarity), seconds)
        self._take(likeness, kg)

    def _likeness(self, features: Features, seconds: float) -> Likeness:
        count, ridge, neighbors = features.matrix.shape[0], self.settings.ridge, self.settings.neighbors
        inverting = count**3 / _OPERATIONS_PER_SECOND
        if count <= self.settings.closed_form_up_to and inverting <= seconds:
            return closed_form(features, ridge)
        why = (
            f"takes about {format_duration(inverting)}, longer than the limit of {format_duration(seconds)}"
            if count <= self.settings.closed_form_up_to
            else f"is for at most {self.settings.closed_form_up_to:,}"
        )
        emit("similarity", f"Each of {count:,} entities is compared with its neighbors only: the closed form {why}.")
        return nearest_neighbors(features, ridge, neighbors, seconds)

    # Scoring.

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        similar = self._weights()[queries.anchors]  # (queries, entities)
        sums = np.zeros(similar.shape, dtype=np.float32)
        for rows, links in _by_relation(queries, self._known(queries)):
            from_answers = links[queries.anchors[rows]] @ self.columns_
            sums[rows] = _dense(similar[rows] @ links) + _dense(from_answers)
        self._leave_own_facts_out(queries, sums)
        return _log_odds(sums / 2)

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        size = max(1, _SCORES_AT_ONCE // self._weights().shape[0])
        parts = [np.empty(0, dtype=np.float32)]
        for start in range(0, len(queries), size):
            offsets = candidates.offsets[start : start + size + 1]
            rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            scores = self.score_all(queries[start : start + size])
            parts.append(scores[rows, candidates.ids[offsets[0] : offsets[-1]]])
        return np.concatenate(parts)

    def for_new_entities(self, entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray | None) -> Scorer:
        """Take the entities with the nearest texts for the similar ones."""
        if nearness is None:
            return super().for_new_entities(entities, kg, nearness)
        self._weights()  # an error if there are none
        return NewAnchors(nearness, self.train_)

    def _leave_own_facts_out(self, queries: Queries, sums: FloatArray) -> None:
        """Subtract what a train fact adds to its own prediction, as if it had been unknown to the regression."""
        own = self.train_.of(queries)
        facts = replace(queries[own.rows], golds=own.ids).triples()
        keys = triple_keys(facts, self.train_.entity_count, self.train_.relation_count)
        sums[own.rows, own.ids] -= self.shares_[np.searchsorted(self.keys_, keys)]

    # Explaining.

    def explain(self, question: Queries, answer: int) -> list[Reason]:
        """Name the similar entities that have this answer, and the similar answers that the anchor has."""
        weights, known, anchor = self._weights(), self._known(question), int(question.anchors[0])
        backward = Queries(np.array([answer]), question.relations, ~question.predicts_tail)
        names, asked, name = self.names_, self.names_[anchor], self.names_[answer]
        anchors = [
            _reason(question, other, answer, f"{asked} is similar to {names[other]}, for which {name} is known", w)
            for other, w in _most_similar(weights, anchor, known.of(backward)[0])
        ]
        answers = [
            _reason(question, anchor, other, f"{name} is similar to {names[other]}, which is known for {asked}", w)
            for other, w in _most_similar(weights, answer, known.of(question)[0])
        ]
        return sorted([*anchors, *answers], key=lambda reason: -reason.strength)

    # What was learned.

    def _known(self, queries: Queries) -> KnownAnswers:
        return self.train_ if queries.known is None else queries.known

    def _weights(self) -> "csr_array | FloatArray":
        if not hasattr(self, "weights_"):
            raise self._not_fitted()
        return self.weights_

    def _take(self, likeness: Likeness, kg: KnowledgeGraph) -> None:
        self.weights_, self.shares_ = likeness.weights, likeness.shares
        transpose = likeness.weights.T
        self.columns_ = transpose if isinstance(transpose, np.ndarray) else transpose.tocsr()
        self.train_ = kg.known(("train",))
        self.keys_ = triple_keys(self.train_.triples, len(kg.entities), len(kg.relations))
        self.names_ = tuple(entity.name for entity in kg.entities)

    def _tensors(self) -> "dict[str, Tensor]":
        import torch

        weights = self._weights()
        arrays = {"weights": weights, "shares": self.shares_}
        if not isinstance(weights, np.ndarray):
            arrays |= {"weights": weights.data, "neighbors": weights.indices, "offsets": weights.indptr}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _take_tensors(self, tensors: "Mapping[str, Tensor]", kg: KnowledgeGraph, folder: Path) -> None:
        is_sparse = "offsets" in tensors
        weights = array_of(tensors, "weights", (None,) if is_sparse else (None, None))
        shares = array_of(tensors, "shares", (None,))
        found = len(tensors["offsets"]) - 1 if is_sparse else len(weights)
        count, facts = len(kg.entities), len(kg.known(("train",)).triples)
        if (found, len(shares)) != (count, facts):
            raise DataError(
                f"{folder} has the similarities of {found:,} entities with {len(shares):,} facts, but {kg.name} has "
                f"{count:,} with {facts:,}. It was fitted to another graph."
            )
        if is_sparse:
            offsets = array_of(tensors, "offsets", (count + 1,), below=len(weights) + 1)
            weights = rows_of(offsets, array_of(tensors, "neighbors", weights.shape, below=count), weights)
            weights.check_format()
        elif weights.shape != (count, count):
            raise ValueError(f"weights has shape {weights.shape}, expected {(count, count)}")
        self._take(Likeness(weights, shares), kg)


class NewAnchors:
    """Scores answers to questions about new entities by the answers of the entities whose texts are nearest."""

    def __init__(self, nearness: FloatArray, train: KnownAnswers) -> None:
        nearest = np.argsort(-nearness, axis=1, kind="stable")[:, :_NEAREST_TEXTS]
        exponents = np.take_along_axis(nearness, nearest, axis=1) / _TEMPERATURE
        weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        self._similar = np.zeros(nearness.shape, dtype=np.float32)  # (new entities, entities)
        np.put_along_axis(self._similar, nearest, weights / weights.sum(axis=1, keepdims=True), axis=1)
        self._train = train

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity of the graph; shape (queries, entities)."""
        similar = self._similar[queries.anchors]
        known = self._train if queries.known is None else queries.known
        for rows, links in _by_relation(queries, known):
            similar[rows] = similar[rows] @ links
        return _log_odds(similar)

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        return self.score_all(queries)[candidates.rows, candidates.ids]


def _by_relation(queries: Queries, known: KnownAnswers) -> "Iterator[tuple[IntArray, csr_array]]":
    """The queries of each relation and side, by position, and which anchors have which answers there."""
    directed = queries.directed_relations(known.relation_count)
    for relation in np.unique(directed):
        yield np.flatnonzero(directed == relation), known.links(int(relation))


def _log_odds(predictions: FloatArray) -> FloatArray:
    """Turn predictions of 0 or 1 into log-odds; a regression can miss both ends of that."""
    probabilities = predictions.clip(0, 1)
    scores: FloatArray = np.log((probabilities + _SMOOTHING) / (1 - probabilities + _SMOOTHING))
    return scores.astype(np.float32, copy=False)


def _dense(product: "csr_array | FloatArray") -> FloatArray:
    dense: FloatArray = product if isinstance(product, np.ndarray) else product.toarray()
    return dense


def _most_similar(weights: "csr_array | FloatArray", entity: int, others: IntArray) -> list[tuple[int, float]]:
    """The few of some entities that are most similar to one, each with its weight."""
    row = _dense(weights[[entity]])[0]
    best = sorted((-row[other], int(other)) for other in others if row[other] > 0)[:_REASONS_EACH_WAY]
    return [(other, float(-weight)) for weight, other in best]


def _reason(question: Queries, anchor: int, answer: int, text: str, strength: float) -> Reason:
    head, tail = (anchor, answer) if question.predicts_tail[0] else (answer, anchor)
    return Reason(text, ((head, int(question.relations[0]), tail),), strength)
