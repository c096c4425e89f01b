"""The command line; `cascader --help` lists the commands. Only this package imports typer."""

from cascader.cli.app import app, main

__all__ = ["app", "main"]
