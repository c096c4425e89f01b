"""The knowledge graph, and the problems its owner should know about before trusting metrics measured on it."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from cascader.display import html_table
from cascader.errors import DataError
from cascader.graph.arrays import IntArray, Triples, frozen_triples, is_among, triple_keys
from cascader.graph.names import CLOSEST, NameIndex
from cascader.graph.queries import KnownAnswers, Queries, Side
from cascader.wording import counted

SplitName = Literal["train", "valid", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "valid", "test")
_HELD_BACK: tuple[SplitName, ...] = ("valid", "test")


class Entity(NamedTuple):
    """A node of the graph; language models read its name, description and type.

    >>> Entity("Q18216", "aspirin", "a medication against pain").name
    'aspirin'
    """

    id: str
    name: str
    description: str = ""
    type: str = ""


class Relation(NamedTuple):
    """A kind of edge, with the name that language models read.

    >>> Relation("P2175", "medical condition treated").id
    'P2175'
    """

    id: str
    name: str


_Thing = TypeVar("_Thing", Entity, Relation)


@dataclass(frozen=True, eq=False, repr=False)
class KnowledgeGraph:
    """Entities, relations, and triples in train, valid and test; immutable.

    White space around an id, a name or a description is no part of it, as in a file.

    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "headache"), ("aspirin", "treats", "fever")])
    >>> kg.entity_index("Aspirin")
    0
    >>> kg
    KnowledgeGraph('graph', 3 entities, 1 relation, 2/0/0 triples)
    """

    name: str
    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    train: Triples
    valid: Triples
    test: Triples

    def __post_init__(self) -> None:
        object.__setattr__(self, "entities", _stripped(self.entities))
        object.__setattr__(self, "relations", _stripped(self.relations))
        for split in SPLITS:
            triples = frozen_triples(getattr(self, split))
            object.__setattr__(self, split, triples)
            self._check_indices(split, triples)
        _check_named("entity", self.entities)
        _check_named("relation", self.relations)
        self._check_no_overlap()

    @classmethod
    def from_triples(
        cls,
        train: Iterable[tuple[str, str, str]],
        valid: Iterable[tuple[str, str, str]] = (),
        test: Iterable[tuple[str, str, str]] = (),
        name: str = "graph",
    ) -> "KnowledgeGraph":
        """Build a graph from triples of names, which become the ids, indexed in order of first appearance.

        White space around a name is no part of it, as in a file.
        """
        entities: dict[str, int] = {}
        relations: dict[str, int] = {}

        def indexed(triples: Iterable[tuple[str, str, str]]) -> Triples:
            rows = [
                (
                    entities.setdefault(head.strip(), len(entities)),
                    relations.setdefault(relation.strip(), len(relations)),
                    entities.setdefault(tail.strip(), len(entities)),
                )
                for head, relation, tail in triples
            ]
            return frozen_triples(rows)

        splits = [indexed(triples) for triples in (train, valid, test)]
        return cls(name, tuple(Entity(e, e) for e in entities), tuple(Relation(r, r) for r in relations), *splits)

    def __repr__(self) -> str:
        relations = f"{counted(len(self.relations), 'relation')}"
        triples = "/".join(f"{len(self.split(split)):,}" for split in SPLITS)
        return f"KnowledgeGraph({self.name!r}, {counted(len(self.entities), 'entity')}, {relations}, {triples} triples)"

    def _repr_html_(self) -> str:
        counts = [len(self.entities), len(self.relations), *(len(self.split(split)) for split in SPLITS)]
        rows = [[self.name, *(f"{count:,}" for count in counts)]]
        return html_table(["graph", "entities", "relations", *SPLITS], rows)

    def split(self, split: SplitName) -> Triples:
        """The triples of one split; shape (triples, 3)."""
        if split not in SPLITS:
            raise DataError(f"there is no split {split!r}. Choose one of: {', '.join(SPLITS)}.")
        triples: Triples = getattr(self, split)
        return triples

    def triples(self, splits: Sequence[SplitName] = SPLITS) -> Triples:
        """The triples of several splits, one after the other; shape (triples, 3)."""
        return np.concatenate([self.split(split) for split in splits] or [self.train[:0]])

    def sample(self, split: SplitName, count: int, seed: int) -> Triples:
        """At most `count` random triples of a split, in their original order; shape (triples, 3)."""
        triples = self.split(split)
        if len(triples) <= count:
            return triples
        return triples[np.sort(np.random.default_rng(seed).choice(len(triples), count, replace=False))]

    def known(self, splits: Sequence[SplitName] = SPLITS) -> KnownAnswers:
        """The true answers that `splits` hold."""
        if tuple(splits) not in self._known:
            self._known[tuple(splits)] = KnownAnswers(self.triples(splits), len(self.entities), len(self.relations))
        return self._known[tuple(splits)]

    @cached_property
    def _known(self) -> dict[tuple[SplitName, ...], KnownAnswers]:
        """What `known` has indexed so far: a graph never changes."""
        return {}

    def known_before(self, split: SplitName) -> KnownAnswers:
        """The true answers that may be used when `split` is asked: those of the splits before it.

        That is train for valid, train and valid for test, and nothing for train.

        >>> kg = KnowledgeGraph.from_triples([("a", "r", "b")], valid=[("a", "r", "c")], test=[("a", "r", "d")])
        >>> [kg.known_before(split).of(kg.query("a", "r"))[0].tolist() for split in ("train", "valid", "test")]
        [[], [1], [1, 2]]
        """
        self.split(split)  # an unknown name is an error
        return self.known(SPLITS[: SPLITS.index(split)])

    def entity_index(self, text: str, *, closest: int = CLOSEST) -> int:
        """The index of the entity with this id or name; if there is none, the error suggests `closest` names."""
        return self._entity_names.index(text, closest)

    def relation_index(self, text: str, *, closest: int = CLOSEST) -> int:
        """The index of the relation with this id or name; if there is none, the error suggests `closest` names."""
        return self._relation_names.index(text, closest)

    def closest_entities(self, text: str, limit: int = 5) -> list[int]:
        """The entities whose names are most similar to `text`, best first."""
        return self._entity_names.closest(text, limit)

    def query(self, anchor: str, relation: str, side: Side = "tail") -> Queries:
        """Ask (anchor, relation, ?), or (?, relation, anchor) with `side="head"`, knowing all that the graph knows."""
        if side not in ("head", "tail"):
            raise DataError(f"there is no side {side!r}. Choose the one to predict: head or tail.")
        return Queries(
            anchors=np.array([self.entity_index(anchor)], dtype=np.int32),
            relations=np.array([self.relation_index(relation)], dtype=np.int32),
            predicts_tail=np.array([side == "tail"]),
            known=self.known(),
        )

    def degrees(self, splits: Sequence[SplitName] = ("train",)) -> IntArray:
        """The number of triples of `splits` that each entity appears in; shape (entities,)."""
        return np.bincount(self.triples(splits)[:, [0, 2]].ravel(), minlength=len(self.entities))

    @cached_property
    def data_hash(self) -> str:
        """The sha256 of everything but the name: graphs with the same hash have the same texts and triples."""
        digest = hashlib.sha256()

        def add(content: bytes) -> None:
            # Each part is preceded by its length; otherwise two different graphs could yield the same bytes.
            digest.update(len(content).to_bytes(8, "little"))
            digest.update(content)

        for things in (self.entities, self.relations):
            add(str(len(things)).encode())
            for text in (text for thing in things for text in thing):
                add(text.encode())
        for split in SPLITS:
            add(self.split(split).astype("<i4").tobytes())
        return digest.hexdigest()

    @cached_property
    def _entity_names(self) -> NameIndex:
        return NameIndex("entity", [e.id for e in self.entities], [e.name for e in self.entities])

    @cached_property
    def _relation_names(self) -> NameIndex:
        return NameIndex("relation", [r.id for r in self.relations], [r.name for r in self.relations])

    def _check_indices(self, split: SplitName, triples: Triples) -> None:
        limits = np.array([len(self.entities), len(self.relations), len(self.entities)])
        bad = np.flatnonzero(((triples < 0) | (triples >= limits)).any(axis=1))
        if len(bad):
            raise DataError(
                f"triple {bad[0]} of {split} is {triples[bad[0]].tolist()}, but the graph has "
                f"{counted(len(self.entities), 'entity')} and {counted(len(self.relations), 'relation')}. Use indices "
                "below those counts."
            )

    def _check_no_overlap(self) -> None:
        keys = {split: triple_keys(self.split(split), len(self.entities), len(self.relations)) for split in SPLITS}
        for split, later in combinations(SPLITS, 2):
            shared = np.flatnonzero(is_among(keys[later], keys[split]))
            if len(shared):
                head, relation, tail = self.split(later)[shared[0]]
                raise DataError(
                    f"{split} and {later} share {counted(len(shared), 'triple')}, the first: "
                    f"{self.entities[head].id} {self.relations[relation].id} {self.entities[tail].id}. "
                    "Remove them from one of the two: a model must not be tested on triples it was trained on."
                )


def _stripped(things: Iterable[_Thing]) -> tuple[_Thing, ...]:
    texts = ((each, tuple(map(str.strip, each))) for each in things)
    return tuple(each if each == stripped else type(each)(*stripped) for each, stripped in texts)


def _check_named(kind: str, named: Sequence[Entity | Relation]) -> None:
    """Refuse what no file of a run could hold, where the caller can still tell whence it comes, and equal ids."""
    for place, each in enumerate(named):
        if not each.id.strip():
            raise DataError(f"{kind} {place} has the id {each.id!r}, expected some text. Name it, or leave it out.")
        if "\0" in "".join(each):
            found = next(text for text in each if "\0" in text)
            raise DataError(
                f"{kind} {place}, {each.id[:100]!r}, has a NUL character in {found[:100]!r}, expected text. Remove it."
            )
    _check_unique(kind, [each.id for each in named])


def _check_unique(kind: str, ids: list[str]) -> None:
    if len(set(ids)) < len(ids):
        twice = next(id_ for id_, count in Counter(ids).items() if count > 1)
        raise DataError(f"{kind} id {twice!r} occurs more than once. Ids must be unique.")


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
        yield f"{counted(unlinked, 'entity')} {'appears' if unlinked == 1 else 'appear'} in no triple."
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
        leaking = int(is_among(_pair_keys(kg, triples[:, [0, 2]]), reversed_train).sum())
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
    heads, relations, tails = (np.count_nonzero(np.bincount(column)) for column in triples.T)
    if relations > max(heads, tails):
        yield (
            f"there are more relations ({relations:,}) than heads ({heads:,}) or tails ({tails:,}): "
            "are the columns in the order head, relation, tail?"
        )
