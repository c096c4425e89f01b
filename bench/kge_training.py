"""Seconds per epoch on CoDEx-S, compared with PyKEEN with the same model, dimension, batch size and threads.

ComplEx is trained on all entities (PyKEEN: LCWA; ours: k-vs-all; the same questions and answers), TransE and RotatE
by negative sampling with self-adversarial weights. Also: the share of this machine's matrix-multiply rate that ComplEx
reaches. Usage: python bench/kge_training.py [--repeats N]
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cascader
from cascader.graph import KnowledgeGraph, Queries
from cascader.models.embeddings import EMBEDDINGS
from cascader.models.embeddings.training import EmbeddingTraining
from measuring import in_own_process, median, report

DIMENSION = 128
BATCH = 512
NEGATIVES = 128
THREADS = 2
MODELS = ("complex", "transe", "rotate")
EPOCHS = 2  # timed, after one to warm up


def ours(model: str, kg: KnowledgeGraph) -> dict[str, float]:
    """Measure our seconds per epoch."""
    loss = "k-vs-all" if model == "complex" else "negative-sampling"
    settings = {"dim": DIMENSION, "batch_size": BATCH, "negatives": NEGATIVES, "regularizer": "none"}
    training = EmbeddingTraining(EMBEDDINGS[model](loss=loss, **settings), kg)
    list(training.steps(1))
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        list(training.steps(epoch + 2))
    seconds = (time.perf_counter() - started) / EPOCHS
    if model != "complex":
        return {"seconds": seconds}
    # Scores forward, and the gradients of questions and entities backward: three products of the same size.
    operations = 3 * 2 * len(Queries.from_triples(kg.train).unique()[0]) * len(kg.entities) * 2 * DIMENSION
    return {"seconds": seconds, "share_of_matrix_rate": operations / seconds / matrix_rate(len(kg.entities))}


def matrix_rate(entities: int) -> float:
    """Measure the operations per second of the matrix product that training consists of."""
    questions, vectors = torch.randn(BATCH, 2 * DIMENSION), torch.randn(entities, 2 * DIMENSION)
    times = []
    for _ in range(30):
        started = time.perf_counter()
        questions @ vectors.T
        times.append(time.perf_counter() - started)
    return 2 * questions.numel() * entities / float(np.median(times))


def theirs(model: str, kg: KnowledgeGraph) -> dict[str, float]:
    """Measure PyKEEN's seconds per epoch."""
    from pykeen.losses import CrossEntropyLoss, NSSALoss
    from pykeen.models import ComplEx, RotatE, TransE
    from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop
    from pykeen.triples import CoreTriplesFactory

    factory = CoreTriplesFactory(
        torch.from_numpy(np.array(kg.train, dtype=np.int64)),
        num_entities=len(kg.entities),
        num_relations=len(kg.relations),
        create_inverse_triples=True,
    )
    options: dict[str, Any] = {"triples_factory": factory, "embedding_dim": DIMENSION, "random_seed": 0}
    if model == "complex":
        made: Any = ComplEx(loss=CrossEntropyLoss(), **options)
        loop: Any = LCWATrainingLoop(
            model=made, triples_factory=factory, optimizer=torch.optim.Adagrad(made.parameters(), lr=0.1)
        )
    else:
        kind = TransE if model == "transe" else RotatE
        made = kind(loss=NSSALoss(), **options)
        optimizer = torch.optim.Adam(made.parameters(), lr=1e-3)
        sampler = {"num_negs_per_pos": NEGATIVES}
        loop = SLCWATrainingLoop(
            model=made, triples_factory=factory, optimizer=optimizer, negative_sampler_kwargs=sampler
        )
    train: dict[str, Any] = {"batch_size": BATCH, "use_tqdm": False, "use_tqdm_batch": False}
    started = time.perf_counter()
    loop.train(factory, num_epochs=1, **train)
    warm = time.perf_counter() - started
    loop.train(factory, num_epochs=1 + EPOCHS, continue_training=True, **train)
    return {"seconds": (time.perf_counter() - started - warm) / EPOCHS}


def run_one(model: str, library: str) -> None:
    """Measure one model in one library, and print the figures as JSON."""
    torch.set_num_threads(THREADS)
    kg = cascader.load_graph("codex-s")
    warnings.simplefilter("ignore")
    print(json.dumps(ours(model, kg) if library == "cascader" else theirs(model, kg)))


def run_all(repeats: int) -> None:
    """Measure all models in turn, and report how they compare."""
    seconds: dict[str, dict[str, float]] = {}
    ratios: dict[str, float] = {}
    share = 0.0
    for model in MODELS:
        runs: dict[str, list[dict[str, Any]]] = {"cascader": [], "pykeen": []}
        for _ in range(repeats):
            for library, found in runs.items():
                found.append(in_own_process(Path(__file__), "--one", model, library, threads=THREADS))
                print(f"{model}, {library}: {found[-1]['seconds']:.2f} s", flush=True)
        seconds[model] = {library: median(found, "seconds") for library, found in runs.items()}
        ratios[f"{model}_epoch_vs_pykeen"] = seconds[model]["pykeen"] / seconds[model]["cascader"]
        if model == "complex":
            share = median(runs["cascader"], "share_of_matrix_rate")
    report(
        "kge_training",
        ratios,
        {
            "what": f"an epoch of CoDEx-S, dimension {DIMENSION}, batch {BATCH}, {NEGATIVES} negatives",
            "threads": THREADS,
            "repeats": repeats,
            "seconds_per_epoch": seconds,
            "complex_share_of_matrix_rate": share,
        },
        ["numpy", "torch", "pykeen"],
    )
    print(f"ComplEx reaches {share:.0%} of this machine's matrix-multiply rate")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "LIBRARY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    run_one(*arguments.one) if arguments.one else run_all(arguments.repeats)


if __name__ == "__main__":
    main()
