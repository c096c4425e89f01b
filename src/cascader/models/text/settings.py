"""How the language model tiers are trained, each in one value."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from cascader.models.settings import Settings
from cascader.models.text.base_model import DEFAULT_BASE

DualObjective = Literal["contrastive", "star"]
OtherAnswers = Literal["counted", "masked"]


@dataclass(frozen=True)
class DualSettings(Settings):
    """All settings of a dual encoder; the defaults suit two CPU cores."""

    base: str = DEFAULT_BASE  #: a pretrained model: the default one, a folder, or a model of the hub
    objective: DualObjective = "contrastive"
    max_tokens: int = 64  #: of an entity's text; the relation is never cut
    trainable_layers: int = 0  #: how many layers, from the top, are trained; the others read each text once, for good
    ensemble_size: int = 1  #: so many pairs of towers learn side by side, and their scores are averaged
    dim: int = 256  #: coordinates of questions and entities, only for contrastive
    hidden: int = 512  #: units between a text's vector and its coordinates, likewise
    dropout: float = 0.3
    temperature: float = 0.05  #: of the first softmax, likewise; it is learnt
    margin: float = 0.0  #: by which a gold must be nearer than the others, likewise; StAR's is 1
    #: What becomes of a question's other answers in the softmax, only for contrastive: they count as negatives, or are
    #: masked out of it, as StAR always does. Counted did better on valid.
    other_answers: OtherAnswers = "counted"
    negatives: int = 4096  #: entities that a batch is compared with, all if there are fewer; for star, a question's
    hard_negatives: int = 0  #: of each question, from the top of the earlier tier
    batch_size: int = 128  #: questions
    learning_rate: float = 1e-3
    encoder_learning_rate: float = 1e-4  #: of the tuned layers
    weight_decay: float = 1e-4
    epochs: int = 60
    valid_every: int = 5  #: epochs between two looks at valid
    patience: int = 3  #: looks without a gain before it stops
    seed: int = 0

    ranges: ClassVar[dict[str, tuple[float, float]]] = {
        "max_tokens": (1, 100_000),
        "trainable_layers": (0, 1000),
        "ensemble_size": (1, 1000),
        "dim": (1, 100_000),
        "hidden": (1, 100_000),
        "dropout": (0, 0.99),
        "temperature": (1e-4, 1e4),
        "margin": (0, 100),
        "negatives": (1, 10_000_000),
        "hard_negatives": (0, 10_000),
        "batch_size": (1, 1_000_000),
        "learning_rate": (1e-9, 10),
        "encoder_learning_rate": (1e-9, 10),
        "weight_decay": (0, 10),
        "epochs": (1, 1_000_000),
        "valid_every": (1, 1_000_000),
        "patience": (1, 1_000_000),
        "seed": (0, 2**31 - 1),
    }
    choices: ClassVar[dict[str, tuple[Any, ...]]] = {
        "objective": get_args(DualObjective),
        "other_answers": get_args(OtherAnswers),
    }


CrossObjective = Literal["listwise", "kg-bert"]
Precision = Literal["float32", "bfloat16", "int8"]


@dataclass(frozen=True)
class CrossSettings(Settings):
    """All settings of a cross encoder; the defaults suit two CPU cores."""

    base: str = DEFAULT_BASE  #: a pretrained model: the default one, a folder, or a model of the hub
    objective: CrossObjective = "listwise"
    max_tokens: int = 32  #: of an entity's text; the relation is never cut
    split_layer: int = 3  #: so many layers read each text alone, once; those above see the pair and are trained
    #: Passes over train, before pairs are read, to learn which texts match; only where one layer sees the pair.
    pretraining_epochs: int = 0
    negatives: int = 3  #: of each query
    random_negatives: int = 1  #: so many of them are any entities; the others come from the earlier tier's favourites
    hard_negative_pool: int = 50  #: how many favourites the hard negatives are drawn from
    batch_size: int = 16  #: queries
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    queries_per_round: int = 1024  #: queries of a round, at most all; after each a checkpoint can be written
    rounds: int = 40
    valid_every: int = 5  #: rounds between two looks at valid
    patience: int = 3  #: looks without a gain before it stops
    valid_triples: int = 200  #: of which both sides are reranked at a look
    valid_top_k: int = 30  #: candidates of the earlier tier that are reranked at a look
    batch_tokens: int = 8192  #: of a batch that is scored
    precision: Precision = "float32"  #: when scoring; int8 only where a check on valid finds next to no difference
    seed: int = 0

    ranges: ClassVar[dict[str, tuple[float, float]]] = {
        "max_tokens": (1, 100_000),
        "split_layer": (0, 1000),
        "pretraining_epochs": (0, 100_000),
        "negatives": (1, 10_000),
        "random_negatives": (0, 10_000),
        "hard_negative_pool": (0, 100_000),
        "batch_size": (1, 1_000_000),
        "learning_rate": (1e-9, 10),
        "weight_decay": (0, 10),
        "queries_per_round": (1, 10_000_000),
        "rounds": (1, 1_000_000),
        "valid_every": (1, 1_000_000),
        "patience": (1, 1_000_000),
        "valid_triples": (1, 10_000_000),
        "valid_top_k": (1, 1_000_000),
        "batch_tokens": (1, 100_000_000),
        "seed": (0, 2**31 - 1),
    }
    choices: ClassVar[dict[str, tuple[Any, ...]]] = {
        "objective": get_args(CrossObjective),
        "precision": get_args(Precision),
    }
