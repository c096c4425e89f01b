"""Scores by pair, in memory and in files.

A killed process resumes without scoring any pair again.
"""

import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
from annotated_types import Predicate

from cascader.errors import CascaderError, DataError, StorageError
from cascader.graph import FloatArray, IntArray
from cascader.records import Sha256, conforming
from cascader.scoring.engine import (
    SHARD_PAIRS,
    FileShard,
    MemoryShard,
    cut,
    read_shard,
)
from cascader.storage import (
    LOCK,
    is_there,
    local_path,
    locked,
    present,
    read_json,
    refresh,
    remove,
    sha256_of,
    write_json,
)

#: Computes shards, and yields the position of each once it is done.
RunShards = Callable[[Sequence[Any]], Iterator[int]]


class Store(Protocol):
    """Stores scores by the keys of their pairs."""

    def find(self, keys: IntArray) -> FloatArray:
        """Return the score of each pair, NaN if there is none; shape (keys,)."""
        ...

    def compute(self, keys: IntArray, run: RunShards) -> Generator[int, None, None]:
        """Let `run` compute the missing scores of distinct, ascending keys; yield the number of pairs of each shard."""
        ...


class MemoryStore:
    """Stores scores in memory only, and writes no files.

    >>> store = MemoryStore()
    >>> store.add([(np.array([3, 5]), np.array([0.25, 0.5], dtype=np.float32))])
    >>> store.find(np.array([5, 4])).tolist()
    [0.5, nan]
    """

    def __init__(self, shard_pairs: int = SHARD_PAIRS) -> None:
        self._shard_pairs = shard_pairs
        self._keys: IntArray = np.empty(0, dtype=np.int64)  # ascending
        self._scores: FloatArray = np.empty(0, dtype=np.float32)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> IntArray:
        """The keys of all stored pairs, ascending; shape (pairs,)."""
        return self._keys

    def find(self, keys: IntArray) -> FloatArray:
        """Return the score of each pair, NaN if there is none; shape (keys,)."""
        if len(self._keys) == 0:
            return np.full(len(keys), np.nan, dtype=np.float32)
        places = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._scores[places], np.float32(np.nan))

    def add(self, parts: Sequence[tuple[IntArray, FloatArray]]) -> None:
        """Add more pairs and their scores."""
        keys = np.concatenate([self._keys, *(keys for keys, _ in parts)])
        scores = np.concatenate([self._scores, *(scores for _, scores in parts)])
        order = np.argsort(keys, kind="stable")  # fast on an array of sorted parts
        self._keys, self._scores = keys[order], scores[order]

    def compute(self, keys: IntArray, run: RunShards) -> Generator[int, None, None]:
        """Let `run` compute the missing scores in this process."""
        shards = [MemoryShard(part) for part in cut(keys[np.isnan(self.find(keys))], self._shard_pairs)]
        for place in run(shards):
            self.add([(shards[place].keys, shards[place].scores)])
            yield len(shards[place].keys)


logger = logging.getLogger(__name__)
FORMAT, MANIFEST = 1, "manifest.json"
#: How long a shard is waited for that a worker has written: network disks show new files late.
_SECONDS_TO_ARRIVE = 10.0


def _is_shard_name(name: str) -> bool:
    """Whether a file can be a shard, which is named by its job: one with another name is never opened."""
    return re.fullmatch(r"[0-9]{5,9}/[0-9]{5,9}\.safetensors", name) is not None


def _is_name_of_digits(name: str) -> bool:
    """Whether a job can have this name, which is also that of its folder: digits from 0 to 9, no other script's."""
    return re.fullmatch("[0-9]+", name) is not None


@dataclass
class _Job:
    """Pairs that were requested together; while a job is open, its finished shards wait for the others."""

    name: Annotated[str, Predicate(_is_name_of_digits)]
    asked: Sha256  # the sha256 of the pairs and how they are cut
    is_open: bool = True
    # The sha256 of each finished one, by file name.
    shards: dict[Annotated[str, Predicate(_is_shard_name)], Sha256] = field(default_factory=dict)


@dataclass(frozen=True)
class _Manifest:
    jobs: tuple[_Job, ...]


class ScoreStore:
    """Stores the scores of one model on one graph in a folder; workers find it below `root`, a path or a URL.

    Each `identity` has its own subfolder, so that another model's scores are never used. Its `manifest.json`
    lists the finished shards and their sha256, and is written after every shard.
    """

    def __init__(
        self, folder: str | Path, identity: Mapping[str, str], shard_pairs: int = SHARD_PAIRS, *, root: str = ""
    ) -> None:
        self.identity = dict(identity)
        name = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:16]
        self.folder, self.root = Path(folder) / name, root or str(folder)
        self.shard_pairs, self._table = shard_pairs, MemoryStore()
        self._jobs: list[_Job] = []
        self._taken: set[str] = set()  # the shards that are already in the table
        self._version: tuple[int, int] | None = None  # of the manifest when it was last read

    def __len__(self) -> int:
        """The number of scores that were found, as of the last look at the folder."""
        return len(self._table)

    def find(self, keys: IntArray) -> FloatArray:
        """Return the score of each pair, NaN if there is none; shape (keys,)."""
        self._refresh()
        return self._table.find(keys)

    def compute(self, keys: IntArray, run: RunShards) -> Generator[int, None, None]:
        """Let `run` compute the missing scores, while other processes that need some wait."""
        with locked(self.folder):
            refresh(self.folder)  # another machine may have scored some
            missing = self._missing(keys)
            if len(missing):  # the process we waited for may have scored them all
                yield from self._compute(missing, run)

    def _missing(self, keys: IntArray) -> IntArray:
        """Return the pairs to score; an interrupted job for exactly these stays open, any other is closed."""
        missing = keys[np.isnan(self.find(keys))]
        last = self._jobs[-1] if self._jobs else None
        if last is None or not last.is_open or last.asked == self.asked(missing):
            return missing
        last.is_open = False  # its finished shards count, the others are no longer needed
        self._take(last)
        return keys[np.isnan(self._table.find(keys))]

    def _compute(self, missing: IntArray, run: RunShards) -> Generator[int, None, None]:
        if not self._jobs or not self._jobs[-1].is_open:
            self._jobs.append(_Job(f"{len(self._jobs):05}", self.asked(missing)))
        job = self._jobs[-1]
        self._read(job)
        parts = {f"{job.name}/{i:05}.safetensors": part for i, part in enumerate(cut(missing, self.shard_pairs))}
        left = [name for name in parts if name not in job.shards]
        self._write()
        self._clear_away()
        inside = self.folder.relative_to(local_path(self.root)).as_posix()
        for place in run([FileShard(self.root, f"{inside}/{name}", parts[name]) for name in left]):
            name = left[place]
            job.shards[name] = sha256_of(arrived(self.folder / name))
            self._write()
            yield len(parts[name])
        job.is_open = False
        self._write()
        self._clear_away()  # what a worker left that was killed while it wrote
        self._take(job)

    def asked(self, keys: IntArray) -> str:
        """Hash the pairs of a job and how they are cut into shards."""
        return hashlib.sha256(f"{self.shard_pairs} ".encode() + keys.astype("<i8").tobytes()).hexdigest()

    def _refresh(self) -> None:
        """Load new shards if the manifest has changed."""
        path = self.folder / MANIFEST
        version = _version_of(path)
        if version is None or version == self._version:  # if the folder was removed, loaded scores stay valid
            return
        saved = read_json(path)
        if saved.get("format") != FORMAT or saved.get("identity") != self.identity:
            raise DataError(
                f"{path} has format {saved.get('format')!r} and identity {saved.get('identity')!r}, expected format "
                f"{FORMAT} and {self.identity!r}. Was it written by another version of cascader? Use that one, or "
                f"delete {self.folder}."
            )
        self._jobs = list(conforming(saved, _Manifest, path, f"Delete {self.folder} to start over.").jobs)
        for job in self._jobs:
            if not job.is_open:
                self._take(job)
        self._version = version

    def _take(self, job: _Job) -> None:
        """Add a closed job's scores to the table."""
        new = self._read(job)
        self._table.add(list(new.values()))
        self._taken.update(new)

    def _read(self, job: _Job) -> dict[str, tuple[IntArray, FloatArray]]:
        """Read a job's finished shards that are not in the table yet; damaged ones are dropped."""
        new = {}
        for name in [name for name in job.shards if name not in self._taken]:
            try:
                new[name] = read_shard(self.folder / name, job.shards[name])
            except DataError as error:
                logger.warning("%s Until then, its pairs are scored again when they are needed.", error)
                del job.shards[name]
        return new

    def _write(self) -> None:
        for job in self._jobs:
            job.shards = dict(sorted(job.shards.items()))  # in whatever order they were finished
        content = {"format": FORMAT, "identity": self.identity, "jobs": [asdict(job) for job in self._jobs]}
        write_json(self.folder / MANIFEST, content)
        self._version = _version_of(self.folder / MANIFEST)

    def _clear_away(self) -> None:
        """Remove files that killed processes left behind: those that the manifest does not list."""
        listed = {MANIFEST, LOCK, *(name for job in self._jobs for name in job.shards)}
        for path in self.folder.rglob("*"):
            if path.is_file() and path.relative_to(self.folder).as_posix() not in listed:
                remove(path)


def arrived(path: Path) -> Path:
    """Return the path of a file that a worker says it has written, once it is here."""
    end = time.monotonic() + _SECONDS_TO_ARRIVE
    while not present(path).exists():
        if time.monotonic() > end:
            raise StorageError(
                f"a worker has written {path}, but not into this folder: it has a copy of the run of its own. Put the "
                "run on a disk that all machines share, or at a URL."
            )
        time.sleep(0.1)
    return path


def _version_of(path: Path) -> tuple[int, int] | None:
    """Return something that changes whenever a file is replaced; None if there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


#: A question reads some ten pairs: a file for each would cost more than to read them.
WAITING_PAIRS = 8192
#: Those that are written are in memory, too, and a server may run for months: 48 MB.
MOST_PAIRS = 4_000_000


class WriteBehind:
    """Collects new scores in memory and writes them once there are many; if writing fails, they stay in memory.

    Once there are `most_pairs`, written or not, new ones are kept for their own question only.
    """

    def __init__(self, written: ScoreStore, waiting_pairs: int = WAITING_PAIRS, most_pairs: int = MOST_PAIRS) -> None:
        self._written, self._most_pairs = written, most_pairs
        self._waiting_pairs = self._next_write = waiting_pairs
        self._new = MemoryStore()

    def find(self, keys: IntArray) -> FloatArray:
        """Return the score of each pair, NaN if there is none; shape (keys,)."""
        scores = self._new.find(keys)
        missing = np.isnan(scores)
        scores[missing] = self._written.find(keys[missing])
        return scores

    def compute(self, keys: IntArray, run: RunShards) -> Generator[int, None, None]:
        """Let `run` compute the missing scores in this process."""
        if self._is_full:
            self._new = MemoryStore()
        yield from self._new.compute(keys[np.isnan(self.find(keys))], run)
        if len(self._new) >= self._next_write and not self._is_full:
            self.write()

    @property
    def _is_full(self) -> bool:
        return len(self._written) + len(self._new) >= self._most_pairs

    def write(self) -> None:
        """Write the new scores, unless the run's folder is gone."""
        if len(self._new) == 0:
            return
        # The folder is RUN/scores/TIER/HASH: a deleted run must not reappear as a few scores.
        if not is_there(self._written.folder.parents[2]):
            self._next_write = len(self._new) + self._waiting_pairs
            return
        try:
            sum(self._written.compute(self._new.keys, partial(fill, self._new)))
        except (CascaderError, OSError) as error:
            logger.warning("%s %s new scores stay in memory only.", error, f"{len(self._new):,}")
            self._next_write = len(self._new) + self._waiting_pairs
            return
        self._new = MemoryStore()
        self._next_write = self._waiting_pairs


def fill(scores: MemoryStore, shards: Sequence[Any]) -> Iterator[int]:
    """Write scores that are in memory to shards."""
    for place, shard in enumerate(shards):
        shard.keep(scores.find(shard.keys))
        yield place
