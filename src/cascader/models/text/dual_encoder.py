"""Tier 2: the dual encoder (Section 2.2 of the paper, after StAR).

It reads questions and entities separately, so all entities are encoded once and a question is scored against all of
them with one matrix product.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cascader.cascade.alphas import best_sum
from cascader.errors import DataError
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.graph import Candidates, Entity, FloatArray, KnowledgeGraph, Queries
from cascader.models.device import current_device, forked_rng, to_device
from cascader.models.files import array_of
from cascader.models.history import Schedule
from cascader.models.settings import Settings
from cascader.models.text.base_model import BaseModel, load_base_model, load_held_model, save_held_model
from cascader.models.text.dry_run import BlankEncoder, load_timed, seconds_for_hard_negatives
from cascader.models.text.settings import DualOptions, DualSettings
from cascader.models.text.text_encoder import CachedEncoder, Encoder, TextEncoder
from cascader.models.text.text_model import GraphTexts, TextModel, under_prefix, with_prefix
from cascader.models.text.towers import DualTraining, Towers, build_towers
from cascader.models.training import Trainable, TrainingCost, seconds_for, seconds_per_step
from cascader.scoring.scorer import Scorer

_ENTITIES_AT_ONCE = 1024
_PAIRS_AT_ONCE = 200_000
#: A validation during training need not use all of valid.
_VALID_TRIPLES = 1000


class DualEncoder(TextModel):
    """Scores an answer by the similarity of its text to the question's.

    Its settings are those of `DualSettings`. `fit(kg, earlier=kge)` trains for the sum with an earlier tier: training
    stops when the sum no longer improves on valid, and hard negatives can come from that tier.

    >>> from cascader import Entity, KnowledgeGraph, Relation
    >>> entities = Entity("d", "aspirin", "a drug against pain"), Entity("s", "pain", "a feeling that hurts")
    >>> kg = KnowledgeGraph("drugs", entities, (Relation("r", "treats"),), [[0, 0, 1]], [], [])
    >>> DualEncoder(epochs=1).fit(kg).score_all(kg.query("aspirin", "treats")).shape
    (1, 2)
    """

    name = "dual"
    tier = "dual"
    settings_class: ClassVar[type[Settings]] = DualSettings
    settings: DualSettings

    entities_: Tensor  # (entities, coordinates)

    def __init__(self, **settings: Unpack[DualOptions]) -> None:
        super().__init__(**settings)

    # Learning.

    def _schedule(self, time_limit: float) -> Schedule:
        return Schedule(self.settings.epochs, self.settings.valid_every, self.settings.patience, time_limit)

    def _prepare(self, kg: KnowledgeGraph, earlier: Scorer | None) -> Trainable:
        self._trained = self._text_encoder(load_base_model(self.settings.base).to(current_device()), kg)
        self._build(self._trained.base.width, kg)
        queries = Queries.from_triples(kg.sample("valid", _VALID_TRIPLES, self.settings.seed))

        def validate() -> float | None:
            """The MRR of the current towers, in the sum if there is an earlier tier."""
            if len(queries) == 0:
                return None
            self._encode_entities(self._trained)
            if earlier is None:
                return mean_reciprocal_rank(self, queries, kg.known())
            return best_sum(earlier, self, kg, queries).mrr

        return DualTraining(self._towers, self._trained, self.settings, kg, earlier, validate)

    def prepare_helping(self, kg: KnowledgeGraph) -> Trainable:
        """What computes gradients for another process."""
        return self._prepare(kg, None)

    def _finish(self, training: Trainable) -> None:
        base = self._trained.base
        self._load_base: Callable[[], BaseModel] = lambda: base
        self._towers.eval()
        self._encode_entities(self._cached(self._trained.eval()))

    def dry_run(self, kg: KnowledgeGraph, earlier: Scorer | None = None) -> TrainingCost:
        """Train for a moment and estimate the rest; the model can score afterwards, but has learned next to nothing."""
        self._check_trainable(kg)
        settings = self.settings
        base, loading = load_timed(settings.base, current_device())
        started = time.perf_counter()
        texts = GraphTexts.of(kg, base, settings.max_tokens)
        tokenizing = time.perf_counter() - started
        encoder = BlankEncoder(base, texts, settings.trainable_layers)
        self._build(base.width, kg)
        training = DualTraining(self._towers, encoder, settings, kg, None, lambda: None)
        step = seconds_per_step(training.steps(1))
        self._load_base = lambda: base
        self._towers.eval()
        started = time.perf_counter()
        self._encode_entities(encoder.eval())
        encoding = time.perf_counter() - started
        valid = kg.sample("valid", _VALID_TRIPLES, settings.seed)

        def validate(count: int) -> None:
            best_sum(earlier or self, self, kg, Queries.from_triples(valid[:count]))

        hard = seconds_for_hard_negatives(earlier, kg, settings.hard_negatives)
        return TrainingCost(
            preparing=loading + tokenizing + encoder.reading_seconds + hard,
            epoch=step * training.step_count,
            look=encoding + seconds_for(validate, len(valid)),
            epochs=settings.epochs,
            valid_every=settings.valid_every,
            parameters=self.parameter_count,
        )

    def _text_encoder(self, base: BaseModel, kg: KnowledgeGraph) -> TextEncoder:
        return TextEncoder(base, GraphTexts.of(kg, base, self.settings.max_tokens), self.settings.trainable_layers)

    def _build(self, width: int, kg: KnowledgeGraph) -> None:
        self._relation_count, self._entity_count = len(kg.relations), len(kg.entities)
        with forked_rng(current_device()):
            torch.manual_seed(self.settings.seed)
            self._towers: Towers = build_towers(width, len(kg.relations), self.settings).to(current_device())

    @torch.no_grad()
    def _encode_entities(self, encoder: Encoder) -> None:
        """Compute the vectors of all entities with the current towers."""
        self._encoder = encoder
        places = torch.split(torch.arange(self._entity_count), _ENTITIES_AT_ONCE)
        self.entities_ = torch.cat([self._towers.entity_vectors(encoder, some) for some in places])

    @torch.no_grad()
    def _cached(self, encoder: TextEncoder) -> CachedEncoder:
        """Read all texts a last time: after training, their vectors no longer change."""
        places = torch.split(torch.arange(self._entity_count), _ENTITIES_AT_ONCE)
        entities = torch.cat([encoder.entities(some) for some in places])
        return CachedEncoder(entities, encoder.relations(torch.arange(2 * self._relation_count)), lambda: encoder)

    # Scoring.

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        with torch.inference_mode():
            return (self._questions(queries) @ self.entities_.T).cpu().numpy()

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        with torch.inference_mode():
            questions = self._questions(queries)
            rows, ids = torch.from_numpy(candidates.rows), torch.from_numpy(candidates.ids).long()
            scores = questions.new_empty(len(ids))
            for start in range(0, len(ids), _PAIRS_AT_ONCE):
                some = slice(start, start + _PAIRS_AT_ONCE)
                scores[some] = (questions[rows[some]] * self.entities_[ids[some]]).sum(dim=1)
            return scores.cpu().numpy()

    def _questions(self, queries: Queries) -> Tensor:
        """The vectors of questions, each distinct one encoded once; shape (queries, coordinates)."""
        if not hasattr(self, "entities_"):
            raise self._not_fitted()
        distinct, question_of = queries.unique()
        anchors = to_device(distinct.anchors, self.entities_.device).long()
        relations = to_device(distinct.directed_relations(self._relation_count), self.entities_.device)
        return self._towers.question_vectors(self._encoder, anchors, relations)[torch.from_numpy(question_of)]

    def for_new_entities(
        self, entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray | None
    ) -> "DualEncoder":
        """The same model with the new entities as anchors: only their texts are read."""
        scorer = copy.copy(self)
        scorer._encoder = self._new_encoder(entities, kg)
        return scorer

    def nearness(self, entities: Sequence[Entity], kg: KnowledgeGraph) -> FloatArray:
        """The cosine similarity of new entities' texts to those of the graph; shape (new entities, entities)."""
        with torch.inference_mode():
            new = normalize(self._new_encoder(entities, kg).entities(torch.arange(len(entities))), dim=1)
            of_graph = normalize(self._encoder.entities(torch.arange(self._entity_count)), dim=1)
            return (new @ of_graph.T).cpu().numpy()

    def _new_encoder(self, entities: Sequence[Entity], kg: KnowledgeGraph) -> TextEncoder:
        nothing = np.empty((0, 3), dtype=np.int32)
        new = KnowledgeGraph(kg.name, tuple(entities), kg.relations, nothing, nothing, nothing)
        return self._text_encoder(self._base_model(), new).eval()

    def _base_model(self) -> BaseModel:
        """The pretrained model; after `load`, it is only loaded when something new must be read."""
        if not hasattr(self, "_load_base"):
            raise self._not_fitted()
        return self._load_base()

    def _heads(self) -> tuple[nn.Module, ...]:
        return (self._towers,)

    # Saving and loading.

    def _save_files(self, folder: Path) -> None:
        save_held_model(self._base_model(), folder, self.settings.trainable_layers > 0)

    def _tensors(self) -> dict[str, Tensor]:
        return {
            "entities": self.entities_,
            "texts/entities": self._encoder.entities(torch.arange(self._entity_count)),
            "texts/relations": self._encoder.relations(torch.arange(2 * self._relation_count)),
            **with_prefix("towers/", self._towers.state_dict()),
        }

    def _take_tensors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph, folder: Path) -> None:
        texts = under_prefix("texts/", tensors)
        expected = {"entities": len(kg.entities), "relations": 2 * len(kg.relations)}
        for part, vectors in texts.items():
            if len(vectors) != expected[part]:
                raise DataError(
                    f"this dual encoder has texts for {len(vectors):,} {part}, but {kg.name} needs {expected[part]:,}. "
                    "It was trained on another graph."
                )
        self._build(texts["entities"].shape[1], kg)
        self._towers.load_state_dict(under_prefix("towers/", tensors))
        self._towers.eval()
        array_of(tensors, "entities", (len(kg.entities), None))
        device, is_trained = current_device(), self.settings.trainable_layers > 0
        self.entities_ = tensors["entities"].to(device)
        load = cache(lambda: load_held_model(self.settings.base, folder, is_trained).to(device))
        self._load_base = load
        entities, relations = texts["entities"].to(device), texts["relations"].to(device)
        self._encoder = CachedEncoder(entities, relations, lambda: self._text_encoder(load(), kg).eval())
