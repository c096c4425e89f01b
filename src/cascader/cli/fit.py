"""`cascader fit`: from a graph to a run."""

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cascader.cli.console import say, say_table
from cascader.cli.graphs import Opened, about_a_graph
from cascader.cli.plans import FitRequest, plan_for, say_plan, say_took
from cascader.cli.tiers import check_same, kinds_of, model_of, parsed_settings
from cascader.errors import SettingsError
from cascader.graph import KnowledgeGraph
from cascader.scoring.scorer import Scorer

if TYPE_CHECKING:
    from cascader.models.embeddings.search import Search
    from cascader.models.training import TrainingHistory
    from cascader.runs import FitPlan

TiersOption = Annotated[
    str,
    typer.Option(
        "--tiers",
        help="Which tiers to train, by commas: kge (an embedding), dual and cross (language models). "
        "[default: all, or kge alone where the graph has no texts]",
    ),
]
ModelOption = Annotated[
    str, typer.Option("--model", help="rescal, transe, complex or rotate; or two of them, by a comma.")
]
PresetOption = Annotated[
    str | None,
    typer.Option("--preset", help="quick, balanced or best. [default: what --budget has time for, or quick]"),
]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", help="How long training, tuning and calibration may take in all: 90s, 30m, 2h."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting, as in --set dim=100 or --set dual.dim=100; repeatable."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Draws the first weights and the batches of every tier.")]
TrialsOption = Annotated[
    int,
    typer.Option(
        "--trials", help="Try this many variations of the settings, and keep the best on valid; needs Optuna."
    ),
]
MinutesOption = Annotated[float, typer.Option("--max-minutes", help="Stop training a tier after this long.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="The run's folder. [default: runs/GRAPH/MODEL-PRESET, or -BUDGET]")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the plan, and stop.")]


@about_a_graph
def fit(
    graph: Opened,
    tiers: TiersOption = "",
    model: ModelOption = "complex",
    preset: PresetOption = None,
    budget: BudgetOption = None,
    settings: SetOption = None,
    seed: SeedOption = 0,
    trials: TrialsOption = 0,
    out: OutOption = None,
    max_minutes: MinutesOption = math.inf,
    dry_run: DryRunOption = False,
) -> None:
    """Train on a graph, tune on valid, and keep all of it in a folder; interrupted, the same command goes on.

    Example: cascader fit wordnet --budget 30m
    """
    started = time.monotonic()
    from cascader.models.text.texts import check_texts, has_texts
    from cascader.storage import locked

    _check_limits(budget, max_minutes)
    kinds = kinds_of(tiers, model, graph.kg)
    changed = parsed_settings(settings or [], list(kinds))
    wish = _wish(graph.kg, kinds, changed, preset, budget, seed, trials, max_minutes, started)
    if set(wish.kinds) & {"dual", "cross"}:
        check_texts(wish.kg)
    name = "-".join(part for part in (preset or ("" if budget else "quick"), (budget or "").replace(" ", "")) if part)
    folder = out or Path("runs") / wish.kg.name / f"{model.replace(',', '+')}-{name}"
    if dry_run:
        say_plan(plan_for(wish, folder)[0], wish, has_texts(wish.kg))
        return
    with locked(folder):  # a second process on the same run waits, and then finds it finished
        plan = _started(wish, folder)
        for tier in plan.tiers:
            plan = _train(plan, tier, wish, folder, changed[tier])
        _finish(plan, wish, folder)
    say(f"Written to {folder}. Measure it with: cascader evaluate {folder}")
    say(f"Ask it with: cascader predict {folder} ENTITY RELATION")


def _check_limits(budget: str | None, max_minutes: float) -> None:
    if budget is not None and max_minutes < math.inf:
        raise SettingsError("--budget shares the time between the tiers, --max-minutes limits each. Give one of them.")
    if not max_minutes > 0:
        raise SettingsError(f"--max-minutes is {max_minutes:g}, expected more than 0.")


def _wish(
    kg: KnowledgeGraph,
    kinds: dict[str, str],
    changed: dict[str, dict[str, Any]],
    preset: str | None,
    budget: str | None,
    seed: int,
    trials: int,
    max_minutes: float,
    started: float,
) -> FitRequest:
    """What is asked for; what cannot work shows before anything trains."""
    from cascader.models.presets import preset as settings_of
    from cascader.runs import parse_duration

    def chosen(tier: str, name: str) -> dict[str, Any]:
        return {**settings_of(kinds[tier], name, kg.name), "seed": seed, **changed[tier]}

    for tier, kind in kinds.items():
        model_of(kind, chosen(tier, preset or "quick"))
    seconds = None if budget is None else parse_duration(budget)
    return FitRequest(kg, kinds, chosen, preset, seconds, trials, max_minutes * 60, started)


def _started(wish: FitRequest, folder: Path) -> "FitPlan":
    """The graph and the plan in the run's folder, before anything long starts."""
    from cascader.models.text.texts import has_texts
    from cascader.runs import has_tier, keep_graph, save_plan

    keep_graph(folder, wish.kg)
    plan, is_new = plan_for(wish, folder)
    if is_new:
        save_plan(plan, folder)
    if not all(has_tier(folder, tier) for tier in plan.tiers):
        if not is_new:
            say(f"Going on with the plan in {folder}.")
        say_plan(plan, wish, has_texts(wish.kg))
    return plan


def _train(plan: "FitPlan", tier: str, wish: FitRequest, folder: Path, fixed: dict[str, Any]) -> "FitPlan":
    """Train a tier if it is not there yet, and write down what it took."""
    from cascader.models.embeddings.search import Search
    from cascader.runs import has_tier, keep_tier, load_tier, save_plan, tier_folder

    settings = wish.settings_of(tier, plan.tiers[tier].preset)
    untrained, started = model_of(wish.kinds[tier], settings), time.monotonic()
    if has_tier(folder, tier):
        found = load_tier(folder, tier, wish.kg)
        if not wish.is_searched(tier):
            check_same(folder, tier, found, untrained)
        say(f"{tier_folder(folder, tier)} is finished already.")
        is_written = plan.tiers[tier].took is not None  # not if it was killed in between
        return plan if is_written else plan.with_took(tier, _seconds(found.history_))
    _say_settings(wish.kg, tier, untrained, folder)
    earlier, limit = _earlier(folder, tier, wish.kg), plan.limit(tier)
    seconds = wish.most_seconds if limit is None else max(limit - (time.monotonic() - started), 1e-9)
    if wish.is_searched(tier):
        search = Search(wish.kinds[tier], settings, wish.kg, folder / "search", fixed)
        keep_tier(folder, tier, search.run(wish.trials, seconds))
        _say_trials(search)
        search.discard_weights()
        trained_seconds = sum(trial.seconds for trial in search.trials)
    else:
        trained = untrained.fit(wish.kg, folder=tier_folder(folder, tier), time_limit=seconds, **earlier)
        keep_tier(folder, tier, trained)
        _say_trained(trained.history_)
        trained_seconds = _seconds(trained.history_)
    # Where an earlier process has trained a part of it, this one's clock has not seen that.
    plan = plan.with_took(tier, max(trained_seconds, time.monotonic() - started))
    save_plan(plan, folder)
    return plan


def _seconds(history: "TrainingHistory") -> float:
    return history.seconds + history.preparing_seconds


def _finish(plan: "FitPlan", wish: FitRequest, folder: Path) -> None:
    """Tune, calibrate, and say what all of it took."""
    from cascader.runs import finish_run, save_plan

    started = time.monotonic()
    finish_run(folder, wish.kg, plan.presets)
    _tune(folder)
    if plan.tuning_took is None:
        plan = replace(plan, tuning_took=round(time.monotonic() - started, 3))
        save_plan(plan, folder)
        say_took(plan)


def _tune(folder: Path) -> None:
    """Try cascades on valid, where there are several tiers and a valid split."""
    from cascader.runs import load_run
    from cascader.tuning import Budget

    run = load_run(folder)
    if len(run.tiers) > 1 and len(run.kg.valid):
        best = run.tuned().plan(Budget(), 1).trial
        say(f"Best on valid: {' + '.join(best.tiers)}, with {best.pairs_per_query:.1f} pairs read a query.")
    calibration = run.answering().calibration
    if calibration is not None:
        say(calibration.in_words())


def _earlier(folder: Path, tier: str, kg: KnowledgeGraph) -> dict[str, Scorer]:
    """A later tier is trained for its sum with those before it, weighed as valid likes best."""
    from cascader.cascade import Cascade
    from cascader.runs import READING_TIERS, TIERS, has_tier, load_tier
    from cascader.tuning import tune_alpha

    order = list(TIERS)
    before = [name for name in order[: order.index(tier)] if has_tier(folder, name) and name not in READING_TIERS]
    if tier.startswith("kge") or not before:
        return {}
    first, *others = (load_tier(folder, name, kg) for name in before)
    together: Scorer = first
    for other in others if len(kg.valid) else []:
        together = Cascade(together).then(other, alpha=tune_alpha(together, other, kg))
    return {"earlier": together}


def _say_settings(kg: KnowledgeGraph, tier: str, model: Any, folder: Path) -> None:  # noqa: ANN401 - any tier's model
    what = f"{tier} ({model.name})" if tier != model.name else tier
    say(f"Training {what} on {kg.name} in {folder}: {len(kg.train):,} triples, {len(kg.entities):,} entities.")
    say_table(["setting", "value"], [[name, str(value)] for name, value in model.settings.as_dict().items()])


def _say_trained(history: "TrainingHistory") -> None:
    best = history.best_epoch
    chosen = f", best on valid after {best}" if best else "; there is no valid to choose on"
    seconds, preparing = history.seconds, history.preparing_seconds
    say(f"Trained {history.epochs} epochs in {seconds:.0f} s, after {preparing:.0f} s of preparing{chosen}.")


def _say_trials(search: "Search") -> None:
    say_table(
        ["trial", "valid MRR", "epochs", "seconds", "changes"],
        [
            [
                f"{number}{' (best)' if number == search.best else ''}",
                "diverged" if trial.valid_mrr is None else f"{trial.valid_mrr:.4f}",
                str(trial.epochs),
                f"{trial.seconds:.0f}",
                ", ".join(f"{name}={value:.4g}" for name, value in trial.changes.items()) or "none",
            ]
            for number, trial in enumerate(search.trials)
        ],
    )
