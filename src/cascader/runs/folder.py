"""A run's folder, which holds everything a colleague needs to use the run."""

import hashlib
import logging
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from cascader.datasets import Split, load_graph, save_graph
from cascader.display import Event, Listener, log_to
from cascader.errors import DataError, SettingsError, StorageError
from cascader.graph import KnowledgeGraph
from cascader.models.checkpoints import CHECKPOINT
from cascader.models.device import using_device
from cascader.models.model import Model
from cascader.models.readers import READING
from cascader.models.registry import load_model
from cascader.paths import check_regular, resolved
from cascader.records import FileSum, check_sums, read_record, sums_of, write_record
from cascader.runs.record import RunRecord, parts_of
from cascader.scoring import Scorer, ScoreStore, StoredScorer
from cascader.scoring.engine import Call, Engine
from cascader.scoring.shares import Merger, ShareEngine, check_complete
from cascader.scoring.store import WriteBehind
from cascader.storage import (
    by_address,
    is_writable,
    local_path,
    locked,
    publish,
    read_json,
    refresh,
    remove,
    versions_of,
)

logger = logging.getLogger(__name__)
FORMAT = 3
#: An empty split has no file; no triples must be held out for it when the graph is loaded again.
_AS_IT_WAS = Split(valid=0, test=0)
_RECORD = "run.json"
#: What is brought from a URL when it is needed, and not before: stored scores, and what only fitting goes on from.
_SCORES, _ONLY_TO_GO_ON = "scores/*", (f"*/{CHECKPOINT}", f"{READING}/*")
_PACKAGES = ("cascader", "numpy", "torch", "safetensors", "transformers")
_ADVICE = "Copy the run again from where it came from, or fit it again. --no-verify reads it without this check."


class RunFolder:
    """The folder with the graph, the tiers, the stored scores and the results of a run.

    Its `address` is a path or a URL, as the user gave it. Its `path` is where this machine has it: of a run at a URL,
    that is a working copy, which has what the URL had when the folder was opened, and puts there what is written.
    """

    def __init__(self, address: str | Path) -> None:
        self.path = local_path(address)
        self.address = by_address(str(self.path))
        refresh(self.path, without=(_SCORES, *_ONLY_TO_GO_ON))
        self._sums: dict[str, dict[str, FileSum]] = {}  # of the files of a tier, or of the graph
        self._loaded: dict[str, Model] = {}  # the tiers that later ones learn beside

    def __repr__(self) -> str:
        return f"RunFolder({self.address!r})"

    @property
    def name(self) -> str:
        """The last part of the address."""
        return resolved(Path(self.address)).name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process; a second one waits, and then finds the run finished."""
        check_regular(self.path)
        with locked(self.path):
            refresh(self.path, without=(_SCORES,))  # whoever had the lock until now may have written
            yield

    def log(self) -> Listener:
        """Return a listener that keeps all events in the folder, one JSON object per line."""
        path = self.path / "events.jsonl"
        write = log_to(path)

        def keep(event: Event) -> None:
            write(event)
            publish(path)

        return keep

    # The graph.

    def save_graph(self, kg: KnowledgeGraph) -> None:
        """Write the graph; if the folder already has one, it must be the same."""
        if not (self.path / "graph").exists():
            save_graph(kg, self.path / "graph", "parquet")
            return
        found = self.load_graph().data_hash
        if found != kg.data_hash:
            raise DataError(
                f"{self.address} holds a run on another graph (sha256 {found[:12]}, this one has {kg.data_hash[:12]}). "
                "Choose another folder."
            )

    def load_graph(self, name: str = "") -> KnowledgeGraph:
        """Load the graph that the run was fitted to."""
        return load_graph(self.path / "graph", split=_AS_IT_WAS, name=name or None)

    # The tiers.

    def tier(self, name: str) -> Path:
        """Return the folder of a tier's weights and checkpoints."""
        return self.path / "tiers" / name

    def has_tier(self, name: str) -> bool:
        """Return whether a tier is completely trained."""
        return (self.tier(name) / "model.json").exists()

    def save_tier(self, name: str, model: Model) -> None:
        """Write a tier's weights, and then remove its checkpoint, unless it can go on from there with more time."""
        if self.is_usable and name in self.metadata().tiers:
            remove(self.path / _RECORD)  # it has the sums of the tier that is replaced
        remove(self.tier(name) / "model.json")  # of a tier that goes on: what is half replaced is no trained tier
        model.save(self.tier(name))
        if model.history_.cut_at is None:
            remove(self.tier(name) / CHECKPOINT)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._sums.pop(f"tiers/{name}", None)
        self._loaded.pop(name, None)

    def can_go_on(self, name: str, model: Model) -> bool:
        """Return whether a trained tier was cut short by a time limit, and can be trained on."""
        return model.history_.cut_at is not None and (self.tier(name) / CHECKPOINT).exists()

    def reopen(self, stale: Sequence[str]) -> None:
        """Take back that the run is complete, and remove the tiers that are to be trained again."""
        remove(self.path / _RECORD)
        for name in stale:
            for file in ("model.json", CHECKPOINT):  # first: without these, what else is left of it is not read
                remove(self.tier(name) / file)
            remove(self.tier(name))
            self._forget(name)

    def load_tier(self, name: str, kg: KnowledgeGraph) -> Model:
        """Load one tier, which must be as it was written if it is listed."""
        if self.is_usable and name in (record := self.metadata()).tiers:
            self._check_part(record, f"tiers/{name}", f"Delete {self.tier(name)}, and fit again to train it anew.")
        return load_model(self.tier(name), kg)

    def loaded_tier(self, name: str, kg: KnowledgeGraph) -> Model:
        """Load one tier, or return it as it was loaded before: what it keeps of its answers is worth more than room."""
        if name not in self._loaded:
            self._loaded[name] = self.load_tier(name, kg)
        return self._loaded[name]

    def load_tiers(self, record: RunRecord, kg: KnowledgeGraph) -> dict[str, Model]:
        """Load all tiers, in order."""
        tiers = {name: load_model(self.tier(name), kg) for name in record.tiers}
        for name, kind in record.tiers.items():
            if tiers[name].name != kind:
                raise DataError(
                    f"the tier {name} of {self.address} is a {tiers[name].name}, expected {kind}. Copy the run again."
                )
        return tiers

    def tier_hash(self, name: str) -> str:
        """Return one sha256 for all files of a trained tier, computed once."""
        lines = (f"{found.sha256} {file}\n" for file, found in self._sums_of(f"tiers/{name}").items())
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def _sums_of(self, part: str) -> dict[str, FileSum]:
        """Return the sums of all files of a part of the run, computed once."""
        if part not in self._sums:
            self._sums[part] = sums_of(self.path / part, without=(CHECKPOINT,))
        return self._sums[part]

    def verified(self) -> RunRecord:
        """Check that no file of the graph and the tiers was damaged, added or lost, and return what was recorded."""
        record = self.metadata()
        for part in parts_of(record.tiers):
            self._check_part(record, part, _ADVICE)
        return record

    def _check_part(self, record: RunRecord, part: str, advice: str) -> None:
        prefix = f"{part}/"
        expected = {name.removeprefix(prefix): of for name, of in record.files.items() if name.startswith(prefix)}
        check_sums(self.path / part, self._sums_of(part), expected, advice)

    def stored(
        self, name: str, model: Scorer, kg: KnowledgeGraph, engine: Engine | None = None, device: str = "cpu"
    ) -> StoredScorer:
        """Wrap a trained tier so that its scores are stored in the folder and computed by `engine`, on `device`."""
        if not self.has_tier(name):
            raise SettingsError(
                f"{self.address} has no trained tier {name!r} whose scores could be stored. Fit it first."
            )
        store = self._store(name, kg.data_hash)
        load = Call(load_scorer, (self.for_workers, name, self.tier_hash(name), device))
        if isinstance(engine, ShareEngine):
            return StoredScorer(model, kg, engine.store(name, store), engine, load)
        if self.is_read_only:
            return StoredScorer(model, kg, WriteBehind(store, waiting_pairs=sys.maxsize), engine)
        return StoredScorer(model, kg, store, engine, load)

    @property
    def for_workers(self) -> str:
        """The address under which other processes and machines find the run."""
        return str(resolved(self.path)) if self.address == str(self.path) else self.address

    def _store(self, name: str, data_hash: str) -> ScoreStore:
        refresh(self.path / "scores" / name)
        root, identity = self.for_workers, {"model": self.tier_hash(name), "data": data_hash}
        return ScoreStore(local_path(root) / "scores" / name, identity, root=root)

    @property
    def shares(self) -> Path:
        """The folder for what the processes of a job array score."""
        return resolved(self.path) / "shares"

    def merge(self, others: Sequence[Path] = ()) -> int:
        """Add the shares in the run's folder, and in others, to its stored scores; return the number of new pairs.

        A shard that is missing is an error that says which command makes it. Merged once more, nothing is added.
        """
        refresh(self.shares)
        record, folders = self.metadata(), [self.shares, *others]
        mergers = [Merger(name, self._store(name, record.data_hash), folders) for name in record.tiers]
        if others and not any(map(len, mergers)):
            raise DataError(
                f"{', '.join(map(str, others))} has no scores of the tiers of {self.address}. Name the folders that "
                "`cascader evaluate RUN --shard` was given as --out."
            )
        check_complete(mergers, self.address)
        new = sum(each.merge() for each in mergers)
        for each in mergers:
            each.discard(self.shares)
        return new

    # The run as a whole.

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written into the folder, such as one on a disk that others share."""
        return self.path.exists() and not is_writable(self.path)

    def keep(self, write: Callable[[], None]) -> None:
        """Write what the run can do without; if its folder is read-only, that is made again when it is needed."""
        if self.is_read_only:
            logger.info(
                "%s is read-only: what valid has chosen just now is not kept, and is chosen again next time.",
                self.address,
            )
            return
        write()

    def check_writable(self, what: str) -> None:
        """Refuse, before anything long starts, to put the results or the report into a folder that is read-only."""
        if self.is_read_only:
            raise StorageError(
                f"{self.address} is read-only, so its {what} needs another place. Name a folder with --out."
            )

    @property
    def is_usable(self) -> bool:
        """Whether the folder holds a run, complete or with some of its tiers still to come."""
        return (self.path / _RECORD).exists()

    @property
    def is_complete(self) -> bool:
        """Whether the folder holds a complete run."""
        return self.is_usable and not self.metadata().coming

    def part(self, tiers: Sequence[str]) -> Path:
        """Return the folder for what valid has chosen for some of the tiers."""
        return self.path / "parts" / "+".join(tiers)

    def mark_complete(
        self,
        kg: KnowledgeGraph,
        preset: str,
        tiers: Mapping[str, str],
        apart: Sequence[str] = (),
        coming: Sequence[str] = (),
    ) -> None:
        """Record that these tiers are complete; `tiers` maps each to its kind, in order.

        Those that stand `apart` were trained to be compared with the others, and are no part of the run's cascade. The
        run can be used from now on, even if more tiers are `coming`.
        """
        files = {f"{part}/{name}": found for part in parts_of(tiers) for name, found in self._sums_of(part).items()}
        versions = {"python": platform.python_version(), **versions_of(_PACKAGES)}
        record = RunRecord(kg.name, kg.data_hash, preset, dict(tiers), files, versions, tuple(apart), tuple(coming))
        write_record(self.path / _RECORD, {"format": FORMAT, **asdict(record)})

    def warn_if_unfinished(self, record: RunRecord) -> None:
        """Say which tiers answer, and which are still to come."""
        if record.coming:
            logger.warning(
                "%s is not finished. Its answers are those of %s; to come: %s. If no fit is at work on it, the same "
                "command as before goes on.",
                self.address,
                ", ".join(record.tiers),
                ", ".join(record.coming),
            )

    def metadata(self) -> RunRecord:
        """Return what `mark_complete` recorded."""
        if self.path.is_file():
            raise DataError(
                f"{self.address} is a file, expected the folder of a run. Make one: cascader fit GRAPH --out FOLDER"
            )
        if not self.path.is_dir():
            raise DataError(
                f"there is no folder {self.address}. Check the address, or make a run there with: cascader fit GRAPH "
                f"--out {self.address}"
            )
        check_regular(self.path)
        if not self.is_usable:
            raise DataError(
                f"{self.address} holds no complete run. Make one with: cascader fit GRAPH --out {self.address}"
            )
        found = read_json(self.path / _RECORD).get("format")
        if found != FORMAT:
            raise DataError(
                f"{self.address} is a run in format {found!r}, written by another version of cascader; "
                f"this one reads format {FORMAT}. Fit it again: cascader fit GRAPH --out FOLDER"
            )
        advice = "Copy it again from where it came from, or delete it and fit again: what is trained is not lost."
        return read_record(self.path / _RECORD, RunRecord, FORMAT, advice)


def load_scorer(address: str | Path, tier: str, tier_hash: str, device: str = "cpu") -> Scorer:
    """Load a tier from the run's folder, as worker processes do; its hash must be the expected one."""
    folder = RunFolder(address)
    if not folder.has_tier(tier):
        raise DataError(
            f"the machine {platform.node()} has no tier {tier!r} in {address}. Every machine that scores needs the "
            "run's folder under that path: put it on a disk that they share, or at a URL."
        )
    if folder.tier_hash(tier) != tier_hash:
        raise DataError(
            f"tier {tier!r} of {address} has been trained again since (sha256 {folder.tier_hash(tier)[:12]}, expected "
            f"{tier_hash[:12]}). Load the run again."
        )
    with using_device(device):
        return folder.load_tier(tier, folder.load_graph())
