"""A run behind HTTP: an API for programs, and one page for people."""

from cascader.serve.app import create_app
from cascader.serve.limits import Limits
from cascader.serve.server import serve

__all__ = ["Limits", "create_app", "serve"]
