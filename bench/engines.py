"""Reading pairs in several processes compared with one, and on Ray compared with local processes on the same cores.

All of them read the same pairs of a run's tier, with workers that have loaded their model and read a few pairs before
the clock starts, and must store the same scores. Medians of three. In the end, a cluster of three local nodes reads
them once more, and one of its nodes is killed meanwhile. Usage: python bench/engines.py RUN [--pairs N]
"""

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascader.errors import EngineError
from cascader.graph import Candidates, Queries
from cascader.runs import Run, load_run
from cascader.runs.folder import load_scorer
from cascader.scoring import Scorer, ScoreStore, StoredScorer
from cascader.scoring.engine import Call, Engine, LocalEngine, Task, cores
from cascader.scoring.ray_engine import RayEngine
from measuring import median, report

REPEATS = 3
#: Small enough for each worker to get many.
SHARD_PAIRS = 512
CANDIDATES = 50
NODES = 3
SHARDS_BEFORE_THE_KILL = 5
#: How long a worker waits for all others to have loaded their model.
SECONDS_TO_GATHER = 300.0


def main() -> None:
    """Measure all engines in turn, and report the ratios of their medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=cores(), help="as many as there are cores, if not given")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run, workers = load_run(arguments.run), arguments.workers
    engines: dict[str, tuple[int, Callable[[], AbstractContextManager[Engine]]]] = {
        "one_process": (1, lambda: LocalEngine(1)),
        "local_processes": (workers, lambda: LocalEngine(workers)),
        "ray": (workers, lambda: RayEngine(workers=workers)),
    }
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in engines}
    sums = set()
    for _ in range(REPEATS):
        for name, (count, engine) in engines.items():
            seconds, stored = _measure(run, engine, count, arguments.pairs)
            runs[name].append({"seconds": seconds})
            sums.add(stored)
            print(f"{name}: {seconds:.1f} s", flush=True)
    seconds = {name: median(some, "seconds") for name, some in runs.items()}
    lost_seconds, lost_sum = _measure(run, _losing_a_node, NODES, arguments.pairs)
    print(f"with a node killed: {lost_seconds:.1f} s", flush=True)
    report(
        "engines",
        {
            "one_process_over_local_processes": seconds["one_process"] / seconds["local_processes"],
            "ray_over_local_processes": seconds["ray"] / seconds["local_processes"],
        },
        {
            "what": f"{arguments.pairs:,} pairs of {run.kg.name}, read by {_reader(run)}",
            "workers": workers,  # with a thread each
            "seconds": seconds,
            "all": runs,
            "are_scores_equal": len(sums) == 1,
            "with_a_node_of_three_killed": {"seconds": lost_seconds, "are_scores_equal": sums == {lost_sum}},
        },
        ["torch", "ray"],
    )


def _measure(
    run: Run, engine: Callable[[], AbstractContextManager[Engine]], workers: int, pairs: int
) -> tuple[float, str]:
    """Return the seconds for reading so many pairs, and the sum of their scores' bytes."""
    queries, candidates = _pairs(run, pairs)
    with tempfile.TemporaryDirectory() as folder, engine() as working:
        scorer = _stored(run, Path(folder) / "scores", working)
        few = queries[:1], Candidates(candidates.offsets[:2], candidates.ids[: candidates.offsets[1]])
        _warm_up(run, working, workers, Path(folder) / "warm", few)
        started = time.perf_counter()
        scores = scorer.score(queries, candidates)
        return time.perf_counter() - started, hashlib.sha256(scores.tobytes()).hexdigest()


def _warm_up(run: Run, engine: Engine, workers: int, folder: Path, few: tuple[Queries, Candidates]) -> None:
    """Let every worker load the model and read a few pairs: none is given a second shard before all have begun."""
    folder.mkdir()
    task = Task(Call(_gather, (folder, workers)), _load(run))
    list(engine.run(task, [few] * workers, loaded=run.tiers[_reader(run)]))


def _gather(folder: Path, workers: int, scorer: Scorer, few: tuple[Queries, Candidates]) -> None:
    """Read a few pairs, and hold this worker until all of them have."""
    scorer.score(*few)
    (folder / str(os.getpid())).touch()
    end = time.monotonic() + SECONDS_TO_GATHER
    while (found := len(list(folder.iterdir()))) < workers:
        if time.monotonic() > end:
            raise EngineError(f"{found} of {workers} workers have loaded the model after {SECONDS_TO_GATHER:.0f} s.")
        time.sleep(0.05)


@dataclass
class _Disturbed:
    """An engine to which something happens when some shards are done."""

    engine: Engine
    disturb: Callable[[], None]

    def run(self, task: Task, shards: Sequence[Any], loaded: object = None) -> Iterator[int]:
        """Run the task, with the disturbance if there is much to do."""
        for count, place in enumerate(self.engine.run(task, shards, loaded)):
            if count == SHARDS_BEFORE_THE_KILL:
                self.disturb()
            yield place


@contextmanager
def _losing_a_node() -> Iterator[Engine]:
    """A Ray cluster of local nodes with a CPU each, one of which is killed."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    lost = [cluster.add_node(num_cpus=1) for _ in range(NODES - 1)][-1]
    with RayEngine(cluster.address, workers=NODES) as engine:
        yield _Disturbed(engine, lambda: cluster.remove_node(lost, allow_graceful=False))
    cluster.shutdown()


def _stored(run: Run, folder: Path, engine: Engine) -> StoredScorer:
    name = _reader(run)
    store = ScoreStore(folder, {"model": run.folder.tier_hash(name)}, SHARD_PAIRS)
    return StoredScorer(run.tiers[name], run.kg, store, engine, _load(run))


def _load(run: Run) -> Call:
    name = _reader(run)
    return Call(load_scorer, (run.folder.path.resolve(), name, run.folder.tier_hash(name)))


def _reader(run: Run) -> str:
    return next(name for name, model in run.tiers.items() if model.reads_pairs)


def _pairs(run: Run, count: int) -> tuple[Queries, Candidates]:
    """Draw questions of valid with candidates at random, always the same; no pair is drawn twice for a question."""
    draw = np.random.default_rng(0)
    every = Queries.from_triples(run.kg.valid).unique()[0]
    queries = every[np.sort(draw.permutation(len(every))[: -(-count // CANDIDATES)])]
    size = min(CANDIDATES, len(run.kg.entities))
    ids = np.stack([draw.choice(len(run.kg.entities), size, replace=False) for _ in range(len(queries))])
    return queries, Candidates(np.arange(len(queries) + 1) * size, ids.reshape(-1).astype(np.int32))


if __name__ == "__main__":
    main()
