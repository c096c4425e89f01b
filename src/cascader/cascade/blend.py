"""Eq. 1 and Eq. 2 of the paper: the convex combination of an earlier and a later tier's scores."""

from dataclasses import dataclass

import numpy as np

from cascader.errors import SettingsError
from cascader.graph import BoolArray, FloatArray


@dataclass(frozen=True)
class Alpha:
    """The weight of the earlier tiers, by the side that is asked for; the later tier has the rest."""

    head: float
    tail: float

    def __post_init__(self) -> None:
        for side in ("head", "tail"):
            if not 0 <= getattr(self, side) <= 1:
                raise SettingsError(f"alpha for the {side} is {getattr(self, side)}, expected a number from 0 to 1.")

    @classmethod
    def of(cls, value: "float | Alpha") -> "Alpha":
        """The paper's single alpha is the same for both sides."""
        return value if isinstance(value, Alpha) else cls(value, value)

    def per_query(self, predicts_tail: BoolArray) -> FloatArray:
        """The weight for each query; shape (queries,)."""
        return np.where(predicts_tail, self.tail, self.head).astype(np.float32)


def blend(earlier: FloatArray, later: FloatArray, alpha: FloatArray) -> FloatArray:
    """Weigh two tiers' scores of the same candidates; `alpha` is (queries,) or one number a score.

    >>> blend(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), np.array([0.75])).tolist()
    [[0.75, 0.25]]
    """
    weights = alpha[:, None] if earlier.ndim > alpha.ndim else alpha
    return weights * earlier + (1 - weights) * later
