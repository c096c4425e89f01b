"""Array types named by meaning, and read-only arrays."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascader.errors import DataError

IntArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]
#: An array of any dtype.
Array = NDArray[Any]
#: One row per triple: head, relation, tail. Shape (triples, 3), int32.
Triples = NDArray[np.int32]


def frozen(values: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
    """A read-only array of `dtype`; the caller's own array stays writable."""
    array = np.array(values, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def frozen_triples(values: ArrayLike) -> Triples:
    """A read-only array of shape (triples, 3), even when there are no triples."""
    array = np.asarray(values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"triples have dtype {array.dtype}, expected integers: indices of entities and relations.")
    return frozen(array.reshape(-1, 3), np.int32)


def triple_keys(triples: Triples, entity_count: int, relation_count: int) -> NDArray[np.int64]:
    """One number per triple, so that triples can be compared and sorted as numbers; shape (triples,)."""
    if entity_count**2 * relation_count >= 2**63:
        raise DataError(
            f"{entity_count:,} entities and {relation_count:,} relations are too many: their triples cannot be "
            "numbered with 64 bits."
        )
    heads, relations, tails = triples.astype(np.int64).T
    return (heads * relation_count + relations) * entity_count + tails
