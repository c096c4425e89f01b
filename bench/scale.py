"""Bytes, seconds and memory for generated graphs of 10^4, 10^5 and 10^6 entities, and how they grow.

Each graph has five triples for each entity, in clusters that relations link, so that there is something to learn. It is
written as TSV, checked, fitted with an embedding for at most the given time, and asked, each in its own process. What
is measured is kept in the folder, so that an interrupted benchmark goes on with what is missing. Needs 3 GB of disk.

Usage: python bench/scale.py FOLDER [--entities 10000 100000 1000000] [--time-limit 10m]
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascader.storage import folder_bytes, read_json, write_json
from measuring import in_own_process, report

RELATIONS = 20
TRIPLES_PER_ENTITY = 5
CLUSTER = 500  # entities
QUESTIONS = 20  # that are asked of a run, after one to warm up
BINARY = Path(sys.executable).with_name("cascader")


def generated(entity_count: int, seed: int = 0) -> NDArray[np.int64]:
    """Draw the triples of a graph: each relation leads from every cluster of entities to one other cluster."""
    rng = np.random.default_rng(seed)
    clusters = max(entity_count // CLUSTER, 4)
    target = np.stack([rng.permutation(clusters) for _ in range(RELATIONS)])
    heads = np.concatenate([np.arange(entity_count), rng.integers(entity_count, size=int(4.6 * entity_count))])
    relations = rng.integers(RELATIONS, size=len(heads))
    # Within a cluster, some tails are far more frequent than others, as in graphs that people make.
    places = (rng.random(len(heads)) ** 2 * (entity_count // clusters)).astype(np.int64)
    tails = np.minimum(places * clusters + target[relations, heads % clusters], entity_count - 1)
    _, first = np.unique((heads * RELATIONS + relations) * entity_count + tails, return_index=True)
    chosen = np.sort(first)[: TRIPLES_PER_ENTITY * entity_count]
    return np.stack([heads, relations, tails], axis=1)[rng.permutation(chosen)]


def write_graph(path: Path, entity_count: int) -> None:
    """Write a graph as TSV, unless it is there."""
    if path.exists():
        return
    triples = generated(entity_count)
    with path.open("w", encoding="utf-8") as stream:
        for some in np.array_split(triples, max(1, len(triples) // 100_000)):
            stream.writelines(f"entity {head}\trelation {r}\tentity {tail}\n" for head, r, tail in some.tolist())


def peak_bytes(who: int = resource.RUSAGE_SELF) -> int:
    """Return the peak memory of this process, or of its children."""
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def timed(found: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds of the block, by the clock and of the processor: the first are longer where others compute."""
    started, worked = time.perf_counter(), time.process_time()
    yield
    found[f"{name}_seconds"] = round(time.perf_counter() - started, 3)
    found[f"{name}_cpu_seconds"] = round(time.process_time() - worked, 3)


def read(graph: str) -> dict[str, float]:
    """Measure reading a graph from its file."""
    import cascader

    found: dict[str, float] = {"file_bytes": Path(graph).stat().st_size}
    with timed(found, "read"):
        kg = cascader.load_graph(graph)
    triples = sum(len(kg.split(split)) for split in ("train", "valid", "test"))
    return {**found, "entities": len(kg.entities), "triples": triples, "peak_bytes": peak_bytes()}


def train(graph: str) -> dict[str, float]:
    """Measure a few steps of the quick preset, for the seconds of an epoch and of a validation."""
    import cascader
    from cascader.models.settings import preset

    kg = cascader.load_graph(graph)
    model = cascader.ComplEx(**preset("complex", "quick", kg.name, len(kg.entities)))
    started, worked = time.perf_counter(), time.process_time()
    cost = model.dry_run(kg)
    share = (time.process_time() - worked) / (time.perf_counter() - started)  # of a core that this process had
    return {
        "epoch_seconds": round(cost.epoch, 1),
        "epoch_cpu_seconds": round(cost.epoch * share, 1),
        "validation_seconds": round(cost.look, 1),
        "parameters": cost.parameters,
        "peak_bytes": peak_bytes(),
    }


def answer(run: str) -> dict[str, float | None]:
    """Measure loading a run, without checking its files, asking it, and scoring all entities for the same questions."""
    import cascader

    found: dict[str, float] = {}
    with timed(found, "load"):
        loaded = cascader.load_run(run, verify=False)
    with timed(found, "first_answer"):
        loaded.predict("entity 0", "relation 0")
    times: list[dict[str, float]] = []
    tier = loaded.tier("kge")
    for number in range(QUESTIONS):
        times.append({})
        entity, relation = f"entity {7 * number + 1}", f"relation {number % RELATIONS}"
        with timed(times[-1], "answer"):
            loaded.predict(entity, relation)
        question = loaded.kg.query(entity, relation)
        with timed(times[-1], "scores"):  # the share of an answer that an approximate index could save
            tier.score_all(question)
    for name in times[0]:
        found[name] = round(statistics.median(each[name] for each in times), 4)
    history = tier.history_
    return {
        **found,
        "valid_mrr": history.best_valid,  # None: time was up before the first validation
        "epochs": history.epochs,
        "steps_of_the_next": 0 if history.partial is None else history.partial.steps,
        "run_bytes": folder_bytes(Path(run)),
        "peak_bytes": peak_bytes(),
    }


def command(*arguments: str) -> dict[str, float]:
    """Measure one command of the command line."""
    started = time.perf_counter()
    subprocess.run([str(BINARY), *arguments], check=True, stdout=sys.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_bytes": peak_bytes(resource.RUSAGE_CHILDREN),
    }


PARTS: dict[str, Callable[..., Mapping[str, float | None]]] = {
    "read": read,
    "train": train,
    "answer": answer,
    "command": command,
}


def measure(folder: Path, entity_count: int, time_limit: str) -> dict[str, Any]:
    """Measure everything for one size; what the folder has already is not measured again."""
    graph, run = folder / f"graph-{entity_count}.tsv", folder / f"run-{entity_count}"
    write_graph(graph, entity_count)
    parts = {
        "read": ["read", str(graph)],
        "data check": ["command", "data", "check", str(graph)],
        "train": ["train", str(graph)],
        "fit": ["command", "fit", str(graph), "--tiers", "kge", "--time-limit", time_limit, "--out", str(run)],
        "predict": ["command", "predict", str(run), "entity 0", "relation 0"],
        "answer": ["answer", str(run)],
    }
    found = {}
    for name, arguments in parts.items():
        kept = folder / f"{name.replace(' ', '-')}-{entity_count}.json"
        if not kept.exists():
            write_json(kept, in_own_process(Path(__file__), "--one", *arguments, threads=1))
        found[name] = read_json(kept)
        print(f"{entity_count:,} entities, {name}: {found[name]}", flush=True)
    return found


def growth(sizes: dict[int, dict[str, Any]]) -> dict[str, float]:
    """How many times more the largest graph takes than the smallest, for each entity."""
    small, large = min(sizes), max(sizes)
    wanted = [("read", "read_cpu_seconds"), ("fit", "peak_bytes"), ("answer", "answer_cpu_seconds")]
    return {
        f"{part}_{figure}_per_entity_growth": sizes[large][part][figure] / sizes[small][part][figure] * small / large
        for part, figure in wanted
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/scale"), help="for graphs and runs")
    parser.add_argument("--entities", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--time-limit", default="10m")
    parser.add_argument("--one", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        part, *others = arguments.one
        print(json.dumps(PARTS[part](*others)))
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    sizes = {count: measure(arguments.folder, count, arguments.time_limit) for count in sorted(arguments.entities)}
    details = {
        "what": f"{TRIPLES_PER_ENTITY} triples for each entity; ComplEx, the quick preset",
        "threads": 1,
        "time_limit": arguments.time_limit,
        "entities": {str(count): found for count, found in sizes.items()},
    }
    report("scale", growth(sizes), details, ["numpy", "torch", "pyarrow"])


if __name__ == "__main__":
    main()
