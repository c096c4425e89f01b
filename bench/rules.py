"""Rules mined and applied: seconds, peak memory and the MRR on valid by time limit; and a peer in plain Python.

The peer mines the chains of one and two facts of CoDEx-S as one would write it first: dicts of sets, one pair at a
time, with the same counts, confidences and noisy-or. The MRR is filtered with the known answers of all splits.
Usage: python bench/rules.py [--repeats N] [--limits fb15k-237=60,1200 wn18rr=10 ...]
"""

import argparse
import json
import resource
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import cascader
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.graph import Candidates, FloatArray, KnowledgeGraph, Queries
from measuring import in_own_process, median, report

PEERS_GRAPH = "codex-s"
LIMITS = {"codex-s": (1, 10, 60), "wn18rr": (1, 10, 600), "fb15k-237": (60, 300, 1200)}
MOST_ANCHORS = 300  # of the peer: with all of them it takes hours
BEST, DISCOUNT, PRIOR_COUNT = 5, 0.5, 5.0


class DictRules:
    """Chains of one and two facts in dicts of sets."""

    def __init__(self, kg: KnowledgeGraph) -> None:
        self.count, self.relations = len(kg.entities), len(kg.relations)
        self.targets: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))  # [entity][relation]
        self.between: dict[tuple[int, int], set[int]] = defaultdict(set)
        for head, relation, tail in kg.train.tolist():
            if head != tail:
                self._add(head, relation, tail)
                self._add(tail, relation + self.relations, head)
        self.anchors: dict[int, list[int]] = defaultdict(list)
        for entity, links in self.targets.items():
            for relation in links:
                self.anchors[relation].append(entity)
        self.rules = {relation: self._mine(relation) for relation in list(self.anchors)}

    def _add(self, source: int, relation: int, target: int) -> None:
        self.targets[source][relation].add(target)
        self.between[source, target].add(relation)

    def reached(self, anchor: int, path: tuple[int, ...]) -> set[int]:
        """The entities that a chain leads to."""
        ends = {anchor}
        for relation in path:
            ends = {end for start in ends for end in self.targets[start].get(relation, ())} - {anchor}
        return ends

    def _mine(self, target: int) -> list[tuple[float, tuple[int, ...]]]:
        anchors = self.anchors[target][:MOST_ANCHORS]
        linking = Counter(path for anchor in anchors for path in self._paths(anchor, target))
        measured = [self._measure(target, anchors, path) for path, times in linking.items() if times >= 2]
        return sorted(measured, reverse=True)

    def _paths(self, anchor: int, target: int) -> list[tuple[int, ...]]:
        """The chains that lead from an anchor to its answers, once for each answer."""
        answers = self.targets[anchor][target]
        direct = [(r,) for answer in answers for r in self.between[anchor, answer] if r != target]
        over_one = {
            (answer, first, second)
            for first, middles in list(self.targets[anchor].items())
            for middle in middles
            for answer in answers
            if middle != answer
            for second in self.between.get((middle, answer), ())
        }
        return [*direct, *((first, second) for _, first, second in over_one)]

    def _measure(self, target: int, anchors: list[int], path: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        body = support = 0
        for anchor in anchors:
            ends = self.reached(anchor, path)
            body += len(ends)
            support += len(ends & self.targets[anchor][target])
        return support / (body + PRIOR_COUNT), path

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        targets = queries.directed_relations(self.relations).tolist()
        return np.stack([self._score(*asked) for asked in zip(queries.anchors.tolist(), targets, strict=True)])

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        return self.score_all(queries)[candidates.rows, candidates.ids]

    def _score(self, anchor: int, target: int) -> FloatArray:
        misses, counts = np.ones(self.count, dtype=np.float32), np.zeros(self.count, dtype=np.int64)
        for confidence, path in self.rules.get(target, ()):
            for end in self.reached(anchor, path):
                if counts[end] < BEST:
                    misses[end] *= (1 - confidence) ** (DISCOUNT ** counts[end])
                    counts[end] += 1
        return np.log(1 - misses + 1e-6)


def valid_mrr(scorer: Any, kg: KnowledgeGraph) -> float:
    """Measure the MRR on valid, filtered with everything that is known."""
    return mean_reciprocal_rank(scorer, Queries.from_triples(kg.valid).with_known(kg.known_before("valid")), kg.known())


def run_one(what: str, name: str, limit: float) -> None:
    """Mine and apply rules once, and print the figures as JSON."""
    kg = cascader.load_graph(name)
    started = time.perf_counter()
    if what == "dicts":
        scorer: Any = DictRules(kg)
        rules = sum(map(len, scorer.rules.values()))
    else:
        short = {"max_length": 2, "max_constants": 0} if what == "chains" else {}
        scorer = cascader.Rules(**short).fit(kg, time_limit=limit)
        chains = zip(scorer.chains_.targets.tolist(), scorer.chains_.path_tuples(), strict=True)
        rules = len(set(chains)) + len(scorer.constants_)
    mined = time.perf_counter()
    mrr = valid_mrr(scorer, kg)
    print(
        json.dumps(
            {
                "rules": rules,
                "mining_seconds": mined - started,
                "applying_seconds": time.perf_counter() - mined,
                "queries_per_second": 2 * len(kg.valid) / (time.perf_counter() - mined),
                "valid_mrr": mrr,
                "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "stopped": getattr(scorer, "stopped_", ""),
            }
        )
    )


def run_all(repeats: int, limits: dict[str, tuple[float, ...]]) -> None:
    """Compare with the peer, then measure every graph by time limit."""
    runs: dict[str, list[dict[str, Any]]] = {"chains": [], "dicts": []}
    for _ in range(repeats):
        for what, found in runs.items():
            found.append(in_own_process(Path(__file__), "--one", what, PEERS_GRAPH, "600", threads=1))
            print(f"{what}: {found[-1]}", flush=True)
    keys = ("rules", "mining_seconds", "applying_seconds", "valid_mrr", "peak_memory_mb")
    medians = {what: {key: median(found, key) for key in keys} for what, found in runs.items()}
    by_limit: dict[str, dict[str, Any]] = {}
    for name, seconds in limits.items():
        for limit in seconds:
            found_now = in_own_process(Path(__file__), "--one", "rules", name, str(limit), threads=1)
            by_limit.setdefault(name, {})[f"{limit:g} s"] = found_now
            print(f"{name}, {limit:g} s: {found_now}", flush=True)
    chains, dicts = medians["chains"], medians["dicts"]
    report(
        "rules",
        {
            "rules_mined_per_second_vs_dicts": (chains["rules"] / chains["mining_seconds"])
            / (dicts["rules"] / dicts["mining_seconds"]),
            "applying_vs_dicts": dicts["applying_seconds"] / chains["applying_seconds"],
        },
        {
            "what": f"chains of one and two facts on {PEERS_GRAPH}, then all rules by time limit; one thread",
            "repeats": repeats,
            "peer": {"graph": PEERS_GRAPH, **medians},
            "by_time_limit": by_limit,
        },
        ["numpy", "scipy"],
    )


def _limits(texts: list[str]) -> dict[str, tuple[float, ...]]:
    named = (text.partition("=") for text in texts)
    return {name: tuple(float(limit) for limit in limits.split(",")) for name, _, limits in named}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limits", nargs="*", default=[], help="time limits by graph: fb15k-237=60,1200")
    parser.add_argument("--one", nargs=3, metavar=("WHAT", "GRAPH", "SECONDS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        what, name, limit = arguments.one
        run_one(what, name, float(limit))
    else:
        run_all(arguments.repeats, _limits(arguments.limits) or LIMITS)


if __name__ == "__main__":
    main()
