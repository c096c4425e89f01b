"""Tier 3: a cross encoder. It reads the question and a candidate together, and only those candidates that are left."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cascader.cascade.alphas import best_reranking
from cascader.cascade.pruners import TopK
from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.graph import Candidates, Entity, FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.models.text.base_model import BaseModel, load_base_model
from cascader.models.text.batches import token_batches
from cascader.models.text.cross_training import CrossTraining
from cascader.models.text.heads import MatchingHead, PairHead
from cascader.models.text.int8 import Int8Layers, UpperLayers, export_int8
from cascader.models.text.match_pretraining import pretrain_matching
from cascader.models.text.pairs import PairEncoder, Pairs
from cascader.models.text.precision import Layers, in_bfloat16, in_int8
from cascader.models.text.sampling import sampled
from cascader.models.text.settings import CrossSettings
from cascader.models.text.text_model import LanguageTier, under_prefix, with_prefix
from cascader.models.text.texts import GraphTexts, Tokens, text_of
from cascader.models.training import Trainable
from cascader.progress import progress
from cascader.scoring.scorer import Scorer
from cascader.storage import read_tensors, write_tensors

#: Where each text is looked at once: enough pairs to have many texts in common.
_PAIRS_AT_ONCE = 8192
_PAIRS_TO_MEASURE = 192
#: What eight bits may cost in valid MRR.
_INT8_LOSS = 0.002


class CrossEncoder(LanguageTier[CrossSettings]):
    """Scores an answer by reading it together with the question.

    The settings are those of `CrossSettings`. `fit(kg, earlier=kge)` learns to tell golds from what the earlier tiers
    like best, and stops when reranking their top no longer gains on valid.

    >>> from cascader import Candidates, Entity, KnowledgeGraph, Relation
    >>> entities = Entity("d", "aspirin", "a drug against pain"), Entity("s", "pain", "a feeling that hurts")
    >>> kg = KnowledgeGraph("drugs", entities, (Relation("r", "treats"),), [[0, 0, 1]], [], [])
    >>> cross = CrossEncoder(split_layer=5, rounds=1).fit(kg)
    >>> cross.score(kg.query("aspirin", "treats"), Candidates.from_lists([[1]])).shape  # pain alone is read
    (1,)
    """

    name = "cross"
    beside_earlier = "to rerank"
    _layers: Layers

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - the settings of CrossSettings, by name
        super().__init__(CrossSettings.of(settings))
        self.pairs_scored = 0  #: how many pairs it has read so far, each distinct pair of a call once

    # Learning.

    def _prepare(self, kg: KnowledgeGraph, earlier: Scorer | None) -> Trainable:
        self._build(load_base_model(self.settings.base), kg)
        self._reader.read_all()
        if isinstance(self._head, MatchingHead):
            pretrain_matching(self._head.match, self._reader, kg, self.settings.pretraining_epochs, self.settings.seed)
        self._layers = UpperLayers(self._reader.upper, self._head)
        queries = Queries.from_triples(sampled(kg.valid, self.settings.valid_triples, self.settings.seed))

        def judge() -> float | None:
            """How well the top of the earlier tier is reranked now."""
            if len(queries) == 0 or earlier is None:
                return None
            return best_reranking(earlier, self, kg, queries, TopK(self.settings.valid_top_k)).mrr

        return CrossTraining(self._reader, self._head, self.settings, kg, earlier, judge)

    def _length(self) -> int:
        return self.settings.rounds

    def _finish(self, training: Trainable) -> None:
        self._ready()
        if self.settings.precision == "int8":
            self._try_int8(training.validate)

    def _ready(self) -> None:
        """Score from now on, and train no more."""
        self._reader.eval()
        self._head.eval()
        layers = UpperLayers(self._reader.upper, self._head).eval()
        self._layers = in_bfloat16(layers) if self.settings.precision == "bfloat16" else layers

    def _try_int8(self, judge: Callable[[], float | None]) -> None:
        """Score in eight bits if valid sees next to no difference, and write down what it saw."""
        if self._reader.has_single_joint_layer:  # next to nothing is left to be made faster
            return
        whole, before = self._layers, judge()
        self._layers = in_int8(UpperLayers(self._reader.upper, self._head).eval(), self._base.width)
        after = judge()
        is_used = before is not None and after is not None and abs(before - after) < _INT8_LOSS
        if not is_used:
            self._layers = whole
        self.history_["int8"] = {"float32_mrr": before, "int8_mrr": after, "is_used": is_used}

    def _build(self, base: BaseModel, kg: KnowledgeGraph) -> None:
        self._base, self._relation_count, self._entity_count = base, len(kg.relations), len(kg.entities)
        texts = GraphTexts.of(kg, base, self.settings.max_tokens)
        self._reader = PairEncoder(base, texts, self.settings.split_layer)
        if self.settings.pretraining_epochs and not self._reader.has_single_joint_layer:
            raise SettingsError(
                f"pretraining_epochs is {self.settings.pretraining_epochs}, but {len(self._reader.upper)} layers see "
                f"the pair: only where it is one can texts be matched. Set split_layer={base.layer_count - 1}, or "
                "pretraining_epochs=0."
            )
        head = MatchingHead if self.settings.pretraining_epochs else PairHead
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)
            self._head: PairHead = head(base.width, len(kg.relations))

    # Scoring.

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query, identical pairs once, texts of like length together; (candidates,)."""
        if not hasattr(self, "_reader"):
            raise NotFittedError("the cross encoder has not been fitted. Call fit(kg), or load it from a folder.")
        pairs, place_of = self._pairs(queries, candidates).distinct()
        scores = torch.empty(len(pairs))
        with torch.inference_mode(), progress("reading pairs", total=len(pairs), unit="pairs") as advance:
            for places in self._blocks(pairs):
                scores[torch.from_numpy(places)] = self._read(pairs[places])
                advance(len(places))
        self.pairs_scored += len(pairs)
        return scores.numpy()[place_of]

    def _blocks(self, pairs: Pairs) -> Iterator[IntArray]:
        """Pairs to be read together: of like length, or, where a text is looked at once, with many texts in common."""
        if self._reader.has_single_joint_layer:  # distinct pairs stand by relation and anchor
            for start in range(0, len(pairs), _PAIRS_AT_ONCE):
                yield np.arange(start, min(start + _PAIRS_AT_ONCE, len(pairs)))
        else:
            yield from token_batches(self._reader.lengths(pairs), self.settings.batch_tokens)

    def _read(self, pairs: Pairs) -> Tensor:
        """Scores; shape (pairs,)."""
        if self._reader.has_single_joint_layer:
            scores: Tensor = self._head(self._reader(pairs))
            return scores
        return self._layers(*self._reader.lower(pairs))

    def token_counts(self, queries: Queries, candidates: Candidates) -> IntArray:
        """How many tokens are read for each pair; shape (candidates,).

        Where pairs share a text that is looked at once, the first of them pays for it.
        """
        pairs = self._pairs(queries, candidates)
        if not self._reader.has_single_joint_layer:
            return self._reader.lengths(pairs)
        tokens = np.zeros(len(pairs), dtype=np.int64)
        for places in self._blocks(pairs):
            tokens[places] = self._reader.new_lengths(pairs[places])
        return tokens

    @property
    def pairs_to_measure(self) -> int:
        """How many it takes to see how fast it is: enough to share as many texts as they will."""
        return _PAIRS_AT_ONCE if self._reader.has_single_joint_layer else _PAIRS_TO_MEASURE

    def _pairs(self, queries: Queries, candidates: Candidates) -> Pairs:
        return Pairs.of(queries, candidates, self._relation_count)

    def about_new(self, entities: Sequence[Entity]) -> "CrossEncoder":
        """What answers questions about entities that the graph does not have, by their places."""
        new = Tokens.of([text_of(entity) for entity in entities], self._base, self.settings.max_tokens)
        scorer = copy.copy(self)
        scorer._reader = self._reader.about_new(new)
        return scorer

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities). On all but small graphs this takes very long."""
        count = len(queries)
        offsets = np.arange(count + 1) * self._entity_count if hasattr(self, "_entity_count") else np.zeros(count + 1)
        everyone = np.tile(np.arange(offsets[-1] // max(count, 1), dtype=np.int32), count)
        return self.score(queries, Candidates(offsets.astype(np.int64), everyone)).reshape(count, -1)

    def _language_model(self) -> BaseModel:
        return self._base

    # Keeping.

    @property
    def parameter_count(self) -> int:
        """How many numbers it consists of, the language model's among them."""
        modules = self._base.encoder, self._head
        return sum(parameter.numel() for module in modules for parameter in module.parameters())

    def _save_encoder(self, folder: Path) -> None:
        self._base.save(folder / "encoder")
        write_tensors(folder / "states.safetensors", self._reader.states())
        if self._is_int8:
            export_int8(UpperLayers(self._reader.upper, self._head).eval(), self._base.width, folder / "int8.onnx")

    @property
    def _is_int8(self) -> bool:
        return bool(self.history_.get("int8", {}).get("is_used"))

    def _tensors(self) -> dict[str, Tensor]:
        return {"parts": self._reader.parts.detach(), **with_prefix("head/", self._head.state_dict())}

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
            self._reader.parts.copy_(tensors["parts"])
        self._take_states(folder / "states.safetensors")
        self._ready()
        if self._is_int8:
            self._layers = Int8Layers(folder / "int8.onnx")

    def _take_states(self, path: Path) -> None:
        """What the lower layers make of the texts need not be computed again."""
        if path.exists():
            self._reader.take_states(read_tensors(path)[0])


def load_cross_encoder(folder: str | Path, kg: KnowledgeGraph) -> CrossEncoder:
    """Read a cross encoder back that `save` has written."""
    return CrossEncoder.load(folder, kg)
