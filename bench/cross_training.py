"""Pairs per second that a cross encoder trains on, compared with the same layers run by transformers on padded pairs.

Both train on the same pairs of the demo's graph, 32 tokens a side, with 7 negatives, split at layers 3 and 4, taking
turns in one process. Texts have random states below the split: layers are no faster or slower for what a state says.
CPU time per pair is printed too, because on a busy machine it says more than pairs per second.

Usage: python bench/cross_training.py [--steps N] [--repeats N] [--threads N]. A step takes 128 pairs; a short look is
--steps 2 --repeats 1.
"""

import argparse
import time
from typing import Any

import torch
from torch import Tensor

from cascader.datasets import load_graph
from cascader.graph import KnowledgeGraph
from cascader.models.text import CrossSettings
from cascader.models.text.base_model import load_base_model
from cascader.models.text.dry_run import leave_blank
from cascader.models.text.pair_training import PairTraining
from cascader.models.text.pairs import PairEncoder, PairHead, Pairs
from cascader.models.text.split_encoder import run_layers
from cascader.models.text.text_model import GraphTexts
from measuring import median, report

SPLITS = (3, 4)
NEGATIVES = 7


class PaddedEncoder(PairEncoder):
    """The peer: transformers' own layers on padded pairs, each for all tokens."""

    def forward(self, pairs: Pairs) -> Tensor:
        """The state of [CLS] after all layers; shape (pairs, width)."""
        return run_layers(self.upper, *self.lower(pairs))[:, 0]


ENCODERS = {"padded": PaddedEncoder, "ours": PairEncoder}


def training_of(encoder_class: type[PairEncoder], split: int, kg: KnowledgeGraph, steps: int) -> PairTraining:
    """A training whose rounds have so many steps, and which nothing has been read for."""
    base, batch = load_base_model(), CrossSettings.batch_size
    settings = CrossSettings(split_layer=split, negatives=NEGATIVES, queries_per_round=steps * batch)
    encoder = encoder_class(base, GraphTexts.of(kg, base, settings.max_tokens), split)
    leave_blank(encoder, base)
    head = PairHead(base.width, len(kg.relations))
    return PairTraining(encoder, head, settings, settings.objective, kg, None, lambda: None)


def measure(training: PairTraining, repeat: int) -> dict[str, float]:
    """Train a round after a step to warm up: pairs per second, and milliseconds of CPU time per pair."""
    next(training.steps(1))
    started, computing = time.perf_counter(), time.process_time()
    pairs = sum(queries * (1 + NEGATIVES) for _, queries in training.steps(2 + repeat))
    seconds, computed = time.perf_counter() - started, time.process_time() - computing
    return {"pairs_per_second": pairs / seconds, "cpu_milliseconds": 1e3 * computed / pairs}


def measure_all(steps: int, repeats: int) -> dict[str, dict[str, float]]:
    """The medians of each case, which take turns."""
    kg = load_graph("wordnet")
    cases = {f"{name}_split_{split}": (cls, split) for split in SPLITS for name, cls in ENCODERS.items()}
    trainings = {case: training_of(cls, split, kg, steps) for case, (cls, split) in cases.items()}
    found: dict[str, list[dict[str, float]]] = {case: [] for case in cases}
    for repeat in range(repeats):
        for case, training in trainings.items():
            found[case].append(measure(training, repeat))
            figures = found[case][-1]
            print(
                f"{case}: {figures['pairs_per_second']:.0f} pairs/s, {figures['cpu_milliseconds']:.1f} ms", flush=True
            )
    return {case: {key: median(runs, key) for key in runs[0]} for case, runs in found.items()}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found = measure_all(arguments.steps, arguments.repeats)
    details: dict[str, Any] = {
        "what": f"training pairs of the demo's graph, {NEGATIVES} negatives, {arguments.steps} steps a repeat",
        "threads": arguments.threads,
        "repeats": arguments.repeats,
        "medians": found,
    }
    ratios = {
        f"training_split_{split}_vs_padded_transformers": found[f"padded_split_{split}"]["cpu_milliseconds"]
        / found[f"ours_split_{split}"]["cpu_milliseconds"]
        for split in SPLITS
    }
    report("cross_training", ratios, details, ["torch", "transformers"])


if __name__ == "__main__":
    main()
