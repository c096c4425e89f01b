"""What cases damage: a small graph in every format, and a run with every kind of tier, made once."""

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import cascader
from cascader.datasets.files import FORMATS, save_graph
from cascader.evaluation import evaluate
from cascader.graph import KnowledgeGraph
from cascader.models import Frequency
from cascader.models.embeddings import ComplEx
from cascader.models.plausibility import Plausibility
from cascader.models.rules import Rules
from cascader.models.similarity import Similarity
from cascader.models.text import CrossEncoder, DualEncoder
from tests.conftest import accept_every_gain, make_tiny_model
from tests.serve.conftest import words_graph

Files = dict[str, bytes]


def make_material(folder: Path) -> "Material":
    """Train the run and write the graphs."""
    kg = words_graph()
    base = make_tiny_model(str(folder / "tiny-model"), layer_count=2)
    kge = ComplEx(dim=4, epochs=2).fit(kg)
    cross = CrossEncoder(base=base, split_layer=0, rounds=1, queries_per_round=8, max_tokens=40)
    tiers = {
        "plausibility": Plausibility().fit(kg),
        "rules": Rules().fit(kg),
        "similarity": Similarity().fit(kg),
        "kge": kge,
        "dual": DualEncoder(base=base, epochs=2, dim=4, max_tokens=40).fit(kg),
        "cross": cross.fit(kg, earlier=kge),
    }
    run = cascader.save_run(folder / "run", kg, tiers)
    run.tuned()
    accept_every_gain(folder / "run")
    _ask(kg, folder / "run")
    for form in FORMATS:
        save_graph(kg, folder / "graphs" / form, form)
    return Material(folder)


def _ask(kg: KnowledgeGraph, folder: Path) -> None:
    """Let the run keep what it is asked for: a calibration, a threshold, scores, results, a report, decisions."""
    run = cascader.load_run(folder)
    run.predict("e0", "of")
    run.classify([("e0", "of", "e8")])
    run.for_open_questions(run.predictor())
    run.evaluate().save(folder / "results")
    evaluate(Frequency().fit(kg), kg, name="frequency").save(folder / "results")
    run.report()
    run.review.decide([(("e0", "of", "e9"), "accepted"), (("e1", "like", "e9"), "rejected")], "ann")


@dataclass(frozen=True)
class Material:
    """What `make_material` wrote to a folder."""

    folder: Path

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.folder / "run"

    def copy_run(self, folder: Path) -> Path:
        """Copy the run for a case."""
        return shutil.copytree(self.run, folder)

    @cached_property
    def graphs(self) -> dict[str, Files]:
        """The files of the graph, by format and name."""
        return {folder.name: files_below(folder) for folder in sorted((self.folder / "graphs").iterdir())}

    @cached_property
    def results(self) -> Files:
        """The results of the run."""
        return files_below(self.run / "results")

    @cached_property
    def entities(self) -> list[str]:
        """The ids and names of entities."""
        return [text for entity in words_graph().entities for text in (entity.id, entity.name)]

    @cached_property
    def relations(self) -> list[str]:
        """The ids and names of relations."""
        return [text for relation in words_graph().relations for text in relation]

    @cached_property
    def tiers(self) -> list[str]:
        """The tiers of the run."""
        return list(json.loads((self.run / "run.json").read_text())["tiers"])


def files_below(folder: Path) -> Files:
    """The contents of all files below a folder, by their paths in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
