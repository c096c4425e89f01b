"""Problems in a graph that its owner should know about before trusting metrics measured on it."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from cascader.graph.arrays import IntArray
from cascader.graph.knowledge_graph import SPLITS, KnowledgeGraph, SplitName

_HELD_BACK: tuple[SplitName, ...] = ("valid", "test")


def findings(kg: KnowledgeGraph) -> list[str]:
    """What is missing, odd or leaking in a graph, one sentence each; none for a clean graph."""
    return [*_in_texts(kg), *_in_splits(kg), *_in_leaks(kg), *_in_columns(kg)]


def _in_texts(kg: KnowledgeGraph) -> Iterator[str]:
    count = len(kg.entities)
    silent = sum(not entity.description for entity in kg.entities)
    if silent:
        yield f"{silent:,} of {count:,} entities have no description: language models see only their names."
    unnamed = sum(entity.name == entity.id for entity in kg.entities)
    if unnamed == count:
        yield "entities are named by their ids: add an entities table if those ids are not readable names."
    shared = {name: n for name, n in Counter(entity.name for entity in kg.entities).items() if n > 1}
    if shared:
        example = next(iter(shared))
        yield f"{sum(shared.values()):,} entities share their name with another, such as {example!r}: use their ids."


def _in_splits(kg: KnowledgeGraph) -> Iterator[str]:
    unlinked = int((kg.degrees(SPLITS) == 0).sum())
    if unlinked:
        yield f"{unlinked:,} entities appear in no triple."
    seen = kg.degrees() > 0
    for split in _HELD_BACK:
        triples = kg.split(split)
        unseen = int((~seen[triples[:, [0, 2]]]).any(axis=1).sum())
        if len(triples) == 0:
            yield f"{split} is empty: nothing can be {'tuned' if split == 'valid' else 'measured'} on it."
        elif unseen:
            yield f"{unseen:,} of {len(triples):,} {split} triples have an entity that does not appear in train."


def _in_leaks(kg: KnowledgeGraph) -> Iterator[str]:
    reversed_train = _pair_keys(kg, kg.train[:, [2, 0]])
    for split in _HELD_BACK:
        triples = kg.split(split)
        leaking = int(np.isin(_pair_keys(kg, triples[:, [0, 2]]), reversed_train).sum())
        if leaking:
            yield (
                f"{leaking:,} of {len(triples):,} {split} triples link two entities that train links in the opposite "
                "direction: symmetric or inverse relations may leak answers."
            )


def _pair_keys(kg: KnowledgeGraph, pairs: IntArray) -> IntArray:
    """One number per pair of entities; `pairs` is (pairs, 2)."""
    return pairs[:, 0].astype(np.int64) * len(kg.entities) + pairs[:, 1]


def _in_columns(kg: KnowledgeGraph) -> Iterator[str]:
    triples = kg.triples()
    heads, relations, tails = (len(np.unique(column)) for column in triples.T)
    if relations > max(heads, tails):
        yield (
            f"there are more relations ({relations:,}) than heads ({heads:,}) or tails ({tails:,}): "
            "are the columns in the order head, relation, tail?"
        )
