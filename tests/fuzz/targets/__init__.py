"""The targets of fuzzing: one module each, whose `cases` draws from the material."""

from functools import cache
from importlib import import_module
from pathlib import Path

from tests.fuzz.engine import Cases
from tests.fuzz.material import Material

#: Every target with its share of the cases.
SHARES = {
    "readers": 4,
    "archives": 3,
    "run_folders": 4,
    "results": 1,
    "questions": 3,
    "options": 3,
    "requests": 4,
}


@cache
def _material(folder: Path) -> Material:
    return Material(folder)


def cases_of(target: str, material: Path) -> Cases:
    """What draws the cases of a target."""
    module = import_module(f"tests.fuzz.targets.{target}")
    return lambda: module.cases(_material(material))
