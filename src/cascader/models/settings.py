"""Settings of a model in one value: checked when they are made, and listed when one is misspelt."""

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from cascader.errors import SettingsError


@dataclass(frozen=True)
class Settings:
    """A frozen dataclass inherits this, and says what its numbers may be and which words it knows."""

    #: Lowest and highest value by name; a field of type int takes whole numbers only.
    ranges: ClassVar[dict[str, tuple[float, float]]] = {}
    #: The words or numbers to choose from, by name.
    choices: ClassVar[dict[str, tuple[Any, ...]]] = {}

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in self.ranges:
                self._check_number(field.name, value, complete=field.type is int)
            if field.name in self.choices and value not in self.choices[field.name]:
                expected = ", ".join(map(str, self.choices[field.name]))
                raise SettingsError(f"{field.name} is {value!r}, expected one of: {expected}.")

    def _check_number(self, name: str, value: object, complete: bool) -> None:
        low, high = self.ranges[name]
        kinds = (int,) if complete else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
            kind = "a whole number" if complete else "a number"
            raise SettingsError(f"{name} is {value!r}, expected {kind} from {low:g} to {high:g}.")

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Self:
        """Settings by name."""
        known = [field.name for field in fields(cls)]
        unknown = [name for name in settings if name not in known]
        if unknown:
            raise SettingsError(f"there is no setting {unknown[0]!r}. The settings are: {', '.join(known)}.")
        return cls(**settings)

    def as_dict(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self)
