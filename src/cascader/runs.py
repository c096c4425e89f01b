"""A run is a folder that a colleague can be sent: graph, weights, settings and results, and no other file is needed."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cascader.datasets import Split, read_graph, write_graph
from cascader.errors import DataError
from cascader.graph import KnowledgeGraph
from cascader.models.embeddings.embedding import Embedding, load_embedding
from cascader.storage import read_json, versions_of, write_json

FORMAT = 1
#: A split that is empty has no file, and must not be held back anew when the graph is read again.
_AS_IT_WAS = Split(valid=0, test=0)
_PACKAGES = ("cascader", "numpy", "torch", "safetensors")


@dataclass(frozen=True)
class Run:
    """A finished run, as it stands in its folder."""

    folder: Path
    kg: KnowledgeGraph
    kge: Embedding
    about: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What its results are called."""
        return f"kge-{self.kge.name}"


def keep_graph(folder: Path, kg: KnowledgeGraph) -> None:
    """Put the graph into the run's folder before anything long starts; one that is there must be the same."""
    if not (folder / "graph").exists():
        write_graph(kg, folder / "graph", "parquet")
        return
    found = read_graph(folder / "graph", split=_AS_IT_WAS).data_hash
    if found != kg.data_hash:
        raise DataError(
            f"{folder} is the run of another graph (sha256 {found[:12]}, this one has {kg.data_hash[:12]}). "
            "Name another folder."
        )


def tier_folder(folder: Path, tier: str) -> Path:
    """Where a tier's weights and checkpoints are."""
    return folder / "tiers" / tier


def finish_run(folder: Path, kg: KnowledgeGraph, kge: Embedding, preset: str) -> Run:
    """Write the weights, then say that the run is whole; only then is the checkpoint given up."""
    kge.save(tier_folder(folder, "kge"))
    about = {
        "format": FORMAT,
        "dataset": kg.name,
        "data_hash": kg.data_hash,
        "preset": preset,
        "tiers": ["kge"],
        "seed": kge.recipe.seed,
        "versions": {"python": platform.python_version(), **versions_of(_PACKAGES)},
    }
    write_json(folder / "run.json", about)
    (tier_folder(folder, "kge") / "checkpoint.safetensors").unlink(missing_ok=True)
    return Run(folder, kg, kge, about)


def is_finished(folder: Path) -> bool:
    """Whether a folder holds a whole run."""
    return (folder / "run.json").exists()


def load_run(folder: str | Path) -> Run:
    """Load a run from its folder alone."""
    folder = Path(folder)
    if not is_finished(folder):
        raise DataError(f"{folder} holds no finished run. Make one with: cascader fit GRAPH --out {folder}")
    about = read_json(folder / "run.json")
    if about.get("format") != FORMAT:
        raise DataError(
            f"{folder} is a run of format {about.get('format')!r}, expected {FORMAT}. It was written by another "
            "version of cascader: use that one, or fit again."
        )
    kg = read_graph(folder / "graph", split=_AS_IT_WAS, name=str(about["dataset"]))
    if kg.data_hash != about["data_hash"]:
        raise DataError(f"the graph in {folder} is not the one this run was made with. Fit again.")
    return Run(folder, kg, load_embedding(tier_folder(folder, "kge"), kg), about)
