"""`cascader fit` and `cascader evaluate`: from a graph to a run, and from a run to figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cascader.cli.console import say, say_table
from cascader.cli.evaluations import SplitOption, say_evaluation
from cascader.cli.graphs import EntityTable, NameOrPath, RelationTable, Seed, TestShare, Unseen, ValidShare, open_named
from cascader.datasets import Split
from cascader.errors import SettingsError
from cascader.graph import KnowledgeGraph

if TYPE_CHECKING:
    from cascader.models.embeddings.search import Search

ModelOption = Annotated[str, typer.Option("--model", help="rescal, transe, complex or rotate.")]
PresetOption = Annotated[str, typer.Option("--preset", help="quick (a minute or two) or best.")]
TrialsOption = Annotated[
    int,
    typer.Option(
        "--trials", help="Try this many variations of the settings, and keep the best on valid; needs Optuna."
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting of the preset, as in --set dim=100; repeatable.")
]


def fit(
    graph: NameOrPath,
    tiers: Annotated[str, typer.Option("--tiers", help="Which tiers to train; so far: kge.")] = "kge",
    model: ModelOption = "complex",
    preset: PresetOption = "quick",
    settings: SetOption = None,
    trials: TrialsOption = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run's folder. [default: runs/GRAPH/MODEL-PRESET]")
    ] = None,
    max_minutes: Annotated[
        float, typer.Option("--max-minutes", help="Stop training, or searching, after this long.")
    ] = float("inf"),
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
    from cascader.models.embeddings import EMBEDDINGS
    from cascader.models.embeddings import preset as settings_of
    from cascader.models.embeddings.search import Search
    from cascader.runs import finish_run, is_finished, keep_graph, load_run, tier_folder

    if tiers != "kge":
        raise SettingsError(f"there is no tier {tiers!r}. So far there is one: kge.")
    if model not in EMBEDDINGS:
        raise SettingsError(f"there is no model {model!r}. Choose one of: {', '.join(EMBEDDINGS)}.")
    kg = open_named(graph, entities, relations, Split(valid, test, seed, unseen))
    changed = _parsed(settings or [])
    chosen = {**settings_of(model, preset, kg.name), **changed}
    kge = EMBEDDINGS[model](**chosen)
    folder = out or Path("runs") / kg.name / f"{model}-{preset}"
    keep_graph(folder, kg)
    if is_finished(folder):
        if not trials:
            _check_same(folder, load_run(folder).kge.recipe.as_dict(), kge.recipe.as_dict())
        say(f"{folder} is finished already. Measure it with: cascader evaluate {folder}")
        return
    _say_plan(kg, model, kge.recipe.as_dict(), folder)
    if trials:
        search = Search(model, chosen, kg, folder / "search", fixed=changed)
        kge = search.run(trials, max_minutes)
        _say_trials(search)
        finish_run(folder, kg, kge, preset)
        search.discard_weights()
    else:
        kge.fit(kg, tier_folder(folder, "kge"), max_minutes)
        finish_run(folder, kg, kge, preset)
    history = kge.history_
    best = (
        f", best on valid after {history['best_epoch']}"
        if history["best_epoch"]
        else "; there is no valid to choose on"
    )
    say(f"Trained {history['epoch']} epochs in {history['seconds']:.0f} s{best}.")
    say(f"Written to {folder}. Measure it with: cascader evaluate {folder}")


def evaluate(
    run: Annotated[Path, typer.Argument(help="A folder that `cascader fit` has made.")],
    beside: Annotated[
        Path | None, typer.Option("--with", help="A second run: both are added up, weighed as valid likes best.")
    ] = None,
    split: SplitOption = "test",
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for the results. [default: RUN/results]")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What the results are called. [default: kge-MODEL]")] = "",
) -> None:
    """Measure a run on valid or test, and write the figures and every rank.

    Example: cascader evaluate runs/wordnet/complex-quick
    """
    from cascader.cascade import Cascade
    from cascader.evaluation import evaluate as evaluate_scorer
    from cascader.runs import load_run
    from cascader.tuning import tune_alpha

    loaded = load_run(run)
    scorer: Any = loaded.kge
    name = name or loaded.name
    if beside is not None:
        second = load_run(beside)
        _check_same_graph(loaded.kg, second.kg)
        alpha = tune_alpha(loaded.kge, second.kge, loaded.kg)
        say(f"alpha, chosen on valid: {alpha.head:.2f} for heads, {alpha.tail:.2f} for tails.")
        scorer = Cascade(loaded.kge).then(second.kge, alpha=alpha)
        name = name if name != loaded.name else f"{loaded.name}+{second.kge.name}"
    evaluation = evaluate_scorer(scorer, loaded.kg, split, name=name, seed=loaded.kge.recipe.seed)
    path = evaluation.save(out or run / "results")
    say_evaluation(evaluation)
    say(f"Written to {path} and {path.with_suffix('.ranks.parquet')}.")


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


def _parsed(settings: list[str]) -> dict[str, Any]:
    """Settings of the form name=value; numbers become numbers."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise SettingsError(f"--set {setting!r} has no value. Write it as --set name=value.")
        parsed[name.strip()] = _number_or_text(value.strip())
    return parsed


def _number_or_text(value: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _check_same(folder: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in wanted:
        if found[name] != wanted[name]:
            raise SettingsError(
                f"{folder} is finished, with {name} {found[name]!r} and not {wanted[name]!r}. "
                "Name another folder with --out."
            )


def _check_same_graph(first: KnowledgeGraph, second: KnowledgeGraph) -> None:
    if first.data_hash != second.data_hash:
        raise SettingsError("the two runs were trained on different graphs. Fit both on the same one.")


def _say_plan(kg: KnowledgeGraph, model: str, recipe: dict[str, Any], folder: Path) -> None:
    say(f"Training {model} on {kg.name} in {folder}: {len(kg.train):,} triples, {len(kg.entities):,} entities.")
    say_table(["setting", "value"], [[name, str(value)] for name, value in recipe.items()])
