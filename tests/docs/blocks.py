"""The code blocks of the documents."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDES = sorted((ROOT / "docs").glob("*.md"))
TUTORIAL = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Set up the machine or call the tests themselves.
NOT_RUN_HERE = ("make", "git", "pip", "python bench", "source")


def found_in(path):
    """The language and the text of every block, by its number."""
    return enumerate(BLOCK.findall(path.read_text(encoding="utf-8")), start=1)


def beside_blocks(language, path):
    """The paragraphs before and after every block of a language."""
    text = path.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        if block[1] == language:
            yield text[: block.start()].rstrip().split("\n\n")[-1], text[block.end() :].lstrip().split("\n\n")[0]


def blocks(language, paths, slow=()):
    """All blocks of a language as parameters of a test; those of some documents are slow."""
    return [
        pytest.param(block, id=f"{path.name}-{number}", marks=[pytest.mark.slow] if path.name in slow else [])
        for path in paths
        for number, (found, block) in found_in(path)
        if found == language
    ]


def commands(block):
    """The commands of a block, each as its words."""
    lines = [line.split(" #")[0].strip() for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line and not line.startswith(NOT_RUN_HERE)]
