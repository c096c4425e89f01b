"""What both language model tiers share: how a training is started, resumed and described, and how a tier is kept."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from torch import Tensor

from cascader.errors import DataError
from cascader.graph import KnowledgeGraph
from cascader.models.persistence import read_model, write_model
from cascader.models.text.base_model import BaseModel
from cascader.models.text.settings import CrossSettings, DualSettings
from cascader.models.text.texts import as_read
from cascader.models.training import Schedule, Trainable, summary_of, train
from cascader.models.training.checkpoints import Checkpoint
from cascader.scoring.scorer import Scorer

FORMAT = 1
#: More of these may be asked for later; anything else makes it another training.
_MAY_GROW = ("epochs", "rounds", "patience")

AnySettings = TypeVar("AnySettings", DualSettings, CrossSettings)


class LanguageTier(ABC, Generic[AnySettings]):
    """A language model, the settings that it is trained by, and how its training went."""

    name: ClassVar[str]
    #: What a checkpoint calls a training beside an earlier tier.
    beside_earlier: ClassVar[str]

    def __init__(self, settings: AnySettings) -> None:
        self.settings: AnySettings = settings
        self.history_: dict[str, Any] = {}

    # Learning.

    def fit(
        self,
        kg: KnowledgeGraph,
        folder: str | Path | None = None,
        max_minutes: float = np.inf,
        earlier: Scorer | None = None,
    ) -> Self:
        """Train on the graph's texts; with a `folder`, interrupted training goes on there where it stopped."""
        check_trainable(kg)
        started = time.monotonic()
        training = self._prepare(kg, earlier)
        prepared = time.monotonic() - started
        schedule = Schedule(self._length(), self.settings.valid_every, self.settings.patience, max_minutes)
        self.history_ = train(training, schedule, self._checkpoint(kg, folder, earlier), prepared).as_dict()
        self._finish(training)
        return self

    @abstractmethod
    def _prepare(self, kg: KnowledgeGraph, earlier: Scorer | None) -> Trainable:
        """Load the language model, read what is read only once, and say what the loop is to train."""

    @abstractmethod
    def _length(self) -> int:
        """How many epochs of the loop there are at most."""

    @abstractmethod
    def _finish(self, training: Trainable) -> None:
        """Score from now on, and train no more."""

    def _checkpoint(self, kg: KnowledgeGraph, folder: str | Path | None, earlier: Scorer | None) -> Checkpoint | None:
        if folder is None:
            return None
        settings = {name: value for name, value in self.settings.as_dict().items() if name not in _MAY_GROW}
        identity = {"model": self.name, "data hash": kg.data_hash, self.beside_earlier: earlier is not None, **settings}
        return Checkpoint(Path(folder) / "checkpoint.safetensors", identity, type(self.settings)().as_dict())

    # Reading.

    def as_read(self, text: str) -> str:
        """A text of an entity as far as this tier reads it."""
        return as_read(text, self._language_model(), self.settings.max_tokens)

    @abstractmethod
    def _language_model(self) -> BaseModel:
        """What texts are cut into tokens and read with."""

    # Keeping.

    def about(self) -> dict[str, Any]:
        """What there is to tell beside a figure: settings, and how the training went."""
        return {"model": self.name, "settings": self.settings.as_dict(), "training": summary_of(self.history_)}

    def save(self, folder: str | Path) -> None:
        """Write the language model if it was tuned, then `model.safetensors`, then `model.json`."""
        folder = Path(folder)
        self._save_encoder(folder)
        write_model(folder, self.name, FORMAT, self.settings.as_dict(), self.history_, self._tensors())

    @classmethod
    def load(cls, folder: str | Path, kg: KnowledgeGraph) -> Self:
        """Read back what `save` has written."""
        saved, tensors = read_model(Path(folder), cls.name, FORMAT)
        tier = cls(**saved["settings"])
        tier.history_ = saved["history"]
        tier._take_tensors(tensors, kg, Path(folder))
        return tier

    @abstractmethod
    def _save_encoder(self, folder: Path) -> None:
        """Write the language model in transformers' layout, where that is needed to read texts again."""

    @abstractmethod
    def _tensors(self) -> dict[str, Tensor]:
        """All that was learnt beside the language model."""

    @abstractmethod
    def _take_tensors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph, folder: Path) -> None:
        """Take what was learnt before, after a look at its shapes."""


def check_trainable(kg: KnowledgeGraph) -> None:
    """Refuse a graph without triples."""
    if len(kg.train) == 0:
        raise DataError(f"{kg.name} has no train triples to learn from. Add some, or hold fewer back.")


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under longer names, for a file that holds those of several modules."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def under_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those tensors whose names begin so, under their own names again."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
