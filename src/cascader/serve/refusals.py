"""Why a server that is well may not answer."""

from cascader.errors import CascaderError


class BusyError(CascaderError):
    """Too many questions wait already, or the server is about to end."""


class LateError(CascaderError):
    """An answer took longer than a client may wait."""
