"""`cascader fit`: from a graph to a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cascader.cli.console import say, say_table
from cascader.cli.graphs import EntityTable, NameOrPath, RelationTable, Seed, TestShare, Unseen, ValidShare, open_named
from cascader.datasets import Split
from cascader.errors import SettingsError
from cascader.graph import KnowledgeGraph
from cascader.scorer import Scorer

if TYPE_CHECKING:
    from cascader.models.embeddings.search import Search

ModelOption = Annotated[
    str, typer.Option("--model", help="rescal, transe, complex or rotate; or two of them, by a comma.")
]
TiersOption = Annotated[
    str,
    typer.Option(
        "--tiers",
        help="Which tiers to train, by commas: kge (an embedding), dual and cross (language models). "
        "[default: all, or kge alone where the graph has no texts]",
    ),
]
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
#: An embedding, and one to add to it.
_MOST_MODELS = 2


def fit(
    graph: NameOrPath,
    tiers: TiersOption = "",
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
    """Train on a graph, tune on valid, and keep all of it in a folder; interrupted, the same command goes on.

    Example: cascader fit wordnet --model complex --preset quick --set epochs=3
    """
    from cascader.models.embeddings.search import Search
    from cascader.models.language.texts import check_texts
    from cascader.runs import finish_run, has_tier, keep_graph, keep_tier, tier_folder
    from cascader.storage import locked

    kg = open_named(graph, entities, relations, Split(valid, test, seed, unseen))
    kinds = _kinds(tiers, model, kg)
    changed = _parsed(settings or [], list(kinds))
    chosen = {tier: {**_preset(kind, preset, kg.name), **changed[tier]} for tier, kind in kinds.items()}
    models = {tier: _model(kinds[tier], chosen[tier]) for tier in kinds}  # bad settings show before anything trains
    if set(kinds) & {"dual", "cross"}:
        check_texts(kg)
    folder = out or Path("runs") / kg.name / f"{model.replace(',', '+')}-{preset}"
    with locked(folder):  # a second process on the same run waits, and then finds it finished
        keep_graph(folder, kg)
        for tier, untrained in models.items():
            if has_tier(folder, tier):
                _check_finished(folder, tier, kg, untrained, trials)
                continue
            _say_plan(kg, tier, untrained, folder)
            if tier == "kge" and trials:
                search = Search(kinds[tier], chosen[tier], kg, folder / "search", changed[tier])
                keep_tier(folder, tier, search.run(trials, max_minutes))
                _say_trials(search)
                search.discard_weights()
            else:
                trained = untrained.fit(kg, tier_folder(folder, tier), max_minutes, **_earlier(folder, tier, kg))
                keep_tier(folder, tier, trained)
                _say_trained(trained.history_)
        finish_run(folder, kg, preset)
        _tune(folder)
    say(f"Written to {folder}. Measure it with: cascader evaluate {folder}")
    say(f"Ask it with: cascader predict {folder} ENTITY RELATION")


def _check_finished(folder: Path, tier: str, kg: KnowledgeGraph, wanted: Any, trials: int) -> None:  # noqa: ANN401
    """A tier that is there already must be the one that is asked for; what a search has found may be any."""
    from cascader.runs import load_tier, tier_folder

    if not trials:
        _check_same(folder, tier, load_tier(folder, tier, kg).recipe.as_dict(), wanted.recipe.as_dict())
    say(f"{tier_folder(folder, tier)} is finished already.")


def _tune(folder: Path) -> None:
    """Try cascades on valid, where there are several tiers and a valid split."""
    from cascader.runs import load_run
    from cascader.tuning import Budget

    run = load_run(folder)
    if len(run.tiers) > 1 and len(run.kg.valid):
        best = run.tuned().plan(Budget(), 1).trial
        say(f"Best on valid: {' + '.join(best.tiers)}, with {best.pairs_a_query:.1f} pairs read a query.")
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


def _kinds(tiers: str, model: str, kg: KnowledgeGraph) -> dict[str, str]:
    """Which tiers there will be, and what each is: {"kge": "complex", "dual": "dual"}."""
    from cascader.models.embeddings import EMBEDDINGS
    from cascader.models.language.texts import has_texts
    from cascader.runs import TIERS

    names = [name.strip() for name in model.split(",")]
    for name in names:
        if name not in EMBEDDINGS:
            raise SettingsError(f"there is no model {name!r}. Choose one of: {', '.join(EMBEDDINGS)}.")
    if len(names) > _MOST_MODELS:
        raise SettingsError(f"--model names {len(names)} models, expected one or two.")
    wanted = tier_names(tiers or ("kge,dual,cross" if has_texts(kg) else "kge"))
    kinds = {"kge": names[0], "kge2": names[-1]} if len(names) > 1 and "kge" in wanted else {"kge": names[0]}
    return {tier: kinds.get(tier, tier) for tier in TIERS if tier in {*wanted, *(kinds if "kge" in wanted else ())}}


def tier_names(tiers: str) -> list[str]:
    """Tiers by name, in the order of the cascade."""
    from cascader.runs import TIERS

    asked = [tier.strip() for tier in tiers.split(",")]
    for tier in asked:
        if tier not in TIERS:
            raise SettingsError(f"there is no tier {tier!r}. Choose from: {', '.join(TIERS)}.")
    return [tier for tier in TIERS if tier in asked]


def _preset(kind: str, preset: str, dataset: str) -> dict[str, Any]:
    from cascader.models.presets import preset as settings_of

    return settings_of(kind, preset, dataset)


def _model(kind: str, settings: dict[str, Any]) -> Any:  # noqa: ANN401 - any tier's model
    from cascader.models.embeddings import EMBEDDINGS
    from cascader.models.language import CrossEncoder, DualEncoder

    kinds: dict[str, Any] = {**EMBEDDINGS, "dual": DualEncoder, "cross": CrossEncoder}
    return kinds[kind](**settings)


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


def _say_plan(kg: KnowledgeGraph, tier: str, model: Any, folder: Path) -> None:  # noqa: ANN401 - any tier's model
    what = f"{tier} ({model.name})" if tier != model.name else tier
    say(f"Training {what} on {kg.name} in {folder}: {len(kg.train):,} triples, {len(kg.entities):,} entities.")
    say_table(["setting", "value"], [[name, str(value)] for name, value in model.recipe.as_dict().items()])


def _say_trained(history: dict[str, Any]) -> None:
    best = history["best_epoch"]
    chosen = f", best on valid after {best}" if best else "; there is no valid to choose on"
    seconds, preparing = history["seconds"], history["preparing_seconds"]
    say(f"Trained {history['epoch']} epochs in {seconds:.0f} s, after {preparing:.0f} s of preparing{chosen}.")
