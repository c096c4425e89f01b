"""Array types by meaning, and arrays that nobody can write to."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]
#: One row a triple: head, relation, tail. Shape (triples, 3), int32.
Triples = NDArray[np.int32]


def frozen(values: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
    """A read-only array of `dtype`; the caller's own array stays writable."""
    array = np.array(values, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def frozen_triples(values: ArrayLike) -> Triples:
    """A read-only (triples, 3) array, also for no triples at all."""
    return frozen(np.asarray(values, dtype=np.int32).reshape(-1, 3), np.int32)


def triple_keys(triples: Triples, entity_count: int, relation_count: int) -> NDArray[np.int64]:
    """One number a triple, so that triples can be compared and sorted as numbers; shape (triples,)."""
    heads, relations, tails = triples.astype(np.int64).T
    return (heads * relation_count + relations) * entity_count + tails
