"""Some of the valid triples: a look at them while something is trained need not be at all."""

import numpy as np

from cascader.graph import Triples


def sampled(triples: Triples, count: int, seed: int) -> Triples:
    """At most `count` triples, in their order."""
    if len(triples) <= count:
        return triples
    return triples[np.sort(np.random.default_rng(seed).choice(len(triples), count, replace=False))]
