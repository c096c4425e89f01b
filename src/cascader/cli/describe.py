"""`cascader describe`: what a run consists of, and what it costs on this machine."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cascader.cli.console import say, say_table

_QUESTIONS = 64
_CANDIDATES = 4


def describe(run: Annotated[Path, typer.Argument(help="A folder that `cascader fit` has made.")]) -> None:
    """Say what each tier of a run is: parameters, speed on this machine, size on disk, and how it was trained.

    Example: cascader describe runs/demo

    `cascader demo` makes that run.
    """
    from cascader.runs import load_run, tier_folder
    from cascader.storage import folder_bytes

    loaded = load_run(run)
    say(f"{run}: {loaded.kg!r}, preset {loaded.about['preset']}")
    rows = []
    for tier, model in loaded.tiers.items():
        training = model.describe()["training"]
        rows.append(
            [
                tier,
                model.describe()["settings"].get("objective", model.name),
                f"{model.parameter_count:,}",
                f"{_pairs_per_second(tier, model, loaded.kg):,.0f}",
                f"{folder_bytes(tier_folder(run, tier)) / 1e6:,.1f} MB",
                f"{training['seconds'] + (training['preparing_seconds'] or 0):,.0f} s",
                "" if training["valid_mrr"] is None else f"{training['valid_mrr']:.4f}",
            ]
        )
    columns = ["tier", "model", "parameters", "pairs/s here", "on disk", "training", "valid MRR"]
    say_table(columns, rows, numbers=columns[2:])
    say("A pair is a question with a candidate. The valid MRR of a later tier is that of its sum with the first.")


def _pairs_per_second(tier: str, model: Any, kg: Any) -> float:  # noqa: ANN401 - any tier's model, any graph
    """Measured on a few questions of train, after one to warm up."""
    from cascader.graph import Candidates, Queries

    queries = Queries.from_triples(kg.train[:_QUESTIONS])
    count = min(_CANDIDATES, len(kg.entities))

    def work(some: Queries) -> int:
        if tier != "cross":  # those answer with all entities at once
            return int(model.score_all(some).size)
        return len(model.score(some, Candidates.from_lists([list(range(count))] * len(some))))

    work(queries[:1])
    started = time.perf_counter()
    pairs = work(queries)
    return pairs / (time.perf_counter() - started)
