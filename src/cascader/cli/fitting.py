"""`cascader fit` and `cascader evaluate`: from a graph to a run, and from a run to figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cascader.cli.console import say, say_table
from cascader.cli.evaluations import SplitOption, say_evaluation
from cascader.cli.graphs import EntityTable, NameOrPath, RelationTable, Seed, TestShare, Unseen, ValidShare, open_named
from cascader.datasets import Split
from cascader.errors import SettingsError
from cascader.graph import KnowledgeGraph, SplitName

if TYPE_CHECKING:
    from cascader.models.embeddings.search import Search
    from cascader.runs import Run

ModelOption = Annotated[str, typer.Option("--model", help="rescal, transe, complex or rotate.")]
TiersOption = Annotated[str, typer.Option("--tiers", help="Which tiers to train, by commas: kge, dual, cross.")]
PresetOption = Annotated[str, typer.Option("--preset", help="quick (a minute or two) or best.")]
MinutesOption = Annotated[float, typer.Option("--max-minutes", help="Stop training a tier after this long.")]
TrialsOption = Annotated[
    int,
    typer.Option(
        "--trials", help="Try this many variations of the settings, and keep the best on valid; needs Optuna."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting, as in --set dim=100 or --set dual.dim=100; repeatable."),
]


def fit(
    graph: NameOrPath,
    tiers: TiersOption = "kge",
    model: ModelOption = "complex",
    preset: PresetOption = "quick",
    settings: SetOption = None,
    trials: TrialsOption = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run's folder. [default: runs/GRAPH/MODEL-PRESET]")
    ] = None,
    max_minutes: MinutesOption = float("inf"),
    entities: EntityTable = None,
    relations: RelationTable = None,
    valid: ValidShare = Split.valid,
    test: TestShare = Split.test,
    seed: Seed = Split.seed,
    unseen: Unseen = Split.unseen_entities,
) -> None:
    """Train on a graph, and keep all of it in a folder; interrupted, the same command goes on where it stopped.

    Example: cascader fit wordnet --model complex --preset quick --set epochs=3
    """
    from cascader.models.embeddings.search import Search
    from cascader.models.language.texts import check_texts
    from cascader.runs import finish_run, has_tier, keep_graph, keep_tier, load_tier, tier_folder

    wanted = _tier_names(tiers)
    kg = open_named(graph, entities, relations, Split(valid, test, seed, unseen))
    changed = _parsed(settings or [], wanted)
    chosen = {tier: {**_preset(tier, model, preset, kg.name), **changed[tier]} for tier in wanted}
    models = {tier: _model(tier, model, chosen[tier]) for tier in wanted}  # bad settings show before anything trains
    if wanted != ["kge"]:
        check_texts(kg)
    folder = out or Path("runs") / kg.name / f"{model}-{preset}"
    keep_graph(folder, kg)
    for tier, untrained in models.items():
        if has_tier(folder, tier):
            finished = load_tier(folder, tier, kg)
            if not trials:
                _check_same(folder, tier, finished.recipe.as_dict(), untrained.recipe.as_dict())
            say(f"{tier_folder(folder, tier)} is finished already.")
            continue
        _say_plan(kg, tier, untrained, folder)
        if tier == "kge" and trials:
            search = Search(model, chosen[tier], kg, folder / "search", fixed=changed[tier])
            trained: Any = search.run(trials, max_minutes)
            _say_trials(search)
            keep_tier(folder, tier, trained)
            search.discard_weights()
        else:
            # A later tier is trained for its sum with the first one.
            earlier = {"earlier": load_tier(folder, "kge", kg)} if tier != "kge" and has_tier(folder, "kge") else {}
            trained = untrained.fit(kg, tier_folder(folder, tier), max_minutes, **earlier)
            keep_tier(folder, tier, trained)
        _say_trained(trained.history_)
    finish_run(folder, kg, preset)
    say(f"Written to {folder}. Measure it with: cascader evaluate {folder}")


def evaluate(
    run: Annotated[Path, typer.Argument(help="A folder that `cascader fit` has made.")],
    tiers: Annotated[
        str, typer.Option("--tiers", help="Which tiers to measure; several are added up. [default: all of the run]")
    ] = "",
    beside: Annotated[
        Path | None, typer.Option("--with", help="A second run: its first tier is added to this one's.")
    ] = None,
    split: SplitOption = "test",
    top: Annotated[int, typer.Option("--top", help="How many candidates a cross encoder gets to read.")] = 100,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for the results. [default: RUN/results]")
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="What the results are called. [default: by tiers and models]")
    ] = "",
) -> None:
    """Measure a run on valid or test, and write the figures and every rank; sums are weighed as valid likes best.

    Example: cascader evaluate runs/wordnet/complex-quick
    """
    from cascader.evaluation import evaluate as evaluate_scorer
    from cascader.runs import load_run

    loaded = load_run(run)
    if beside is not None:
        second = load_run(beside)
        _check_same_graph(loaded.kg, second.kg)
        parts = {"kge": loaded.kge, "kge of the second run": second.kge}
    else:
        parts = {tier: loaded.tier(tier) for tier in (_tier_names(tiers) if tiers else loaded.tiers)}
    scorer, about = _added_up(loaded, parts, split, top)
    first = next(iter(parts.values()))
    evaluation = evaluate_scorer(
        scorer, loaded.kg, split, name=name or _result_name(list(parts.values())), seed=first.recipe.seed, about=about
    )
    path = evaluation.save(out or run / "results")
    say_evaluation(evaluation)
    say(f"Written to {path} and {path.with_suffix('.ranks.parquet')}.")


def _added_up(run: "Run", parts: dict[str, Any], split: SplitName, top: int) -> tuple[Any, dict[str, Any]]:
    """The tiers as one scorer, and what there is to tell of it; valid chooses how much each counts."""
    from cascader.cascade import Alpha, Cascade, TopK
    from cascader.evaluation.protocol import known_splits
    from cascader.graph import Queries
    from cascader.models.language.sampling import sampled
    from cascader.tuning import best_reranking, tune_alpha

    kg, keep = run.kg, TopK(top)
    is_alone = list(parts) == ["cross"]
    if is_alone:  # it has nothing to read but what the first tier proposes
        parts = {"kge": run.kge, **parts}
    (before, first), *others = parts.items()
    scorer, about = first, first.about()
    known = kg.known(tuple(name for name in known_splits(split) if name != split))
    for tier, part in others:
        if tier != "cross":
            alpha = tune_alpha(scorer, part, kg)
            scorer = Cascade(scorer).then(part, alpha=alpha)
        else:
            queries = Queries.from_triples(sampled(kg.valid, part.recipe.valid_triples, part.recipe.seed))
            alpha = Alpha(0.0, 0.0) if is_alone else best_reranking(scorer, part, kg, queries, keep).alpha
            scorer = Cascade(scorer, known=known).then(part, alpha=alpha, keep=keep)
        say(f"alpha, the weight of {before} against {tier}: {alpha.head:.2f} for heads, {alpha.tail:.2f} for tails.")
        about = {"first": about, "second": part.about(), "alpha": alpha.as_dict()}
        if tier == "cross":
            about["top"] = top
        before = f"{before} + {tier}"
    return scorer, about


def _tier_names(tiers: str) -> list[str]:
    """Tiers by name, in the order of the cascade."""
    from cascader.runs import TIERS

    asked = [tier.strip() for tier in tiers.split(",")]
    for tier in asked:
        if tier not in TIERS:
            raise SettingsError(f"there is no tier {tier!r}. Choose from: {', '.join(TIERS)}.")
    return [tier for tier in TIERS if tier in asked]


def _preset(tier: str, model: str, preset: str, dataset: str) -> dict[str, Any]:
    from cascader.models.embeddings import EMBEDDINGS
    from cascader.models.presets import preset as settings_of

    if model not in EMBEDDINGS:
        raise SettingsError(f"there is no model {model!r}. Choose one of: {', '.join(EMBEDDINGS)}.")
    return settings_of(model if tier == "kge" else tier, preset, dataset)


def _model(tier: str, model: str, settings: dict[str, Any]) -> Any:  # noqa: ANN401 - any tier's model
    if tier == "kge":
        from cascader.models.embeddings import EMBEDDINGS

        return EMBEDDINGS[model](**settings)
    from cascader.models.language import CrossEncoder, DualEncoder

    return DualEncoder(**settings) if tier == "dual" else CrossEncoder(**settings)


def _result_name(models: list[Any]) -> str:
    """kge-complex, dual-contrastive, kge+kge-complex-transe, kge+dual-complex-contrastive."""
    kinds = ["kge" if hasattr(model.recipe, "loss") else model.name for model in models]
    names = [model.name if kind == "kge" else model.recipe.objective for kind, model in zip(kinds, models, strict=True)]
    return f"{'+'.join(kinds)}-{'-'.join(names)}"


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


def _parsed(settings: list[str], tiers: list[str]) -> dict[str, dict[str, Any]]:
    """Settings of the form name=value, or tier.name=value, by tier; numbers become numbers."""
    parsed: dict[str, dict[str, Any]] = {tier: {} for tier in tiers}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise SettingsError(f"--set {setting!r} has no value. Write it as --set name=value.")
        tier, dot, inner = name.strip().rpartition(".")
        tier = tier if dot else tiers[0]
        if tier not in parsed:
            raise SettingsError(f"--set {setting!r} is for the tier {tier!r}, but --tiers is {','.join(tiers)}.")
        parsed[tier][inner] = _number_or_text(value.strip())
    return parsed


def _number_or_text(value: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _check_same(folder: Path, tier: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in wanted:
        if found.get(name) != wanted[name]:
            raise SettingsError(
                f"the tier {tier} of {folder} is finished, with {name} {found.get(name)!r} and not {wanted[name]!r}. "
                "Name another folder with --out."
            )


def _check_same_graph(first: KnowledgeGraph, second: KnowledgeGraph) -> None:
    if first.data_hash != second.data_hash:
        raise SettingsError("the two runs were trained on different graphs. Fit both on the same one.")


def _say_plan(kg: KnowledgeGraph, tier: str, model: Any, folder: Path) -> None:  # noqa: ANN401 - any tier's model
    what = f"{tier} ({model.name})" if tier != model.name else tier
    say(f"Training {what} on {kg.name} in {folder}: {len(kg.train):,} triples, {len(kg.entities):,} entities.")
    say_table(["setting", "value"], [[name, str(value)] for name, value in model.recipe.as_dict().items()])


def _say_trained(history: dict[str, Any]) -> None:
    best = history["best_epoch"]
    chosen = f", best on valid after {best}" if best else "; there is no valid to choose on"
    seconds, preparing = history["seconds"], history["preparing_seconds"]
    say(f"Trained {history['epoch']} epochs in {seconds:.0f} s, after {preparing:.0f} s of preparing{chosen}.")
