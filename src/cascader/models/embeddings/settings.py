"""How an embedding is trained, in one value."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from cascader.models.settings import Settings

Loss = Literal["1-vs-all", "k-vs-all", "1-vs-sample", "negative-sampling"]
Optimizer = Literal["adagrad", "adam"]
Regularizer = Literal["none", "n3", "lp"]


@dataclass(frozen=True)
class EmbeddingSettings(Settings):
    """All settings of a training; the defaults suit ComplEx on a small graph."""

    dim: int = 200  #: coordinates of an entity: complex numbers for ComplEx and RotatE, real ones for the others
    loss: Loss = "1-vs-all"
    label_smoothing: float = 0.0
    negatives: int = 256  #: entities sampled for a batch; only for 1-vs-sample and negative sampling
    margin: float = 6.0  #: only for negative sampling
    adversarial_temperature: float = 1.0  #: likewise; 0 weighs all negatives alike
    norm: Literal[1, 2] = 2  #: of TransE's distance
    optimizer: Optimizer = "adagrad"
    learning_rate: float = 0.1
    batch_size: int = 500  #: rows: a question with its answers
    answers_per_row: int = 1_000_000  #: at most; what is over gets further rows, and so steps of its own
    epochs: int = 100
    regularizer: Regularizer = "n3"
    regularizer_weight: float = 0.05
    regularizer_power: float = 2.0  #: p of the Lp regularizer
    relation_weight: float = 0.0  #: of predicting the relation from both entities (Chen et al., 2021)
    dropout: float = 0.0  #: of the anchor's coordinates
    relation_dropout: float = 0.0  #: of the relation's coordinates
    init_std: float = 1e-3  #: standard deviation of the first weights
    valid_every: int = 3  #: epochs between two looks at valid
    patience: int = 4  #: looks without a gain before it stops
    seed: int = 0

    ranges: ClassVar[dict[str, tuple[float, float]]] = {
        "dim": (1, 100_000),
        "label_smoothing": (0, 0.999),
        "negatives": (1, 10_000_000),
        "margin": (-1e6, 1e6),
        "adversarial_temperature": (0, 1e6),
        "learning_rate": (1e-9, 1e6),
        "batch_size": (1, 10_000_000),
        "answers_per_row": (1, 1_000_000),
        "epochs": (1, 1_000_000),
        "regularizer_weight": (0, 1e6),
        "regularizer_power": (1, 10),
        "relation_weight": (0, 1e6),
        "dropout": (0, 0.99),
        "relation_dropout": (0, 0.99),
        "init_std": (1e-9, 1e3),
        "valid_every": (1, 1_000_000),
        "patience": (1, 1_000_000),
        "seed": (0, 2**31 - 1),
    }
    choices: ClassVar[dict[str, tuple[Any, ...]]] = {
        "loss": get_args(Loss),
        "norm": (1, 2),
        "optimizer": get_args(Optimizer),
        "regularizer": get_args(Regularizer),
    }
