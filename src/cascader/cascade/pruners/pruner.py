"""What all pruners have in common."""

from typing import Any, Protocol

from cascader.errors import SettingsError
from cascader.graph import Array, Candidates, FloatArray, Queries


class Pruner(Protocol):
    """Chooses candidates from a tier's scores; known facts have been masked with -inf before."""

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """The candidates of each query that go on, best first; `scores` is (queries, entities)."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """Its settings and the few numbers it has learnt, as JSON can hold them."""
        ...

    def tensors(self) -> dict[str, Array]:
        """The arrays it has learnt, by name; none where there are none."""
        ...


def check_share(name: str, value: object) -> None:
    """A quantile and a coverage are shares of the queries: never none of them, never all."""
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise SettingsError(f"{name} is {value!r}, expected a number above 0 and below 1, such as 0.9.")
