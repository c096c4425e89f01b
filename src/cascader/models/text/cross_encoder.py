"""Tier 3: the cross encoder (Section 2.2 of the paper, after KG-BERT).

It reads each candidate together with its question, token by token, so it is only asked about the candidates that the
earlier tiers leave (Section 3).
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from torch import Tensor, nn

from cascader.errors import DataError, SettingsError
from cascader.graph import IntArray, KnowledgeGraph
from cascader.models.checkpoints import Checkpoint
from cascader.models.files import read_model_json
from cascader.models.history import Int8Check
from cascader.models.settings import Settings
from cascader.models.text.base_model import BaseModel
from cascader.models.text.pair_model import PairModel
from cascader.models.text.pair_training import AveragedTraining, PairTraining
from cascader.models.text.pairs import PairEncoder, PairHead, Pairs
from cascader.models.text.precision import (
    Int8Layers,
    Layers,
    UpperLayers,
    export_int8,
    has_onnx,
    in_bfloat16,
)
from cascader.models.text.settings import CrossObjective, CrossOptions, CrossSettings
from cascader.models.text.split_encoder import token_batches
from cascader.models.text.text_model import GraphTexts
from cascader.models.training import Trainable
from cascader.scoring.scorer import Scorer
from cascader.storage import read_bytes, write_bytes

_PAIRS_TO_MEASURE = 192
#: With one joint layer, [CLS] pools both texts; from two on, their tokens meet.
_FEWEST_JOINT_LAYERS = 2
_EMBEDDING_STD = 0.3
#: How much valid MRR int8 may cost.
_INT8_LOSS = 0.002
_INT8_FILE = "int8.onnx"


class CrossEncoder(PairModel):
    """Scores an answer by reading it together with the question.

    Its settings are those of `CrossSettings`. `fit(kg, earlier=kge)` learns to tell golds from the entities that the
    earlier tiers rank highest, and stops when reranking their top no longer improves on valid.

    >>> from cascader import Candidates, Entity, KnowledgeGraph, Relation
    >>> entities = Entity("d", "aspirin", "a drug against pain"), Entity("s", "pain", "a feeling that hurts")
    >>> kg = KnowledgeGraph("drugs", entities, (Relation("r", "treats"),), [[0, 0, 1]], [], [])
    >>> cross = CrossEncoder(split_layer=4, rounds=1).fit(kg)
    >>> cross.score(kg.query("aspirin", "treats"), Candidates.from_lists([[1]])).shape  # only pain is read
    (1,)
    """

    name = "cross"
    tier = "cross"
    settings_class: ClassVar[type[Settings]] = CrossSettings
    settings: CrossSettings

    _training_class: ClassVar[type[PairTraining]] = AveragedTraining
    _layers: Layers | None = None  #: in another precision than float32, if pairs are scored so
    _exported: bytes | None = None  #: the layers in int8, if valid sees next to no difference

    def __init__(self, **settings: Unpack[CrossOptions]) -> None:
        super().__init__(**settings)

    def _make(self, base: BaseModel, texts: GraphTexts, relation_count: int) -> tuple[PairEncoder, PairHead]:
        split, most = self.settings.split_layer, base.layer_count - _FEWEST_JOINT_LAYERS
        if most < 0:
            raise SettingsError(
                f"{base.name} has {base.layer_count} layer, but a cross encoder needs at least two above its split. "
                "Choose a base of more layers."
            )
        if split > most:
            raise SettingsError(
                f"split_layer is {split}, but {base.name} has {base.layer_count} layers: of those above the split, at "
                "least two must see the pair, or no token of the question meets one of the candidate. Choose a "
                f"split_layer from 0 to {most}, or a pooled encoder."
            )
        encoder = PairEncoder(base, texts, split)
        if split:  # as zeros, they take a thousand steps until a layer can tell question and candidate apart
            nn.init.normal_(encoder.segment_embeddings, std=_EMBEDDING_STD)
            nn.init.normal_(encoder.match_embeddings, std=_EMBEDDING_STD)
        return encoder, PairHead(base.width, relation_count)

    @property
    def _objective(self) -> CrossObjective:
        return self.settings.objective

    # Fewer bits.

    def _finish(self, training: Trainable) -> None:
        super()._finish(training)
        if self._wants_int8:
            self._try_int8(training.validate)

    @property
    def _wants_int8(self) -> bool:
        is_faster = has_onnx() and self._base.device.type == "cpu"  # ONNX Runtime scores on the CPU
        return self.settings.precision == "int8" or (self.settings.precision == "auto" and is_faster)

    def _prepare_scoring(self) -> None:
        super()._prepare_scoring()
        self._exported = self._layers = None
        if self.settings.precision == "bfloat16":
            self._layers = in_bfloat16(UpperLayers(self._encoder.upper, self._head).eval())

    def _try_int8(self, validate: Callable[[], float | None]) -> None:
        """Score in int8 if that makes next to no difference on valid, and record the difference."""
        before = self.history_.best_valid
        if before is None:  # there is nothing to check it on
            self.history_.int8 = Int8Check(None, None, is_used=False)
            return
        self._exported = export_int8(UpperLayers(self._encoder.upper, self._head), self._base.width)
        self._layers = Int8Layers(self._exported, self._base.width)
        after = validate()
        is_used = after is not None and abs(before - after) < _INT8_LOSS
        if not is_used:
            self._exported = self._layers = None
        self.history_.int8 = Int8Check(before, after, is_used)

    # Scoring.

    def _blocks(self, pairs: Pairs) -> Iterator[IntArray]:
        """Batches of pairs that share many texts or, if they are padded, of pairs of similar length."""
        lengths = self._encoder.lengths(pairs)
        if self._layers is not None:
            yield from token_batches(lengths, self.settings.batch_tokens)
        elif len(pairs):
            batch_of = np.cumsum(lengths) // self.settings.batch_tokens
            yield from np.split(np.arange(len(pairs)), np.flatnonzero(np.diff(batch_of)) + 1)

    def _score_pairs(self, pairs: Pairs) -> Tensor:
        if self._layers is not None:
            return self._layers(*self._encoder.lower(pairs))
        return super()._score_pairs(pairs)

    @property
    def pairs_to_measure(self) -> int:
        """How many pairs it takes to measure the speed."""
        return _PAIRS_TO_MEASURE

    # Saving and loading.

    def _checkpoint(self, kg: KnowledgeGraph, folder: str | Path | None, earlier: Scorer | None) -> Checkpoint | None:
        checkpoint = super()._checkpoint(kg, folder, earlier)
        if checkpoint is not None:
            _refuse_pooled(checkpoint.saved_identity(), checkpoint.path)
        return checkpoint

    @classmethod
    def load(cls, folder: str | Path, kg: KnowledgeGraph) -> Self:
        """Read a model that `save` has written; `kg` must be the graph it was fitted to."""
        _refuse_pooled(read_model_json(Path(folder)).settings, Path(folder))
        return super().load(folder, kg)

    def _save_files(self, folder: Path) -> None:
        super()._save_files(folder)
        if self._exported is not None:
            write_bytes(folder / _INT8_FILE, self._exported)

    def _take_tensors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph, folder: Path) -> None:
        super()._take_tensors(tensors, kg, folder)
        if self.history_.int8 is not None and self.history_.int8.is_used:
            self._exported = read_bytes(folder / _INT8_FILE)
            if self._wants_int8:  # a run may have come to a machine that can do without
                self._layers = Int8Layers(self._exported, self._base.width)


def _refuse_pooled(settings: Mapping[str, Any], path: Path) -> None:
    """Refuse what was trained when a cross encoder could also be a pooled one, which had one setting more."""
    if "pretraining_epochs" in settings:
        raise DataError(
            f"{path} was written when the pooled encoder was still called a cross encoder, and split at layer "
            f"{settings.get('split_layer')}. It is left as it is: use it with the version that wrote it, or fit again "
            "in another folder, as cross or as pooled."
        )
