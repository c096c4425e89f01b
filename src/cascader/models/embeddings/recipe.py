"""How an embedding is trained, in one value."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from cascader.errors import SettingsError

Loss = Literal["1-vs-all", "k-vs-all", "1-vs-sample", "negative-sampling"]
Optimiser = Literal["adagrad", "adam"]
Regulariser = Literal["none", "n3", "lp"]


@dataclass(frozen=True)
class Recipe:
    """All settings of a training; the defaults suit ComplEx on a small graph."""

    dim: int = 200  #: coordinates of an entity: complex numbers for ComplEx and RotatE, real ones for the others
    loss: Loss = "1-vs-all"
    label_smoothing: float = 0.0
    negatives: int = 256  #: entities sampled for a batch; only for 1-vs-sample and negative sampling
    margin: float = 6.0  #: only for negative sampling
    adversarial_temperature: float = 1.0  #: likewise; 0 weighs all negatives alike
    norm: Literal[1, 2] = 2  #: of TransE's distance
    optimiser: Optimiser = "adagrad"
    learning_rate: float = 0.1
    batch_size: int = 500
    epochs: int = 100
    regulariser: Regulariser = "n3"
    regulariser_weight: float = 0.05
    regulariser_power: float = 2.0  #: p of the Lp regulariser
    relation_weight: float = 0.0  #: of predicting the relation from both entities (Chen et al., 2021)
    dropout: float = 0.0  #: of the anchor's and the relation's coordinates
    initial_scale: float = 1e-3  #: standard deviation of the first weights
    valid_every: int = 3  #: epochs between two looks at valid
    patience: int = 4  #: looks without a gain before it stops
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            is_whole = isinstance(value, int) or name not in _WHOLE
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not is_whole
                or not low <= value <= high
            ):
                kind = "a whole number" if name in _WHOLE else "a number"
                raise SettingsError(f"{name} is {value!r}, expected {kind} from {low:g} to {high:g}.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise SettingsError(
                    f"{name} is {getattr(self, name)!r}, expected one of: {', '.join(map(str, choices))}."
                )

    @classmethod
    def of(cls, settings: dict[str, Any]) -> "Recipe":
        """A recipe from settings by name."""
        known = [field.name for field in fields(cls)]
        unknown = [name for name in settings if name not in known]
        if unknown:
            raise SettingsError(f"there is no setting {unknown[0]!r}. The settings are: {', '.join(known)}.")
        return cls(**settings)

    def as_dict(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self)


_WHOLE = {"dim", "negatives", "batch_size", "epochs", "valid_every", "patience", "seed"}
_RANGES = [
    ("dim", 1, 100_000),
    ("label_smoothing", 0, 0.999),
    ("negatives", 1, 10_000_000),
    ("margin", -1e6, 1e6),
    ("adversarial_temperature", 0, 1e6),
    ("learning_rate", 1e-9, 1e6),
    ("batch_size", 1, 10_000_000),
    ("epochs", 1, 1_000_000),
    ("regulariser_weight", 0, 1e6),
    ("regulariser_power", 1, 10),
    ("relation_weight", 0, 1e6),
    ("dropout", 0, 0.99),
    ("initial_scale", 1e-9, 1e3),
    ("valid_every", 1, 1_000_000),
    ("patience", 1, 1_000_000),
    ("seed", 0, 2**31 - 1),
]
_CHOICES: dict[str, tuple[Any, ...]] = {
    "loss": get_args(Loss),
    "norm": (1, 2),
    "optimiser": get_args(Optimiser),
    "regulariser": get_args(Regulariser),
}
