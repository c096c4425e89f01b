"""What the cross encoder and the pooled encoder share: both score pairs, and learn to rerank the earlier tiers."""

import copy
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from cascader.cascade.alphas import best_reranking
from cascader.cascade.pruners import TopK
from cascader.display import progress
from cascader.errors import DataError
from cascader.graph import Candidates, Entity, FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.models.device import current_device, forked_rng
from cascader.models.history import Schedule
from cascader.models.text.base_model import BaseModel, load_base_model, load_held_model, save_held_model
from cascader.models.text.dry_run import leave_blank, load_timed, seconds_for_hard_negatives
from cascader.models.text.pair_training import PairTraining
from cascader.models.text.pairs import PairEncoder, PairHead, Pairs
from cascader.models.text.settings import CrossObjective, PairSettings
from cascader.models.text.text_model import GraphTexts, TextModel, Tokens, text_of, under_prefix, with_prefix
from cascader.models.training import Trainable, TrainingCost, seconds_for, seconds_per_step
from cascader.scoring.scorer import Scorer
from cascader.storage import read_tensors, write_tensors


class PairModel(TextModel):
    """Scores each candidate together with its question; a subclass says how the two meet."""

    reads_pairs: ClassVar[bool] = True
    settings: PairSettings

    _training_class: ClassVar[type[PairTraining]] = PairTraining
    _encoder: PairEncoder
    _head: PairHead

    @abstractmethod
    def _make(self, base: BaseModel, texts: GraphTexts, relation_count: int) -> tuple[PairEncoder, PairHead]:
        """The encoder and the head, untrained."""

    @abstractmethod
    def _blocks(self, pairs: Pairs) -> Iterator[IntArray]:
        """Batches of distinct pairs, which are sorted by relation and anchor: the places of each."""

    @property
    @abstractmethod
    def pairs_to_measure(self) -> int:
        """How many pairs it takes to measure the speed: enough to share as many texts as usual."""

    @property
    def _objective(self) -> CrossObjective:
        return "listwise"

    # Learning.

    def _schedule(self, time_limit: float) -> Schedule:
        return Schedule(self.settings.rounds, self.settings.valid_every, self.settings.patience, time_limit)

    def _prepare(self, kg: KnowledgeGraph, earlier: Scorer | None) -> Trainable:
        self._build(load_base_model(self.settings.base).to(current_device()), kg)
        self._encoder.read_all()
        self._pretrain(kg)
        queries = Queries.from_triples(kg.sample("valid", self.settings.valid_triples, self.settings.seed))

        def validate() -> float | None:
            """The MRR after reranking the top of the earlier tiers."""
            if len(queries) == 0 or earlier is None:
                return None
            return best_reranking(earlier, self, kg, queries, TopK(self.settings.valid_top_k)).mrr

        return self._training(kg, earlier, validate)

    def prepare_helping(self, kg: KnowledgeGraph) -> PairTraining:
        """What computes gradients for another process; texts are read when they are first needed."""
        self._build(load_base_model(self.settings.base).to(current_device()), kg)
        return self._training(kg, None, lambda: None)

    def _pretrain(self, kg: KnowledgeGraph) -> None:  # noqa: B027 - optional
        """Learn what can be learned before any pair is read."""

    def _training(
        self, kg: KnowledgeGraph, earlier: Scorer | None, validate: Callable[[], float | None]
    ) -> PairTraining:
        kind, encoder, head = self._training_class, self._encoder, self._head
        return kind(encoder, head, self.settings, self._objective, kg, earlier, validate)

    def _finish(self, training: Trainable) -> None:
        self._prepare_scoring()

    def _prepare_scoring(self) -> None:
        self._encoder.eval()
        self._head.eval()

    def _build(self, base: BaseModel, kg: KnowledgeGraph) -> None:
        self._base, self._relation_count, self._entity_count = base, len(kg.relations), len(kg.entities)
        texts = GraphTexts.of(kg, base, self.settings.max_tokens)
        with forked_rng(base.device):
            torch.manual_seed(self.settings.seed)
            encoder, head = self._make(base, texts, len(kg.relations))
        self._encoder, self._head = encoder.to(base.device), head.to(base.device)

    def dry_run(self, kg: KnowledgeGraph, earlier: Scorer | None = None) -> TrainingCost:
        """Train for a moment and estimate the rest; the model can score afterwards, but has learned next to nothing."""
        self._check_trainable(kg)
        settings = self.settings
        base, loading = load_timed(settings.base, current_device())
        started = time.perf_counter()
        self._build(base, kg)
        tokenizing = time.perf_counter() - started
        reading = leave_blank(self._encoder, base)
        pretraining = self._seconds_to_pretrain(kg)
        training = self._training(kg, None, lambda: None)
        step = seconds_per_step(training.steps(1))
        self._prepare_scoring()
        valid = kg.sample("valid", settings.valid_triples, settings.seed)

        def validate(count: int) -> None:
            if earlier is not None:
                best_reranking(earlier, self, kg, Queries.from_triples(valid[:count]), TopK(settings.valid_top_k))

        pool = settings.hard_negative_pool if self._objective == "listwise" else 0
        asked = settings.rounds * settings.queries_per_round
        hard = seconds_for_hard_negatives(earlier, kg, pool, asked)
        return TrainingCost(
            preparing=loading + tokenizing + reading + pretraining + hard,
            epoch=step * training.step_count,
            look=seconds_for(validate, len(valid)),
            epochs=settings.rounds,
            valid_every=settings.valid_every,
            parameters=self.parameter_count,
        )

    def _seconds_to_pretrain(self, kg: KnowledgeGraph) -> float:
        return 0.0

    # Scoring.

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query, each distinct pair once; shape (candidates,)."""
        if not hasattr(self, "_encoder"):
            raise self._not_fitted()
        pairs, place_of = self._pairs(queries, candidates).distinct()
        scores = torch.empty(len(pairs))
        with torch.inference_mode(), progress("reading pairs", total=len(pairs), unit="pairs") as advance:
            for places in self._blocks(pairs):
                scores[torch.from_numpy(places)] = self._score_pairs(pairs[places]).cpu()
                advance(len(places))
        return scores.numpy()[place_of]

    def _score_pairs(self, pairs: Pairs) -> Tensor:
        """Scores; shape (pairs,)."""
        scores: Tensor = self._head(self._encoder(pairs))
        return scores

    def token_counts(self, queries: Queries, candidates: Candidates) -> IntArray:
        """How many tokens are read for each pair; shape (candidates,)."""
        return self._encoder.lengths(self._pairs(queries, candidates))

    def _pairs(self, queries: Queries, candidates: Candidates) -> Pairs:
        return Pairs.of(queries, candidates, self._relation_count)

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities). On all but small graphs this takes very long."""
        if not hasattr(self, "_encoder"):
            raise self._not_fitted()
        offsets = np.arange(len(queries) + 1, dtype=np.int64) * self._entity_count
        everyone = np.tile(np.arange(self._entity_count, dtype=np.int32), len(queries))
        return self.score(queries, Candidates(offsets, everyone)).reshape(len(queries), -1)

    def for_new_entities(self, entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray | None) -> Self:
        """The same model with the new entities as anchors: only their texts are read."""
        new = Tokens.of([text_of(entity) for entity in entities], self._base, self.settings.max_tokens)
        scorer = copy.copy(self)
        scorer._encoder = self._encoder.for_new_anchors(new)
        return scorer

    def _base_model(self) -> BaseModel:
        if not hasattr(self, "_base"):
            raise self._not_fitted()
        return self._base

    def _heads(self) -> tuple[nn.Module, ...]:
        return (self._head,)

    # Saving and loading.

    def _save_files(self, folder: Path) -> None:
        save_held_model(self._base, folder, is_trained=True)
        write_tensors(folder / "states.safetensors", self._encoder.states())

    def _tensors(self) -> dict[str, Tensor]:
        embeddings = {name: each.detach() for name, each in self._embeddings().items()}
        return {**embeddings, **with_prefix("head/", self._head.state_dict())}

    def _embeddings(self) -> dict[str, nn.Parameter]:
        """What is added to tokens above the split: parameters of the encoder itself, not of its layers."""
        return dict(self._encoder.named_parameters(recurse=False))

    def _take_tensors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph, folder: Path) -> None:
        relations = len(tensors["head/relation_classifier.bias"])
        if relations != 2 * len(kg.relations):
            raise DataError(
                f"this {self.name} encoder knows {relations // 2:,} relations, but {kg.name} has "
                f"{len(kg.relations):,}. It was trained on another graph."
            )
        self._build(load_held_model(self.settings.base, folder, is_trained=True).to(current_device()), kg)
        self._head.load_state_dict(under_prefix("head/", tensors))
        with torch.no_grad():
            for name, each in self._embeddings().items():
                each.copy_(tensors[name])
        # The lower layers need not read the texts again.
        self._encoder.take_states(read_tensors(folder / "states.safetensors")[0])
        self._prepare_scoring()
