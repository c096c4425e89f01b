"""Build the site of the documents in build/site: `python docs/make_site.py`, or `make docs`. A warning is a failure."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The documents, and the files that they link to.
SOURCES = ("*.md", "LICENSE", "CITATION.cff", "Dockerfile", "deploy/*", "docs/*.md", "docs/*.css", "docs/pictures/*")
PAGES, SITE = ROOT / "build" / "pages", ROOT / "build" / "site"


def gather() -> None:
    """Copy what the site shows, and nothing else of the repository, to where its generator looks."""
    for folder in (PAGES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    for path in (path for pattern in SOURCES for path in ROOT.glob(pattern)):
        copy = PAGES / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def build() -> int:
    """The generator's exit code; it prints which links and anchors lead nowhere."""
    generator = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    return subprocess.run([*generator, "--config-file", "zensical.toml"], cwd=ROOT).returncode


if __name__ == "__main__":
    gather()
    sys.exit(build())
