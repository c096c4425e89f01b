"""Are probable answers right? On graphs whose test split the run has never seen, compared with a softmax of the scores.

The test triples are taken out of the graph before anything is fitted. Then every test question is asked, and the
answers that are at least 70 % probable are looked up in test. What test does not have counts as wrong, although it may
be true. The peer is what most libraries offer as a probability: the softmax of the same scores.

With --all, every question that train has an answer to is asked instead, as `cascader predict --all` does. Most of these
have no further answer, and the peer is the curve for questions that have one, which --all used until now. The figures
for those that are at least 20 % probable show what such a probability means. The probabilities of links, which combine
those of both questions, are judged in the same way.

Usage: python bench/probabilities.py [--all] [--tiers plausibility,rules,similarity,kge] [--folder FOLDER] [GRAPH ...]
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

import cascader
from cascader.cascade import known_mask
from cascader.graph import BoolArray, FloatArray, KnowledgeGraph, Queries
from cascader.runs import Predictor, Run, WorkList
from cascader.tuning.curves import expected_calibration_error
from measuring import report

PROBABLE = 0.7
#: Who goes through all links begins with those that are at least so probable.
WORTH_A_LOOK = 0.2
TOP = 10


def fitted(kg: KnowledgeGraph, tiers: str, folder: Path | None) -> Run:
    """Fit a run without test, or take it from a folder where it was fitted before."""
    return cascader.fit(replace(kg, test=kg.test[:0]), folder and folder / kg.name, tiers=tiers, preset="quick")


def measure_all(name: str, tiers: str, folder: Path | None) -> dict[str, Any]:
    """Ask every question, and judge the probabilities for open questions and those for questions with an answer."""
    kg = cascader.load_graph(name)
    run = fitted(kg, tiers, folder)
    before = run.predictor()
    after = run.for_open_questions(before)
    every = Queries.from_triples(kg.train).unique()[0]
    found = {"open": after, "with an answer": before}
    figures: dict[str, Any] = {"questions": len(every), "tiers": list(run.tiers)}
    for way, predictor in found.items():
        probabilities, _, is_true = answers(predictor, kg, every)
        figures |= {"answers": len(is_true), way: judged_all(probabilities, is_true)}
    links, are_true = work_list(after, kg)
    return {**figures, "links": len(links), "joint": judged_all(links, are_true)}


def work_list(predictor: Predictor, kg: KnowledgeGraph) -> tuple[FloatArray, BoolArray]:
    """The joint probability of each link that `predict --all` lists, and whether test has it."""
    links = WorkList(predictor, top=TOP).made()
    golds = {(kg.entities[h].id, kg.relations[r].id, kg.entities[t].id) for h, r, t in kg.test.tolist()}
    probabilities = np.array([link.probability or 0.0 for link in links])
    return probabilities, np.array([link.triple in golds for link in links], dtype=bool)


def judged_all(probabilities: FloatArray, is_true: BoolArray) -> dict[str, Any]:
    """The error on all answers, and what a probability that is worth a look means."""
    is_probable = probabilities >= WORTH_A_LOOK
    return {
        "error": expected_calibration_error(probabilities, is_true),
        "worth a look": int(is_probable.sum()),
        "error of these": expected_calibration_error(probabilities[is_probable], is_true[is_probable]),
        "said of these": float(probabilities[is_probable].mean()) if is_probable.any() else None,
        "right of these": float(is_true[is_probable].mean()) if is_probable.any() else None,
    }


def measure(name: str, tiers: str, folder: Path | None) -> dict[str, Any]:
    """Fit a run without test, ask the questions of test, and judge both kinds of probabilities."""
    kg = cascader.load_graph(name)
    run = fitted(kg, tiers, folder)
    probabilities, shares, is_true = answers(run.predictor(), kg, Queries.from_triples(kg.test).unique()[0])
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


def answers(predictor: Predictor, kg: KnowledgeGraph, asked: Queries) -> tuple[FloatArray, FloatArray, BoolArray]:
    """The best answers to each question: their probabilities, softmax shares, and whether test has them."""
    known, golds, parts = kg.known_before("test"), kg.known(("test",)), []
    assert predictor.calibration is not None  # noqa: S101 - there are valid triples
    for block in asked.with_known(known).blocks(256):
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
    parser.add_argument("--name", help="of the file in bench/results")
    parser.add_argument("--all", action="store_true", help="ask every question, not those of test")
    parser.add_argument("--folder", type=Path, help="where the runs are kept; what is there is not fitted again")
    arguments = parser.parse_args()
    if arguments.all:
        report_all({name: measure_all(name, arguments.tiers, arguments.folder) for name in arguments.graphs}, arguments)
        return
    found = {name: measure(name, arguments.tiers, arguments.folder) for name in arguments.graphs}
    for name, figures in found.items():
        for way in ("calibrated", "softmax"):
            of = figures[way]
            right = "none" if of["right"] is None else f"{of['right']:.1%} of {of['probable']:,} right"
            print(f"{name}, {way}: error {of['error']:.4f}; at least {PROBABLE:.0%} probable: {right}")
    ratios = {
        f"{name}: error of the softmax,": of["softmax"]["error"] / of["calibrated"]["error"]
        for name, of in found.items()
    }
    report(arguments.name or "probabilities", ratios, {"graphs": found}, ["numpy", "scipy", "torch"])


def report_all(found: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> None:
    """Print what probabilities of --all mean, and how much nearer to the truth they are."""
    for name, figures in found.items():
        for way in ("open", "with an answer", "joint"):
            of = figures[way]
            what = "links" if way == "joint" else "answers"
            said, right = (0.0 if of[key] is None else of[key] for key in ("said of these", "right of these"))
            print(
                f"{name}, {way}: error {of['error']:.4f}; {of['worth a look']:,} {what} are at least "
                f"{WORTH_A_LOOK:.0%} probable: {said:.3f} means {right:.3f} there, error {of['error of these']:.4f}"
            )
    ratios = {
        f"{name}: error of the curve for questions with an answer,": of["with an answer"]["error"] / of["open"]["error"]
        for name, of in found.items()
    }
    report(arguments.name or "probabilities-all", ratios, {"graphs": found}, ["numpy", "scipy", "torch"])


if __name__ == "__main__":
    main()
