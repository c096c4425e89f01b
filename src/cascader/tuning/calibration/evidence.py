"""What speaks for an answer, in numbers that can be compared between questions.

Scores cannot: a cascade lifts and scales those of each question as it likes.
"""

import numpy as np
from scipy.special import logsumexp

from cascader.graph import BoolArray, FloatArray

#: The columns of the evidence. Those of an entity rise with its score; the last one is of the question as a whole.
EVIDENCE = ("share", "rank", "answers")
RISING = (True, True, False)
#: Deviations of a question's scores are stretched so before they compete: without, its best answers look alike.
_SHARPNESS = 2.0


def evidence(scores: FloatArray, is_known: BoolArray) -> FloatArray:
    """The evidence for every entity as the answer of one question; (entities, 3) from two times (entities,).

    The logarithm of its share among all that is not known, after the scores are brought to one deviation; minus the
    logarithm of its rank there; and how many answers are known already. What is known gets what it would have.

    >>> evidence(np.array([3.0, 1.0, 2.0]), np.array([False, False, True])).round(2).tolist()
    [[-0.02, -0.0, 0.69], [-4.02, -0.69, 0.69], [-2.02, -0.41, 0.69]]
    """
    answers = np.full(len(scores), np.log1p(is_known.sum()))
    if is_known.all():
        return np.stack([np.zeros(len(scores)), np.zeros(len(scores)), answers], axis=1)
    scores = scores.astype(np.float64)
    return np.stack([_log_share(scores, ~is_known), -np.log(_rank(scores, ~is_known)), answers], axis=1)


def _log_share(scores: FloatArray, is_new: BoolArray) -> FloatArray:
    centre, spread = scores[is_new].mean(), scores[is_new].std()
    is_constant = spread <= 1e-6 * (1 + abs(centre))  # what float32 sees as one and the same score
    stretched = _SHARPNESS * (scores - centre) / (1 if is_constant else spread)
    # No share is more than all; only what is known and would be ahead of everyone comes near that.
    return np.minimum(stretched - logsumexp(stretched[is_new]), 0.0)


def _rank(scores: FloatArray, is_new: BoolArray) -> FloatArray:
    """The mean rank among what is new: equal scores must have equal probabilities."""
    ascending = np.sort(scores[is_new])
    not_above = np.searchsorted(ascending, scores, side="right")
    equal = not_above - np.searchsorted(ascending, scores, side="left")
    return len(ascending) - not_above + (equal + 1) / 2
