"""The settings of an embedding's training."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from cascader.models.settings import Between, Settings

Loss = Literal["1-vs-all", "k-vs-all", "1-vs-sample", "negative-sampling"]
Norm = Literal[1, 2]
Optimizer = Literal["adagrad", "adam"]
Regularizer = Literal["none", "n3", "lp"]


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
    regularizer: Regularizer = "n3"
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
