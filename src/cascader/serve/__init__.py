"""A run behind HTTP: an API for programs, and one page for people."""

from cascader.serve.app import create_app
from cascader.serve.batcher import Batching
from cascader.serve.schemas import Limits
from cascader.serve.server import serve

__all__ = ["Batching", "Limits", "create_app", "serve"]
