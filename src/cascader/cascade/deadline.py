"""A time limit that is looked at between two pieces of work."""

import time

from cascader.errors import SettingsError


class Deadline:
    """Runs from the moment it is made."""

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise SettingsError(f"a time limit of {seconds} seconds leaves no time, expected more than 0.")
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._end
