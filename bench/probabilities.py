"""Are probable answers right? On graphs whose test split the run has never seen, compared with a softmax of the scores.

The test triples are taken out of the graph before anything is fitted. Then every test question is asked, and the
answers that are at least 70 % probable are looked up in test. What test does not have counts as wrong, although it may
be true. The peer is what most libraries offer as a probability: the softmax of the same scores.

Usage: python bench/probabilities.py [--tiers plausibility,rules,similarity,kge] [--name NAME] [GRAPH ...]
"""

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import softmax

import cascader
from cascader.cascade import known_mask
from cascader.graph import BoolArray, FloatArray, KnowledgeGraph, Queries
from cascader.runs import Predictor
from cascader.tuning.calibration import expected_calibration_error
from measuring import report

PROBABLE = 0.7
TOP = 10


def measure(name: str, tiers: str) -> dict[str, Any]:
    """Fit a run without test, ask the questions of test, and judge both kinds of probabilities."""
    kg = cascader.load_graph(name)
    run = cascader.fit(replace(kg, test=kg.test[:0]), tiers=tiers, preset="quick")
    probabilities, shares, is_true = answers(run.predictor(), kg)
    return {
        "answers": len(is_true),
        "calibrated": judged(probabilities, is_true),
        "softmax": judged(shares, is_true),
        "tiers": list(run.tiers),
    }


def judged(probabilities: FloatArray, is_true: BoolArray) -> dict[str, Any]:
    """The error, and how many of the probable answers are right."""
    is_probable = probabilities >= PROBABLE
    return {
        "error": expected_calibration_error(probabilities, is_true),
        "probable": int(is_probable.sum()),
        "right": float(is_true[is_probable].mean()) if is_probable.any() else None,
    }


def answers(predictor: Predictor, kg: KnowledgeGraph) -> tuple[FloatArray, FloatArray, BoolArray]:
    """The best answers to each question of test: their probabilities, softmax shares, and whether test has them."""
    known, golds, parts = kg.known_before("test"), kg.known(("test",)), []
    assert predictor.calibration is not None  # noqa: S101 - there are valid triples
    for block in Queries.from_triples(kg.test).unique()[0].with_known(known).blocks(256):
        scores = predictor.cascade.score_all(block)
        is_known, is_gold = (known_mask(block, of, scores.shape) for of in (known, golds))
        probabilities = predictor.calibration.probabilities(block, scores, is_known)
        masked = np.where(is_known, -np.inf, scores)
        best = np.argsort(-masked, axis=1)[:, :TOP]
        parts.append([np.take_along_axis(of, best, axis=1) for of in (probabilities, softmax(masked, axis=1), is_gold)])
    found = (np.concatenate(column).ravel() for column in zip(*parts, strict=True))
    probabilities, shares, is_true = found
    return probabilities, shares, is_true.astype(bool)


def main() -> None:
    """Measure each graph, and report how much closer to the truth calibrated probabilities are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=["wordnet", "repodb", "codex-s"])
    parser.add_argument("--tiers", default="plausibility,rules,similarity,kge")
    parser.add_argument("--name", default="probabilities", help="of the file in bench/results")
    arguments = parser.parse_args()
    found = {name: measure(name, arguments.tiers) for name in arguments.graphs}
    for name, figures in found.items():
        for way in ("calibrated", "softmax"):
            of = figures[way]
            right = "none" if of["right"] is None else f"{of['right']:.1%} of {of['probable']:,} right"
            print(f"{name}, {way}: error {of['error']:.4f}; at least {PROBABLE:.0%} probable: {right}")
    ratios = {
        f"{name}: error of the softmax,": of["softmax"]["error"] / of["calibrated"]["error"]
        for name, of in found.items()
    }
    report(arguments.name, ratios, {"graphs": found}, ["numpy", "scipy", "torch"])


if __name__ == "__main__":
    main()
