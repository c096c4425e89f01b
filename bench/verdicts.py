"""Are verdicts right where it is hard? On triples that another embedding likes just as well as facts of test.

The test triples are taken out of the graph before anything is fitted. Each of them gets a hard negative: another tail
or head, in turn, that train has with the relation, that no split has with this fact, and that is among the ten best for
an embedding which has no part in the run (RotatE with another seed). What no split has counts as false, although it may
be true. The same is done with valid, for those who need labels: the peer, and `calibrate`. Nothing is fitted to test,
but test was looked at while the form of the model was settled, so these figures are somewhat too good.

Judged by:
- before: what `classify` did in 0.1: the mean of both sides' probabilities, and one threshold, chosen on valid and as
  many triples with a random other end
- embedding: the peer, a plain embedding with a threshold for each relation, chosen on valid and its hard negatives
- verdicts: what `classify` does
- labels: the same, after `calibrate` with some triples of valid and of their hard negatives

Usage: python bench/verdicts.py [--folder FOLDER] [GRAPH ...]
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import cascader
from cascader.cascade import known_mask
from cascader.graph import BoolArray, FloatArray, KnowledgeGraph, Queries, Side, Triples
from cascader.runs import Run
from cascader.runs.predictor import label_examples, valid_examples
from cascader.scoring import Scorer
from cascader.tuning.verdicts import VerdictModel
from cascader.tuning.witnesses import Labels
from measuring import report

TIERS = "plausibility,rules,similarity,kge"
NEAR = 10
LABELS = (200,)
Judge = Callable[[Triples], BoolArray]


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Fit a run and an outsider without test, make the two sets, and judge test's in all ways."""
    full = cascader.load_graph(name)
    kg = replace(full, test=full.test[:0])
    run = cascader.fit(kg, folder / name, tiers=TIERS, preset="quick")
    outsider = cascader.fit(kg, folder / f"{name}-outsider", tiers="kge", model="rotate", preset="quick", seed=7)
    draw = np.random.default_rng(0)
    test, valid = ((triples, hard(triples, full, outsider.tier("kge"), draw)) for triples in (full.test, full.valid))
    sets = {"facts": full.test, "hard": test[1], "random": random_other(full.test, full, draw)}
    judges = {"before": before(run), "embedding": thresholds_by_relation(run, *valid)}
    found = {way: judged({kind: judge(of) for kind, of in sets.items()}) for way, judge in judges.items()}
    found |= by_verdicts(run, sets, *valid)
    return {"facts": len(test[0]), "negatives": len(test[1]), "judged by": found, "tiers": list(run.tiers)}


def by_verdicts(run: Run, sets: dict[str, Triples], facts: Triples, false: Triples) -> dict[str, Any]:
    """What `classify` does, and what it does after `calibrate`; every triple is heard once."""
    predictor = run.with_threshold(run.predictor())
    heard = {
        kind: (predictor.evidence_for(of), [run.kg.relations[r].id for r in of[:, 1]]) for kind, of in sets.items()
    }

    def verdicts(model: VerdictModel) -> dict[str, Any]:
        return judged({kind: model.probabilities(*of) >= model.threshold for kind, of in heard.items()})

    assert predictor.calibration is not None and predictor.calibration.verdicts is not None  # noqa: S101 - just made
    found = {"verdicts": verdicts(predictor.calibration.verdicts)}
    learner = predictor.witnesses().learner
    for count in LABELS:
        given = some_labels(facts, false, count)
        examples, labels = valid_examples(predictor, labels=given), label_examples(predictor, given)
        first, after = learner.label_accuracies(examples, labels)
        by_labels = {"by cross-validation": {"before": first, "after": after}}
        found[f"labels {count}"] = {**verdicts(learner.learned(examples, labels)), **by_labels}
    return found


def judged(is_true: dict[str, BoolArray]) -> dict[str, dict[str, float]]:
    """The accuracy, each kind counting half, and F1 of the facts, beside hard and random negatives."""
    right, found = is_true["facts"], {}
    for kind in ("hard", "random"):
        wrong = is_true[kind]
        accuracy = (right.mean() + (~wrong).mean()) / 2
        f1 = 2 * right.sum() / (right.sum() + wrong.sum() + len(right))
        found[kind] = {"accuracy": round(float(accuracy), 4), "F1": round(float(f1), 4)}
    return found


def some_labels(facts: Triples, false: Triples, count: int) -> Labels:
    """A sample of labelled triples, half of them true."""
    draw = np.random.default_rng(0)
    parts = [draw.permutation(triples)[: count // 2] for triples in (facts, false)]
    return Labels(np.concatenate(parts), np.repeat([True, False], [len(part) for part in parts]))


# The ways that are compared with.


def before(run: Run) -> Judge:
    """The mean of both probabilities, with the threshold that separates valid from random other ends best."""
    kg, predictor, draw = run.kg, run.predictor(), np.random.default_rng(0)
    facts = draw.permutation(kg.valid)[:500]
    known = kg.known_before("valid")
    right, wrong = (predictor.probabilities_of(triples, known) for triples in (facts, random_other(facts, kg, draw)))
    threshold = most_accurate(right, wrong)
    return lambda triples: predictor.probabilities_of(triples, kg.known()) >= threshold


def thresholds_by_relation(run: Run, facts: Triples, false: Triples) -> Judge:
    """The sum of the embedding's scores from both sides, with the best threshold for each relation."""
    kge = run.tier("kge")
    right, wrong = scores_of(kge, facts), scores_of(kge, false)
    whole = most_accurate(right, wrong)
    own = {
        relation: most_accurate(right[facts[:, 1] == relation], wrong[false[:, 1] == relation])
        for relation in np.intersect1d(facts[:, 1], false[:, 1])
    }
    return lambda triples: scores_of(kge, triples) >= [own.get(relation, whole) for relation in triples[:, 1]]


def scores_of(scorer: Scorer, triples: Triples) -> FloatArray:
    """The score of each triple, added up over both sides."""
    total = np.zeros(len(triples))
    for queries in (Queries.from_triples(triples, "tail"), Queries.from_triples(triples, "head")):
        for start in range(0, len(queries), 256):
            block = queries[start : start + 256]
            golds = block.required_golds()
            total[start : start + len(block)] += scorer.score_all(block)[np.arange(len(block)), golds]
    return total


def most_accurate(right: FloatArray, wrong: FloatArray) -> float:
    """The threshold with the highest accuracy, midway between two values."""
    values = np.unique(np.concatenate([right, wrong]))
    tried = np.concatenate([values[:1], (values[:-1] + values[1:]) / 2])
    above = [1 - np.searchsorted(np.sort(of), tried) / len(of) for of in (right, wrong)]
    return float(tried[np.argmax(above[0] - above[1])])


# Negatives.


def hard(facts: Triples, kg: KnowledgeGraph, outsider: Scorer, draw: np.random.Generator) -> Triples:
    """Replace the tail or head of each fact, in turn, by one of the ten that the outsider likes best."""
    return replaced(facts, kg, lambda pool, scores: draw.choice(pool[np.argsort(-scores[pool])[:NEAR]]), outsider)


def random_other(facts: Triples, kg: KnowledgeGraph, draw: np.random.Generator) -> Triples:
    """Replace the tail or head of each fact, in turn, by a random one."""
    return replaced(facts, kg, lambda pool, scores: draw.choice(pool), None)


def replaced(
    facts: Triples, kg: KnowledgeGraph, choose: Callable[[Any, FloatArray], int], scorer: Scorer | None
) -> Triples:
    """Replace the tail or head of each fact, in turn, by an entity that train has there, so that none is a fact."""
    known, found = kg.known(), []
    sides: list[tuple[Side, int]] = [("tail", 2), ("head", 0)]
    for place, fact in enumerate(facts):
        side, column = sides[place % 2]
        query = Queries.from_triples(fact[None], side)
        usual = np.unique(kg.train[kg.train[:, 1] == fact[1], column])
        pool = usual[~known_mask(query, known, (1, len(kg.entities)))[0, usual]]
        if len(pool):
            scores = np.zeros(0) if scorer is None else scorer.score_all(query)[0]
            found.append([*fact[:column], choose(pool, scores), *fact[column + 1 :]])
    return np.array(found, dtype=np.int32)


def main() -> None:
    """Measure each graph, and print how accurate each way is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=["repodb", "codex-s"])
    parser.add_argument("--folder", type=Path, help="where the runs are kept; what is there is not fitted again")
    parser.add_argument("--name", default="verdicts", help="of the file in bench/results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        found = {name: measure(name, folder) for name in arguments.graphs}
    for name, figures in found.items():
        for way, of in figures["judged by"].items():
            shown = "; ".join(
                f"{what}: {of[what]['accuracy']:.3f}, F1 {of[what]['F1']:.3f}" for what in ("hard", "random")
            )
            print(f"{name}, {way}: accuracy on {shown}")
    gains = {
        f"{name}: points of accuracy above before,": 100
        * (of["judged by"]["verdicts"]["hard"]["accuracy"] - of["judged by"]["before"]["hard"]["accuracy"])
        for name, of in found.items()
    }
    report(arguments.name, gains, {"graphs": found}, ["numpy", "scipy", "torch"])


if __name__ == "__main__":
    main()
