"""Tier 3: the cross encoder (Section 2.2 of the paper, after KG-BERT).

It reads each candidate together with its question, so it is only asked about the candidates that the earlier tiers
leave (Section 3).
"""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from cascader.cascade.alphas import best_reranking
from cascader.cascade.pruners import TopK
from cascader.errors import DataError, SettingsError
from cascader.graph import Candidates, Entity, FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.models.costs import TrainingCost, seconds_for, seconds_per_step
from cascader.models.settings import Settings
from cascader.models.text.base_model import BaseModel, load_base_model
from cascader.models.text.cross_training import CrossTraining
from cascader.models.text.dry_run import leave_blank, load_timed, seconds_for_hard_negatives
from cascader.models.text.heads import MatchingHead, MatchTraining, PairHead, pretrain_matching
from cascader.models.text.pairs import PairEncoder, Pairs
from cascader.models.text.precision import Int8Layers, Layers, UpperLayers, export_int8, in_bfloat16, in_int8
from cascader.models.text.settings import CrossOptions, CrossSettings
from cascader.models.text.split_encoder import token_batches
from cascader.models.text.text_model import GraphTexts, TextModel, Tokens, text_of, under_prefix, with_prefix
from cascader.models.training import Int8Check, Schedule, Trainable
from cascader.progress import progress
from cascader.scoring.scorer import Scorer
from cascader.storage import read_tensors, write_tensors

#: With factored attention: enough pairs to share many texts.
_PAIRS_AT_ONCE = 8192
_PAIRS_TO_MEASURE = 192
#: How much valid MRR int8 may cost.
_INT8_LOSS = 0.002


class CrossEncoder(TextModel):
    """Scores an answer by reading it together with the question.

    Its settings are those of `CrossSettings`. `fit(kg, earlier=kge)` learns to tell golds from the entities that the
    earlier tiers rank highest, and stops when reranking their top no longer improves on valid.

    >>> from cascader import Candidates, Entity, KnowledgeGraph, Relation
    >>> entities = Entity("d", "aspirin", "a drug against pain"), Entity("s", "pain", "a feeling that hurts")
    >>> kg = KnowledgeGraph("drugs", entities, (Relation("r", "treats"),), [[0, 0, 1]], [], [])
    >>> cross = CrossEncoder(split_layer=5, rounds=1).fit(kg)
    >>> cross.score(kg.query("aspirin", "treats"), Candidates.from_lists([[1]])).shape  # only pain is read
    (1,)
    """

    name = "cross"
    tier = "cross"
    reads_pairs: ClassVar[bool] = True
    settings_class: ClassVar[type[Settings]] = CrossSettings
    settings: CrossSettings

    _layers: Layers | None = None  #: in another precision than float32, if pairs are scored so

    def __init__(self, **settings: Unpack[CrossOptions]) -> None:
        super().__init__(**settings)

    # Learning.

    def _schedule(self, time_limit: float) -> Schedule:
        return Schedule(self.settings.rounds, self.settings.valid_every, self.settings.patience, time_limit)

    def _prepare(self, kg: KnowledgeGraph, earlier: Scorer | None) -> Trainable:
        self._build(load_base_model(self.settings.base), kg)
        self._encoder.read_all()
        if isinstance(self._head, MatchingHead):
            epochs, seed = self.settings.pretraining_epochs, self.settings.seed
            pretrain_matching(self._head.match, self._encoder, kg, epochs, seed)
        queries = Queries.from_triples(kg.sample("valid", self.settings.valid_triples, self.settings.seed))

        def validate() -> float | None:
            """The MRR after reranking the top of the earlier tiers."""
            if len(queries) == 0 or earlier is None:
                return None
            return best_reranking(earlier, self, kg, queries, TopK(self.settings.valid_top_k)).mrr

        return CrossTraining(self._encoder, self._head, self.settings, kg, earlier, validate)

    def _finish(self, training: Trainable) -> None:
        self._prepare_scoring()
        if self.settings.precision == "int8":
            self._try_int8(training.validate)

    def _prepare_scoring(self) -> None:
        self._encoder.eval()
        self._head.eval()
        self._layers = None
        if self.settings.precision == "bfloat16" and not self._encoder.has_single_joint_layer:
            self._layers = in_bfloat16(UpperLayers(self._encoder.upper, self._head).eval())

    def _try_int8(self, validate: Callable[[], float | None]) -> None:
        """Score in int8 if that makes next to no difference on valid, and record the difference."""
        if self._encoder.has_single_joint_layer:  # there is next to nothing to speed up
            return
        before = validate()
        if before is None:  # there is nothing to check it on
            self.history_.int8 = Int8Check(None, None, is_used=False)
            return
        self._layers = in_int8(UpperLayers(self._encoder.upper, self._head).eval(), self._base.width)
        after = validate()
        is_used = after is not None and abs(before - after) < _INT8_LOSS
        if not is_used:
            self._layers = None
        self.history_.int8 = Int8Check(before, after, is_used)

    def _build(self, base: BaseModel, kg: KnowledgeGraph) -> None:
        self._base, self._relation_count, self._entity_count = base, len(kg.relations), len(kg.entities)
        texts = GraphTexts.of(kg, base, self.settings.max_tokens)
        self._encoder = PairEncoder(base, texts, self.settings.split_layer)
        if self.settings.pretraining_epochs and not self._encoder.has_single_joint_layer:
            raise SettingsError(
                f"pretraining_epochs is {self.settings.pretraining_epochs}, but {len(self._encoder.upper)} layers see "
                f"the pair: texts can only be matched if it is one. Set split_layer={base.layer_count - 1}, or "
                "pretraining_epochs=0."
            )
        head = MatchingHead if self.settings.pretraining_epochs else PairHead
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)
            self._head: PairHead = head(base.width, len(kg.relations))

    def dry_run(self, kg: KnowledgeGraph, earlier: Scorer | None = None) -> TrainingCost:
        """Train for a moment and estimate the rest; the model can score afterwards, but has learned next to nothing."""
        self._check_trainable(kg)
        settings = self.settings
        base, loading = load_timed(settings.base)
        started = time.perf_counter()
        self._build(base, kg)
        tokenizing = time.perf_counter() - started
        reading = leave_blank(self._encoder, base, settings.split_layer)
        matching = self._seconds_to_match(kg)
        training = CrossTraining(self._encoder, self._head, settings, kg, None, lambda: None)
        step = seconds_per_step(training.steps(1))
        self._prepare_scoring()
        valid = kg.sample("valid", settings.valid_triples, settings.seed)

        def validate(count: int) -> None:
            if earlier is not None:
                best_reranking(earlier, self, kg, Queries.from_triples(valid[:count]), TopK(settings.valid_top_k))

        pool = settings.hard_negative_pool if settings.objective == "listwise" else 0
        return TrainingCost(
            preparing=loading + tokenizing + reading + matching + seconds_for_hard_negatives(earlier, kg, pool),
            epoch=step * training.step_count,
            look=seconds_for(validate, len(valid)),
            epochs=settings.rounds,
            valid_every=settings.valid_every,
            parameters=self.parameter_count,
        )

    def _seconds_to_match(self, kg: KnowledgeGraph) -> float:
        if not isinstance(self._head, MatchingHead):
            return 0.0
        matching = MatchTraining(self._head.match, self._encoder, kg, self.settings.seed)
        step = seconds_per_step(matching.steps(1))
        return step * matching.step_count * self.settings.pretraining_epochs

    # Scoring.

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query, each distinct pair once; shape (candidates,)."""
        if not hasattr(self, "_encoder"):
            raise self._not_fitted()
        pairs, place_of = self._pairs(queries, candidates).distinct()
        scores = torch.empty(len(pairs))
        with torch.inference_mode(), progress("reading pairs", total=len(pairs), unit="pairs") as advance:
            for places in self._blocks(pairs):
                scores[torch.from_numpy(places)] = self._score_pairs(pairs[places])
                advance(len(places))
        return scores.numpy()[place_of]

    def _blocks(self, pairs: Pairs) -> Iterator[IntArray]:
        """Batches of pairs that share many texts or, if they are padded, of pairs of similar length."""
        if self._layers is not None:
            yield from token_batches(self._encoder.lengths(pairs), self.settings.batch_tokens)
        elif len(pairs):  # distinct pairs are sorted by relation and anchor
            yield from np.split(np.arange(len(pairs)), np.flatnonzero(np.diff(self._batch_of(pairs))) + 1)

    def _batch_of(self, pairs: Pairs) -> IntArray:
        """The number of each pair's batch, ascending; shape (pairs,)."""
        if self._encoder.has_single_joint_layer:
            return np.arange(len(pairs)) // _PAIRS_AT_ONCE
        return np.cumsum(self._encoder.lengths(pairs)) // self.settings.batch_tokens

    def _score_pairs(self, pairs: Pairs) -> Tensor:
        """Scores; shape (pairs,)."""
        if self._layers is not None:
            return self._layers(*self._encoder.lower(pairs))
        scores: Tensor = self._head(self._encoder(pairs))
        return scores

    def token_counts(self, queries: Queries, candidates: Candidates) -> IntArray:
        """How many tokens are read for each pair; shape (candidates,).

        With factored attention, the first pair pays for a text that it shares with others.
        """
        pairs = self._pairs(queries, candidates)
        if not self._encoder.has_single_joint_layer:
            return self._encoder.lengths(pairs)
        tokens = np.zeros(len(pairs), dtype=np.int64)
        for places in self._blocks(pairs):
            tokens[places] = self._encoder.new_lengths(pairs[places])
        return tokens

    @property
    def pairs_to_measure(self) -> int:
        """How many pairs it takes to measure the speed: enough to share as many texts as usual."""
        return _PAIRS_AT_ONCE if self._encoder.has_single_joint_layer else _PAIRS_TO_MEASURE

    def _pairs(self, queries: Queries, candidates: Candidates) -> Pairs:
        return Pairs.of(queries, candidates, self._relation_count)

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities). On all but small graphs this takes very long."""
        if not hasattr(self, "_encoder"):
            raise self._not_fitted()
        offsets = np.arange(len(queries) + 1, dtype=np.int64) * self._entity_count
        everyone = np.tile(np.arange(self._entity_count, dtype=np.int32), len(queries))
        return self.score(queries, Candidates(offsets, everyone)).reshape(len(queries), -1)

    def for_new_entities(
        self, entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray | None
    ) -> "CrossEncoder":
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
        self._base.save(folder / "encoder")
        write_tensors(folder / "states.safetensors", self._encoder.states())
        if self._is_int8:
            export_int8(UpperLayers(self._encoder.upper, self._head).eval(), self._base.width, folder / "int8.onnx")

    @property
    def _is_int8(self) -> bool:
        return self.history_.int8 is not None and self.history_.int8.is_used

    def _tensors(self) -> dict[str, Tensor]:
        segments = self._encoder.segment_embeddings.detach()
        return {"segment_embeddings": segments, **with_prefix("head/", self._head.state_dict())}

    def _take_tensors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph, folder: Path) -> None:
        relations = len(tensors["head/relation_classifier.bias"])
        if relations != 2 * len(kg.relations):
            raise DataError(
                f"this cross encoder knows {relations // 2:,} relations, but {kg.name} has {len(kg.relations):,}. "
                "It was trained on another graph."
            )
        self._build(load_base_model(str(folder / "encoder")), kg)
        self._head.load_state_dict(under_prefix("head/", tensors))
        with torch.no_grad():
            self._encoder.segment_embeddings.copy_(tensors["segment_embeddings"])
        # The lower layers need not read the texts again.
        self._encoder.take_states(read_tensors(folder / "states.safetensors")[0])
        self._prepare_scoring()
        if self._is_int8:
            self._layers = Int8Layers(folder / "int8.onnx")
