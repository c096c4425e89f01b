"""Seconds to score all answers to RepoDB's test questions: one matrix product, compared with pair by pair.

The paper's dual encoder runs its head on every pair of question and entity; ours is the same head, factorized. Pair by
pair is timed on some questions, in batches, and scaled up. Usage: python bench/dual_encoder.py [--repeats N]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import cascader
from cascader.graph import Queries
from cascader.models.text import DualSettings
from cascader.models.text.towers import StarTowers
from measuring import report

WIDTH = 384
THREADS = 2
QUESTIONS_BY_PAIR = 8
BATCH = 256


def main() -> None:
    """Measure both ways, and report the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(THREADS)
    kg = cascader.load_graph("repodb")
    questions = len(Queries.from_triples(kg.test).unique()[0])
    torch.manual_seed(0)
    towers = StarTowers(WIDTH, len(kg.relations), DualSettings(objective="star")).eval()
    u, v = torch.randn(questions, WIDTH), torch.randn(len(kg.entities), WIDTH)
    with torch.inference_mode():
        product = statistics.median(timed(lambda: as_product(towers, u, v)) for _ in range(repeats))
        some = statistics.median(timed(lambda: by_pair(towers, u[:QUESTIONS_BY_PAIR], v)) for _ in range(repeats))
        few = u[:QUESTIONS_BY_PAIR]
        difference = (as_product(towers, few, v) - by_pair(towers, few, v)).abs().max()
    pairwise = some * questions / QUESTIONS_BY_PAIR
    report(
        "dual_encoder",
        {"product_vs_pair_by_pair": pairwise / product},
        {
            "what": f"the StAR head on {questions:,} questions and {len(kg.entities):,} entities, vectors given",
            "threads": THREADS,
            "repeats": repeats,
            "seconds": {"product": product, "pair_by_pair": pairwise},
            "largest_difference": float(difference),
        },
        ["torch"],
    )


def timed(work: Callable[[], object]) -> float:
    """Measure the seconds that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def as_product(towers: StarTowers, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute all scores at once; shape (questions, entities)."""
    return towers._of_questions(u) @ towers._of_entities(v).T


def by_pair(towers: StarTowers, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Run the head on every pair in batches, as the paper's authors do; shape (questions, entities)."""
    scores = torch.empty(len(u), len(v))
    for i, question in enumerate(u):
        for start in range(0, len(v), BATCH):
            entities = v[start : start + BATCH]
            questions = question.expand(len(entities), -1)
            pairs = torch.cat([questions, questions * entities, questions - entities, entities], dim=1)
            scores[i, start : start + BATCH] = towers.head(pairs)[:, 0]
    return scores


if __name__ == "__main__":
    main()
