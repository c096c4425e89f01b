"""Batches of texts of about the same length, so that little is spent on padding."""

from collections.abc import Iterator

import numpy as np

from cascader.graph import IntArray
from cascader.graph.ragged import positions_within


def token_batches(lengths: IntArray, budget: int) -> Iterator[IntArray]:
    """Yield places of texts, longest first, such that a batch padded to its longest text has at most `budget` tokens.

    The longest come first, so that a lack of memory shows at once.

    >>> [batch.tolist() for batch in token_batches(np.array([2, 9, 3, 2]), budget=6)]
    [[1], [2, 0], [3]]
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, budget // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def padded(offsets: IntArray, texts: IntArray, longest: int) -> tuple[IntArray, IntArray]:
    """Where the tokens of ragged texts go in a padded block: (places in the flat array, places in the flat block)."""
    counts = offsets[texts + 1] - offsets[texts]
    within = positions_within(counts)
    from_flat = np.repeat(offsets[texts], counts) + within
    to_block = np.repeat(np.arange(len(texts)) * longest, counts) + within
    return from_flat, to_block
