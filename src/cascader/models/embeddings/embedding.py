"""What all embeddings share: settings, vectors for entities and relations, how they are trained, and how they score."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypedDict, Unpack

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from cascader.errors import DataError, SettingsError
from cascader.graph import BoolArray, Candidates, Entity, FloatArray, KnowledgeGraph, Queries
from cascader.models.device import current_device
from cascader.models.history import Schedule
from cascader.models.model import TrainedModel
from cascader.models.settings import Between, Settings
from cascader.models.training import Trainable, TrainingCost
from cascader.scoring.scorer import Scorer

Loss = Literal["1-vs-all", "k-vs-all", "1-vs-sample", "negative-sampling"]
Norm = Literal[1, 2]
Optimizer = Literal["adagrad", "adam"]
Regularizer = Literal["none", "n3", "lp", "dura"]


@dataclass(frozen=True)
class EmbeddingSettings(Settings):
    """All settings of an embedding; the defaults suit ComplEx on a small graph."""

    dim: Annotated[int, Between(1, 100_000)] = 200  #: of an entity: complex numbers for ComplEx and RotatE, else real
    loss: Loss = "1-vs-all"
    label_smoothing: Annotated[float, Between(0, 0.999)] = 0.0
    negatives: Annotated[int, Between(1, 10_000_000)] = 256  #: sampled per batch; for 1-vs-sample, negative-sampling
    margin: Annotated[float, Between(-1e6, 1e6)] = 6.0  #: only for negative-sampling
    adversarial_temperature: Annotated[float, Between(0, 1e6)] = 1.0  #: likewise; 0 weighs all negatives alike
    norm: Norm = 2  #: of TransE's distance
    optimizer: Optimizer = "adagrad"
    learning_rate: Annotated[float, Between(1e-9, 1e6)] = 0.1
    batch_size: Annotated[int, Between(1, 10_000_000)] = 500  #: rows: a question with its answers
    answers_per_row: Annotated[int, Between(1, 1_000_000)] = 1_000_000  #: at most; more answers get rows of their own
    epochs: Annotated[int, Between(1, 1_000_000)] = 100
    regularizer: Regularizer = "n3"  #: dura (Zhang et al., 2020) is for rescal and complex
    regularizer_weight: Annotated[float, Between(0, 1e6)] = 0.05
    regularizer_power: Annotated[float, Between(1, 10)] = 2.0  #: p of the Lp regularizer
    relation_weight: Annotated[float, Between(0, 1e6)] = 0.0  #: of relation prediction (Chen et al., 2021)
    dropout: Annotated[float, Between(0, 0.99)] = 0.0  #: of the anchor's coordinates
    relation_dropout: Annotated[float, Between(0, 0.99)] = 0.0  #: of the relation's coordinates
    init_std: Annotated[float, Between(1e-9, 1e3)] = 1e-3  #: standard deviation of the initial weights
    valid_every: Annotated[int, Between(1, 1_000_000)] = 3  #: epochs between validations
    patience: Annotated[int, Between(1, 1_000_000)] = 4  #: validations without improvement before training stops
    seed: Annotated[int, Between(0, 2**31 - 1)] = 0


class EmbeddingOptions(TypedDict, total=False):
    """The same settings as keywords, for type checkers and editors."""

    dim: int
    loss: Loss
    label_smoothing: float
    negatives: int
    margin: float
    adversarial_temperature: float
    norm: Norm
    optimizer: Optimizer
    learning_rate: float
    batch_size: int
    answers_per_row: int
    epochs: int
    regularizer: Regularizer
    regularizer_weight: float
    regularizer_power: float
    relation_weight: float
    dropout: float
    relation_dropout: float
    init_std: float
    valid_every: int
    patience: int
    seed: int


_PAIRS_AT_ONCE = 200_000
#: A new entity is placed among its neighbors by text, the nearest counting most.
_NEIGHBORS = 10
_TEMPERATURE = 0.05


class Embedding(TrainedModel):
    """Scores a triple from the vectors of its parts.

    Each relation has a second vector for its inverse: (?, r, t) is asked as (t, r inverse, ?), so an interaction only
    ever predicts tails (Lacroix et al., 2018). The inverse of relation r is relation `len(kg.relations) + r`.
    """

    #: Whether inverse relations learn vectors of their own, or are derived from the others.
    learns_inverses: ClassVar[bool] = True

    tier = "kge"
    settings_class: ClassVar[type[Settings]] = EmbeddingSettings
    settings: EmbeddingSettings

    entities_: Tensor  # (entities, entity width)
    relations_: Tensor  # (2 × relations, relation width)

    def __init__(self, **settings: Unpack[EmbeddingOptions]) -> None:
        super().__init__(**settings)

    # The interaction: all that distinguishes one embedding from another.

    @abstractmethod
    def widths(self) -> tuple[int, int]:
        """How many real numbers an entity and a relation have."""

    @abstractmethod
    def transform(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """Predict the answer's vector from those of anchor and relation; shape (queries, entity width)."""

    @abstractmethod
    def similarity(self, predicted: Tensor, entities: Tensor) -> Tensor:
        """The score of each entity as the answer to each query; shape (queries, entities)."""

    def pairwise(self, predicted: Tensor, entities: Tensor) -> Tensor:
        """The score of row i of `entities` for row i of `predicted`; shape (pairs,)."""
        return (predicted * entities).sum(dim=1)

    def relation_scores(self, heads: Tensor, tails: Tensor, relations: Tensor) -> Tensor:
        """Score all relations between two entities; shape (pairs, relations). Not every interaction can."""
        raise SettingsError(f"{self.name} cannot predict relations. Set relation_weight to 0, or use complex.")

    @abstractmethod
    def reversed(self, relations: Tensor) -> Tensor:
        """The vectors of inverse relations, where these have learned none of their own."""

    def norms(self, vectors: Tensor) -> Tensor:
        """The absolute values that regularizers keep small."""
        return vectors.abs()

    def initial(self, generator: torch.Generator, entity_count: int, relation_count: int) -> tuple[Tensor, Tensor]:
        """The initial vectors of entities and relations, as far as they are learned."""
        widths = self.widths()
        shapes = [(entity_count, widths[0]), (relation_count * (1 + self.learns_inverses), widths[1])]
        entities, relations = (torch.randn(*s, generator=generator) * self.settings.init_std for s in shapes)
        return entities, relations

    def with_inverses(self, relations: Tensor) -> Tensor:
        """The vectors of relations and of their inverses, from those that are learned."""
        return relations if self.learns_inverses else torch.cat([relations, self.reversed(relations)])

    # Learning. An embedding learns from the graph alone: it has no use for earlier tiers.

    def _check_trainable(self, kg: KnowledgeGraph) -> None:
        from cascader.models.embeddings.training import check_memory

        super()._check_trainable(kg)
        check_memory(self, kg)

    def _schedule(self, time_limit: float) -> Schedule:
        return Schedule(self.settings.epochs, self.settings.valid_every, self.settings.patience, time_limit)

    def _prepare(self, kg: KnowledgeGraph, earlier: Scorer | None) -> Trainable:
        from cascader.models.embeddings.training import EmbeddingTraining

        return EmbeddingTraining(self, kg)

    def _finish(self, training: Trainable) -> None:
        from cascader.models.embeddings.training import EmbeddingTraining

        assert isinstance(training, EmbeddingTraining)  # noqa: S101 - what _prepare has made
        training.take_vectors()

    def dry_run(self, kg: KnowledgeGraph, earlier: Scorer | None = None) -> TrainingCost:
        """Train for a moment and estimate the rest; the model can score afterwards, but has learned next to nothing."""
        from cascader.models.embeddings.training import estimate_cost

        self._check_trainable(kg)
        return estimate_cost(self, kg)

    # Scoring.

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        with torch.inference_mode():
            return self.similarity(self._predicted(queries), self.entities_).cpu().numpy()

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        with torch.inference_mode():
            predicted = self._predicted(queries)
            rows, ids = torch.from_numpy(candidates.rows), torch.from_numpy(candidates.ids.astype(np.int64))
            scores = predicted.new_empty(len(ids))
            for start in range(0, len(ids), _PAIRS_AT_ONCE):
                some = slice(start, start + _PAIRS_AT_ONCE)
                scores[some] = self.pairwise(predicted[rows[some]], self.entities_[ids[some]])
            return scores.cpu().numpy()

    def _predicted(self, queries: Queries) -> Tensor:
        if not hasattr(self, "entities_"):
            raise self._not_fitted()
        anchors = torch.from_numpy(queries.anchors.astype(np.int64))
        return self.predict_vectors(self.entities_[anchors], queries)

    def predict_vectors(self, anchors: Tensor, queries: Queries) -> Tensor:
        """The predicted answers of queries whose anchors have these vectors; shape (queries, entity width)."""
        relations = torch.from_numpy(queries.directed_relations(len(self.relations_) // 2))
        return self.transform(anchors, self.relations_[relations])

    def for_new_entities(self, entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray | None) -> Scorer:
        """Place each new entity at the mean of its nearest neighbors."""
        if nearness is None:
            raise DataError(
                f"{self.name} has no vector for {entities[0].name!r}, which {kg.name} does not have. It can be placed "
                "among its neighbors if a tier that reads texts says which entities those are: fit a dual encoder too."
            )
        return NeighborEmbedding.of(self, nearness, is_trained=kg.degrees() > 0)

    # Saving and loading.

    def _tensors(self) -> dict[str, Tensor]:
        learned = len(self.relations_) if self.learns_inverses else len(self.relations_) // 2
        return {"entities": self.entities_, "relations": self.relations_[:learned]}

    def _take_tensors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph, folder: Path) -> None:
        self.load_vectors({**tensors, "relations": self.with_inverses(tensors["relations"])}, kg)

    def load_vectors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph) -> "Embedding":
        """Use vectors that were trained before, after checking their shapes."""
        widths = self.widths()
        shapes = {
            "entities": (len(kg.entities), widths[0]),
            "relations": (2 * len(kg.relations), widths[1]),
        }
        for part, shape in shapes.items():
            if tensors[part].dtype != torch.float32 or not tensors[part].isfinite().all():
                raise DataError(f"the {part} of this {self.name} are not all finite numbers in 32 bits. Fit it again.")
            if tuple(tensors[part].shape) != shape:
                raise DataError(
                    f"the {part} of this {self.name} have shape {tuple(tensors[part].shape)}, but {kg.name} needs "
                    f"{shape}. It was trained on another graph."
                )
        device = current_device()
        self.entities_, self.relations_ = tensors["entities"].to(device), tensors["relations"].to(device)
        return self


class NeighborEmbedding:
    """An embedding that is asked about entities it has no vectors for: their neighbors' vectors stand in."""

    def __init__(self, model: Embedding, vectors: Tensor) -> None:
        self._model, self._vectors = model, vectors  # (new entities, entity width)

    @classmethod
    def of(cls, model: Embedding, nearness: FloatArray, is_trained: BoolArray) -> "NeighborEmbedding":
        """Average the vectors of the nearest trained entities; `nearness` is (new entities, entities)."""
        likely = np.where(is_trained, nearness, -np.inf)
        order = np.argsort(-likely, axis=1, kind="stable")[:, : min(_NEIGHBORS, int(is_trained.sum()))]
        weights = softmax(np.take_along_axis(likely, order, axis=1) / _TEMPERATURE, axis=1)  # (new, neighbors)
        neighbors = model.entities_[torch.from_numpy(order)]  # (new, neighbors, entity width)
        shares = torch.from_numpy(weights.astype(np.float32)).to(neighbors.device)
        return cls(model, (shares[..., None] * neighbors).sum(dim=1))

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        with torch.inference_mode():
            anchors = self._vectors[torch.from_numpy(queries.anchors.astype(np.int64))]
            scores = self._model.similarity(self._model.predict_vectors(anchors, queries), self._model.entities_)
            return scores.cpu().numpy()

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        return self.score_all(queries)[candidates.rows, candidates.ids]
