"""The command line: `cascader --help` shows the way. The one door to typer."""

from cascader.cli.app import app, main

__all__ = ["app", "main"]
