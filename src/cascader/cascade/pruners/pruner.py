"""What all pruners have in common."""

from typing import Any, ClassVar, Protocol

from cascader.errors import SettingsError
from cascader.graph import Array, Candidates, FloatArray, Queries


class Pruner(Protocol):
    """Chooses candidates from a tier's scores; known answers have been masked with -inf before.

    `kind` names it in files and reports, and `str(pruner)` says in a few words how many it keeps.
    """

    kind: ClassVar[str]

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """The candidates of each query to keep, best first; `scores` is (queries, entities)."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """Its kind, its settings and the few numbers it has learned, ready for JSON."""
        ...

    def tensors(self) -> dict[str, Array]:
        """The arrays it has learned, by name."""
        ...


def check_share(name: str, value: object) -> None:
    """A quantile and a coverage are shares of the queries: never none of them, never all."""
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise SettingsError(f"{name} is {value!r}, expected a number above 0 and below 1, such as 0.9.")
