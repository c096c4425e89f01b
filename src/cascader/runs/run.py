"""A run is a folder that a colleague can be sent: graph, weights, settings and results, and no other file is needed."""

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cascader.cascade import Cascade
from cascader.datasets import Frame, Split, load_graph, save_graph, triples_of
from cascader.errors import DataError, SettingsError
from cascader.graph import Entity, KnowledgeGraph, Queries, Side
from cascader.models.embeddings.embedding import Embedding
from cascader.models.registry import load_model
from cascader.runs.new_entities import about_new, parse_entity
from cascader.runs.prediction import Prediction, Verdict
from cascader.runs.predictor import Predictor
from cascader.runs.thresholds import with_threshold
from cascader.scoring import ScoreStore, StoredScorer
from cascader.scoring.engines import Call, Engine
from cascader.scoring.scorer import Scorer
from cascader.storage import read_json, sha256_of_folder, versions_of, write_json
from cascader.tuning import Budget, TuningResult, load_tuned, save_tuned, split_valid, tune
from cascader.tuning.calibration import Calibration, calibrate, hash_of_cascade, load_calibration, save_calibration

FORMAT = 1
#: Candidates that a tier that reads pairs may be asked about at the most.
READ_TOP = 100
#: A split that is empty has no file, and must not be held back anew when the graph is read again.
_AS_IT_WAS = Split(valid=0, test=0)
_CHECKPOINT = "checkpoint.safetensors"
_PACKAGES = ("cascader", "numpy", "torch", "safetensors", "transformers")


#: The tiers that a run can have, in the order of the cascade, and how each is loaded.
TIERS: dict[str, Callable[[Path, KnowledgeGraph], Any]] = {
    "kge": load_model,
    "kge2": load_model,
    "dual": load_model,
    "cross": load_model,
}
#: Tiers that read each candidate together with its question: they only ever see what is left.
READING_TIERS = ("cross",)


@dataclass(frozen=True)
class Run:
    """A finished run, as it stands in its folder.

    >>> import tempfile
    >>> from cascader import ComplEx, KnowledgeGraph, load_run, save_run
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(4) for j in range(4)]
    >>> kg = KnowledgeGraph.from_triples(facts[1:14], valid=facts[14:])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = save_run(f"{folder}/mine", kg, {"kge": ComplEx(dim=4, epochs=2).fit(kg)})
    ...     run = load_run(f"{folder}/mine")
    ...     answers = run.predict("drug 0", "treats", side="tail", top=1)
    ...     verdicts = run.classify([("drug 0", "treats", "disease 0")])
    >>> [answer.rank for answer in answers], verdicts[0].is_known
    ([1], False)
    """

    folder: Path
    kg: KnowledgeGraph
    tiers: Mapping[str, Any]
    about: Mapping[str, Any]

    @property
    def kge(self) -> Embedding:
        """The first tier."""
        return self.tier("kge")

    def tier(self, name: str) -> Any:  # noqa: ANN401 - any tier's model
        """A tier by name."""
        if name not in self.tiers:
            raise SettingsError(f"{self.folder} has no tier {name!r}. It has: {', '.join(self.tiers)}.")
        return self.tiers[name]

    def scorers(self, engine: Engine | None = None) -> dict[str, Scorer]:
        """The tiers by name, in their order; what reads pairs keeps its scores in the run's folder."""
        return {
            name: stored_tier(self.folder, name, model, self.kg, engine) if name in READING_TIERS else model
            for name, model in self.tiers.items()
        }

    def tuned(self, engine: Engine | None = None, read_top: int = READ_TOP, seed: int = 0) -> TuningResult:
        """All cascades that were tried on valid; where the tiers are not those of the last time, they are tried now."""
        scorers = self.scorers(engine)
        identity = {name: hash_of_tier(self.folder, name) for name in self.tiers}
        identity |= {"read_top": str(read_top), "seed": str(seed)}
        found = load_tuned(self.folder, identity, scorers)
        if found is None:
            save_tuned(tune(_untuned(scorers), self.kg, read_top=read_top, seed=seed), self.folder, identity)
            found = load_tuned(self.folder, identity, scorers)
        assert found is not None  # noqa: S101 - it was saved just now
        return found

    # Answers.

    def predict(
        self, entity: str, relation: str, side: Side = "tail", *, top: int = 10, with_known: bool = False
    ) -> list[Prediction]:
        """The best answers to (entity, relation, ?), or to (?, relation, entity) with `side="head"`.

        What the graph knows is left out; or, `with_known`, takes part and is marked. Entity and relation go by id or
        name: `run.predict("aspirin", "treats")[0].name`.
        """
        query = self.kg.query(entity, relation, side)
        return next(self._answering.predict(query, top=top, with_known=with_known))

    def predict_new(self, text: str, relation: str, side: Side = "tail", *, top: int = 10) -> list[Prediction]:
        """The best answers to a question about an entity that the graph does not have: "name: description".

        They have no probability, which valid can only teach for entities that were trained.
        """
        return next(
            self.answering_new(self._answering, parse_entity(text)).predict(self.new_query(relation, side), top=top)
        )

    def new_query(self, relation: str, side: Side = "tail") -> Queries:
        """The question about the one new entity that `answering_new` was told of."""
        return replace(self.kg.query(self.kg.entities[0].id, relation, side), anchors=np.zeros(1, dtype=np.int32))

    def answering_new(self, answering: Predictor, entity: Entity) -> Predictor:
        """The same for questions about a new entity."""
        cascade = about_new(answering.cascade, self.tiers, [entity], self.kg)
        return Predictor(self.kg, cascade, None, new=(entity,))

    def classify(self, triples: Sequence[tuple[str, str, str]] | Frame) -> list[Verdict]:
        """Whether triples, by id or name, are true: `run.classify([("aspirin", "treats", "fever")])[0].is_true`.

        They may come as a data frame with the columns head, relation and tail.
        """
        kg = self.kg
        rows = triples_of(triples) if hasattr(triples, "columns") else triples
        indices = [(kg.entity_index(h), kg.relation_index(r), kg.entity_index(t)) for h, r, t in rows]
        return self.judging(self._answering).classify(np.array(indices, dtype=np.int32).reshape(-1, 3))

    @cached_property
    def _answering(self) -> Predictor:
        return self.answering()

    def answering(
        self, budget: Budget | None = None, question_count: int = 1, engine: Engine | None = None
    ) -> Predictor:
        """What answers so many questions within a budget; its probabilities are calibrated now if they never were.

        Without valid, nothing can be chosen or calibrated: the first tier answers alone.
        """
        name, first = next(iter(self.tiers.items()))
        if len(self.kg.valid) == 0:
            return Predictor(self.kg, Cascade(first, name=name), None)
        if len(self.tiers) == 1:
            cascade = Cascade(first, name=name)
        else:
            cascade = self.tuned(engine).plan(budget or Budget(), question_count).trial.cascade
        return self.calibrated(cascade)

    def calibrated(self, cascade: Cascade) -> Predictor:
        """What answers with a cascade of this run's tiers; its probabilities are calibrated now if they never were."""
        return Predictor(self.kg, cascade, self._calibration(cascade))

    def judging(self, answering: Predictor) -> Predictor:
        """The same, with a threshold for verdicts, which is chosen now if it never was."""
        identity = self._identity(answering.cascade)
        found = load_calibration(self.folder, identity)
        if found is not None and found.threshold is not None:
            return replace(answering, calibration=found)
        judging = with_threshold(answering)
        assert judging.calibration is not None  # noqa: S101 - without one there is no threshold
        save_calibration(judging.calibration, self.folder, identity)
        return judging

    def _calibration(self, cascade: Cascade) -> Calibration:
        identity = self._identity(cascade)
        found = load_calibration(self.folder, identity)
        if found is None:
            reads = any(tier.name in READING_TIERS for tier in cascade.tiers)
            # Where pairs are read, on those questions of valid that tuning has had them read for.
            read = np.concatenate(split_valid(self.kg, seed=0))
            found = calibrate(cascade, self.kg, read if reads else None)
            save_calibration(found, self.folder, identity)
        return found

    def _identity(self, cascade: Cascade) -> dict[str, str]:
        """Of which models and which cascade a calibration holds."""
        tiers = [cascade.name, *(tier.name for tier in cascade.tiers)]
        return {**{name: hash_of_tier(self.folder, name) for name in tiers}, "cascade": hash_of_cascade(cascade)}


def _untuned(scorers: Mapping[str, Scorer]) -> Cascade:
    """All tiers one after the other; the weights do not matter yet."""
    (name, first), *others = scorers.items()
    cascade = Cascade(first, name=name)
    for other, scorer in others:
        cascade = cascade.then(scorer, name=other)
    return cascade


def keep_graph(folder: Path, kg: KnowledgeGraph) -> None:
    """Put the graph into the run's folder before anything long starts; one that is there must be the same."""
    if not (folder / "graph").exists():
        save_graph(kg, folder / "graph", "parquet")
        return
    found = load_graph(folder / "graph", split=_AS_IT_WAS).data_hash
    if found != kg.data_hash:
        raise DataError(
            f"{folder} is the run of another graph (sha256 {found[:12]}, this one has {kg.data_hash[:12]}). "
            "Name another folder."
        )


def tier_folder(folder: Path, tier: str) -> Path:
    """Where a tier's weights and checkpoints are."""
    return folder / "tiers" / tier


def has_tier(folder: Path, tier: str) -> bool:
    """Whether a tier is trained and whole."""
    return (tier_folder(folder, tier) / "model.json").exists()


def load_tier(folder: Path, tier: str, kg: KnowledgeGraph) -> Any:  # noqa: ANN401 - any tier's model
    """Load one tier of a run."""
    return TIERS[tier](tier_folder(folder, tier), kg)


def keep_tier(folder: Path, tier: str, model: Any) -> None:  # noqa: ANN401 - any tier's model
    """Write a tier's weights; only when they are whole is the checkpoint given up."""
    model.save(tier_folder(folder, tier))
    (tier_folder(folder, tier) / _CHECKPOINT).unlink(missing_ok=True)


def stored_tier(
    folder: Path,
    tier: str,
    model: Scorer,
    kg: KnowledgeGraph,
    engine: Engine | None = None,
) -> StoredScorer:
    """A trained tier whose scores are kept in the run's folder, and computed by `engine`."""
    if not has_tier(folder, tier):
        raise SettingsError(f"{folder} has no trained tier {tier!r}, so its scores cannot be kept. Fit it first.")
    model_hash = hash_of_tier(folder, tier)
    store = ScoreStore(folder / "scores" / tier, {"model": model_hash, "data": kg.data_hash})
    return StoredScorer(model, kg, store, engine, load=Call(load_scorer, (folder.resolve(), tier, model_hash)))


def hash_of_tier(folder: Path, tier: str) -> str:
    """One sha256 for all that a trained tier consists of."""
    return sha256_of_folder(tier_folder(folder, tier), without=[_CHECKPOINT])


def load_scorer(folder: Path, tier: str, model_hash: str) -> Scorer:
    """Load a tier from nothing but the run's folder, as other processes do; it must be the one they were sent for."""
    found = hash_of_tier(folder, tier)
    if found != model_hash:
        raise DataError(
            f"tier {tier!r} of {folder} has been trained again since (sha256 {found[:12]}, expected "
            f"{model_hash[:12]}). Load the run again."
        )
    return load_tier(folder, tier, load_graph(folder / "graph", split=_AS_IT_WAS))


def finish_run(folder: Path, kg: KnowledgeGraph, preset: str) -> None:
    """Say that the run is whole, with the tiers that it has."""
    about = {
        "format": FORMAT,
        "dataset": kg.name,
        "data_hash": kg.data_hash,
        "preset": preset,
        "tiers": [tier for tier in TIERS if has_tier(folder, tier)],
        "versions": {"python": platform.python_version(), **versions_of(_PACKAGES)},
    }
    write_json(folder / "run.json", about)


def is_finished(folder: Path) -> bool:
    """Whether a folder holds a whole run."""
    return (folder / "run.json").exists()


def save_run(folder: str | Path, kg: KnowledgeGraph, tiers: Mapping[str, Any]) -> Run:
    """Keep a graph and models that were fitted to it as a run in a new folder; tiers go by the names in `TIERS`.

    >>> import tempfile
    >>> from cascader import ComplEx, KnowledgeGraph, save_run
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "fever")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = save_run(f"{folder}/mine", kg, {"kge": ComplEx(dim=4, epochs=2).fit(kg)})
    ...     [answer.rank for answer in run.predict("aspirin", "treats", top=2)]
    [1, 2]
    """
    folder = Path(folder)
    unknown = [tier for tier in tiers if tier not in TIERS]
    if unknown or not tiers:
        found = f"there is no tier {unknown[0]!r}" if unknown else "a run needs a tier"
        raise SettingsError(f"{found}. Name them among: {', '.join(TIERS)}.")
    if is_finished(folder):
        raise SettingsError(f"{folder} holds a finished run already. Name another folder.")
    keep_graph(folder, kg)
    for tier, model in tiers.items():
        keep_tier(folder, tier, model)
    finish_run(folder, kg, preset="none")
    return load_run(folder)


def load_run(folder: str | Path) -> Run:
    """Load a run from its folder alone: `load_run("runs/mine").predict("aspirin", "treats")`."""
    folder = Path(folder)
    if not is_finished(folder):
        raise DataError(f"{folder} holds no finished run. Make one with: cascader fit GRAPH --out {folder}")
    about = read_json(folder / "run.json")
    if about.get("format") != FORMAT:
        raise DataError(
            f"{folder} is a run of format {about.get('format')!r}, expected {FORMAT}. It was written by another "
            "version of cascader: use that one, or fit again."
        )
    unknown = [tier for tier in about["tiers"] if tier not in TIERS]
    if unknown:
        raise DataError(f"{folder} has a tier {unknown[0]!r}, which this version does not know. Update cascader.")
    kg = load_graph(folder / "graph", split=_AS_IT_WAS, name=str(about["dataset"]))
    if kg.data_hash != about["data_hash"]:
        raise DataError(f"the graph in {folder} is not the one this run was made with. Fit again.")
    return Run(folder, kg, {tier: load_tier(folder, tier, kg) for tier in about["tiers"]}, about)
