"""`cascader evaluate`: from a run to figures."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cascader.cli.compare import SplitOption, say_evaluation
from cascader.cli.console import say
from cascader.cli.tiers import tier_names
from cascader.errors import SettingsError
from cascader.graph import KnowledgeGraph, SplitName

if TYPE_CHECKING:
    from cascader.cascade import MeteredCascade
    from cascader.evaluation import Evaluation
    from cascader.runs import Run
    from cascader.scoring.engines import Engine
    from cascader.tuning import Plan

SecondsOption = Annotated[
    float | None,
    typer.Option("--seconds", help="How long answering may take in all; the best cascade that fits is taken."),
]
PairsOption = Annotated[
    int | None,
    typer.Option("--pairs", help="How many pairs, a question with a candidate, may be read in all, likewise."),
]
ProcessesOption = Annotated[int, typer.Option("--processes", help="Processes that read texts at the same time.")]


def evaluate(
    run: Annotated[Path, typer.Argument(help="A folder that `cascader fit` has made.")],
    tiers: Annotated[
        str,
        typer.Option(
            "--tiers",
            help="Tiers to measure, added up: kge (the embedding), dual, cross (the language models). [default: the "
            "tuned cascade]",
        ),
    ] = "",
    beside: Annotated[
        Path | None, typer.Option("--with", help="A second run: its first tier is added to this one's.")
    ] = None,
    split: SplitOption = "test",
    seconds: SecondsOption = None,
    pairs: PairsOption = None,
    processes: ProcessesOption = 1,
    top: Annotated[
        int, typer.Option("--top", help="With --tiers: how many candidates of a question the tier cross gets to read.")
    ] = 100,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for the results. [default: RUN/results]")
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="What the results are called. [default: by tiers and models]")
    ] = "",
) -> None:
    """Measure a run: ask for head and tail of every triple of test, and write the figures and every rank.

    Example: cascader evaluate runs/demo

    `cascader demo` makes that run.
    """
    from cascader.runs import load_run
    from cascader.scoring.engines import LocalEngine

    loaded = load_run(run)
    with LocalEngine(processes) as engine:
        if tiers or beside is not None or len(loaded.tiers) == 1 or len(loaded.kg.valid) == 0:
            evaluation = measured_sum(loaded, split, tiers, beside, top, name)
        else:
            evaluation = measured_cascade(loaded, split, seconds, pairs, engine, name)
    path = evaluation.save(out or run / "results")
    say_evaluation(evaluation)
    say(f"Written to {path} and {path.with_suffix('.ranks.parquet')}.")


def measured_sum(
    run: "Run", split: SplitName, tiers: str = "", beside: Path | None = None, top: int = 100, name: str = ""
) -> "Evaluation":
    """Tiers alone, or several added up, on a split."""
    from cascader.evaluation import evaluate as evaluate_scorer
    from cascader.runs import load_run

    if beside is not None:
        second = load_run(beside)
        _check_same_graph(run.kg, second.kg)
        parts = {"kge": run.kge, "kge of the second run": second.kge}
    else:
        parts = {tier: run.tier(tier) for tier in (tier_names(tiers) if tiers else run.tiers)}
    scorer, about = _added_up(run, parts, split, top)
    name = name or _result_name(list(parts.values()))
    return evaluate_scorer(scorer, run.kg, split, name=name, seed=run.kge.settings.seed, about=about)


def measured_cascade(
    run: "Run",
    split: SplitName,
    seconds: float | None = None,
    pairs: int | None = None,
    engine: "Engine | None" = None,
    name: str = "",
) -> "Evaluation":
    """The best cascade that a budget allows, on a split; says what was predicted, and what it took."""
    from cascader.evaluation import evaluate as evaluate_scorer

    plan, cascade = _planned(run, split, seconds, pairs, engine)
    evaluation = evaluate_scorer(cascade, run.kg, split, name=name or "cascade", seed=run.kge.settings.seed)
    _say_costs(cascade)
    return replace(evaluation, about=_about(run, plan, cascade))


def _planned(
    run: "Run", split: SplitName, seconds: float | None, pairs: int | None, engine: "Engine | None"
) -> tuple["Plan", "MeteredCascade"]:
    """The best cascade that a budget allows for the questions of a split, and what it is predicted to cost."""
    from cascader.cascade import Deadline, MeteredCascade
    from cascader.graph import Queries
    from cascader.tuning import Budget

    questions = len(Queries.from_triples(run.kg.split(split)).unique()[0])
    plan = run.tuned(engine).plan(Budget(seconds, pairs), questions)
    trial = plan.trial
    say(f"Plan: {' + '.join(trial.tiers)}, valid MRR {trial.mrr:.4f}.")
    say(f"Predicted: {plan.pairs:,.0f} pairs to read and {plan.seconds:,.1f} s for {questions:,} questions.")
    if len(trial.tiers) == 1:
        say("No later tier fits the budget: the first one answers alone.")
    return plan, MeteredCascade(trial.cascade, None if seconds is None else Deadline(seconds))


def _about(run: "Run", plan: "Plan", cascade: "MeteredCascade") -> dict[str, Any]:
    """What there is to tell of a cascade: its tiers, how it was tuned, what was predicted, and what it took."""
    return {
        "tiers": {tier: model.describe() for tier, model in run.tiers.items() if tier in plan.trial.tiers},
        "plan": {**plan.trial.as_dict(), "seconds": plan.seconds, "pairs": plan.pairs},
        "costs": {tier: asdict(cost) for tier, cost in cascade.usage.tiers.items()},
    }


def _say_costs(cascade: "MeteredCascade") -> None:
    costs = cascade.usage.tiers
    say(f"Took: {sum(cost.seconds for cost in costs.values()):,.1f} s, of which")
    for tier, cost in costs.items():
        late = f"; the time was up for {cost.cut_short:,} of {cost.queries:,} questions" if cost.cut_short else ""
        say(f"  {tier}: {cost.seconds:,.1f} s for {cost.calls:,} scores{late}")


def _added_up(run: "Run", parts: dict[str, Any], split: SplitName, top: int) -> tuple[Any, dict[str, Any]]:
    """The tiers as one scorer, and what there is to tell of it; valid chooses how much each counts."""
    from cascader.cascade import Alpha, Cascade, TopK
    from cascader.graph import Queries
    from cascader.tuning import best_reranking, tune_alpha

    kg, keep = run.kg, TopK(top)
    is_alone = list(parts) == ["cross"]
    if is_alone:  # it has nothing to read but what the first tier proposes
        parts = {"kge": run.kge, **parts}
    (before, first), *others = parts.items()
    scorer, about = first, first.describe()
    for tier, part in others:
        if tier != "cross":
            alpha = tune_alpha(scorer, part, kg)
            scorer = Cascade(scorer).then(part, alpha=alpha)
        else:
            queries = Queries.from_triples(kg.sample("valid", part.settings.valid_triples, part.settings.seed))
            alpha = Alpha(0.0, 0.0) if is_alone else best_reranking(scorer, part, kg, queries, keep).alpha
            scorer = Cascade(scorer).then(part, alpha=alpha, keep=keep)
        say(f"alpha, the weight of {before} against {tier}: {alpha.head:.2f} for heads, {alpha.tail:.2f} for tails.")
        about = {"first": about, "second": part.describe(), "alpha": alpha.as_dict()}
        if tier == "cross":
            about["top"] = top
        before = f"{before} + {tier}"
    return scorer, about


def _result_name(models: list[Any]) -> str:
    """kge-complex, dual-contrastive, kge+kge-complex-transe, kge+dual-complex-contrastive."""
    kinds = ["kge" if hasattr(model.settings, "loss") else model.name for model in models]
    names = [
        model.name if kind == "kge" else model.settings.objective for kind, model in zip(kinds, models, strict=True)
    ]
    return f"{'+'.join(kinds)}-{'-'.join(names)}"


def _check_same_graph(first: KnowledgeGraph, second: KnowledgeGraph) -> None:
    if first.data_hash != second.data_hash:
        raise SettingsError("the two runs were trained on different graphs. Fit both on the same one.")
