"""The settings of the context encoder."""

from dataclasses import dataclass
from typing import Annotated, TypedDict

from cascader.models.settings import Between, Settings
from cascader.models.text.base_model import DEFAULT_BASE


@dataclass(frozen=True)
class ContextSettings(Settings):
    """All settings of a context encoder; the defaults suit two CPU cores."""

    base: str = DEFAULT_BASE  #: a pretrained model: the default one, a folder, or a model on the Hugging Face Hub
    max_tokens: Annotated[int, Between(1, 100_000)] = 40  #: of an entity's text; relations are never truncated
    trainable_layers: Annotated[int, Between(1, 1000)] = 1  #: from the top; those below read each text once, for good
    neighbors: Annotated[int, Between(0, 1000)] = 8  #: facts of an entity that are read beside its text
    dim: Annotated[int, Between(1, 100_000)] = 256  #: of question and entity vectors
    dropout: Annotated[float, Between(0, 0.99)] = 0.1
    temperature: Annotated[float, Between(1e-4, 1e4)] = 0.05  #: initial temperature, which is learned
    batch_size: Annotated[int, Between(2, 1_000_000)] = 512  #: questions, each compared with the answers of all
    learning_rate: Annotated[float, Between(1e-9, 10)] = 1e-3
    encoder_learning_rate: Annotated[float, Between(1e-9, 10)] = 3e-4  #: of the trainable layers
    weight_decay: Annotated[float, Between(0, 10)] = 1e-4
    epochs: Annotated[int, Between(1, 1_000_000)] = 20
    valid_every: Annotated[int, Between(1, 1_000_000)] = 1  #: epochs between validations
    patience: Annotated[int, Between(1, 1_000_000)] = 3  #: validations without improvement before training stops
    seed: Annotated[int, Between(0, 2**31 - 1)] = 0


class ContextOptions(TypedDict, total=False):
    """The same settings as keywords, for type checkers and editors."""

    base: str
    max_tokens: int
    trainable_layers: int
    neighbors: int
    dim: int
    dropout: float
    temperature: float
    batch_size: int
    learning_rate: float
    encoder_learning_rate: float
    weight_decay: float
    epochs: int
    valid_every: int
    patience: int
    seed: int
