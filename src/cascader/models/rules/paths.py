"""Which chains of facts link the two ends of a fact: found from both ends, and counted."""

from typing import NamedTuple

import numpy as np

from cascader.graph import IntArray
from cascader.models.rules.facts import Facts

#: Edges looked at for each end of a fact, where chains of two and of three facts are looked for.
_FAN = {2: 400, 3: 60}
#: Facts whose ends are linked at the same time, so that memory is bounded.
_FACTS_AT_ONCE = 250


def lookups(facts: Facts, pairs: IntArray, length: int) -> IntArray:
    """How many pairs of entities are looked up to find the chains of each fact; shape (facts,)."""
    head_degrees, tail_degrees = (facts.degrees[ends].clip(max=_FAN.get(length, 1)) for ends in pairs.T)
    return head_degrees * tail_degrees if length == 3 else np.minimum(head_degrees, tail_degrees)


class Found(NamedTuple):
    """Chains that link the ends of facts: which fact, and the directed relations from its first end to its second."""

    places: IntArray  # (found,)
    steps: IntArray  # (found, length)


def frequent_chains(
    facts: Facts, relation: int, pairs: IntArray, length: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """The chains of one length that link the pairs of a relation, and how many pairs each links, the most first.

    `pairs` are the heads and tails of facts, (facts, 2). Shapes: (chains, length) and (chains,).
    """
    base = facts.direction_count ** np.arange(length - 1, -1, -1)
    blocks = [pairs[at : at + _FACTS_AT_ONCE] for at in range(0, len(pairs), _FACTS_AT_ONCE)]
    # Each chain of each pair counts once, however many entities it leads over.
    codes = [np.empty(0, dtype=np.int64)]
    for block in blocks:
        found = _links(facts, relation, block, length, rng)
        highest = facts.direction_count**length
        codes.append(np.unique(found.places * highest + found.steps @ base) % highest)
    chains, counts = np.unique(np.concatenate(codes), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return chains[order, None] // base % facts.direction_count, counts[order]


def _links(facts: Facts, relation: int, pairs: IntArray, length: int, rng: np.random.Generator) -> Found:
    heads, tails = pairs.T
    if length == 1:
        return _direct(facts, relation, heads, tails)
    if length == 2:
        return _over_one(facts, heads, tails, rng)
    return _over_two(facts, heads, tails, rng)


def _direct(facts: Facts, relation: int, heads: IntArray, tails: IntArray) -> Found:
    places, edges = facts.edges_between(heads, tails)
    steps = facts.relations[edges]
    is_other = steps != relation
    return Found(places[is_other], steps[is_other, None])


def _over_one(facts: Facts, heads: IntArray, tails: IntArray, rng: np.random.Generator) -> Found:
    """From the end with fewer edges, so that no hub is walked away from."""
    is_swapped = facts.degrees[heads] > facts.degrees[tails]
    starts, ends = np.where(is_swapped, tails, heads), np.where(is_swapped, heads, tails)
    places, first = facts.edges_from(starts, _FAN[2], rng)
    middle = facts.targets[first]
    pair, second = facts.edges_between(middle, ends[places])
    steps = np.column_stack([facts.relations[first[pair]], facts.relations[second]])
    backward = facts.inverses(steps[:, ::-1])
    return Found(places[pair], np.where(is_swapped[places[pair], None], backward, steps))


def _over_two(facts: Facts, heads: IntArray, tails: IntArray, rng: np.random.Generator) -> Found:
    """Every neighbor of one end with every neighbor of the other."""
    places, first = facts.edges_from(heads, _FAN[3], rng)
    keep = facts.targets[first] != tails[places]
    places, first = places[keep], first[keep]
    there, last = facts.edges_from(tails, _FAN[3], rng)
    keep = facts.targets[last] != heads[there]
    there, last = there[keep], last[keep]
    one, other = _same_place(places, there)
    pair, second = facts.edges_between(facts.targets[first[one]], facts.targets[last[other]])
    one, other = one[pair], other[pair]
    to_tail = facts.inverses(facts.relations[last[other]])
    steps = np.column_stack([facts.relations[first[one]], facts.relations[second], to_tail])
    return Found(places[one], steps)


def _same_place(places: IntArray, there: IntArray) -> tuple[IntArray, IntArray]:
    """All pairs of positions at which two ascending arrays hold the same number; both (pairs,)."""
    first = np.searchsorted(there, places)
    counts = np.searchsorted(there, places, side="right") - first
    ones = np.repeat(np.arange(len(places)), counts)
    others = np.arange(len(ones)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    return ones, others
