"""A folder that a case may write to, amid folders that it may not, and an environment in which it finds only these."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz.guard import Guard, watching

_VARIABLES = {
    "HOME": "home",
    "TMPDIR": "temporary",
    "CASCADER_CACHE": "cache",
    "MPLCONFIGDIR": "cache",
    "HF_HOME": "cache",
    "TORCHINDUCTOR_CACHE_DIR": "cache",
    "XDG_CACHE_HOME": "cache",
}
_ABSENT = ("CASCADER_MIRROR", "CASCADER_WORDNET", "CASCADER_TOKEN")


class Sandbox:
    """The folders of a process: the case's, one for temporary files, a cache, and some that must stay as they are."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.case = self.root / "cases" / "case"
        for name in ("home", "temporary", "cache", "cases"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for folder in (self.root, self.root / "home", self.root / "cases"):
            (folder / "neighbor.txt").write_text("This file belongs to nobody's case.\n")

    @contextmanager
    def entered(self) -> Iterator["Sandbox"]:
        """Make this the environment of the process."""
        before, temporary, bytecode = dict(os.environ), tempfile.tempdir, sys.dont_write_bytecode
        sys.dont_write_bytecode = True  # a module that a case is first to import would be written beside its source
        os.environ.update({name: str(self.root / folder) for name, folder in _VARIABLES.items()})
        for name in _ABSENT:
            os.environ.pop(name, None)
        tempfile.tempdir = None
        try:
            yield self
        finally:
            os.environ.clear()
            os.environ.update(before)
            tempfile.tempdir, sys.dont_write_bytecode = temporary, bytecode

    def emptied(self) -> Path:
        """The case's folder, with nothing in it."""
        shutil.rmtree(self.case, ignore_errors=True)
        self.case.mkdir()
        return self.case

    @contextmanager
    def watched(self) -> Iterator[Guard]:
        """Watch what is done within the block, in the case's folder; in the end, nothing around it may have changed."""
        # What is unpacked gets a folder of its own among the temporary ones: next to it is outside.
        guard = Guard([self.case, self.root / "temporary", self.root / "cache"], self.root)
        here, before = Path.cwd(), self._surroundings()
        os.chdir(self.case)
        try:
            with watching(guard):
                yield guard
        finally:
            os.chdir(here)
            after = self._surroundings()
            changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
            guard.offenses += [("outside", f"changed or left behind: {path}") for path in changed]
            self._clean()

    def _surroundings(self) -> dict[str, tuple[int, int, int]]:
        """Every file and folder around the case's own, with its size, time and mode; temporary files must be gone."""
        found = {}
        for folder, folders, files in os.walk(self.root):
            at_top = folder == str(self.root)
            folders[:] = [name for name in folders if not (at_top and name == "cache") and name != "case"]
            for name in files:
                state = os.lstat(f"{folder}/{name}")
                found[f"{folder}/{name}"] = (state.st_size, state.st_mtime_ns, state.st_mode)
            for name in folders:
                found[f"{folder}/{name}/"] = (0, 0, 0)
        return found

    def _clean(self) -> None:
        for path in (self.root / "temporary").iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
