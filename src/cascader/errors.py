"""The errors of the package: every message says what was found, what was expected and what to do."""

from collections.abc import Sequence


class CascaderError(Exception):
    """The base class of all errors that a user can fix.

    >>> from cascader import CascaderError, TopK
    >>> try:
    ...     TopK(0)
    ... except CascaderError as error:
    ...     print(error)
    k is 0, expected a whole number, at least 1 candidate.
    """


class DataError(CascaderError):
    """A file or a graph is not as expected."""


class UnknownNameError(DataError):
    """A name that is unknown or ambiguous in the graph; `candidates` has the closest ids."""

    def __init__(self, message: str, candidates: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)


class StorageError(CascaderError):
    """A file could not be written; existing files are unchanged."""


class MissingExtraError(CascaderError):
    """An optional package is missing; the message names the extra that installs it."""


class SettingsError(CascaderError):
    """A setting has an invalid value; the message says which values are valid."""


class NotFittedError(CascaderError):
    """A model was used before it was fitted."""


class TrainingError(CascaderError):
    """Training failed; the message says which setting to change."""


class EngineError(CascaderError):
    """A worker of an engine failed or died; finished shards are kept."""


class UnscoredError(EngineError):
    """Other processes have to score some pairs first: this one scores only its share."""
