"""What a graph says of an anchor and a candidate, as numbers to learn from, and as reasons in words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from cascader.graph import IntArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.graph.arrays import Array, offsets_of, positions_within
from cascader.scoring.scorer import Reason
from cascader.wording import counted

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: The smallest count of each bin after the first, which is for no fact at all.
BINS = np.array([1, 2, 3, 5, 9])
#: Log-odds from which a part is worth a sentence: it makes an answer e times as probable, or as improbable.
_CLEAR = 1.0
_FACTS = 3
_NAME_LENGTH = 80

Fact = tuple[int, int, int]


def bins_of(counts: IntArray) -> IntArray:
    """The bin of each count, from 0 for no fact to `len(BINS)`.

    >>> bins_of(np.array([0, 1, 4, 200])).tolist()
    [0, 1, 3, 5]
    """
    return np.searchsorted(BINS, counts, side="right")


def features_of(directed: IntArray, counts: IntArray) -> IntArray:
    """The feature of having that many facts, at least one, of each directed relation."""
    return directed * len(BINS) + bins_of(counts) - 1


@dataclass(frozen=True, eq=False)
class Links:
    """Some facts, each seen from one of its two entities."""

    rows: IntArray  # (links,) the position of the entity among those asked for
    answers: IntArray  # (links,) the entity at the other end
    directed: IntArray  # (links,) the directed relation that leads there


@dataclass(frozen=True, eq=False)
class Evidence:
    """What known facts say of every entity.

    >>> known = KnownAnswers(np.array([[0, 0, 1], [0, 0, 2]], dtype=np.int32), entity_count=3, relation_count=1)
    >>> Evidence.of(known).links_of(np.array([0])).answers.tolist()
    [1, 2]
    """

    counts: "csr_array"  # (2 × relations, entities) int32: the facts that an entity is the answer of
    features: "csr_array"  # (entities, 2 × relations × bins) float32: 1 where a count is in a bin; none for no fact
    _offsets: IntArray  # (entities + 1,) where the links of each entity start
    _answers: IntArray  # (2 × facts,)
    _directed: IntArray  # (2 × facts,)

    @classmethod
    def of(cls, known: KnownAnswers) -> "Evidence":
        """The evidence that these facts give; made once, for as long as they exist."""
        if known not in _MADE:
            _MADE[known] = cls._made(known)
        return _MADE[known]

    @classmethod
    def _made(cls, known: KnownAnswers) -> "Evidence":
        from scipy.sparse import csr_array

        counts = known.counts.tocoo()
        shape = (known.entity_count, counts.shape[0] * len(BINS))
        ones = np.ones(counts.nnz, dtype=np.float32)
        features = csr_array((ones, (counts.col, features_of(counts.row, counts.data))), shape=shape)
        queries = Queries.from_triples(known.triples)
        order = np.argsort(queries.anchors, kind="stable")
        return cls(
            known.counts,
            features,
            offsets_of(np.bincount(queries.anchors, minlength=known.entity_count)),
            queries.required_golds()[order],
            queries.directed_relations(known.relation_count)[order],
        )

    def count(self, directed: IntArray, entities: IntArray) -> IntArray:
        """How many facts of a directed relation each entity is the answer of; shape as both."""
        return values_at(self.counts, directed, entities)

    def links_of(self, entities: IntArray) -> Links:
        """The facts of each entity, except those that link it to itself."""
        starts = self._offsets[entities]
        counts = self._offsets[entities + 1] - starts
        places = np.repeat(starts, counts) + positions_within(counts)
        rows = np.repeat(np.arange(len(entities)), counts)
        others = self._answers[places] != entities[rows]
        return Links(rows[others], self._answers[places][others], self._directed[places][others])


def values_at(matrix: "csr_array", rows: IntArray, columns: IntArray) -> Array:
    """The values of a sparse matrix with sorted indices at pairs of a row and a column; shape (pairs,).

    By binary search in all rows at once: scipy's own look-up scans a row from its beginning, once for each pair.
    """
    if matrix.nnz == 0:
        return np.zeros(len(rows), dtype=matrix.dtype)
    low, end = (matrix.indptr[rows + step].astype(np.int64) for step in (0, 1))
    high, last = end, matrix.nnz - 1
    while (is_open := low < high).any():
        middle = (low + high) // 2
        is_below = is_open & (matrix.indices[np.minimum(middle, last)] < columns)
        low, high = np.where(is_below, middle + 1, low), np.where(is_open & ~is_below, middle, high)
    places = np.minimum(low, last)
    is_found = (low < end) & (matrix.indices[places] == columns)
    return np.where(is_found, matrix.data[places], matrix.dtype.type(0))


#: By what they were made from, and forgotten with it.
_MADE: WeakKeyDictionary[KnownAnswers, Evidence] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Judgment:
    """What each part says of one entity as the answer to one question, in log-odds."""

    completeness: float
    anchor: float  # 0 unless the entity is the anchor
    signature: float
    typical: IntArray  # the directed relations that make it like the answers, most telling first
    untypical: IntArray  # those that set it apart from them
    linked: float  # of the strongest link; 0 if there is none
    link: int  # the directed relation of that link


@dataclass(frozen=True, eq=False)
class Wording:
    """The words for a judgment: a graph's names, and the facts that are known when the question is asked."""

    kg: KnowledgeGraph
    known: KnownAnswers
    question: Queries  # one query
    answer: int

    def reasons(self, judgment: Judgment) -> list[Reason]:
        """What speaks clearly for the answer or against it, strongest first."""
        found = [
            *self._of_completeness(judgment.completeness),
            *self._of_anchor(judgment.anchor),
            *self._of_signature(judgment),
            *self._of_link(judgment.linked, judgment.link),
        ]
        return sorted(found, key=lambda reason: -reason.strength)

    def _of_completeness(self, log_odds: float) -> Iterator[Reason]:
        others = self._other_anchors()
        if abs(log_odds) < _CLEAR or len(others) == 0:
            return
        some = _listed([self._entity(other) for other in others[:_FACTS]], len(others))
        text = self._having_many(len(others), some) if log_odds > 0 else self._having_enough(len(others), some)
        facts = [self._fact(self._directed, other, self.answer) for other in others[:_FACTS]]
        yield _reason(text, facts, log_odds)

    def _having_many(self, count: int, some: str) -> str:
        return f"{self._already(count, some)}, and entities with so many often have further ones"

    def _having_enough(self, count: int, some: str) -> str:
        counts = Evidence.of(self.known).counts[[self._directed]].data  # of the entities that have any
        share, most = _percent((counts <= count).mean()), "one" if count == 1 else f"{count:,}"
        return f"{self._already(count, some)}, and {share} of entities with any have at most {most}"

    def _already(self, count: int, some: str) -> str:
        end, link = ("head", "to") if self._asks_head else ("tail", "from")
        facts = counted(count, f"{self._asked} fact")
        return f"{self._entity(self.answer)} is already the {end} of {facts} ({link} {some})"

    def _of_anchor(self, log_odds: float) -> Iterator[Reason]:
        if abs(log_odds) < _CLEAR:
            return
        heads, _, tails = self.known.triples[self.known.triples[:, 1] == self._relation].T
        loops = heads[(heads == tails) & (heads != self.answer)]
        if len(loops) == 0 and log_odds > 0:
            return  # those of train are not known here
        if len(loops) == 0:
            text = "it is the entity asked about, and no fact of this relation links an entity to itself"
        else:
            share = _percent(len(loops) / len(heads))
            text = f"it is the entity asked about, and {share} of the facts of {self._asked} link an entity to itself"
        facts = [(int(entity), self._relation, int(entity)) for entity in loops[:_FACTS]]
        yield _reason(text, facts, log_odds)

    def _of_signature(self, judgment: Judgment) -> Iterator[Reason]:
        telling = (judgment.typical if judgment.signature > 0 else judgment.untypical)[:2]
        if abs(judgment.signature) < _CLEAR or (judgment.signature > 0 and len(telling) == 0):
            return
        end = "head" if self._asks_head else "tail"
        what = " and ".join(f"{self._name(directed)} as its {self._end(directed)}" for directed in telling)
        if judgment.signature > 0:
            text = f"it takes part in {what}, like others that are the {end} of {self._asked}"
        elif what:
            text = f"it takes part in {what}, and hardly anything like it is the {end} of {self._asked}"
        else:
            text = f"it takes part in nothing that is typical of the {end} of {self._asked}"
        facts = [fact for directed in telling for fact in self._facts_of(int(directed))[:1]]
        yield _reason(text, facts, judgment.signature)

    def _of_link(self, log_odds: float, link: int) -> Iterator[Reason]:
        if abs(log_odds) < _CLEAR:
            return
        head, relation, tail = fact = self._fact(link, self._anchor, self.answer)
        says = f"{self._entity(head)} {self._name(relation)} {self._entity(tail)}"
        text = f"it is linked to {self._entity(self._anchor)} already: {says}"
        if log_odds < 0:
            text += f", and such pairs are hardly ever linked by {self._asked} as well"
        yield _reason(text, [fact], log_odds)

    # The question.

    @property
    def _anchor(self) -> int:
        return int(self.question.anchors[0])

    @property
    def _relation(self) -> int:
        return int(self.question.relations[0])

    @property
    def _asks_head(self) -> bool:
        return not self.question.predicts_tail[0]

    @property
    def _directed(self) -> int:
        return int(self.question.directed_relations(self.known.relation_count)[0])

    @property
    def _asked(self) -> str:
        return self._name(self._directed)

    # Facts.

    def _other_anchors(self) -> list[int]:
        """The anchors, other than the question's, of which the entity is a known answer."""
        turned = Queries(np.array([self.answer]), self.question.relations, ~self.question.predicts_tail)
        return [int(entity) for entity in self.known.of(turned).ids if entity != self._anchor]

    def _facts_of(self, directed: int) -> list[Fact]:
        """The facts of a directed relation that the entity is the answer of."""
        links = Evidence.of(self.known).links_of(np.array([self.answer]))
        inverse = (directed + self.known.relation_count) % (2 * self.known.relation_count)
        return [self._fact(directed, int(other), self.answer) for other in links.answers[links.directed == inverse]]

    def _fact(self, directed: int, anchor: int, answer: int) -> Fact:
        is_inverse, relation = divmod(directed, self.known.relation_count)
        return (answer, relation, anchor) if is_inverse else (anchor, relation, answer)

    # Names, which may be anything.

    def _entity(self, entity: int) -> str:
        return _plain(self.kg.entities[entity].name)

    def _name(self, directed: int) -> str:
        return f"'{_plain(self.kg.relations[directed % self.known.relation_count].name)}'"

    def _end(self, directed: int) -> str:
        return "head" if directed >= self.known.relation_count else "tail"


def _reason(text: str, facts: Sequence[Fact], log_odds: float) -> Reason:
    return Reason(text, tuple(facts), strength=abs(log_odds), speaks_for=log_odds > 0)


def _plain(name: str) -> str:
    """A name on one line, without control characters, and not too long."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in name).split())
    return text if len(text) <= _NAME_LENGTH else f"{text[: _NAME_LENGTH - 1]}…"


def _listed(names: Sequence[str], count: int) -> str:
    more = count - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")


def _percent(share: float) -> str:
    """A share in words, never rounded to all or nothing."""
    if 0 < share < 0.01:
        return "less than 1 %"
    return f"{min(99, round(100 * share)) if share < 1 else 100} %"
