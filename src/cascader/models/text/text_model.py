"""What the dual encoder and the cross encoder share: both read the texts of entities with a pretrained model."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from cascader.models.model import TrainedModel
from cascader.models.text.base_model import BaseModel
from cascader.models.text.settings import CrossSettings, DualSettings
from cascader.models.text.texts import as_read


class TextModel(TrainedModel):
    """A model that reads the names and descriptions of entities."""

    needs_texts: ClassVar[bool] = True
    settings: DualSettings | CrossSettings

    def as_read(self, text: str) -> str:
        """The part of an entity's text that this model reads."""
        return as_read(text, self._base_model(), self.settings.max_tokens)

    @property
    def parameter_count(self) -> int:
        """How many numbers the model consists of, including those of the pretrained model."""
        return count_parameters(self._base_model().encoder, *self._heads())

    @abstractmethod
    def _base_model(self) -> BaseModel:
        """The pretrained model that reads the texts."""

    @abstractmethod
    def _heads(self) -> tuple[nn.Module, ...]:
        """The modules on top of the pretrained model."""


def count_parameters(*modules: nn.Module) -> int:
    """How many numbers the modules consist of."""
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under longer names, for a file that holds those of several modules."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def under_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with the prefix, under their own names again."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
