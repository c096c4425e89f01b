"""Fit a run to a graph: train the tiers one after another, tune their cascade on valid, and calibrate it."""

import atexit
import math
import shutil
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from cascader.cascade.pruners import TopK
from cascader.display import Listener, emit, listening, recording, stage
from cascader.durations import format_duration
from cascader.graph import KnowledgeGraph
from cascader.models.device import current_device, training_with, using_device
from cascader.models.history import TrainingHistory
from cascader.models.model import Model, TrainedModel
from cascader.models.readers import reading_with
from cascader.models.registry import model_class
from cascader.runs.decisions import append_decisions
from cascader.runs.folder import RunFolder
from cascader.runs.plan import FitPlan, check_same, emit_actual, emit_plan, load_plan, make_plan, save_plan
from cascader.runs.request import FitRequest, fit_request
from cascader.runs.run import Run, load_run
from cascader.scoring import Scorer
from cascader.scoring.engine import Engine
from cascader.scoring.ray_engine import check_engine
from cascader.storage import addressed, by_address
from cascader.tuning.weights import best_weighted_sum
from cascader.wording import counted

#: A tier that reads pairs learns from what the others rank highest, for far more questions than valid has. The last of
#: the others is the slowest (it matches tokens, where there are texts), so it only reorders this many candidates.
_MINED_TOP = 500


def fit(
    graph: KnowledgeGraph | str | Path,
    out: str | Path | None = None,
    *,
    budget: float | str | None = None,
    preset: str | None = None,
    tiers: str | Sequence[str] | None = None,
    model: str | Sequence[str] = "complex",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    time_limit: float | str | None = None,
    trials: int = 0,
    seed: int = 0,
    update: str | Path | None = None,
    engine: Engine | None = None,
    device: str | None = None,
    training_processes: int | None = None,
    on_event: Listener | None = None,
) -> Run:
    """Train on a graph, tune on valid, and save everything in the folder `out`; if interrupted, the same call resumes.

    `budget` is how long it all may take and `time_limit` how long each tier may train: seconds, or "30m". `tiers` are
    "plausibility", "rules", "similarity", "kge", "dual", "late", "cross" or any registered model; the default is all of
    these that the graph's texts allow. `model` says which embeddings "kge" stands for. `settings` changes those of the
    preset: `{"kge": {"dim": 50}}`. `update` is the folder of a run whose decisions are learned from: its accepted links
    join train, its rejected ones are negatives and never proposed. The `engine` reads texts, and the pairs for tuning.
    `device` is where it is trained and then answers: "auto", "cpu", "cuda", "cuda:1" or "mps"; `training_processes` is
    how many processes train language models. Without `out`, the run lives in a temporary folder until Python exits:
    `run.save(folder)` saves it.

    >>> from cascader import KnowledgeGraph, fit
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(4) for j in range(4)]
    >>> kg = KnowledgeGraph.from_triples(facts[1:14], valid=facts[14:])
    >>> run = fit(kg, tiers="kge", settings={"kge": {"dim": 4, "epochs": 2}})
    >>> run
    Run(graph, kge: complex)
    >>> run.predict("drug 0", "treats", top=1)[0].rank
    1
    """
    request = fit_request(
        graph,
        budget=budget,
        preset=preset,
        tiers=tiers,
        model=model,
        settings=settings,
        time_limit=time_limit,
        trials=trials,
        seed=seed,
        update=update,
    )
    with listening(on_event), using_device(device), training_with(training_processes):
        if out is None:
            return _fit_for_now(request, engine)
        with _interruptible("The same call goes on from there."):
            return fit_requested(request, RunFolder(out), engine)


@contextmanager
def _interruptible(what_next: str) -> Iterator[None]:
    """Say what is left if someone interrupts the block, as with the stop button of a notebook."""
    try:
        yield
    except KeyboardInterrupt:
        emit("stopped", f"Interrupted. What is finished is kept. {what_next}")
        raise


def _fit_for_now(request: FitRequest, engine: Engine | None) -> Run:
    """Fit a run in a temporary folder, which is removed together with the run, or at the exit if interrupted."""
    path = mkdtemp(prefix="cascader-run-")
    try:
        with _interruptible(f'The same call with out="{path}" goes on from there, until Python exits.'):
            run = fit_requested(request, RunFolder(path), engine)
    except KeyboardInterrupt:
        atexit.register(shutil.rmtree, path, ignore_errors=True)
        raise
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    weakref.finalize(run, shutil.rmtree, path, ignore_errors=True)
    return run


def fit_requested(request: FitRequest, folder: RunFolder, engine: Engine | None = None) -> Run:
    """Carry out a request in a locked folder, so that a second process on the same run waits."""
    check_engine(engine, str(current_device()))
    with addressed(), folder.locked(), recording(folder.log()):
        plan = _start(request, folder)
        plan = train_tiers(plan, request, folder, engine, lambda tier: _offer(plan, tier, request, folder))
        return _finish(plan, request, folder, engine)


def train_tiers(
    plan: FitPlan,
    request: FitRequest,
    folder: RunFolder,
    engine: Engine | None = None,
    trained: Callable[[str], None] = lambda tier: None,
) -> FitPlan:
    """Train the planned tiers one after another, tell `trained`, and return the plan with the seconds they took."""
    for tier in plan.tiers:
        with stage(tier), reading_with(engine, folder.for_workers, tier):
            plan = _train(plan, tier, request, folder)
        trained(tier)
    return plan


def _offer(plan: FitPlan, tier: str, request: FitRequest, folder: RunFolder) -> None:
    """Let people ask the tiers up to this one while a long training follows; a run that is complete stays so."""
    names = list(plan.tiers)
    ready, coming = names[: names.index(tier) + 1], names[names.index(tier) + 1 :]
    if not coming or folder.has_tier(coming[0]) or not _is_long(coming[0], request):
        return
    if folder.is_complete:
        return
    folder.mark_complete(request.kg, plan.presets, {name: request.kinds[name] for name in ready}, coming=coming)
    if not any(_is_long(name, request) for name in ready[1:]):  # the first offer, if need be again
        if not request.is_limited:  # tuning and calibrating these tiers is in no plan
            metadata = folder.metadata()
            Run(folder, request.kg, folder.load_tiers(metadata, request.kg), metadata).predictor()
        emit(
            "usable",
            f"You may ask already, after {format_duration(request.seconds_spent())}: cascader predict {folder.address} "
            f"ENTITY RELATION. Answers are those of {', '.join(ready)} so far; they get better while training goes on.",
        )


def _is_long(tier: str, request: FitRequest) -> bool:
    """Whether a tier is trained in epochs."""
    return issubclass(model_class(request.kinds[tier]), TrainedModel)


def plan_fit(request: FitRequest, folder: RunFolder) -> FitPlan:
    """Plan what `fit` would do with this request, with times estimated from a brief training of each tier."""
    found = load_plan(folder.path, request.as_dict())
    return found if found is not None and found.is_measured else make_plan(request, folder, measure=True)


def _start(request: FitRequest, folder: RunFolder) -> FitPlan:
    """Write the graph and the plan to the run's folder before anything long starts."""
    folder.save_graph(request.kg)
    if request.decisions is not None:
        append_decisions(folder.path, request.decisions.log)
        emit("decisions", request.decisions.as_lesson())
    plan = load_plan(folder.path, request.as_dict())
    is_new = plan is None
    if plan is None:
        plan = make_plan(request, folder, measure=request.is_limited)
        save_plan(plan, folder.path)
    if not all(folder.has_tier(tier) for tier in plan.tiers):
        if not is_new:
            emit("resumed", f"Resuming the plan in {folder.address}.")
        emit_plan(plan, request)
    return plan


def _train(plan: FitPlan, tier: str, request: FitRequest, folder: RunFolder) -> FitPlan:
    """Train a tier unless it is already trained, and record how long it took."""
    untrained, started = request.model(tier, plan.tiers[tier].preset), time.monotonic()
    if folder.has_tier(tier):
        found = folder.load_tier(tier, request.kg)
        if not request.is_searched(tier):
            check_same(folder, tier, found, untrained)
        if not _goes_on(plan, tier, request, folder, found):
            emit("found", f"{by_address(str(folder.tier(tier)))} is already trained.")
            is_recorded = plan.tiers[tier].actual_seconds is not None  # not if the process was killed in between
            return plan if is_recorded else plan.with_actual(tier, found.history_.spent)
        plan = _reopened(plan, tier, request, folder, found)
    _emit_settings(request.kg, tier, untrained, folder)
    earlier = _earlier(folder, tier, plan, request) if untrained.needs_texts else None
    before = plan.tiers[tier].seconds_before or 0.0
    seconds = max(min(request.time_limit, before + plan.limit(tier) - (time.monotonic() - started)), 1e-9)
    if request.is_searched(tier):
        trained_seconds = _search(plan, tier, request, folder, seconds)
    else:
        limit = seconds if seconds < math.inf else None
        trained = untrained.fit(request.kg, folder=folder.tier(tier), time_limit=limit, earlier=earlier)
        folder.save_tier(tier, trained)
        trained_seconds = trained.history_.spent - before
        _emit_trained(tier, trained.history_)
    # If an earlier process trained part of it, this one's clock has missed that.
    plan = plan.with_actual(tier, max(trained_seconds, time.monotonic() - started))
    save_plan(plan, folder.path)
    return plan


def _goes_on(plan: FitPlan, tier: str, request: FitRequest, folder: RunFolder, found: Model) -> bool:
    """Whether a tier that a time limit has cut short has more time now."""
    if not folder.can_go_on(tier, found) or request.is_searched(tier):
        return False
    planned = plan.tiers[tier]
    if request.has_budget:
        return planned.seconds_before is not None and planned.actual_seconds is None
    return request.time_limit > (found.history_.cut_at or 0.0)


def _reopened(plan: FitPlan, tier: str, request: FitRequest, folder: RunFolder, found: Model) -> FitPlan:
    """Make a run incomplete again in which a tier goes on; what has learned beside that tier is trained again."""
    stale = [name for name in request.stale([tier]) if folder.tier(name).exists()]
    limit = format_duration(found.history_.cut_at or 0.0)
    emit(
        "resumed",
        f"{by_address(str(folder.tier(tier)))} goes on from where {limit} were up, {_how_far(found.history_)}.",
    )
    if stale:
        emit("resumed", f"Trained again, because they learn beside {tier}: {', '.join(stale)}.")
    if (folder.path / "results").exists():
        emit("resumed", f"The results in {folder.address}/results are those of the run as it was: evaluate it again.")
    folder.reopen(stale)
    return replace(plan, actual_tuning_seconds=None)


def _search(plan: FitPlan, tier: str, request: FitRequest, folder: RunFolder, seconds: float) -> float:
    """Search for the best settings of an embedding, save the best model, and return the seconds of all trials."""
    from cascader.models.embeddings.search import Search

    settings = request.settings(tier, plan.tiers[tier].preset)
    fixed = request.changes.get(tier, {})
    search = Search(request.kinds[tier], settings, request.kg, folder.path / "search", fixed)
    folder.save_tier(tier, search.run(request.trials, seconds))
    rows = [
        [
            f"{number}{' (best)' if number == search.best else ''}",
            "diverged" if trial.has_diverged else "none" if trial.valid_mrr is None else f"{trial.valid_mrr:.4f}",
            str(trial.epochs),
            f"{trial.seconds:.0f}",
            ", ".join(f"{name}={value:.4g}" for name, value in trial.changes.items()) or "none",
        ]
        for number, trial in enumerate(search.trials)
    ]
    emit("searched", "Trials:", ["trial", "valid MRR", "epochs", "seconds", "changes"], rows)
    search.discard_weights()
    return sum(trial.seconds for trial in search.trials)


def _earlier(folder: RunFolder, tier: str, plan: FitPlan, request: FitRequest) -> Scorer | None:
    """Add up the tiers that this one is trained beside and that score every entity, weighed on valid."""
    names, kg = request.beside(tier, list(plan.tiers)), request.kg
    models = {name: folder.loaded_tier(name, kg) for name in names if folder.has_tier(name)}
    dense: dict[str, Scorer] = {name: model for name, model in models.items() if not model.reads_pairs}
    if len(dense) > 1 and len(kg.valid):
        weighed = best_weighted_sum(dense, kg)
        is_mined = model_class(request.kinds[tier]).reads_pairs and len(kg.entities) > _MINED_TOP
        earlier: Scorer | None = weighed.pruned_last(TopK(_MINED_TOP)) if is_mined else weighed
    else:
        earlier = next(iter(dense.values()), None)
    return None if earlier is None else request.rejecting(earlier)


def _finish(plan: FitPlan, request: FitRequest, folder: RunFolder, engine: Engine | None) -> Run:
    """Tune, calibrate, and report how long everything took."""
    started = time.monotonic()
    folder.mark_complete(request.kg, plan.presets, {tier: request.kinds[tier] for tier in plan.tiers})
    run = load_run(folder.address)
    if len(run.tiers) > 1 and len(run.kg.valid):
        best = run.tuned(engine).best_trial
        reads = f", with {best.pairs_per_query:.1f} pairs read per query" if best.pairs_per_query else ""
        figures = {"valid_mrr": best.mrr, "pairs_per_query": best.pairs_per_query}
        alone = " What the others add to it may be chance." if len(best.tiers) == 1 else ""
        tiers = " + ".join(best.tiers)
        emit("tuned", f"Best on valid, with an MRR of {best.mrr:.4f}: {tiers}{reads}.{alone}", values=figures)
    calibration = run.predictor(engine=engine).calibration
    if calibration is not None:
        emit("calibrated", calibration.in_words())
    if plan.actual_tuning_seconds is None:
        plan = replace(plan, actual_tuning_seconds=round(time.monotonic() - started, 3))
        save_plan(plan, folder.path)
        # What an earlier process did before it was interrupted is part of what the tiers took.
        emit_actual(plan, max(request.seconds_spent(), plan.actual_seconds or 0.0))
    return run


# Messages.


def _emit_settings(kg: KnowledgeGraph, tier: str, model: Model, folder: RunFolder) -> None:
    what = f"{tier} ({model.name})" if tier != model.name else tier
    emit("training", f"Training {what} on {kg.name} in {folder.address}.")
    rows = [[name, str(value)] for name, value in model.settings.as_dict().items()]
    emit("settings", f"Settings of {tier}:", ["setting", "value"], rows)


def _emit_trained(tier: str, history: TrainingHistory) -> None:
    if not history.summary():
        emit("trained", f"Fitted {tier}: it has no epochs to train.")
        return
    took = f"{history.seconds:.0f} s, after {history.preparing_seconds:.0f} s of preparation"
    figures = {"epochs": history.epochs, "seconds": round(history.spent, 3)}
    figures |= {} if history.best_valid is None else {"valid_mrr": history.best_valid}
    emit("trained", f"Trained {tier} {_how_far(history)} in {took}{_which(history)}.", values=figures)
    if history.cut_at is not None:
        limit = format_duration(history.cut_at)
        emit("trained", f"Its time, {limit}, was up before it was done: the same command with more time goes on.")


def _how_far(history: TrainingHistory) -> str:
    steps = "" if history.partial is None else f" and {counted(history.partial.steps, 'step')} of the next"
    return f"for {counted(history.epochs, 'epoch')}{steps}"


def _which(history: TrainingHistory) -> str:
    """Which weights are kept."""
    if history.best_epoch is None and history.cut_at is None:
        return "; there are no valid triples to choose the best on"
    if history.best_epoch is None:
        return "; nothing of it was validated, so the last weights are kept"
    if history.best_epoch > history.epochs:
        return ", best on valid where it was cut short"
    return f", best on valid after epoch {history.best_epoch}"
