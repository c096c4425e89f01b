"""Evaluate a run: its tuned cascade within a budget, or some of its tiers alone or added up."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cascader.cascade import Deadline, MeteredCascade
from cascader.display import emit
from cascader.errors import SettingsError
from cascader.evaluation import Evaluation, Filtering, evaluate
from cascader.graph import Queries, SplitName
from cascader.models.model import Model
from cascader.runs.sums import added_up, path_of_sum
from cascader.scoring.engine import Engine
from cascader.tuning import Budget, Plan, SearchSpace

if TYPE_CHECKING:
    from cascader.runs.run import Run

#: How some tiers are weighed: in a sum, all at once or one alpha after the other as in the paper, or in a cascade with
#: pruners, tuned as fitting does or in the paper's search space.
SumWeights = Literal["joint", "alpha", "tuned", "paper"]
_SPACES: dict[SumWeights, SearchSpace] = {"tuned": "ours", "paper": "paper"}


def evaluate_run(
    run: "Run",
    split: SplitName,
    filtering: Filtering,
    tiers: Sequence[str] | None,
    weights: SumWeights,
    budget: Budget,
    beside: "Run | None",
    top: int,
    name: str,
    engine: Engine | None,
) -> Evaluation:
    """Evaluate a run as `Run.evaluate` describes."""
    questions = len(Queries.from_triples(run.kg.split(split)).unique()[0])
    plan = None if beside else _plan(run, tiers, weights, budget, questions, top, engine)
    if plan is not None:
        return _evaluate_cascade(run, split, filtering, plan, questions, budget, name)
    parts = _parts(run, tiers) if beside is None else _first_tiers(run, beside)
    scorer, about = added_up(run, parts, weights, top, engine)
    name = name or _result_name(list(parts.values()))
    return evaluate(scorer, run.kg, split, filtering=filtering, name=name, seed=run.seed, about=about)


def choose(
    run: "Run", tiers: Sequence[str], weights: SumWeights, top: int, engine: Engine | None = None
) -> Path | None:
    """Let valid choose how these tiers are weighed, and return the file that says how; None: there is no choice."""
    if len(tiers) > 1 and weights in _SPACES:
        part = run.only(tiers)
        part.tuned(engine, top, space=_SPACES[weights])
        return part.tuning_folder(_SPACES[weights]) / "tuning.json"
    added_up(run, _parts(run, tiers), weights, top, engine)
    path = path_of_sum(run, tiers, weights)
    return path if path.exists() else None


def _plan(
    run: "Run",
    tiers: Sequence[str] | None,
    weights: SumWeights,
    budget: Budget,
    questions: int,
    top: int,
    engine: Engine | None,
) -> Plan | None:
    """Plan with the tuned cascade of the run or of some of its tiers; None if tiers are to be added up instead."""
    if not tiers:
        return run.planned(budget, questions, engine)
    if weights not in _SPACES or len(tiers) == 1:
        return None
    return run.only(tiers).tuned(engine, top, space=_SPACES[weights]).plan(budget, questions)


def _evaluate_cascade(
    run: "Run", split: SplitName, filtering: Filtering, plan: Plan, questions: int, budget: Budget, name: str
) -> Evaluation:
    _emit_plan(plan, questions)
    metered = MeteredCascade(plan.trial.cascade, None if budget.seconds is None else Deadline(budget.seconds))
    measured = evaluate(metered, run.kg, split, filtering=filtering, name=name or "cascade", seed=run.seed)
    _emit_usage(metered)
    about = {
        "tiers": {tier: run.tiers[tier].describe() for tier in plan.trial.tiers},
        "plan": {**plan.trial.as_dict(), "seconds": plan.seconds, "pairs": plan.pairs},
        "costs": {tier: asdict(usage) for tier, usage in metered.usage.tiers.items()},
    }
    return replace(measured, about=about)


def _parts(run: "Run", tiers: Sequence[str] | None) -> dict[str, Model]:
    """Return the tiers to add up by name, in the order of the run."""
    for name in tiers or ():
        run.tier(name)
    return {name: model for name, model in run.tiers.items() if name in (tiers or run.cascade_tiers)}


def _first_tiers(run: "Run", other: "Run") -> dict[str, Model]:
    """Return the embeddings of two runs on the same graph, or their first tiers if they have none."""
    if other.kg.data_hash != run.kg.data_hash:
        raise SettingsError("the two runs were fitted to different graphs. Fit both to the same one.")
    names = ["kge" if "kge" in each.tiers else next(iter(each.tiers)) for each in (run, other)]
    return {names[0]: run.tiers[names[0]], f"{names[1]} of the second run": other.tiers[names[1]]}


def _result_name(models: Sequence[Model]) -> str:
    """kge-complex, dual-contrastive, kge+kge-complex-transe, kge+dual-complex-contrastive."""
    labels = [str(model.settings.as_dict().get("objective", model.name)) for model in models]
    return f"{'+'.join(model.tier for model in models)}-{'-'.join(labels)}"


def _emit_plan(plan: Plan, questions: int) -> None:
    trial = plan.trial
    emit("plan", f"Plan: {' + '.join(trial.tiers)}, valid MRR {trial.mrr:.4f}.")
    emit("plan", f"Estimated: {plan.pairs:,.0f} pairs to read and {plan.seconds:,.1f} s for {questions:,} questions.")
    if len(trial.tiers) == 1:
        emit("plan", "No later tier fits the budget: the first one answers alone.")


def _emit_usage(metered: MeteredCascade) -> None:
    emit("usage", f"Took: {metered.usage.seconds:,.1f} s, of which")
    for tier, usage in metered.usage.tiers.items():
        late = f"; time ran out for {usage.cut_short:,} of {usage.queries:,} questions" if usage.cut_short else ""
        emit("usage", f"  {tier}: {usage.seconds:,.1f} s for {usage.calls:,} scores{late}")
