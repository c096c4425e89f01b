"""`cascader describe`: show what a run consists of, and its speed on this machine."""

import time
from typing import TYPE_CHECKING

from cascader.cli.console import echo, echo_table
from cascader.cli.options import RunArgument

if TYPE_CHECKING:
    from cascader.graph import KnowledgeGraph
    from cascader.models.model import Model

_QUESTIONS = 64
_CANDIDATES = 4


def describe(run: RunArgument) -> None:
    """Describe each tier of a run: parameters, speed on this machine, size on disk, and training.

    Example: cascader describe runs/demo

    `cascader demo` makes that run.
    """
    from cascader.runs import load_run

    loaded = load_run(run)
    echo(f"{run}: {loaded.kg!r}, preset {loaded.metadata['preset']}")
    rows = []
    for tier, about in loaded.describe_tiers().items():
        model, history = loaded.tiers[tier], loaded.tiers[tier].history_
        rows.append(
            [
                tier,
                str(about["settings"].get("objective", model.name)),
                f"{about['parameters']:,}",
                f"{_pairs_per_second(model, loaded.kg):,.0f}",
                f"{about['bytes'] / 1e6:,.1f} MB",
                f"{history.seconds + history.preparing_seconds:,.0f} s",
                "" if history.best_valid is None else f"{history.best_valid:.4f}",
            ]
        )
    columns = ["tier", "model", "parameters", "pairs/s here", "on disk", "training", "valid MRR"]
    echo_table(columns, rows, numbers=columns[2:])
    echo("A pair is a question and a candidate. The valid MRR of a later tier is that of its sum with the first.")


def _pairs_per_second(model: "Model", kg: "KnowledgeGraph") -> float:
    """Measure the speed on a few questions of train, after one to warm up."""
    from cascader.graph import Candidates, Queries

    queries = Queries.from_triples(kg.train[:_QUESTIONS])
    count = min(_CANDIDATES, len(kg.entities))

    def work(some: Queries) -> int:
        if not model.reads_pairs:  # it scores all entities at once
            return int(model.score_all(some).size)
        return len(model.score(some, Candidates.from_lists([list(range(count))] * len(some))))

    work(queries[:1])
    started = time.perf_counter()
    pairs = work(queries)
    return pairs / (time.perf_counter() - started)
