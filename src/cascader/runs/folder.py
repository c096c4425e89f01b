"""A run's folder, which holds everything a colleague needs to use the run."""

import platform
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cascader.datasets import Split, load_graph, save_graph
from cascader.errors import DataError, SettingsError
from cascader.graph import KnowledgeGraph
from cascader.models.model import Model
from cascader.models.registry import load_model
from cascader.models.training import CHECKPOINT
from cascader.scoring import Scorer, ScoreStore, StoredScorer
from cascader.scoring.engine import Call, Engine
from cascader.storage import locked, read_json, sha256_of_folder, versions_of, write_json

FORMAT = 2
#: An empty split has no file; no triples must be held out for it when the graph is loaded again.
_AS_IT_WAS = Split(valid=0, test=0)
_PACKAGES = ("cascader", "numpy", "torch", "safetensors", "transformers")


class RunFolder:
    """The folder with the graph, the tiers, the stored scores and the results of a run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._hashes: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def locked(self) -> AbstractContextManager[None]:
        """Lock the folder for this process; a second one waits, and then finds the run finished."""
        return locked(self.path)

    # The graph.

    def save_graph(self, kg: KnowledgeGraph) -> None:
        """Write the graph; if the folder already has one, it must be the same."""
        if not (self.path / "graph").exists():
            save_graph(kg, self.path / "graph", "parquet")
            return
        found = self.load_graph().data_hash
        if found != kg.data_hash:
            raise DataError(
                f"{self.path} holds a run on another graph (sha256 {found[:12]}, this one has {kg.data_hash[:12]}). "
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
        model.save(self.tier(name))
        if model.history_.cut_at is None:
            (self.tier(name) / CHECKPOINT).unlink(missing_ok=True)
        self._hashes.pop(name, None)

    def can_go_on(self, name: str, model: Model) -> bool:
        """Return whether a trained tier was cut short by a time limit, and can be trained on."""
        return model.history_.cut_at is not None and (self.tier(name) / CHECKPOINT).exists()

    def reopen(self, stale: Sequence[str]) -> None:
        """Take back that the run is complete, and remove the tiers that are to be trained again."""
        (self.path / "run.json").unlink(missing_ok=True)
        for name in stale:
            for file in ("model.json", CHECKPOINT):  # first: without these, what else is left of it is not read
                (self.tier(name) / file).unlink(missing_ok=True)
            shutil.rmtree(self.tier(name), ignore_errors=True)
            self._hashes.pop(name, None)

    def load_tier(self, name: str, kg: KnowledgeGraph) -> Model:
        """Load one tier."""
        return load_model(self.tier(name), kg)

    def tier_hash(self, name: str) -> str:
        """Return one sha256 for all files of a trained tier, computed once."""
        if name not in self._hashes:
            self._hashes[name] = sha256_of_folder(self.tier(name), without=[CHECKPOINT])
        return self._hashes[name]

    def stored(self, name: str, model: Scorer, kg: KnowledgeGraph, engine: Engine | None = None) -> StoredScorer:
        """Wrap a trained tier so that its scores are stored in the folder and computed by `engine`."""
        if not self.has_tier(name):
            raise SettingsError(f"{self.path} has no trained tier {name!r} whose scores could be stored. Fit it first.")
        store = ScoreStore(self.path / "scores" / name, {"model": self.tier_hash(name), "data": kg.data_hash})
        load = Call(load_scorer, (self.path.resolve(), name, self.tier_hash(name)))
        return StoredScorer(model, kg, store, engine, load=load)

    # The run as a whole.

    @property
    def is_complete(self) -> bool:
        """Whether the folder holds a complete run."""
        return (self.path / "run.json").exists()

    def part(self, tiers: Sequence[str]) -> Path:
        """Return the folder for what valid has chosen for some of the tiers."""
        return self.path / "parts" / "+".join(tiers)

    def mark_complete(
        self, kg: KnowledgeGraph, preset: str, tiers: Mapping[str, str], apart: Sequence[str] = ()
    ) -> None:
        """Record that the run is complete; `tiers` maps each tier to its kind, in order.

        Those that stand `apart` were trained to be compared with the others, and are no part of the run's cascade.
        """
        metadata = {
            "format": FORMAT,
            "dataset": kg.name,
            "data_hash": kg.data_hash,
            "preset": preset,
            "tiers": dict(tiers),
            **({"apart": list(apart)} if apart else {}),
            "versions": {"python": platform.python_version(), **versions_of(_PACKAGES)},
        }
        write_json(self.path / "run.json", metadata)

    def metadata(self) -> dict[str, Any]:
        """Return what `mark_complete` recorded."""
        if not self.is_complete:
            raise DataError(f"{self.path} holds no complete run. Make one with: cascader fit GRAPH --out {self.path}")
        metadata = read_json(self.path / "run.json")
        if metadata.get("format") != FORMAT:
            raise DataError(
                f"{self.path} is a run in format {metadata.get('format')!r}, written by another version of cascader; "
                f"this one reads format {FORMAT}. Fit it again: cascader fit GRAPH --out FOLDER"
            )
        return metadata


def load_scorer(path: Path, tier: str, tier_hash: str) -> Scorer:
    """Load a tier from the run's folder, as worker processes do; its hash must be the expected one."""
    folder = RunFolder(path)
    if folder.tier_hash(tier) != tier_hash:
        raise DataError(
            f"tier {tier!r} of {path} has been trained again since (sha256 {folder.tier_hash(tier)[:12]}, expected "
            f"{tier_hash[:12]}). Load the run again."
        )
    return folder.load_tier(tier, folder.load_graph())
