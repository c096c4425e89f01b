"""Evaluate a run: its tuned cascade within a budget, or some of its tiers alone or added up.

The weights of tiers that are added up are chosen by valid once, and the folder of the run keeps them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cascader.cascade import Alpha, Cascade, Deadline, MeteredCascade
from cascader.cascade.alphas import ALPHAS, best_reranking, tune_alpha
from cascader.cascade.pruners import TopK
from cascader.display import emit
from cascader.errors import SettingsError, UnscoredError
from cascader.evaluation import Evaluation, Filtering, evaluate
from cascader.evaluation.protocol import iter_blocks, queries_of
from cascader.graph import KnowledgeGraph, Queries, SplitName
from cascader.models.model import Model
from cascader.records import naming, read_record, write_record
from cascader.scoring import Scorer
from cascader.scoring.engine import Engine
from cascader.scoring.shares import ShareEngine
from cascader.tuning import Budget, Plan, SearchSpace
from cascader.tuning.result import SavedCascade, cascade_to_dict
from cascader.tuning.weights import best_weighted_sum
from cascader.wording import counted

if TYPE_CHECKING:
    from cascader.runs.run import Run

#: How some tiers are weighed: in a sum, all at once or one alpha after the other as in the paper, or in a cascade with
#: pruners, tuned as fitting does or in the paper's search space.
SumWeights = Literal["joint", "alpha", "tuned", "paper"]
#: The number of valid triples for choosing the weight of a tier that reads pairs when it is evaluated in a sum.
_RERANKED_TRIPLES = 200
FORMAT = 2
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


def read_share(
    run: "Run",
    split: SplitName,
    tiers: Sequence[str] | None,
    weights: SumWeights,
    budget: Budget,
    top: int,
    engine: ShareEngine,
) -> bool:
    """Read a share of the pairs that `evaluate_run` would read; return whether it would read more after a merge."""
    queries = queries_of(run.kg, split)
    try:
        plan = _plan(run, tiers, weights, budget, len(queries.unique()[0]), top, engine)
        scorer = plan.trial.cascade if plan else added_up(run, _parts(run, tiers), weights, top, engine)[0]
    except UnscoredError:  # valid has to choose first, from pairs of its own
        return True
    return read_blocks(scorer, (block.questions for block in iter_blocks(queries, run.kg.known(), "reading")))


def read_blocks(scorer: Scorer, blocks: Iterable[Queries]) -> bool:
    """Read a share of the pairs of each block; return whether a later tier would read more after a merge."""
    reading = [tier for tier in scorer.tiers if tier.reads_pairs] if isinstance(scorer, Cascade) else [scorer]
    is_unscored = False
    for questions in blocks:
        try:
            scorer.score_all(questions)
        except UnscoredError:
            is_unscored = True
    return is_unscored and len(reading) > 1


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
    _emit_plan(plan, questions, budget)
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


def _emit_plan(plan: Plan, questions: int, budget: Budget) -> None:
    trial = plan.trial
    emit("plan", f"Plan: {' + '.join(trial.tiers)}, valid MRR {trial.mrr:.4f}.")
    emit(
        "plan",
        f"Estimated: {plan.pairs:,.0f} pairs to read and {plan.seconds:,.1f} s for {counted(questions, 'question')}.",
    )
    if len(trial.tiers) == 1:
        why = "on valid, what later ones add may be chance" if budget == Budget() else "no later one fits the budget"
        emit("plan", f"The first tier answers alone: {why}.")


def _emit_usage(metered: MeteredCascade) -> None:
    emit("usage", f"Took: {metered.usage.seconds:,.1f} s, of which")
    for tier, usage in metered.usage.tiers.items():
        late = f"; time ran out for {usage.cut_short:,} of {usage.queries:,} questions" if usage.cut_short else ""
        emit("usage", f"  {tier}: {usage.seconds:,.1f} s for {usage.calls:,} scores{late}")


# Sums.


@dataclass(frozen=True)
class _SavedSum(SavedCascade):
    identity: dict[str, str]


def added_up(
    run: "Run", parts: Mapping[str, Model], weights: str, top: int, engine: Engine | None = None
) -> tuple[Scorer, dict[str, Any]]:
    """Add the tiers up to one scorer, with weights chosen on valid, and describe it."""
    is_alone = all(model.reads_pairs for model in parts.values())
    if is_alone:  # it can only read candidates that another tier proposes
        proposing = next((tier for tier, model in run.tiers.items() if model.tier == "kge"), next(iter(run.tiers)))
        parts = {proposing: run.tiers[proposing], **parts}
    scorers = {**parts, **{tier: scorer for tier, scorer in run.scorers(engine).items() if tier in parts}}
    if len(parts) == 1:
        return next(iter(scorers.values())), next(iter(parts.values())).describe()
    path = None if is_alone or not parts.keys() <= run.tiers.keys() else path_of_sum(run, list(parts), weights)
    found = None if path is None else _load_sum(path, _identity(run, parts, top), scorers)
    if found is None:
        found = _choose(run.kg, parts, scorers, weights == "joint", top, is_alone)
        if path is not None:
            saved = {"identity": _identity(run, parts, top), **cascade_to_dict(found)}
            content, target = {"format": FORMAT, **saved}, path
            run.folder.keep(lambda: write_record(target, content))
    return found, _described(found, parts, weights == "joint", top)


def path_of_sum(run: "Run", tiers: Sequence[str], weights: str) -> Path:
    """Return the file for the weights of some tiers, chosen in this way."""
    return run.folder.part([name for name in run.tiers if name in tiers]) / f"{weights}.json"


def _identity(run: "Run", parts: Mapping[str, Model], top: int) -> dict[str, str]:
    """Identify what the weights of a sum depend on."""
    return {**{tier: run.folder.tier_hash(tier) for tier in parts}, "top": str(top)}


def _load_sum(path: Path, identity: Mapping[str, str], scorers: Mapping[str, Scorer]) -> Cascade | None:
    if not path.exists():
        return None
    advice = "Delete it to weigh the tiers again."
    saved = read_record(path, _SavedSum, FORMAT, advice)
    if saved.identity != identity:
        return None
    with naming(path, advice):
        return saved.cascade(scorers, {})


def _choose(
    kg: KnowledgeGraph,
    parts: Mapping[str, Model],
    scorers: Mapping[str, Scorer],
    is_joint: bool,
    top: int,
    is_alone: bool,
) -> Cascade:
    """Choose the weights on valid: of all tiers that score every entity at once, or of one tier after the other."""
    dense = {tier: scorers[tier] for tier, model in parts.items() if not model.reads_pairs}
    if is_joint and len(dense) > 1:
        cascade = best_weighted_sum(dense, kg)
        others = [tier for tier in parts if tier not in dense]
    else:
        first, *others = parts
        cascade = Cascade(scorers[first], name=first)
    for tier in others:
        model, scorer = parts[tier], scorers[tier]
        alpha = Alpha(0.0, 0.0) if is_alone else _weight(cascade, scorer, model, kg, top, is_joint)
        cascade = cascade.then(scorer, alpha=alpha, keep=TopK(top) if model.reads_pairs else None, name=tier)
    return cascade


def _weight(earlier: Scorer, scorer: Scorer, model: Model, kg: KnowledgeGraph, top: int, is_joint: bool) -> Alpha:
    if not model.reads_pairs:
        return tune_alpha(earlier, scorer, kg)
    seed = int(model.settings.as_dict().get("seed", 0))
    queries = Queries.from_triples(kg.sample("valid", _RERANKED_TRIPLES, seed))
    return best_reranking(earlier, scorer, kg, queries, TopK(top), alphas=None if is_joint else ALPHAS).alpha


def _described(cascade: Cascade, parts: Mapping[str, Model], is_joint: bool, top: int) -> dict[str, Any]:
    """Describe a sum for a result file, and report its weights."""
    about: dict[str, Any]
    dense = [tier for tier, model in parts.items() if not model.reads_pairs]
    if is_joint and len(dense) > 1:
        later_dense = tuple(tier for tier in cascade.tiers if tier.name in dense)
        weighed = Cascade(cascade.first, later_dense, name=cascade.name)
        emit("weight", f"Weighed on valid, all at once: {weighed!r}.")
        later = [{"tier": tier.name, "alpha": tier.weight.as_dict()} for tier in weighed.tiers]
        about = {"tiers": {tier: parts[tier].describe() for tier in dense}, "first": cascade.name, "later": later}
        before, others = " + ".join(dense), [tier for tier in cascade.tiers if tier.name not in dense]
    else:
        about, before, others = parts[cascade.name].describe(), cascade.name, list(cascade.tiers)
    for tier in others:
        chosen = f"{tier.weight.head:.4g} for heads, {tier.weight.tail:.4g} for tails"
        emit("weight", f"The weight of {before} against {tier.name}: {chosen}.")
        about = {"first": about, "second": parts[tier.name].describe(), "alpha": tier.weight.as_dict()}
        about |= {"top": top} if parts[tier.name].reads_pairs else {}
        before = f"{before} + {tier.name}"
    return about


def untuned(scorers: Mapping[str, Scorer]) -> Cascade:
    """Chain all tiers, to be tuned."""
    (name, first), *others = scorers.items()
    cascade = Cascade(first, name=name)
    for other, scorer in others:
        cascade = cascade.then(scorer, name=other)
    return cascade


def equal_sum(scorers: Mapping[str, Scorer]) -> Cascade:
    """Add up the tiers with equal weights."""
    (name, first), *others = scorers.items()
    cascade = Cascade(first, name=name)
    for count, (other, scorer) in enumerate(others, start=1):
        cascade = cascade.then(scorer, alpha=count / (count + 1), name=other)
    return cascade
