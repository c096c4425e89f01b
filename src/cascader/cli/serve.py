"""`cascader serve`: serve a run as a JSON API and a web page."""

from pathlib import Path
from typing import Annotated

import typer

from cascader.cli.console import echo
from cascader.errors import MissingExtraError


def serve(
    run: Annotated[Path, typer.Argument(help="A folder that `cascader fit` wrote.")],
    host: Annotated[
        str, typer.Option("--host", help="The address to serve on; 0.0.0.0 lets other machines connect.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 picks any free one.")] = 8000,
    token: Annotated[
        str,
        typer.Option("--token", envvar="CASCADER_TOKEN", help="A secret that every request to the API must send."),
    ] = "",
) -> None:
    """Serve a run as a web page for asking and exploring, and as a JSON API.

    Example: cascader serve runs/demo --port 8000
    """
    try:
        from cascader.serve import serve as serve_run
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "pydantic", "starlette"):
            raise
        raise MissingExtraError(
            f'serving needs {error.name}, which is not installed. Install it with: pip install "cascader[serve]"'
        ) from error
    serve_run(run, host=host, port=port, token=token, ready=lambda url: echo(f"Serving {run} at {url}"))
