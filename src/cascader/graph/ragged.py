"""Ragged arrays: lists of different lengths stored one after the other, with the offsets where each one starts."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascader.graph.arrays import IntArray


def offsets_of(counts: ArrayLike) -> NDArray[np.int64]:
    """Where lists of these lengths start and end; shape (lists + 1,).

    >>> offsets_of([2, 0, 1]).tolist()
    [0, 2, 2, 3]
    """
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def positions_within(counts: IntArray) -> NDArray[np.int64]:
    """The position of each element in its own list, for lists of these lengths; shape (elements,).

    >>> positions_within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    offsets = offsets_of(counts)
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
