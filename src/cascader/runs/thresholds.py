"""Choose the probability from which a triple is judged to be true."""

from dataclasses import replace

import numpy as np

from cascader.errors import DataError
from cascader.graph import FloatArray, KnowledgeGraph, KnownAnswers, Queries, Triples
from cascader.runs.predictor import Predictor
from cascader.tuning.calibration import Threshold

_MOST_TRIPLES = 500
#: Each corrupted triple asks a question that is not in valid: if pairs must be read for it, fewer have to do.
_MOST_TRIPLES_READ = 50


def with_threshold(predictor: Predictor, *, seed: int = 0) -> Predictor:
    """Return the same predictor with the threshold that best separates valid triples from as many corrupted ones.

    The threshold has the highest accuracy on one half of them; its accuracy is measured on the other half.
    """
    kg, calibration = predictor.kg, predictor.calibration
    if calibration is None:
        raise DataError(f"{kg.name} has no valid triples to choose a threshold on. Fit again with some held out.")
    draw = np.random.default_rng(seed)
    reads = any(tier.reads_pairs for tier in predictor.cascade.tiers)
    true = draw.permutation(kg.valid)[: _MOST_TRIPLES_READ if reads else _MOST_TRIPLES]
    known = kg.known_before("valid")
    of_true = predictor.probabilities_of(true, known)
    of_false = predictor.probabilities_of(corrupted(true, kg, draw), known)
    middle = (len(true) + 1) // 2
    chosen = _most_accurate(of_true[:middle], of_false[:middle])
    judged = slice(middle if len(true) > 1 else 0, None)
    accuracy = _accuracy(chosen, of_true[judged], of_false[judged])
    threshold = Threshold(chosen, round(accuracy, 6), 2 * len(true))
    return replace(predictor, calibration=replace(calibration, threshold=threshold))


def corrupted(triples: Triples, kg: KnowledgeGraph, draw: np.random.Generator) -> Triples:
    """Replace the tail or head of each triple, alternately, preferring entities that train has there; never a fact."""
    facts = kg.known_before("test")
    rows = [_corrupted(triple, place % 2 == 0, kg, facts, draw) for place, triple in enumerate(triples)]
    return np.array(rows, dtype=np.int32).reshape(-1, 3)


def _corrupted(
    triple: Triples, changes_tail: bool, kg: KnowledgeGraph, facts: KnownAnswers, draw: np.random.Generator
) -> Triples:
    column = 2 if changes_tail else 0
    query = Queries.from_triples(triple[None], "tail" if changes_tail else "head")
    likely = np.unique(kg.train[kg.train[:, 1] == triple[1], column])
    taken = facts.of(query)[0]
    pool = np.setdiff1d(likely, taken)
    if len(pool) == 0:
        pool = np.setdiff1d(np.arange(len(kg.entities)), taken)
    changed = triple.copy()
    if len(pool):  # otherwise all answers are facts, and the triple cannot be corrupted
        changed[column] = draw.choice(pool)
    return changed


def _most_accurate(of_true: FloatArray, of_false: FloatArray) -> float:
    """Find the most accurate midpoint between two adjacent probabilities; ties go to the lowest."""
    values = np.unique(np.concatenate([of_true, of_false]))
    tried = np.concatenate([values[:1], (values[:-1] + values[1:]) / 2])
    return float(max(tried, key=lambda threshold: _accuracy(threshold, of_true, of_false)))


def _accuracy(threshold: float, of_true: FloatArray, of_false: FloatArray) -> float:
    return float(((of_true >= threshold).mean() + (of_false < threshold).mean()) / 2)
