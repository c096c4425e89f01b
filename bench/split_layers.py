"""Where to split a cross encoder: accuracy, training and scoring speed for each split, trained for equally long.

Each cross encoder learns to rerank the best sum of a run's earlier tiers, as the last one, the pooled encoder, does, in
which question and candidate meet as one vector each. What counts is the MRR after reranking the top 50 of all valid
questions, compared with that of the earlier tiers. Written to bench/results/split_layers.json, with a chart in
docs/pictures/split-layers.svg.

Usage: python bench/split_layers.py RUN [--minutes 4] [--threads 2] [--splits 0 2 3 4]. RUN has tiers that score all
entities.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from cascader.cascade import Cascade, TopK
from cascader.cascade.alphas import best_reranking
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.graph import Queries
from cascader.models.settings import preset
from cascader.models.text import CrossEncoder, PooledEncoder
from cascader.models.text.pair_model import PairModel
from cascader.report.report import draw
from cascader.report.section import Chart, Series
from cascader.runs import Run, load_run
from cascader.storage import atomic_file
from measuring import report

TOP = 50
SPEED_QUESTIONS = 40
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "split-layers.svg"


def models(splits: list[int], dataset: str) -> dict[str, PairModel]:
    """The encoders to compare, untrained, by where they are split."""
    settings = {**preset("cross", "best", dataset), "rounds": 10_000, "valid_every": 10_000}
    cross = {f"split {split}": CrossEncoder(**{**settings, "split_layer": split}) for split in splits}
    pooled = {**preset("pooled", "best", dataset), "rounds": 10_000, "valid_every": 10_000}
    return {**cross, "pooled": PooledEncoder(**pooled)}


def earlier_tiers(run: Run) -> Cascade:
    """The best sum of the tiers that score all entities, as valid has weighed them."""
    cascade = run.tuned().best
    return Cascade(cascade.first, tuple(tier for tier in cascade.tiers if not tier.reads_pairs), name=cascade.name)


def measure(model: PairModel, run: Run, earlier: Cascade, seconds: float) -> dict[str, float]:
    """Train for so long; how many pairs that were, the speeds, and the valid MRR after reranking."""
    kg, settings = run.kg, model.settings
    model.fit(kg, earlier=earlier, time_limit=seconds)
    history = model.history_
    pairs = history.epochs * min(settings.queries_per_round, 2 * len(kg.train)) * (1 + settings.negatives)
    queries = Queries.from_triples(kg.valid).with_known(kg.known_before("valid"))
    some = queries.unique()[0][:SPEED_QUESTIONS]
    candidates = TopK(TOP).keep(some, earlier.score_all(some))
    started = time.perf_counter()
    model.score(some, candidates)
    scoring = len(candidates.ids) / (time.perf_counter() - started)
    return {
        "pairs_trained": pairs,
        "training_pairs_per_second": pairs / history.seconds,
        "scoring_pairs_per_second": scoring,
        "valid_mrr": best_reranking(earlier, model, kg, queries, TopK(TOP)).mrr,
    }


def chart(found: dict[str, dict[str, float]], before: float) -> Chart:
    """The gain of each split against its scoring speed."""
    points = [(figures["scoring_pairs_per_second"], figures["valid_mrr"] - before) for figures in found.values()]
    speeds, gains = zip(*points, strict=True)
    series = [
        Series(name, [speed], [gain], color)
        for color, (name, speed, gain) in enumerate(zip(found, speeds, gains, strict=True))
    ]
    return Chart(
        "split-layers",
        "What each split gains over the earlier tiers, and how fast it reads pairs",
        "pairs scored per second",
        "gain of valid MRR",
        series,
        x_scale="log",
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 2, 3, 4])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    run = load_run(arguments.run)
    earlier = earlier_tiers(run)
    queries = Queries.from_triples(run.kg.valid).with_known(run.kg.known_before("valid"))
    before = mean_reciprocal_rank(earlier, queries, run.kg.known())
    found: dict[str, dict[str, float]] = {}
    for name, model in models(arguments.splits, run.kg.name).items():
        found[name] = measure(model, run, earlier, 60 * arguments.minutes)
        print(name, {key: round(value, 4) for key, value in found[name].items()}, flush=True)
    details: dict[str, Any] = {
        "what": f"reranking the top {TOP} of {len(queries)} valid queries of {run.kg.name}, after "
        f"{arguments.minutes:g} minutes of training each",
        "threads": arguments.threads,
        "earlier_tiers": {"tiers": [earlier.name, *(tier.name for tier in earlier.tiers)], "valid_mrr": before},
        "splits": found,
    }
    best = max(found, key=lambda name: found[name]["valid_mrr"])
    ratios = {f"gain_of_{best.replace(' ', '_')}_in_thousandths": 1000 * (found[best]["valid_mrr"] - before)}
    report("split_layers", ratios, details, ["torch", "transformers"])
    with atomic_file(PICTURE) as temporary:
        temporary.write_text(draw(chart(found, before)), encoding="utf-8")


if __name__ == "__main__":
    main()
