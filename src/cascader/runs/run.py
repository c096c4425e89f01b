"""A finished run, which answers questions, judges triples, evaluates itself and writes reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cascader.cascade import Cascade
from cascader.datasets import Frame
from cascader.display import html_table
from cascader.errors import DataError, SettingsError
from cascader.evaluation import Evaluation, Filtering
from cascader.graph import Entity, KnowledgeGraph, Queries, Side, SplitName
from cascader.models.device import using_device
from cascader.models.model import Model
from cascader.paths import copy_files
from cascader.runs.calibrations import Calibrations, LabelGain
from cascader.runs.folder import RunFolder
from cascader.runs.measurement import SumWeights, equal_sum, evaluate_run, untuned
from cascader.runs.prediction import Predictions, Verdict
from cascader.runs.predictor import Predictor
from cascader.runs.questions import for_new_entities, labels_of, parse_entity
from cascader.runs.record import RunRecord
from cascader.runs.review import Review
from cascader.scoring import Scorer
from cascader.scoring.engine import Engine
from cascader.scoring.ray_engine import check_device
from cascader.storage import addressed, atomic_folder, folder_bytes
from cascader.tuning import (
    READ_TOP,
    Budget,
    Plan,
    SearchSpace,
    TuningResult,
    load_tuned,
    read_top_of,
    save_tuned,
    tune,
)
from cascader.tuning.witnesses import Labels


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A finished run, loaded from its folder.

    >>> import tempfile
    >>> from cascader import ComplEx, KnowledgeGraph, load_run, save_run
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(4) for j in range(4)]
    >>> kg = KnowledgeGraph.from_triples(facts[1:14], valid=facts[14:])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = save_run(f"{folder}/mine", kg, {"kge": ComplEx(dim=4, epochs=2).fit(kg)})
    ...     run = load_run(f"{folder}/mine")
    ...     answers = run.predict("drug 0", "treats", side="tail", top=1)
    ...     verdicts = run.classify([("drug 0", "treats", "disease 0")])
    >>> run, [answer.rank for answer in answers], verdicts[0].is_known
    (Run(graph, kge: complex), [1], False)
    """

    folder: RunFolder
    kg: KnowledgeGraph
    tiers: Mapping[str, Model]
    metadata: RunRecord
    part: tuple[str, ...] | None = None  # the tiers that its cascade may use; None: all but those that stand apart
    device: str = "cpu"  # where the tiers are, and where other processes load them

    def __repr__(self) -> str:
        return f"Run({self.kg.name}, {', '.join(f'{tier}: {model.name}' for tier, model in self.tiers.items())})"

    def _repr_html_(self) -> str:
        rows = [
            [tier, model.name, f"{model.parameter_count:,}", "" if mrr is None else f"{mrr:.4f}"]
            for tier, model in self.tiers.items()
            for mrr in [model.history_.best_valid]
        ]
        return html_table(["tier", "model", "parameters", "valid MRR"], rows, caption=f"{self.kg!r}")

    def tier(self, name: str) -> Model:
        """Return a tier by name."""
        if name not in self.tiers:
            raise SettingsError(f"{self.folder.address} has no tier {name!r}. It has: {', '.join(self.tiers)}.")
        return self.tiers[name]

    def only(self, tiers: Sequence[str]) -> "Run":
        """Return the same run with a cascade of these tiers alone; what valid chooses for them has files of its own."""
        for name in tiers:
            self.tier(name)
        whole = replace(self, part=None)
        names = tuple(name for name in self.tiers if name in tiers)
        return whole if names == tuple(whole.cascade_tiers) else replace(self, part=names)

    @property
    def cascade_tiers(self) -> dict[str, Model]:
        """The tiers that its cascade may use: a tier that stands apart was trained to be compared with them."""
        names = [name for name in self.tiers if name not in self.metadata.apart] if self.part is None else self.part
        return {name: self.tiers[name] for name in names}

    @property
    def seed(self) -> int:
        """The seed that the tiers were fitted with: that of the first which has one."""
        return next((int(found) for tier in self.tiers.values() if (found := tier.settings.as_dict().get("seed"))), 0)

    def save(self, folder: str | Path) -> "Run":
        """Copy the run to a new folder."""
        target = RunFolder(folder)
        if target.is_usable:
            raise SettingsError(f"{target.address} already holds a run. Choose another folder.")
        if self.metadata.coming:
            raise SettingsError(f"{self.folder.address} is still being fitted. Save it when that is done.")
        with atomic_folder(target.path) as temporary:
            copy_files(self.folder.path, temporary)
        return load_run(target.address, device=self.device)

    # The cascade that valid chose.

    def scorers(self, engine: Engine | None = None) -> dict[str, Scorer]:
        """Return the tiers by name, in order; those that read pairs store their scores in the run's folder."""
        check_device(engine, self.device)
        return {
            name: self.folder.stored(name, model, self.kg, engine, self.device) if model.reads_pairs else model
            for name, model in self.tiers.items()
        }

    def tuned(
        self, engine: Engine | None = None, read_top: int = READ_TOP, seed: int = 0, space: SearchSpace = "ours"
    ) -> TuningResult:
        """Return all cascades that were tried on valid; they are tried now if the tiers have changed since.

        `space` is what is tried: as much as we know of, or what the paper tries. A tier that reads pairs reads
        `read_top` candidates of each question, but no more than a tenth of a small graph's entities.
        """
        scorers = {name: scorer for name, scorer in self.scorers(engine).items() if name in self.cascade_tiers}
        read_top = min(read_top, read_top_of(self.kg)) if space == "ours" else read_top
        identity = {name: self.folder.tier_hash(name) for name in scorers}
        identity |= {"read_top": str(read_top), "seed": str(seed)}
        place = self.tuning_folder(space)
        found = load_tuned(place, identity, scorers)
        if found is None:
            tuned = found = tune(untuned(scorers), self.kg, read_top=read_top, seed=seed, space=space)
            self.folder.keep(lambda: save_tuned(tuned, place, identity))
        return found

    def tuning_folder(self, space: SearchSpace = "ours") -> Path:
        """Return where the result of tuning is kept: with the run, or in a folder for these tiers or this space."""
        if self.part is None and space == "ours" and not self.metadata.coming:
            return self.folder.path
        return self.folder.part(list(self.cascade_tiers)) / ("tuned" if space == "ours" else space)

    def planned(self, budget: Budget, question_count: int, engine: Engine | None = None) -> Plan | None:
        """Choose the best cascade within a budget for a number of questions; None if there is nothing to choose."""
        if len(self.cascade_tiers) == 1 or len(self.kg.valid) == 0:
            return None
        return self.tuned(engine).plan(budget, question_count)

    # Answers.

    def predict(
        self, entity: str, relation: str, side: Side = "tail", *, top: int = 10, with_known: bool = False
    ) -> Predictions:
        """Return the best answers to (entity, relation, ?), or to (?, relation, entity) with `side="head"`.

        Known answers are left out, or ranked and marked if `with_known`. Entity and relation are given by id or name:
        `run.predict("aspirin", "treats")[0].name`.
        """
        return self.review.informed(self._predictor).predict(entity, relation, side, top=top, with_known=with_known)

    def predict_new(self, text: str, relation: str, side: Side = "tail", *, top: int = 10) -> Predictions:
        """Return the best answers to a question about an entity that the graph does not have: "name: description".

        They have no probability, which can only be calibrated for entities that were trained.
        """
        predictor = self.for_new_entity(self._predictor, parse_entity(text))
        return next(predictor.answer(self.new_query(relation, side), top=top))

    def new_query(self, relation: str, side: Side = "tail") -> Queries:
        """Build the question about the one new entity that `for_new_entity` was given."""
        return replace(self.kg.query(self.kg.entities[0].id, relation, side), anchors=np.zeros(1, dtype=np.int32))

    def for_new_entity(self, predictor: Predictor, entity: Entity) -> Predictor:
        """Adapt a predictor to questions about a new entity."""
        cascade = for_new_entities(predictor.cascade, self.tiers, [entity], self.kg)
        return Predictor(self.kg, cascade, None, new=(entity,))

    def classify(self, triples: Sequence[tuple[str, str, str]] | Frame) -> list[Verdict]:
        """Judge whether triples, by id or name, are true: `run.classify([("aspirin", "treats", "fever")])[0].is_true`.

        A data frame needs the columns head, relation and tail.
        """
        return self.with_threshold(self.review.informed(self._predictor)).classify(triples)

    @cached_property
    def review(self) -> Review:
        """What people decided of its answers, and the list to go through: `run.review.accept("d1", "treats", "s2")`."""
        return Review(self)

    @cached_property
    def _predictor(self) -> Predictor:
        return self.predictor()

    def predictor(
        self, budget: Budget | None = None, question_count: int = 1, engine: Engine | None = None
    ) -> Predictor:
        """Return a predictor for a number of questions within a budget, calibrated now if it never was.

        Without a valid split, nothing can be chosen or calibrated, and all tiers but those that read pairs have a say.
        """
        plan = self.planned(budget or Budget(), question_count, engine)
        if plan is not None:
            return self.calibrated(plan.trial.cascade)
        tiers = self.cascade_tiers
        together = equal_sum({name: model for name, model in tiers.items() if not model.reads_pairs})
        if len(self.kg.valid):
            return self.calibrated(together)
        return self.review.informed(Predictor(self.kg, together, evidence=tiers))

    def calibrated(self, cascade: Cascade) -> Predictor:
        """Return a predictor for a cascade of this run's tiers, calibrated now if it never was."""
        calibration = self._calibrations.of(cascade)
        return self.review.informed(Predictor(self.kg, cascade, calibration, evidence=self.cascade_tiers))

    def with_threshold(self, predictor: Predictor) -> Predictor:
        """Return the same predictor with verdicts, learned now if they never were."""
        return self._calibrations.with_threshold(predictor)

    def for_open_questions(self, predictor: Predictor) -> Predictor:
        """Return the same predictor with probabilities for questions that may have no further answer."""
        return self._calibrations.for_open_questions(predictor)

    def calibrate(self, labels: Sequence[tuple[str, str, str, bool]] | Frame) -> LabelGain:
        """Let verdicts learn from labelled triples: `run.calibrate([("aspirin", "treats", "fever", True), ...])`.

        A data frame needs the columns head, relation, tail and label. The labels are kept in the run, in the place of
        earlier ones.
        """
        return self.learn(labels_of(labels, self.kg))

    def learn(self, labels: Labels) -> LabelGain:
        """Let verdicts learn from labels that were read."""
        return self._calibrations.learn(self._predictor, labels)

    @property
    def _calibrations(self) -> Calibrations:
        # While the run is not finished, calibrations are kept with what they are for.
        place = self.tuning_folder() if self.metadata.coming else self.folder.path
        return Calibrations(self.folder, place, self.kg, self.cascade_tiers)

    # Figures.

    def evaluate(
        self,
        split: SplitName = "test",
        *,
        filtering: Filtering = "standard",
        tiers: Sequence[str] | None = None,
        weights: SumWeights = "joint",
        budget: Budget | None = None,
        beside: "Run | None" = None,
        top: int = READ_TOP,
        name: str = "",
        engine: Engine | None = None,
    ) -> Evaluation:
        """Rank the gold answers of a split with the tuned cascade, within a budget for all of its questions.

        `filtering` is that of `cascader.evaluate`. `tiers` evaluates some tiers instead, alone or added up with
        `weights` that valid chooses: "joint" weighs all at once and leaves out what does not help, "alpha" adds one
        after the other (Eq. 1 of the paper). A tier that reads pairs gets the `top` candidates. "tuned" tunes a cascade
        of these tiers as fitting does, and "paper" one with the paper's search space; both read at most `top`
        candidates. `beside` adds the embedding of another run on the same graph to this one's.
        """
        return evaluate_run(self, split, filtering, tiers, weights, budget or Budget(), beside, top, name, engine)

    def report(self, out: str | Path | None = None, engine: Engine | None = None) -> Path:
        """Write a one-page report on the run, with all evaluations saved in it, and return its path."""
        from cascader.report import analyze, write_report

        results = sorted((self.folder.path / "results").glob("*.json"))
        tuned = self.tuned(engine) if len(self.kg.valid) else None
        names = self.cascade_tiers
        numbers = analyze(
            self.kg,
            {name: scorer for name, scorer in self.scorers(engine).items() if name in names},
            tuned,
            [Evaluation.load(path) for path in results],
            {name: about for name, about in self.describe_tiers().items() if name in names},
            calibration=self.predictor(engine=engine).calibration,
        )
        return write_report(Path(out) if out else self.folder.path / "report", numbers)

    def describe_tiers(self) -> dict[str, dict[str, Any]]:
        """Describe each tier, with its number of parameters and its bytes on disk."""
        return {
            name: {
                **model.describe(),
                "parameters": model.parameter_count,
                "bytes": folder_bytes(self.folder.tier(name)),
            }
            for name, model in self.tiers.items()
        }


def save_run(folder: str | Path, kg: KnowledgeGraph, tiers: Mapping[str, Model]) -> Run:
    """Save a graph and the models fitted to it, by the names of their tiers, as a run in a new folder.

    >>> import tempfile
    >>> from cascader import ComplEx, KnowledgeGraph, save_run
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "fever")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = save_run(f"{folder}/mine", kg, {"kge": ComplEx(dim=4, epochs=2).fit(kg)})
    ...     [answer.rank for answer in run.predict("aspirin", "treats", top=2)]
    [1, 2]
    """
    target = RunFolder(folder)
    if not tiers:
        raise SettingsError("a run needs at least one tier.")
    bad = [name for name in tiers if not name.isidentifier()]
    if bad:
        raise SettingsError(f"{bad[0]!r} cannot name a tier: use letters, digits and underscores, as in kge or dual.")
    if target.is_usable:
        raise SettingsError(f"{target.address} already holds a run. Choose another folder.")
    target.save_graph(kg)
    for name, model in tiers.items():
        target.save_tier(name, model)
    target.mark_complete(kg, "none", {name: model.name for name, model in tiers.items()})
    return load_run(target.address)


def load_run(folder: str | Path, *, verify: bool = True, device: str | None = None) -> Run:
    """Load a run from its folder or URL alone: `load_run("runs/mine").predict("aspirin", "treats")`.

    All files of its graph and its tiers are checked against the sums in `run.json`; `verify=False` leaves that out.
    While a run is being fitted, it answers with the tiers that are there, and says so in a warning.
    `device` is where it answers, wherever it was trained: "auto", "cpu", "cuda", "cuda:1" or "mps".
    """
    with addressed(), using_device(device) as chosen:
        found = RunFolder(folder)
        metadata = found.verified() if verify else found.metadata()
        kg = found.load_graph(metadata.dataset)
        if kg.data_hash != metadata.data_hash:
            raise DataError(f"the graph in {found.address} is not the one this run was fitted to. Fit it again.")
        found.warn_if_unfinished(metadata)
        return Run(found, kg, found.load_tiers(metadata, kg), metadata, device=str(chosen))
