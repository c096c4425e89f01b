"""Filtered evaluation on FB15k-237's test split, compared with PyKEEN's with the same embeddings and threads.

Three ways, each in its own process:

- `cascader`: our evaluation of a ComplEx-shaped scorer.
- `pykeen`: PyKEEN's ComplEx and evaluator, at the batch size that was fastest for it.
- `pykeen-our-scores`: PyKEEN's evaluator fed with our scorer's rows, so that only the evaluations differ.

All three must come to the same MRR, or nothing is reported. Usage: python bench/evaluation.py [--repeats N]
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cascader
from cascader.graph import Candidates, FloatArray, IntArray, KnowledgeGraph, Queries
from measuring import in_own_process, median, report

DIMENSION = 200
#: The batch sizes out of 8, 16, 32, 64, 256 and 1,024 at which PyKEEN was fastest on two cores.
PYKEEN_BATCH = 32
OUR_SCORES_BATCH = 64
THREADS = 2
WAYS = ("cascader", "pykeen", "pykeen-our-scores")


class ComplExShaped:
    """Scores with complex embeddings, in real arithmetic: Re⟨h, r, conj(t)⟩ is one matrix product per block."""

    def __init__(self, kg: KnowledgeGraph) -> None:
        rng = np.random.default_rng(0)
        # Real parts first, then imaginary parts.
        self.entities = rng.normal(size=(len(kg.entities), 2 * DIMENSION)).astype(np.float32)
        self.relations = rng.normal(size=(len(kg.relations), 2 * DIMENSION)).astype(np.float32)

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        return self._rotated(queries) @ self.entities.T

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates; shape (candidates,)."""
        rotated = self._rotated(queries)[candidates.rows]
        return np.einsum("cd,cd->c", rotated, self.entities[candidates.ids])

    def _rotated(self, queries: Queries) -> NDArray[np.float32]:
        """Rotate the anchor by its relation, or backward if the head is asked for."""
        real, imaginary = np.split(self.entities[queries.anchors], 2, axis=1)
        relation_real, relation_imaginary = np.split(self.relations[queries.relations], 2, axis=1)
        relation_imaginary = np.where(queries.predicts_tail[:, None], relation_imaginary, -relation_imaginary)
        return np.concatenate(
            [
                real * relation_real - imaginary * relation_imaginary,
                real * relation_imaginary + imaginary * relation_real,
            ],
            axis=1,
        )


def run_cascader(kg: KnowledgeGraph) -> tuple[float, float]:
    """Run our evaluation; return the seconds and the MRR."""
    scorer = ComplExShaped(kg)
    started = time.perf_counter()
    evaluation = cascader.evaluate(scorer, kg)
    return time.perf_counter() - started, evaluation.mrr


def run_pykeen(kg: KnowledgeGraph, our_scores: bool) -> tuple[float, float]:
    """Run PyKEEN's evaluation; return the seconds and the MRR."""
    import torch
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import ComplEx
    from pykeen.triples import CoreTriplesFactory

    torch.set_num_threads(THREADS)
    splits = {
        split: torch.from_numpy(np.array(kg.split(split), dtype=np.int64)) for split in ("train", "valid", "test")
    }
    counts = {"num_entities": len(kg.entities), "num_relations": len(kg.relations)}
    ours = ComplExShaped(kg)

    class OurScores(ComplEx):
        """PyKEEN's model with its scoring replaced by ours."""

        def score_t(self, hr_batch: Any, **options: Any) -> Any:
            return self._scores(hr_batch[:, 0].numpy(), hr_batch[:, 1].numpy(), predicts_tail=True)

        def score_h(self, rt_batch: Any, **options: Any) -> Any:
            return self._scores(rt_batch[:, 1].numpy(), rt_batch[:, 0].numpy(), predicts_tail=False)

        def _scores(self, anchors: IntArray, relations: IntArray, predicts_tail: bool) -> Any:
            queries = Queries(anchors, relations, np.full(len(anchors), predicts_tail))
            return torch.from_numpy(ours.score_all(queries))

    kind = OurScores if our_scores else ComplEx
    model = kind(triples_factory=CoreTriplesFactory(splits["train"], **counts), embedding_dim=DIMENSION, random_seed=0)
    copy_embeddings(model, ours)
    evaluator = RankBasedEvaluator(filtered=True)
    started = time.perf_counter()
    results = evaluator.evaluate(
        model,
        splits["test"],
        batch_size=OUR_SCORES_BATCH if our_scores else PYKEEN_BATCH,
        additional_filter_triples=[splits["train"], splits["valid"]],
        use_tqdm=False,
    )
    seconds = time.perf_counter() - started
    return seconds, float(results.get_metric("both.realistic.inverse_harmonic_mean_rank"))


def copy_embeddings(model: Any, ours: ComplExShaped) -> None:
    """Copy our embeddings to PyKEEN's model, which stores real and imaginary parts next to each other."""
    import torch

    for representation, values in (
        (model.entity_representations, ours.entities),
        (model.relation_representations, ours.relations),
    ):
        real, imaginary = np.split(values, 2, axis=1)
        weights = next(representation[0].parameters())
        weights.data.copy_(torch.from_numpy(np.stack([real, imaginary], axis=-1).reshape(weights.shape)))


def run_one(way: str) -> None:
    """Measure one way, and print the figures as JSON."""
    kg = cascader.load_graph("fb15k-237")
    seconds, mrr = run_cascader(kg) if way == "cascader" else run_pykeen(kg, our_scores=way == "pykeen-our-scores")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "mrr": mrr, "peak_memory_bytes": peak}))


def run_all(repeats: int) -> None:
    """Measure all ways in turn, and report how they compare."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way in WAYS:
            runs[way].append(in_own_process(Path(__file__), "--way", way, threads=THREADS))
            print(
                f"{way}: {runs[way][-1]['seconds']:.1f} s, {runs[way][-1]['peak_memory_bytes'] / 1e9:.2f} GB",
                flush=True,
            )
    mrrs = [run["mrr"] for way in WAYS for run in runs[way]]
    if max(mrrs) - min(mrrs) > 1e-6:
        sys.exit(f"the evaluations disagree, so their times mean nothing: {mrrs}")
    seconds = {way: median(runs[way], "seconds") for way in WAYS}
    memory = {way: median(runs[way], "peak_memory_bytes") for way in WAYS}
    report(
        "evaluation",
        {
            "evaluation_vs_pykeen": seconds["pykeen"] / seconds["cascader"],
            "evaluation_vs_pykeen_with_our_scores": seconds["pykeen-our-scores"] / seconds["cascader"],
        },
        {
            "what": "filtered evaluation of FB15k-237 test, 40,932 queries, ComplEx of 200 complex dimensions",
            "threads": THREADS,
            "repeats": repeats,
            "seconds": seconds,
            "peak_memory_bytes": memory,
            "mrr": mrrs[0],
        },
        ["numpy", "torch", "pykeen"],
    )
    print(f"peak memory of ours: {memory['cascader'] / 1e9:.2f} GB")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    run_one(arguments.way) if arguments.way else run_all(arguments.repeats)


if __name__ == "__main__":
    main()
