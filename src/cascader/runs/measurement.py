"""Evaluate a run: its tuned cascade within a budget, or some of its tiers alone or added up."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

from cascader.cascade import Alpha, Cascade, Deadline, MeteredCascade
from cascader.cascade.blend import best_reranking, tune_alpha
from cascader.cascade.pruners import TopK
from cascader.display import emit
from cascader.errors import SettingsError
from cascader.evaluation import Evaluation, Filtering, evaluate
from cascader.graph import KnowledgeGraph, Queries, SplitName
from cascader.models.model import Model
from cascader.scoring import Scorer
from cascader.scoring.engine import Engine
from cascader.tuning import Budget, Plan
from cascader.tuning.weights import best_weighted_sum

if TYPE_CHECKING:
    from cascader.runs.run import Run

#: How the weights of a sum are chosen: of all tiers at once, or an alpha for one tier after the other, as in the paper.
SumWeights = Literal["joint", "alpha"]
#: The number of valid triples for choosing the weight of a tier that reads pairs when it is evaluated in a sum.
_RERANKED_TRIPLES = 200


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
    plan = None if tiers or beside else run.planned(budget, questions, engine)
    if plan is not None:
        return _evaluate_cascade(run, split, filtering, plan, questions, budget, name)
    parts = _parts(run, tiers) if beside is None else _first_tiers(run, beside)
    scorer, about = _added_up(run, parts, weights, top)
    name = name or _result_name(list(parts.values()))
    return evaluate(scorer, run.kg, split, filtering=filtering, name=name, seed=run.seed, about=about)


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
    return {name: model for name, model in run.tiers.items() if not tiers or name in tiers}


def _first_tiers(run: "Run", other: "Run") -> dict[str, Model]:
    """Return the embeddings of two runs on the same graph, or their first tiers if they have none."""
    if other.kg.data_hash != run.kg.data_hash:
        raise SettingsError("the two runs were fitted to different graphs. Fit both to the same one.")
    names = ["kge" if "kge" in each.tiers else next(iter(each.tiers)) for each in (run, other)]
    return {names[0]: run.tiers[names[0]], f"{names[1]} of the second run": other.tiers[names[1]]}


def _added_up(run: "Run", parts: Mapping[str, Model], weights: SumWeights, top: int) -> tuple[Scorer, dict[str, Any]]:
    """Add the tiers up to one scorer, with weights chosen on valid, and describe it."""
    is_alone = all(model.reads_pairs for model in parts.values())
    if is_alone:  # it can only read candidates that the first tier proposes
        parts = {next(iter(run.tiers)): next(iter(run.tiers.values())), **parts}
    dense = {tier: model for tier, model in parts.items() if not model.reads_pairs}
    if weights == "joint" and len(dense) > 1:
        scorer, about = _weighed(dense, run.kg)
        before, others = " + ".join(dense), [(tier, model) for tier, model in parts.items() if model.reads_pairs]
    else:
        (before, first), *others = parts.items()
        scorer, about = first, first.describe()
    for tier, model in others:
        alpha = Alpha(0.0, 0.0) if is_alone else _weight(scorer, model, run.kg, top)
        scorer = Cascade(scorer).then(model, alpha=alpha, keep=TopK(top) if model.reads_pairs else None)
        chosen = f"{alpha.head:.2f} for heads, {alpha.tail:.2f} for tails"
        emit("weight", f"The weight of {before} against {tier}: {chosen}.")
        about = {"first": about, "second": model.describe(), "alpha": alpha.as_dict()}
        about |= {"top": top} if model.reads_pairs else {}
        before = f"{before} + {tier}"
    return scorer, about


def _weighed(models: Mapping[str, Model], kg: KnowledgeGraph) -> tuple[Scorer, dict[str, Any]]:
    """Weigh tiers that score every entity, all at once."""
    cascade = best_weighted_sum(models, kg)
    emit("weight", f"Weighed on valid, all at once: {cascade!r}.")
    later = [{"tier": tier.name, "alpha": tier.weight.as_dict()} for tier in cascade.tiers]
    about = {"tiers": {tier: model.describe() for tier, model in models.items()}, "first": cascade.name, "later": later}
    return cascade, about


def _weight(earlier: Scorer, model: Model, kg: KnowledgeGraph, top: int) -> Alpha:
    if not model.reads_pairs:
        return tune_alpha(earlier, model, kg)
    seed = int(model.settings.as_dict().get("seed", 0))
    queries = Queries.from_triples(kg.sample("valid", _RERANKED_TRIPLES, seed))
    return best_reranking(earlier, model, kg, queries, TopK(top)).alpha


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
