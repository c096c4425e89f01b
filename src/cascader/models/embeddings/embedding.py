"""What all embeddings share: vectors for entities and relations, how they are trained, and how they score."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.graph import Candidates, FloatArray, KnowledgeGraph, Queries
from cascader.models.embeddings.settings import EmbeddingSettings
from cascader.models.persistence import read_model, write_model
from cascader.models.training import summary_of

FORMAT = 1
_PAIRS_AT_ONCE = 200_000


class Embedding(ABC):
    """Scores a triple from the vectors of its parts.

    A relation has a second vector for being asked backwards: (?, r, t) is the question (t, r reversed, ?), so that a
    formula only ever answers with tails (Lacroix et al., 2018). Reversed relations stand behind the others.
    """

    name: ClassVar[str]
    #: Where a formula does better with other settings than `EmbeddingSettings` has.
    defaults: ClassVar[dict[str, Any]] = {}

    entities_: Tensor  # (entities, entity width)
    relations_: Tensor  # (2 × relations, relation width)

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - the settings of EmbeddingSettings, by name
        self.settings = EmbeddingSettings.of({**self.defaults, **settings})
        self.history_: dict[str, Any] = {}

    # The formula: all that a model has of its own.

    @abstractmethod
    def widths(self) -> tuple[int, int]:
        """How many numbers an entity and a relation have."""

    @abstractmethod
    def translate(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """Where the answer should be: (queries, entity width) from the vectors of anchors and relations."""

    @abstractmethod
    def similarity(self, expected: Tensor, entities: Tensor) -> Tensor:
        """How near each entity is to each expected answer: (queries, entities)."""

    def pairwise(self, expected: Tensor, entities: Tensor) -> Tensor:
        """The same for pairs: row i of `expected` with row i of `entities`; (pairs,)."""
        return (expected * entities).sum(dim=1)

    def relation_scores(self, heads: Tensor, tails: Tensor, relations: Tensor) -> Tensor:
        """Score all relations between two entities: (pairs, relations). Not every formula can."""
        raise SettingsError(f"{self.name} cannot predict relations. Set relation_weight to 0, or take complex.")

    @abstractmethod
    def reversed(self, relations: Tensor) -> Tensor:
        """The relation vectors that ask backwards, for embeddings that were trained without them."""

    def sizes(self, vectors: Tensor) -> Tensor:
        """The absolute values that regularizers keep small."""
        return vectors.abs()

    def initial(self, generator: torch.Generator, entity_count: int, relation_count: int) -> tuple[Tensor, Tensor]:
        """The first vectors of entities and relations."""
        widths = self.widths()
        shapes = [(entity_count, widths[0]), (2 * relation_count, widths[1])]
        entities, relations = (torch.randn(*s, generator=generator) * self.settings.init_std for s in shapes)
        return entities, relations

    # Learning.

    def fit(self, kg: KnowledgeGraph, folder: str | Path | None = None, max_minutes: float = np.inf) -> "Embedding":
        """Train on the graph; with a `folder`, interrupted training goes on there where it stopped."""
        from cascader.models.embeddings.training import fit

        fit(self, kg, None if folder is None else Path(folder), max_minutes)
        return self

    # Scoring.

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        with torch.inference_mode():
            return self.similarity(self._expected(queries), self.entities_).numpy()

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        with torch.inference_mode():
            expected = self._expected(queries)
            rows, ids = torch.from_numpy(candidates.rows), torch.from_numpy(candidates.ids.astype(np.int64))
            scores = torch.empty(len(ids))
            for start in range(0, len(ids), _PAIRS_AT_ONCE):
                some = slice(start, start + _PAIRS_AT_ONCE)
                scores[some] = self.pairwise(expected[rows[some]], self.entities_[ids[some]])
            return scores.numpy()

    def _expected(self, queries: Queries) -> Tensor:
        if not hasattr(self, "entities_"):
            raise NotFittedError(f"{self.name} has not been fitted. Call fit(kg), or load it from a folder.")
        anchors = torch.from_numpy(queries.anchors.astype(np.int64))
        relations = torch.from_numpy(directed(queries, len(self.relations_) // 2))
        return self.translate(self.entities_[anchors], self.relations_[relations])

    # Keeping.

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors`, then `model.json`."""
        tensors = {"entities": self.entities_, "relations": self.relations_}
        write_model(Path(folder), self.name, FORMAT, self.settings.as_dict(), self.history_, tensors)

    @property
    def parameter_count(self) -> int:
        """How many numbers were learnt."""
        return self.entities_.numel() + self.relations_.numel()

    def about(self) -> dict[str, Any]:
        """What there is to tell beside a figure: settings, and how the training went."""
        return {"model": self.name, "settings": self.settings.as_dict(), "training": summary_of(self.history_)}

    def load_vectors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph) -> "Embedding":
        """Take vectors that were trained before, after a look at their shapes."""
        widths = self.widths()
        shapes = {
            "entities": (len(kg.entities), widths[0]),
            "relations": (2 * len(kg.relations), widths[1]),
        }
        for part, shape in shapes.items():
            if tuple(tensors[part].shape) != shape:
                raise DataError(
                    f"the {part} of this {self.name} have shape {tuple(tensors[part].shape)}, but {kg.name} needs "
                    f"{shape}. It was trained on another graph."
                )
        self.entities_ = tensors["entities"]
        self.relations_ = tensors["relations"]
        return self


def directed(queries: Queries, relation_count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The relation of each query, its reversed twin where the head is asked for; shape (queries,)."""
    return np.where(queries.predicts_tail, 0, relation_count) + queries.relations.astype(np.int64)


def load_embedding(folder: str | Path, kg: KnowledgeGraph) -> Embedding:
    """Read an embedding back that `save` has written."""
    from cascader.models.embeddings.interactions import EMBEDDINGS

    saved, tensors = read_model(Path(folder), EMBEDDINGS, FORMAT)
    model = EMBEDDINGS[saved["model"]](**saved["settings"])
    model.history_ = saved["history"]
    return model.load_vectors(tensors, kg)
