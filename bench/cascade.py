"""Cross-encoder calls of a tuned cascade, compared with the full additive ensemble of its tiers (the paper's Eq. 1).

A fixed random sample of test queries is asked. The ensemble reads every entity with every question; its alpha
is the best on as large a sample of valid. The cascade is the one that valid chose. Scores are kept in the run's folder,
so an interrupted benchmark resumes. Usage: python bench/cascade.py RUN [--queries N]
"""

import argparse
from pathlib import Path

import numpy as np

from cascader.cascade import Cascade, MeteredCascade
from cascader.cascade.alphas import best_sum
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.graph import KnownAnswers, Queries, Triples
from cascader.runs import load_run
from cascader.scoring import Scorer
from cascader.tuning import Budget, Trial
from measuring import report

READER = "cross"
#: The difference in MRR that still counts as equal.
EQUAL = 0.002


class Everyone:
    """A tier that reads pairs, asked about every entity: without `reads_pairs`, a cascade wants no pruner for it."""

    def __init__(self, scorer: Scorer) -> None:
        self.score_all, self.score = scorer.score_all, scorer.score


def main() -> None:
    """Measure both, and report the ratio of calls."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--queries", type=int, default=200)
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    kg = run.kg
    queries, known = _sample(kg.test, arguments.queries).with_known(kg.known_before("test")), kg.known()
    reader, tuned = Everyone(run.scorers()[READER]), run.tuned()
    chosen = tuned.plan(Budget(), 1).trial
    later = [tier for tier in chosen.cascade.tiers if tier.name == READER]
    earlier = Cascade(chosen.cascade.first, tuple(t for t in chosen.cascade.tiers if t not in later), name="kge")
    alpha = best_sum(earlier, reader, kg, _sample(kg.valid, arguments.queries)).alpha
    ensemble = mean_reciprocal_rank(earlier.then(reader, alpha=alpha, name=READER), queries, known)
    questions = len(queries.unique()[0])
    full_calls = questions * len(kg.entities)
    rows = [_row(trial, queries, known) for trial in tuned.trials if trial.tiers == chosen.tiers]
    ours = _row(chosen, queries, known)
    report(
        "cascade",
        {"calls_full_over_cascade": full_calls / max(ours["calls"], 1)},
        {
            "what": f"{len(queries)} test queries of {kg.name}, {questions} distinct questions, tiers {chosen.tiers}",
            "ensemble": {"calls": full_calls, "mrr": ensemble, "alpha": alpha.as_dict()},
            "earlier_tiers_alone": {"mrr": mean_reciprocal_rank(earlier, queries, known)},
            "cascade_chosen_by_valid": ours,
            "share_of_calls": ours["calls"] / full_calls,
            "is_equal_or_better": ours["mrr"] >= ensemble - EQUAL,
            "all_pruners": rows,
        },
        ["numpy", "torch"],
    )
    print(f"MRR of the ensemble {ensemble:.4f} ({full_calls:,} calls), of the cascade {ours['mrr']:.4f}")


def _sample(triples: Triples, count: int) -> Queries:
    """Sample some queries, always the same."""
    everything = Queries.from_triples(triples)
    return everything[np.sort(np.random.default_rng(0).choice(len(everything), count, replace=False))]


def _row(trial: Trial, queries: Queries, known: KnownAnswers) -> dict[str, object]:
    """What a tuned cascade reaches on the sample, and how many pairs it reads for that."""
    cascade = MeteredCascade(trial.cascade)
    mrr = mean_reciprocal_rank(cascade, queries, known)
    cost = cascade.usage.tiers.get(READER)
    return {
        "keep": trial.as_dict()["later"][-1]["keep"] if trial.cascade.tiers else None,
        "valid_mrr": trial.mrr,
        "mrr": mrr,
        "calls": cost.calls if cost else 0,
    }


if __name__ == "__main__":
    main()
