"""A time limit that is checked between two pieces of work."""

import time
from collections.abc import Callable

from cascader.errors import SettingsError


class Deadline:
    """Runs from the moment it is made; `clock` tells the time in seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        if not seconds > 0:
            raise SettingsError(f"a time limit of {seconds} seconds leaves no time, expected more than 0.")
        self._clock = clock
        self._end = clock() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._clock() >= self._end
