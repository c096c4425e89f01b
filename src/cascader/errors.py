"""What can go wrong, as types: every message says what was found, what was expected and what to do."""

from collections.abc import Sequence


class CascaderError(Exception):
    """The root of all errors that a user can do something about.

    >>> from cascader import CascaderError, TopK
    >>> try:
    ...     TopK(0)
    ... except CascaderError as error:
    ...     print(error)
    k is 0, expected a whole number, at least 1 candidate.
    """


class DataError(CascaderError):
    """A file or a graph is not what it should be."""


class UnknownNameError(DataError):
    """A name that the graph does not have, or has several times; `candidates` are the closest ids."""

    def __init__(self, message: str, candidates: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)


class StorageError(CascaderError):
    """A file could not be written or read back; what was there before is untouched."""


class MissingExtraError(CascaderError):
    """An optional package is needed; the message names the extra that installs it."""


class SettingsError(CascaderError):
    """A setting that cannot work; the message says what can."""


class NotFittedError(CascaderError):
    """A model is asked before it has learnt anything."""


class TrainingError(CascaderError):
    """A training went wrong; the message says which setting to change."""


class EngineError(CascaderError):
    """A worker of an engine died or failed; the shards that were finished are kept."""
