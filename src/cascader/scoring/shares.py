"""Shares of the work for job arrays: each process scores some of the shards, and knows nothing of the others.

All of them find the same pairs missing and cut them into the same shards; each scores every n-th shard into a folder of
shares. Only `merge` writes to the store: what it writes is what one process would have written.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge

from cascader.errors import DataError, SettingsError, UnscoredError
from cascader.graph import FloatArray, IntArray
from cascader.paths import resolved
from cascader.records import Sha256, read_record, write_record
from cascader.scoring.engine import Engine, FileShard, Task, cut
from cascader.scoring.store import MemoryStore, RunShards, ScoreStore, arrived, fill
from cascader.storage import Array, is_url, local_path, read_arrays, remove, write_arrays

FORMAT = 1
_RECORD = "job.json"
_KEYS = "keys.safetensors"
_ADVICE = "Delete its folder, and run the commands that made it again."
#: How many of the commands that make what is missing are named.
_MOST_NAMED = 8


@dataclass(frozen=True)
class Share:
    """One of several shares of the work, counted from 1.

    >>> share = Share.parse("2/8")
    >>> [shard for shard in range(20) if share.has(shard)]
    [1, 9, 17]
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Share":
        """Read what --shard says: 2/8 is the second of eight."""
        found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise SettingsError(f"--shard is {text!r}, expected a number of as many, from 1/8 to 8/8 for eight.")
        return cls(int(found[1]), int(found[2]))

    def has(self, shard: int) -> bool:
        """Return whether a shard, counted from 0, is in this share."""
        return shard % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True)
class _Job:
    """Pairs that are scored in shares; all processes write the same."""

    identity: dict[str, str]
    asked: Sha256
    number: Annotated[int, Ge(0)]  # which of the command's jobs it is
    first: Annotated[int, Ge(0)]  # how many shards the earlier ones have
    count: Annotated[int, Ge(1)]  # how many shares there are
    command: str  # what scores a share, with {} in place of it


@dataclass(frozen=True, eq=False)
class ShareShard(FileShard):
    """A shard that no manifest lists, so that its file has its own sum."""

    def keep(self, scores: FloatArray) -> None:
        """Write pairs, scores and their sum atomically."""
        keys, scores = self.keys.astype(np.int64), scores.astype(np.float32)
        write_arrays(local_path(self.root) / self.name, {"keys": keys, "scores": scores, "sum": _sum_of(keys, scores)})


class ShareEngine:
    """Lets another engine score one share of the shards, into a folder of its own or one that all shares have."""

    def __init__(self, share: Share, folder: Path, engine: Engine, command: str) -> None:
        self.share, self.folder, self.command = share, folder, command
        self.engine = engine  #: what scores this share
        self.jobs = 0  #: how many times missing pairs were asked for
        self.shards = 0  #: how many shards these are, in all shares
        self.own_shards = 0
        self.own_pairs = 0
        self._asked: dict[Path, MemoryStore] = {}  # what all shares together will have scored

    def run(self, task: Task, shards: Sequence[Any], loaded: object = None) -> Iterator[int]:
        """Yield the position of each shard once it is done."""
        return self.engine.run(task, shards, loaded)

    def dismiss(self) -> None:
        """End the workers; the next run starts new ones."""
        self.engine.dismiss()

    def store(self, tier: str, written: ScoreStore) -> "ShareStore":
        """Return the store that scores this share of what is missing in `written`."""
        folder = resolved(self.folder) / tier / written.folder.name
        return ShareStore(self, folder, written, self._asked.setdefault(folder, MemoryStore()))


class ShareStore:
    """Finds the scores of a store, and scores one share of those that are missing, without writing to that store."""

    def __init__(self, engine: ShareEngine, folder: Path, written: ScoreStore, asked: MemoryStore) -> None:
        self._engine, self._folder, self._written, self._asked = engine, folder, written, asked

    def find(self, keys: IntArray) -> FloatArray:
        """Return the score of each pair, NaN if there is none; shape (keys,)."""
        return self._written.find(keys)

    def compute(self, keys: IntArray, run: RunShards) -> Generator[int, None, None]:
        """Let `run` compute this share of the missing scores."""
        missing = keys[np.isnan(self.find(keys)) & np.isnan(self._asked.find(keys))]
        if len(missing):
            self._asked.add([(missing, np.zeros(len(missing), dtype=np.float32))])
            yield from self._compute(missing, run)
        raise UnscoredError(f"{len(keys):,} pairs are scored in {self._engine.share.count} shares. Merge these first.")

    def _compute(self, missing: IntArray, run: RunShards) -> Iterator[int]:
        engine, share, asked = self._engine, self._engine.share, self._written.asked(missing)
        folder, parts, first = self._folder / asked[:16], cut(missing, self._written.shard_pairs), engine.shards
        job = _Job(self._written.identity, asked, engine.jobs, first, share.count, engine.command)
        write_arrays(folder / _KEYS, {"keys": missing})
        write_record(folder / _RECORD, {"format": FORMAT, **asdict(job)})
        engine.jobs, engine.shards = engine.jobs + 1, first + len(parts)
        own = [(_name(place), part) for place, part in enumerate(parts) if share.has(first + place)]
        left = [(name, part) for name, part in own if _scores_in(folder / name, part) is None]
        root, inside = self._address_of(folder)
        for place in run([ShareShard(root, f"{inside}{name}", part) for name, part in left]):
            name, part = left[place]
            arrived(folder / name)
            yield len(part)
        engine.own_shards += len(own)
        engine.own_pairs += sum(len(part) for _, part in own)

    def _address_of(self, folder: Path) -> tuple[str, str]:
        """Where workers find a folder: below the URL of the run, of which every machine has a copy, or as it is."""
        root = self._written.root
        if is_url(root) and folder.is_relative_to(local_path(root)):
            return root, f"{folder.relative_to(local_path(root)).as_posix()}/"
        return str(folder), ""


def _name(place: int) -> str:
    return f"{place:05}.safetensors"


def _scores_in(path: Path, keys: IntArray) -> FloatArray | None:
    """Read the scores of these pairs; None if the file is not there, is damaged, or is of other pairs."""
    try:
        arrays = read_arrays(path)
    except DataError:
        return None
    scores = arrays.get("scores", np.empty(0))
    if not np.array_equal(arrays.get("keys", np.empty(0)), keys) or scores.shape != keys.shape:
        return None
    if scores.dtype != np.float32 or np.isnan(scores).any():
        return None
    return scores if np.array_equal(arrays.get("sum", np.empty(0)), _sum_of(keys, scores)) else None


def _sum_of(keys: IntArray, scores: FloatArray) -> Array:
    """The sha256 of pairs and their scores, as bytes; shape (32,)."""
    digest = hashlib.sha256(keys.astype("<i8").tobytes() + scores.astype("<f4").tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class _Found:
    """A job, and the folders that have shards of it."""

    job: _Job
    keys: IntArray
    folders: list[Path]

    def scores_of(self, place: int, part: IntArray) -> FloatArray | None:
        found = (_scores_in(folder / _name(place), part) for folder in self.folders)
        return next((scores for scores in found if scores is not None), None)


class Merger:
    """Merges the shares that lie in some folders into a store."""

    def __init__(self, tier: str, store: ScoreStore, folders: Sequence[Path]) -> None:
        self._store = store
        found = [self._read(path) for folder in folders for path in _jobs_in(folder / tier / store.folder.name)]
        jobs: dict[str, _Found] = {}
        for each in found:
            if jobs.setdefault(each.job.asked, each) is not each:
                jobs[each.job.asked].folders.extend(each.folders)
        self._jobs = sorted(jobs.values(), key=lambda each: (each.job.command, each.job.number))

    def __len__(self) -> int:
        return len(self._jobs)

    def _read(self, folder: Path) -> _Found:
        job = read_record(folder / _RECORD, _Job, FORMAT, _ADVICE)
        keys = read_arrays(folder / _KEYS).get("keys", np.empty(0))
        is_asked = keys.dtype == np.int64 and self._store.asked(keys) == job.asked
        if job.identity != self._store.identity or not is_asked:
            raise DataError(f"{folder} does not hold the pairs that its {_RECORD} speaks of. {_ADVICE}")
        return _Found(job, keys, [folder])

    def _parts(self, found: _Found) -> list[IntArray]:
        return cut(found.keys, self._store.shard_pairs)

    def missing(self) -> Counter[str]:
        """Count the shards that are not there, by the command that makes them."""
        commands: Counter[str] = Counter()
        for each in self._jobs:
            if not np.isnan(self._store.find(each.keys)).any():
                continue  # scored by another command meanwhile
            for place, part in enumerate(self._parts(each)):
                if each.scores_of(place, part) is None:
                    share = Share((each.job.first + place) % each.job.count + 1, each.job.count)
                    commands[each.job.command.replace("{}", str(share))] += 1
        return commands

    def merge(self) -> int:
        """Write all shares to the store as one process would have, and return the number of new pairs."""
        return sum(self._merge(each) for each in self._jobs)

    def discard(self, inside: Path) -> None:
        """Remove the shares in one of the folders."""
        for folder in [folder for each in self._jobs for folder in each.folders]:
            if folder.is_relative_to(inside):
                remove(folder)

    def _merge(self, found: _Found) -> int:
        if not np.isnan(self._store.find(found.keys)).any():
            return 0
        memory = MemoryStore()
        for place, part in enumerate(self._parts(found)):
            scores = found.scores_of(place, part)
            if scores is not None:
                memory.add([(part, scores)])
        return sum(self._store.compute(found.keys, partial(fill, memory)))


def _jobs_in(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob(f"*/{_RECORD}"))


def check_complete(mergers: Sequence[Merger], what: str) -> None:
    """Refuse to merge as long as a shard is missing, and name the commands that make what is."""
    commands: Counter[str] = sum((each.missing() for each in mergers), Counter())
    if not commands:
        return
    named = [f"{command} ({count:,} missing)" for command, count in commands.most_common(_MOST_NAMED)]
    others = f", and {len(commands) - _MOST_NAMED} more" if len(commands) > _MOST_NAMED else ""
    raise DataError(
        f"{commands.total():,} shards of {what} are missing, and nothing was merged. Make them with: "
        f"{'; '.join(named)}{others}. If they were made into another folder, name it."
    )
