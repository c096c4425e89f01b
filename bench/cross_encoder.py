"""Pairs a second of a cross encoder, against sentence-transformers' CrossEncoder.predict with the same weights.

5,000 pairs of RepoDB, the top of tier 1 for test questions; the whole cross encoder in float32 and int8, and one that
is split in the middle. Beside each speed: the MRR of the reranking that it feeds, on a sample of valid.
Usage: python bench/cross_encoder.py RUN [--repeats N], where RUN has the tiers kge and cross (cascader fit repodb)
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascader import Queries, load_run
from cascader.cascade import TopK
from cascader.graph import Candidates
from cascader.models.language import CrossEncoder
from cascader.models.language.texts import phrase_of, text_of
from cascader.tuning import best_reranking
from measuring import in_own_process, median, report

PAIRS = 5000
TOP = 50
THREADS = 2
VALID_TRIPLES = 60


def job(run: Any) -> tuple[Queries, Candidates]:
    """The pairs to score: tier 1's favourites for test questions."""
    queries = Queries.from_triples(run.kg.test)[: PAIRS // TOP]
    return queries, TopK(TOP).keep(queries, run.kge.score_all(queries))


def ours(run: Any, split_layer: int, precision: str) -> dict[str, float]:
    """Our pairs a second, and the valid MRR of the reranking."""
    cross = _encoder(run, split_layer)
    if precision == "int8":
        from cascader.models.language.int8 import UpperLayers
        from cascader.models.language.precision import in_int8

        cross._layers = in_int8(UpperLayers(cross._reader.upper, cross._head).eval(), cross._base.width)
    queries, candidates = job(run)
    cross.score(queries[:2], Candidates(candidates.offsets[:3], candidates.ids[: candidates.offsets[2]]))  # to warm up
    started = time.perf_counter()
    cross.score(queries, candidates)
    seconds = time.perf_counter() - started
    sample = Queries.from_triples(run.kg.valid[:VALID_TRIPLES])
    return {
        "pairs_per_second": len(candidates.ids) / seconds,
        "valid_mrr": best_reranking(run.kge, cross, run.kg, sample, TopK(TOP)).mrr,
    }


def _encoder(run: Any, split_layer: int) -> CrossEncoder:
    """The run's own cross encoder, or, at another split, its weights read there."""
    cross = run.tier("cross")
    if cross.recipe.split_layer == split_layer:
        return cross
    other = CrossEncoder(**{**cross.recipe.as_dict(), "split_layer": split_layer})
    other.history_ = cross.history_
    tensors = {f"head/{name}": tensor for name, tensor in cross._head.state_dict().items()}
    return other.load_tensors({**tensors, "parts": cross._reader.parts}, run.kg, run.folder / "tiers" / "cross")


def theirs(run: Any) -> dict[str, float]:
    """Sentence-transformers' pairs a second, with the same encoder, on the same texts."""
    from sentence_transformers import CrossEncoder as Peer

    cross, kg = run.tier("cross"), run.kg
    peer = Peer(str(run.folder / "tiers" / "cross" / "encoder"), num_labels=1, max_length=512, device="cpu")
    queries, candidates = job(run)
    texts = [_cut(cross, text_of(entity)) for entity in kg.entities]
    questions = [
        f"{phrase_of(kg.relations[relation].name, tail)} | {texts[anchor]}"
        for anchor, relation, tail in zip(queries.anchors, queries.relations, queries.predicts_tail, strict=True)
    ]
    pairs = [(questions[row], texts[entity]) for row, entity in zip(candidates.rows, candidates.ids, strict=True)]
    peer.predict(pairs[:64], batch_size=32, show_progress_bar=False)
    started = time.perf_counter()
    peer.predict(pairs, batch_size=32, show_progress_bar=False)
    return {"pairs_per_second": len(pairs) / (time.perf_counter() - started)}


def _cut(cross: CrossEncoder, text: str) -> str:
    """The text as far as our cross encoder reads it."""
    tokenizer = cross._base.tokenizer
    ids = tokenizer(text, add_special_tokens=False, truncation=True, max_length=cross.recipe.max_tokens)["input_ids"]
    cut: str = tokenizer.decode(ids)
    return cut


CASES = {"torch": (0, "float32"), "int8": (0, "int8"), "split": (3, "float32"), "split_int8": (3, "int8")}


def run_one(folder: str, case: str) -> None:
    """Measure one case, and print what was found as JSON."""
    torch.set_num_threads(THREADS)
    warnings.simplefilter("ignore")
    run = load_run(folder)
    print(json.dumps(theirs(run) if case == "peer" else ours(run, *CASES[case])))


def run_all(folder: str, repeats: int) -> None:
    """Measure all in turn, and report how they compare."""
    found: dict[str, list[dict[str, Any]]] = {case: [] for case in ("peer", *CASES)}
    for _ in range(repeats):
        for case, runs in found.items():
            runs.append(in_own_process(Path(__file__), folder, "--one", case, threads=THREADS))
            print(f"{case}: {runs[-1]['pairs_per_second']:.0f} pairs/s", flush=True)
    speeds = {case: median(runs, "pairs_per_second") for case, runs in found.items()}
    mrrs = {case: float(np.median([run["valid_mrr"] for run in found[case]])) for case in CASES}
    report(
        "cross_encoder",
        {f"{case}_vs_sentence_transformers": speeds[case] / speeds["peer"] for case in CASES},
        {
            "what": f"{PAIRS} pairs of RepoDB; the valid MRR of reranking tier 1's top {TOP}, {VALID_TRIPLES} triples",
            "threads": THREADS,
            "repeats": repeats,
            "pairs_per_second": speeds,
            "valid_mrr": mrrs,
        },
        ["torch", "transformers", "sentence-transformers", "onnxruntime"],
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a run of repodb with the tiers kge and cross")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", metavar="CASE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    run_one(arguments.run, arguments.one) if arguments.one else run_all(arguments.run, arguments.repeats)


if __name__ == "__main__":
    main()
