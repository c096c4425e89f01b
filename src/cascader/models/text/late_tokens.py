"""What late interaction keeps of texts: a row for each token, and which part of its text the token belongs to."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cascader.graph import IntArray, KnowledgeGraph
from cascader.graph.arrays import offsets_of, positions_within
from cascader.models.text.base_model import BaseModel
from cascader.models.text.split_encoder import FrozenLayers
from cascader.models.text.text_model import GraphTexts, Tokens

#: The parts of texts: [CLS], which stands for a text as a whole, names, descriptions, and the phrases of relations.
WHOLE, NAME, DESCRIPTION, PHRASE = range(4)
PARTS = 4
#: Texts that are read before their states are rounded to 16 bits: more would take up memory, fewer are slower to read.
_TEXTS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class TokenRows:
    """A row for each token of texts: those of text i are `rows[offsets[i]:offsets[i + 1]]`, [CLS] first.

    [SEP] has no row. So a text of n tokens has n + 1 rows, and one without words still has its [CLS].
    """

    offsets: IntArray  # (texts + 1,)
    rows: Tensor  # (tokens, width)
    parts: Tensor  # (tokens,) uint8

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> IntArray:
        """How many rows each text has; shape (texts,)."""
        return np.diff(self.offsets)

    def mapped(self, rows_of: Callable[["TokenRows"], Tensor]) -> "TokenRows":
        """The same tokens with what `rows_of` makes of their rows, some texts at a time, in 16 bits."""
        rows = [rows_of(self.take(texts)).half() for texts in _runs(len(self))]
        return self.with_rows(torch.cat(rows))

    def tensors(self) -> dict[str, Tensor]:
        """What is saved of them."""
        return {"offsets": torch.from_numpy(self.offsets), "rows": self.rows, "parts": self.parts}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor]) -> "TokenRows":
        """The inverse of `tensors`."""
        return cls(tensors["offsets"].numpy(), tensors["rows"], tensors["parts"])

    def with_rows(self, rows: Tensor) -> "TokenRows":
        """Other rows for the same tokens."""
        return TokenRows(self.offsets, rows, self.parts)

    def take(self, texts: IntArray) -> "TokenRows":
        """Some of the texts, in the order given."""
        counts = self.counts[texts]
        places = torch.from_numpy(np.repeat(self.offsets[texts], counts) + positions_within(counts))
        return TokenRows(offsets_of(counts), self.rows[places], self.parts[places])

    def padded(self, texts: IntArray) -> tuple[Tensor, Tensor]:
        """Where the rows of each text are, (texts, longest), and which of these places are tokens, not padding."""
        within, counts = np.arange(self.counts[texts].max(initial=1)), self.counts[texts][:, None]
        is_token = within < counts
        return torch.from_numpy(self.offsets[texts][:, None] + within * is_token), torch.from_numpy(is_token)


@dataclass(frozen=True, eq=False)
class LateTexts:
    """The tokens of a graph and their parts; as in embeddings, inverse relations come after the others."""

    entities: Tokens
    entity_parts: Tensor
    relations: Tokens  # (2 × relations)
    relation_parts: Tensor

    @classmethod
    def of(cls, kg: KnowledgeGraph, base: BaseModel, max_tokens: int) -> "LateTexts":
        """Tokenize every entity and relation; entities are truncated after `max_tokens`, relations are not."""
        texts = GraphTexts.of(kg, base, max_tokens)
        names = Tokens.of([entity.name.strip() for entity in kg.entities], base, max_tokens)
        of_entities, of_relations = (
            _parts(texts.entities, names.counts),
            _parts(texts.relations, texts.relations.counts),
        )
        of_relations[of_relations == NAME] = PHRASE
        return cls(texts.entities, of_entities, texts.relations, of_relations)

    def read(self, lower: FrozenLayers) -> tuple[TokenRows, TokenRows]:
        """The states of the tokens of entities and of relations after the given layers."""
        return (
            _read(lower, self.entities, self.entity_parts),
            _read(lower, self.relations, self.relation_parts),
        )

    def blank(self, width: int) -> tuple[TokenRows, TokenRows]:
        """Random states instead of those that reading would give."""
        texts = (self.entities, self.entity_parts), (self.relations, self.relation_parts)
        entities, relations = (
            TokenRows(offsets_of(tokens.counts + 1), torch.rand(len(parts), width).half(), parts)
            for tokens, parts in texts
        )
        return entities, relations


def _runs(count: int) -> Iterator[IntArray]:
    """The places of so many texts, some at a time; at least one run, which may be empty."""
    for start in range(0, max(1, count), _TEXTS_AT_ONCE):
        yield np.arange(start, min(start + _TEXTS_AT_ONCE, count))


def _parts(tokens: Tokens, name_counts: IntArray) -> Tensor:
    """The part of each token of texts that begin with a name of so many tokens, (texts,)."""
    counts = tokens.counts + 1
    place = positions_within(counts)
    is_name = place <= np.repeat(name_counts, counts)
    return torch.from_numpy(np.where(place == 0, WHOLE, np.where(is_name, NAME, DESCRIPTION)).astype(np.uint8))


def _read(lower: FrozenLayers, tokens: Tokens, parts: Tensor) -> TokenRows:
    """Read texts once, and keep the states of their tokens in 16 bits."""
    kept = []
    for texts in _runs(len(tokens)):
        states = lower.read(tokens.take(texts))
        is_kept = torch.ones(len(states.rows), dtype=torch.bool)
        is_kept[torch.from_numpy(states.offsets[1:] - 1)] = False  # [SEP]
        kept.append(states.rows[is_kept].half())
    return TokenRows(offsets_of(tokens.counts + 1), torch.cat(kept), parts)
