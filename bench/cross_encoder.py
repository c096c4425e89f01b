"""Pairs per second of our cross encoders, compared with sentence-transformers' CrossEncoder.predict.

All read 5,000 distinct pairs of RepoDB, the first tier's best candidates for test questions. "torch" and "int8" are a
whole cross encoder, whose weights the peer uses too, including the head. "split_3" and "split_4" are others that were
trained split at these layers, and "split_3_int8" and "split_4_int8" the same in 8 bits: weights trained at one split
cannot be used at another. Next to each speed: the valid MRR of reranking with it, and what 8 bits change of it. What is
read only once, when a cross encoder is loaded, is recorded separately. How fast they train is measured, too, as
bench/cross_training.py does.

Usage: python bench/cross_encoder.py [--whole RUN] [--split-3 RUN] [--split-4 RUN] [--pairs N] [--valid N] [--threads N]
[--repeats N] [--minutes N]. A run has the tiers kge and cross; one that is missing is first trained for N minutes.
"""

import argparse
import json
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascader.cascade import TopK
from cascader.datasets import load_graph
from cascader.errors import SettingsError
from cascader.graph import Candidates, KnowledgeGraph, Queries
from cascader.models.embeddings import ComplEx
from cascader.models.settings import preset
from cascader.models.text import CrossEncoder
from cascader.models.text.precision import Int8Layers, UpperLayers, export_int8
from cascader.models.text.text_model import phrase_of, text_of
from cascader.runs import RunFolder
from cascader.storage import read_json
from cascader.tuning import best_reranking
from cross_training import measure_all as measure_training
from measuring import in_own_process, median, report

TOP = 50
#: The layer at which the cross encoder of each run is split.
SPLITS = {"whole": 0, "split_3": 3, "split_4": 4}
PEER_BATCH = 32  # its own default
STEPS = 8  # of each training that is measured
RUNS = Path("runs") / "bench"
#: For each case: the run, and the number format of the upper layers.
CASES = {
    "torch": ("whole", "float32"),
    "int8": ("whole", "int8"),
    "split_3": ("split_3", "float32"),
    "split_3_int8": ("split_3", "int8"),
    "split_4": ("split_4", "float32"),
    "split_4_int8": ("split_4", "int8"),
}


@dataclass(frozen=True)
class Job:
    """The same pairs for all cases, chosen by the first tier of the first run."""

    kg: KnowledgeGraph
    runs: dict[str, Path]
    kge: Any
    queries: Queries
    candidates: Candidates

    @classmethod
    def of(cls, runs: dict[str, Path], pair_count: int) -> "Job":
        """Choose distinct test questions on both sides, with the first tier's best candidates."""
        kg = load_graph("repodb")
        for folder in runs.values():
            _check_run(folder, kg)
        kge = RunFolder(runs["whole"]).load_tier("kge", kg)
        distinct = Queries.from_triples(kg.test).unique()[0]
        chosen = np.random.default_rng(0).permutation(len(distinct))[: max(1, pair_count // TOP)]
        queries = distinct[np.sort(chosen)]
        return cls(kg, runs, kge, queries, TopK(TOP).keep(queries, kge.score_all(queries)))

    def cross_encoder(self, run: str, precision: str) -> CrossEncoder:
        """A run's cross encoder, computing as told, whatever it was saved with."""
        cross: CrossEncoder = RunFolder(self.runs[run]).load_tier("cross", self.kg)
        layers = UpperLayers(cross._encoder.upper, cross._head).eval()
        cross._layers = Int8Layers(export_int8(layers, cross._base.width)) if precision == "int8" else None
        return cross


def _check_run(folder: Path, kg: KnowledgeGraph) -> None:
    about = RunFolder(folder).metadata()
    if about["data_hash"] != kg.data_hash or not {"kge", "cross"} <= set(about["tiers"]):
        raise SettingsError(
            f"{folder} is not a run of repodb with the tiers kge and cross. Choose another, or none to train one."
        )


class Peer:
    """Sentence-transformers' cross encoder with our weights, on texts truncated as ours are."""

    def __init__(self, cross: CrossEncoder, kg: KnowledgeGraph) -> None:
        from sentence_transformers import CrossEncoder as TheirCrossEncoder

        self._kg, self._texts = kg, [_cut(cross, text_of(entity)) for entity in kg.entities]
        with tempfile.TemporaryDirectory() as folder:
            _save_as_classifier(cross, Path(folder))
            self._model = TheirCrossEncoder(folder, num_labels=1, device="cpu", activation_fn=torch.nn.Identity())

    def score(self, queries: Queries, candidates: Candidates) -> Any:
        """Score the candidates of each query; shape (candidates,)."""
        questions = [
            f"{phrase_of(self._kg.relations[relation].name, tail)} | {self._texts[anchor]}"
            for anchor, relation, tail in zip(queries.anchors, queries.relations, queries.predicts_tail, strict=True)
        ]
        rows = zip(candidates.rows, candidates.ids, strict=True)
        pairs = [(questions[row], self._texts[entity]) for row, entity in rows]
        return self._model.predict(pairs, batch_size=PEER_BATCH, show_progress_bar=False)


def _save_as_classifier(cross: CrossEncoder, folder: Path) -> None:
    """Convert our encoder and head to transformers' own classifier, which has the same layers."""
    from transformers import AutoModelForSequenceClassification

    cross._base.save(folder / "encoder")
    model = AutoModelForSequenceClassification.from_pretrained(folder / "encoder", num_labels=1)
    model.base_model.pooler.dense.load_state_dict(cross._head.pooler.state_dict())
    model.classifier.load_state_dict(cross._head.classifier.state_dict())
    model.save_pretrained(folder)
    cross._base.tokenizer.save_pretrained(folder)


def _cut(cross: CrossEncoder, text: str) -> str:
    """Truncate a text as our cross encoder does."""
    tokenizer = cross._base.tokenizer
    ids = tokenizer(text, add_special_tokens=False, truncation=True, max_length=cross.settings.max_tokens)["input_ids"]
    cut: str = tokenizer.decode(ids)
    return cut


def measure_speed(job: Job, scorer: Any) -> dict[str, float]:
    """Measure the pairs per second, after a few to warm up."""
    few = Candidates(job.candidates.offsets[:2], job.candidates.ids[: job.candidates.offsets[1]])
    scorer.score(job.queries[:1], few)
    started = time.perf_counter()
    scorer.score(job.queries, job.candidates)
    return {"pairs_per_second": len(job.candidates.ids) / (time.perf_counter() - started)}


def measure_mrr(job: Job, scorer: Any, triple_count: int) -> dict[str, Any]:
    """Measure the valid MRR of reranking the first tier's top."""
    queries = Queries.from_triples(job.kg.sample("valid", triple_count, seed=0))
    return {"valid_mrr": best_reranking(job.kge, scorer, job.kg, queries, TopK(TOP)).mrr}


def measure_scores(job: Job, scorer: Any) -> dict[str, Any]:
    """Score one question, to check that two cases agree."""
    few = Candidates(job.candidates.offsets[:2], job.candidates.ids[: job.candidates.offsets[1]])
    return {"scores": scorer.score(job.queries[:1], few).tolist()}


def run_one(arguments: argparse.Namespace) -> None:
    """Measure one case, and print the figures as JSON."""
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    job = Job.of({name: getattr(arguments, name) for name in SPLITS}, arguments.pairs)
    started = time.perf_counter()
    cross = job.cross_encoder(*CASES.get(arguments.one, CASES["torch"]))
    loading = time.perf_counter() - started
    scorer = Peer(cross, job.kg) if arguments.one == "peer" else cross
    measures = {
        "speed": lambda: measure_speed(job, scorer),
        "mrr": lambda: measure_mrr(job, scorer, arguments.valid),
        "scores": lambda: measure_scores(job, scorer),
    }
    found = measures[arguments.what]()
    print(json.dumps({**found, "loading_seconds": loading, "pairs": len(job.candidates.ids)}))


def run_all(arguments: argparse.Namespace) -> None:
    """Measure all cases in turn, and report how they compare."""
    for name, split_layer in SPLITS.items():
        train_if_missing(getattr(arguments, name), split_layer, 60 * arguments.minutes)
    options = [
        f"--{name.replace('_', '-')}={getattr(arguments, name)}" for name in (*SPLITS, "pairs", "valid", "threads")
    ]

    def one(case: str, what: str) -> dict[str, Any]:
        return in_own_process(Path(__file__), *options, "--one", case, "--what", what, threads=arguments.threads)

    found: dict[str, list[dict[str, Any]]] = {case: [] for case in ("peer", *CASES)}
    for _ in range(arguments.repeats):
        for case, runs in found.items():
            runs.append(one(case, "speed"))
            print(f"{case}: {runs[-1]['pairs_per_second']:.0f} pairs/s", flush=True)
    torch.set_num_threads(arguments.threads)
    training = measure_training(STEPS, arguments.repeats)
    looks = {case: one(case, "mrr") for case in CASES}
    ours, theirs = (one(case, "scores")["scores"] for case in ("torch", "peer"))
    in_full = {run: case for case, (run, precision) in CASES.items() if precision == "float32"}
    changes = {
        case: looks[case]["valid_mrr"] - looks[in_full[run]]["valid_mrr"]
        for case, (run, precision) in CASES.items()
        if precision == "int8"
    }
    for case, change in changes.items():
        print(f"change of valid MRR: {case} {change:+.4f}")
    speeds = {case: median(runs, "pairs_per_second") for case, runs in found.items()}
    report(
        "cross_encoder",
        {f"{case}_vs_sentence_transformers": speeds[case] / speeds["peer"] for case in CASES},
        {
            "what": f"{found['peer'][0]['pairs']:,} distinct pairs of RepoDB; the valid MRR of reranking tier 1's top "
            f"{TOP} for {arguments.valid} valid triples, both sides",
            "threads": arguments.threads,
            "repeats": arguments.repeats,
            "split_layers": {name: _split_layer(getattr(arguments, name)) for name in SPLITS},
            "pairs_per_second": speeds,
            "loading_seconds": {case: median(found[case], "loading_seconds") for case in CASES},
            "valid_mrr": {case: look["valid_mrr"] for case, look in looks.items()},
            "change_of_valid_mrr_in_int8": changes,
            "training": training,
            "largest_difference_from_peer": float(np.abs(np.subtract(ours, theirs)).max()),
        },
        ["torch", "transformers", "sentence-transformers", "onnxruntime"],
    )


def train_if_missing(path: Path, split_layer: int, seconds: float) -> None:
    """Train a short run: what is measured is mostly speed, but the weights should be able to rerank."""
    folder = RunFolder(path)
    if folder.is_complete:
        return
    kg = load_graph("repodb")
    folder.save_graph(kg)
    kge = ComplEx(**preset("complex", "quick", kg.name)).fit(kg)
    folder.save_tier("kge", kge)
    cross = CrossEncoder(split_layer=split_layer, rounds=8, valid_every=8)
    folder.save_tier("cross", cross.fit(kg, folder=folder.tier("cross"), time_limit=seconds, earlier=kge))
    folder.mark_complete(kg, "quick", {"kge": kge.name, "cross": cross.name})


def _split_layer(folder: Path) -> int:
    return int(read_json(folder / "tiers" / "cross" / "model.json")["settings"]["split_layer"])


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--whole", type=Path, default=RUNS / "repodb-whole", help="a run trained with split_layer 0")
    parser.add_argument("--split-3", type=Path, default=RUNS / "repodb-split-3", help="a run trained with 3")
    parser.add_argument("--split-4", type=Path, default=RUNS / "repodb-split-4", help="a run trained with 4")
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--valid", type=int, default=300, help="valid triples for the MRR")
    parser.add_argument("--minutes", type=float, default=3.0, help="for training each run that is missing")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", metavar="CASE", help=argparse.SUPPRESS)
    parser.add_argument("--what", choices=("speed", "mrr", "scores"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    run_one(arguments) if arguments.one else run_all(arguments)


if __name__ == "__main__":
    main()
