"""Work that is cut into shards, each of which writes its own file, so that it may run anywhere and be done twice."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Call:
    """A function of a module and plain arguments: all that another process needs in order to make the same call.

    >>> Call(max, (3,))(5)
    5
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    def __call__(self, *more: object) -> Any:  # noqa: ANN401 - whatever the function gives
        """Make the call, with some more arguments at the end."""
        return self.function(*self.arguments, *more)


@dataclass(frozen=True)
class Task:
    """What is done with every shard: `work(loaded, shard)`, where `loaded` is what `load()` gave, once a process."""

    work: Call
    load: Call | None  # None: what the work needs cannot be loaded elsewhere, so it stays in this process


class Engine(Protocol):
    """Runs a task over shards."""

    def run(self, task: Task, shards: Sequence[Any], loaded: object = None) -> Iterator[int]:
        """Yield the place of each shard once it is done; `loaded` is what this process has loaded already."""
        ...
