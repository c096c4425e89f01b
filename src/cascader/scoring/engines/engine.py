"""Work that is cut into shards, each with its own file, so that any process may do it, even twice."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Call:
    """A module-level function and plain arguments: all that another process needs to make the same call.

    >>> Call(max, (3,))(5)
    5
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    def __call__(self, *more: object) -> Any:  # noqa: ANN401 - whatever the function returns
        """Make the call, with more arguments at the end."""
        return self.function(*self.arguments, *more)


@dataclass(frozen=True)
class Task:
    """The work for every shard, `work(loaded, shard)`, where `loaded` is what `load()` returned, once per process."""

    work: Call
    load: Call | None  # None: another process cannot load what the work needs, so it stays in this one


class Engine(Protocol):
    """Runs a task over shards."""

    def run(self, task: Task, shards: Sequence[Any], loaded: object = None) -> Iterator[int]:
        """Yield the position of each shard once it is done; `loaded` is what this process has already loaded."""
        ...
