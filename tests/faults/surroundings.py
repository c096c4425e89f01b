"""Faults of what is around a command: disks, damaged files, a second process, and clocks."""

import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import cascader.models.training as training
from tests.faults.processes import Child, Command
from tests.faults.signals import Fault, is_equal

Commands = Mapping[str, Command]
_DAY = 24 * 3600.0


def two_at_once(commands: Commands, into: Path, draw: random.Random) -> Iterator[Fault]:
    """Start a command twice on the same folder: one waits for the other, or both write the same."""
    for name in ("fit", "evaluate", "predict"):
        command, folder = commands[name], into / f"two-{name}"
        command.prepare(folder)
        children = [Child(command.arguments(folder), into / f"two-{name}-{number}.log") for number in (1, 2)]
        codes = [child.ended() for child in children]
        assert codes == [0, 0], [child.printed() for child in children]
        yield _gone_on(command, folder, "two at once", "", "exit 0, 0")


def jumping_clocks(commands: Commands, into: Path, draw: random.Random) -> Iterator[Fault]:
    """Let all clocks jump by a day, ahead or back, while a command runs."""
    for days in (1, -1):
        command, folder, moment = commands["fit"], into / f"clocks{days:+}", draw.uniform(0, 1)
        child = command.begin(folder, before=lambda: _let_jump(days * _DAY, moment))  # noqa: B023 - called at once
        code = child.ended()
        assert code == 0, child.printed()
        yield _gone_on(command, folder, f"clocks {days:+} day", f"{moment:.2f} s", "exit 0")


def _let_jump(seconds: float, moment: float) -> None:
    real = {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter")}
    start = real["monotonic"]()
    for name, clock in real.items():
        setattr(time, name, lambda clock=clock: clock() + (seconds if real["monotonic"]() - start > moment else 0))
    training.train.__defaults__ = (*(training.train.__defaults__ or ())[:-1], time.monotonic)


def damaged_shards(commands: Commands, into: Path, draw: random.Random) -> Iterator[Fault]:
    """Cut a file of stored scores, or flip one of its bits: the same command finds it, and reads those pairs again."""
    command = commands["tune"]
    for how in ("cut", "flipped"):
        folder = command.prepare(into / f"shard-{how}")
        command.finish(folder)
        path = draw.choice(sorted((folder / "scores").rglob("*.safetensors")))
        content = bytearray(path.read_bytes())
        place = draw.randrange(len(content))
        content[place] ^= 1 << draw.randrange(8)
        path.write_bytes(content if how == "flipped" else content[:place])
        shutil.rmtree(folder / "parts")  # so that the scores are needed again
        yield _gone_on(command, folder, f"shard {how}", f"byte {place:,}", "")


def small_files(commands: Commands, into: Path, draw: random.Random) -> Iterator[Fault]:
    """Limit the size of files: whichever is the first to be too large, it is a sentence and exit code 2."""
    for name in ("fit", "tune", "evaluate", "predict"):
        command, size = commands[name], draw.randrange(200, 2500)
        folder = command.prepare(into / f"small-{name}")
        child = command.begin(folder, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))  # noqa: B023
        ended = _sentence(child)
        yield _gone_on(command, folder, "file-size limit", f"{size:,} bytes", ended)


def full_disk(commands: Commands, into: Path, draw: random.Random) -> Iterator[Fault]:
    """Run commands on a disk of their own that has too little room at first."""
    for name in ("fit", "evaluate", "predict"):
        room = 4 * draw.randrange(1, 30)
        yield from _on_own_disk(commands[name], into, "full disk", room)


def read_only_disk(commands: Commands, into: Path, draw: random.Random) -> Iterator[Fault]:
    """Run commands on a disk of their own that is read-only at first."""
    for name in ("fit", "evaluate", "predict"):
        yield from _on_own_disk(commands[name], into, "read-only disk", None)


SURROUNDINGS = {
    "two": two_at_once,
    "clocks": jumping_clocks,
    "shards": damaged_shards,
    "small-files": small_files,
    "full-disk": full_disk,
    "read-only-disk": read_only_disk,
}


def _on_own_disk(command: Command, into: Path, what: str, room: int | None) -> Iterator[Fault]:
    """Run a command where there are so many KB of room, or on a disk that is read-only, and then elsewhere."""
    name = f"{what.replace(' ', '-')}-{command.name}"
    disk = into / f"{name}-disk"
    disk.mkdir()
    if _called("mount", "-t", "tmpfs", "tmpfs", str(disk)):
        sys.stdout.write(f"{command.name}, {what}: skipped, because only root can mount a disk\n")
        return
    try:
        folder = command.prepare(disk / "run")
        folder.mkdir(exist_ok=True)
        option = "ro" if room is None else f"size={_used_kilobytes(disk) + room}k"
        assert not _called("mount", "-o", f"remount,{option}", str(disk))
        ended = _sentence(Child(command.arguments(folder), into / f"{name}.log"))
        moved = shutil.copytree(folder, into / name)
    finally:
        assert not _called("umount", str(disk))
    yield _gone_on(command, moved, what, "" if room is None else f"{room} KB of room", ended)


def _used_kilobytes(disk: Path) -> int:
    """What a disk holds in whole blocks: files take more than their bytes."""
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize // 1024


def _called(*command: str) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


def _sentence(child: Child) -> str:
    """How a command ended that may have met with a bad disk: well, or with a sentence and exit code 2."""
    code, printed = child.ended(), child.printed()
    assert code in (0, 2), f"ended with {code}:\n{printed}"
    assert code == 0 or "error: " in printed, printed
    assert "Traceback" not in printed, printed
    return f"exit {code}"


def _gone_on(command: Command, folder: Path, what: str, moment: str, ended: str) -> Fault:
    """Let the command go on without the fault, and compare."""
    command.finish(folder)
    return Fault(command.name, what, moment, ended, folder.name, is_resumed=True, is_equal=is_equal(command, folder))
