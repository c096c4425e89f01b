"""The settings of rules: which are looked for, which are kept, and how they are joined."""

from dataclasses import dataclass
from typing import Annotated, TypedDict

from cascader.models.settings import Between, Settings


@dataclass(frozen=True)
class RulesSettings(Settings):
    """All settings of rules; the defaults are a compromise between what valid likes on five graphs."""

    max_length: Annotated[int, Between(1, 3)] = 3  #: facts in a chain from the anchor to the answer
    max_seconds: Annotated[float, Between(1e-3, 1e6)] = 60.0  #: of mining, where `fit` is given no time limit
    prior_count: Annotated[float, Between(0, 1e6)] = 5.0  #: cases added to every body: few cases prove little
    min_support: Annotated[int, Between(1, 1_000_000)] = 2  #: true predictions that a rule must have made
    best: Annotated[int, Between(1, 255)] = 5  #: rules that are joined for a candidate
    discount: Annotated[float, Between(0, 1)] = 0.5  #: of each further rule, which mostly says what the last one said
    max_chains: Annotated[int, Between(1, 1_000_000)] = 1_000  #: kept per relation and side, the most confident
    max_constants: Annotated[int, Between(0, 10_000_000)] = 10_000  #: rules with a constant, likewise
    max_candidates: Annotated[int, Between(1, 10_000_000)] = 1_000  #: chains measured per relation, side and length
    seed: Annotated[int, Between(0, 2**31 - 1)] = 0  #: draws the facts and anchors where not all are looked at


class RulesOptions(TypedDict, total=False):
    """The same settings as keywords, for type checkers and editors."""

    max_length: int
    max_seconds: float
    prior_count: float
    min_support: int
    best: int
    discount: float
    max_chains: int
    max_constants: int
    max_candidates: int
    seed: int
