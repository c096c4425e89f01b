"""The settings of late interaction."""

from dataclasses import dataclass
from typing import Annotated, TypedDict

from cascader.models.settings import Between, Settings
from cascader.models.text.base_model import DEFAULT_BASE


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
