"""The settings of the models that read texts: the dual, pooled, cross and context encoders, and late interaction."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from cascader.models.settings import Between, Settings
from cascader.models.text.base_model import DEFAULT_BASE

DualObjective = Literal["contrastive", "star"]
OtherAnswers = Literal["counted", "masked"]
CrossObjective = Literal["listwise", "kg-bert"]
Precision = Literal["auto", "float32", "bfloat16", "int8"]


@dataclass(frozen=True)
class DualSettings(Settings):
    """All settings of a dual encoder; the defaults suit two CPU cores."""

    base: str = DEFAULT_BASE  #: a pretrained model: the default one, a folder, or a model on the Hugging Face Hub
    objective: DualObjective = "contrastive"
    max_tokens: Annotated[int, Between(1, 100_000)] = 64  #: of an entity's text; relations are never truncated
    trainable_layers: Annotated[int, Between(0, 1000)] = 0  #: from the top; those below read each text once, for good
    ensemble_size: Annotated[int, Between(1, 1000)] = 1  #: pairs of towers that train side by side; scores are averaged
    dim: Annotated[int, Between(1, 100_000)] = 256  #: of question and entity vectors; only for contrastive
    hidden: Annotated[int, Between(1, 100_000)] = 512  #: units between a text's vector and its projection; likewise
    dropout: Annotated[float, Between(0, 0.99)] = 0.3
    temperature: Annotated[float, Between(1e-4, 1e4)] = 0.05  #: initial temperature, which is learned; likewise
    margin: Annotated[float, Between(0, 100)] = 0.0  #: by which a gold must beat the others; likewise; StAR's is 1
    #: How a question's other answers enter the softmax, only for contrastive: they count as negatives, or they are
    #: masked, as StAR always does. Counting did better on valid.
    other_answers: OtherAnswers = "counted"
    negatives: Annotated[int, Between(1, 10_000_000)] = 4096  #: entities compared with a batch; for star, a question
    hard_negatives: Annotated[int, Between(0, 10_000)] = 0  #: per question, from the top of the earlier tier
    batch_size: Annotated[int, Between(1, 1_000_000)] = 128  #: questions
    learning_rate: Annotated[float, Between(1e-9, 10)] = 1e-3
    encoder_learning_rate: Annotated[float, Between(1e-9, 10)] = 1e-4  #: of the trainable layers
    weight_decay: Annotated[float, Between(0, 10)] = 1e-4
    epochs: Annotated[int, Between(1, 1_000_000)] = 60
    valid_every: Annotated[int, Between(1, 1_000_000)] = 5  #: epochs between validations
    patience: Annotated[int, Between(1, 1_000_000)] = 3  #: validations without improvement before training stops
    prior_weight: Annotated[float, Between(0, 10)] = 0.0  #: of plausibility in the scores while the towers learn
    seed: Annotated[int, Between(0, 2**31 - 1)] = 0


class DualOptions(TypedDict, total=False):
    """The same settings as keywords, for type checkers and editors."""

    base: str
    objective: DualObjective
    max_tokens: int
    trainable_layers: int
    ensemble_size: int
    dim: int
    hidden: int
    dropout: float
    temperature: float
    margin: float
    other_answers: OtherAnswers
    negatives: int
    hard_negatives: int
    batch_size: int
    learning_rate: float
    encoder_learning_rate: float
    weight_decay: float
    epochs: int
    valid_every: int
    patience: int
    prior_weight: float
    seed: int


@dataclass(frozen=True)
class PairSettings(Settings):
    """What the cross encoder and the pooled encoder share: both learn from pairs."""

    base: str = DEFAULT_BASE  #: a pretrained model: the default one, a folder, or a model on the Hugging Face Hub
    max_tokens: Annotated[int, Between(1, 100_000)] = 32  #: of an entity's text; relations are never truncated
    negatives: Annotated[int, Between(1, 10_000)] = 3  #: per query
    random_negatives: Annotated[int, Between(0, 10_000)] = 1  #: how many of them are random; the others are hard
    hard_negative_pool: Annotated[int, Between(0, 100_000)] = 50  #: top entities of the earlier tier to draw them from
    batch_size: Annotated[int, Between(1, 1_000_000)] = 16  #: queries
    learning_rate: Annotated[float, Between(1e-9, 10)] = 1e-4
    weight_decay: Annotated[float, Between(0, 10)] = 0.01
    queries_per_round: Annotated[int, Between(1, 10_000_000)] = 1024  #: at most all; checkpoints come between rounds
    rounds: Annotated[int, Between(1, 1_000_000)] = 40
    valid_every: Annotated[int, Between(1, 1_000_000)] = 5  #: rounds between validations
    patience: Annotated[int, Between(1, 1_000_000)] = 3  #: validations without improvement before training stops
    valid_triples: Annotated[int, Between(1, 10_000_000)] = 200  #: whose two sides are reranked in a validation
    valid_top_k: Annotated[int, Between(1, 1_000_000)] = 30  #: candidates of the earlier tier that are reranked in one
    seed: Annotated[int, Between(0, 2**31 - 1)] = 0


@dataclass(frozen=True)
class CrossSettings(PairSettings):
    """All settings of a cross encoder; the defaults suit two CPU cores."""

    objective: CrossObjective = "listwise"
    #: Layers that read each text alone, once; at least two must be left above, to see pairs.
    split_layer: Annotated[int, Between(0, 1000)] = 3
    batch_tokens: Annotated[int, Between(1, 100_000_000)] = 2048  #: of a batch when scoring; more are slower on a CPU
    #: When scoring; int8 only if a check on valid finds next to no difference. "auto" is int8 where it is installed.
    precision: Precision = "float32"


@dataclass(frozen=True)
class PooledSettings(PairSettings):
    """All settings of a pooled encoder; the defaults suit two CPU cores."""

    pretraining_epochs: Annotated[int, Between(0, 100_000)] = 0  #: to learn which texts match, before any pair is read


class PairOptions(TypedDict, total=False):
    """The settings of both as keywords, for type checkers and editors."""

    base: str
    max_tokens: int
    negatives: int
    random_negatives: int
    hard_negative_pool: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    queries_per_round: int
    rounds: int
    valid_every: int
    patience: int
    valid_triples: int
    valid_top_k: int
    seed: int


class CrossOptions(PairOptions, total=False):
    """Those of the cross encoder."""

    objective: CrossObjective
    split_layer: int
    batch_tokens: int
    precision: Precision


class PooledOptions(PairOptions, total=False):
    """Those of the pooled encoder."""

    pretraining_epochs: int


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


@dataclass(frozen=True)
class LateSettings(Settings):
    """All settings of late interaction; the defaults suit two CPU cores."""

    base: str = DEFAULT_BASE  #: a pretrained model: the default one, a folder, or a model on the Hugging Face Hub
    #: After which layer the states of tokens are compared; upper layers say more of the text, less of the word.
    layer: Annotated[int, Between(0, 1000)] = 4
    max_tokens: Annotated[int, Between(1, 100_000)] = 48  #: of an entity's text; relations are never truncated
    question_tokens: Annotated[int, Between(1, 100_000)] = 16  #: of a question that are matched: those with most weight
    dim: Annotated[int, Between(1, 100_000)] = 64  #: of a token's vector
    dropout: Annotated[float, Between(0, 0.99)] = 0.1
    temperature: Annotated[float, Between(1e-4, 1e4)] = 0.05  #: initial temperature, which is learned
    negatives: Annotated[int, Between(1, 10_000_000)] = 512  #: entities compared with a batch, beside its own
    hard_negatives: Annotated[int, Between(0, 10_000)] = 0  #: per question, from the top of the earlier tiers
    batch_size: Annotated[int, Between(1, 1_000_000)] = 128  #: questions
    learning_rate: Annotated[float, Between(1e-9, 10)] = 1e-3
    weight_decay: Annotated[float, Between(0, 10)] = 1e-4
    epochs: Annotated[int, Between(1, 1_000_000)] = 20
    valid_every: Annotated[int, Between(1, 1_000_000)] = 2  #: epochs between validations
    patience: Annotated[int, Between(1, 1_000_000)] = 3  #: validations without improvement before training stops
    prior_weight: Annotated[float, Between(0, 10)] = 0.5  #: of plausibility in the scores while the matcher learns
    seed: Annotated[int, Between(0, 2**31 - 1)] = 0


class LateOptions(TypedDict, total=False):
    """The same settings as keywords, for type checkers and editors."""

    base: str
    layer: int
    max_tokens: int
    question_tokens: int
    dim: int
    dropout: float
    temperature: float
    negatives: int
    hard_negatives: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    epochs: int
    valid_every: int
    patience: int
    prior_weight: float
    seed: int
