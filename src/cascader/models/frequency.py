"""The baseline under every model: answer with whatever answers most often."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cascader.errors import DataError
from cascader.graph import Candidates, Entity, FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.models.files import array_of
from cascader.models.model import ClosedFormModel
from cascader.scoring.scorer import Scorer

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch import Tensor


class Frequency(ClosedFormModel):
    """Scores an entity by how often it fills the asked side of the relation in train, whatever the anchor.

    It knows nothing about the anchor, so whatever a model gains over it was learned about the question itself.
    Among entities that fill the side equally often, the one with more triples comes first.

    >>> kg = KnowledgeGraph.from_triples([("a", "treats", "x"), ("b", "treats", "x"), ("b", "treats", "y")])
    >>> scores = Frequency().fit(kg).score_all(kg.query("a", "treats"))[0]
    >>> [kg.entities[entity].id for entity in (-scores).argsort()]
    ['x', 'y', 'b', 'a']
    """

    name = "frequency"
    tier = "frequency"

    counts_: "csr_array"  # (2 × relations, entities): the head side of each relation, then the tail side
    popularity_: FloatArray  # (entities,) in [0, 1)

    def _fit(self, kg: KnowledgeGraph, seconds: float) -> None:
        from scipy.sparse import csr_array

        queries = Queries.from_triples(kg.train)
        ones = np.ones(len(queries), dtype=np.float32)
        shape = (2 * len(kg.relations), len(kg.entities))
        rows = _rows(queries, len(kg.relations))
        self.counts_ = csr_array((ones, (rows, queries.required_golds())), shape=shape)
        # Below 1, so that it only ever decides between equal counts.
        self.popularity_ = (kg.degrees() / (2 * len(kg.train) + 1)).astype(np.float32)

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        scores: FloatArray = self._counts()[self._rows(queries)].toarray() + self.popularity_
        return scores

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        rows = np.repeat(self._rows(queries), candidates.counts)
        counts: Any = self._counts()[rows, candidates.ids]
        scores: FloatArray = counts + self.popularity_[candidates.ids]
        return scores

    def for_new_entities(self, entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray | None) -> Scorer:
        """The model itself: its scores do not depend on the anchor."""
        return self

    def _rows(self, queries: Queries) -> IntArray:
        return _rows(queries, self._counts().shape[0] // 2)

    def _counts(self) -> "csr_array":
        if not hasattr(self, "counts_"):
            raise self._not_fitted()
        return self.counts_

    def _tensors(self) -> "dict[str, Tensor]":
        import torch

        counts = self._counts().tocoo()
        arrays = {"rows": counts.row, "entities": counts.col, "counts": counts.data, "popularity": self.popularity_}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _take_tensors(self, tensors: "Mapping[str, Tensor]", kg: KnowledgeGraph, folder: Path) -> None:
        from scipy.sparse import csr_array

        self.popularity_ = array_of(tensors, "popularity", (None,))
        counts = array_of(tensors, "counts", (None,))
        shape = (2 * len(kg.relations), len(kg.entities))
        if len(self.popularity_) != len(kg.entities) or tensors["rows"].max() >= shape[0]:
            raise DataError(
                f"{folder} has counts for {len(self.popularity_):,} entities, but {kg.name} has "
                f"{len(kg.entities):,}, or other relations. It was fitted to another graph."
            )
        places = tuple(
            array_of(tensors, name, counts.shape, below=end)
            for name, end in zip(("rows", "entities"), shape, strict=True)
        )
        self.counts_ = csr_array((counts, places), shape=shape)


def _rows(queries: Queries, relation_count: int) -> IntArray:
    """The row of `counts_` for each query; shape (queries,)."""
    return queries.predicts_tail * relation_count + queries.relations
