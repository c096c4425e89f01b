"""Read a question and a candidate together: the relation, the anchor and the candidate are segments of one input."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from cascader.errors import SettingsError
from cascader.graph import Candidates, IntArray, Queries
from cascader.models.text.base_model import BaseModel
from cascader.models.text.joint_layers import JoinedPairs, encode_pairs
from cascader.models.text.split_encoder import FrozenLayers, StateCache, States, join
from cascader.models.text.text_model import GraphTexts, Tokens

_SEGMENTS = 3
#: The names of the saved states.
_SAVED = ("relations", "entities")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Questions with one candidate each."""

    relations: IntArray  # (pairs,) inverse relations after the others
    anchors: IntArray  # (pairs,)
    candidates: IntArray  # (pairs,)

    @classmethod
    def of(cls, queries: Queries, candidates: Candidates, relation_count: int) -> "Pairs":
        """Every query with each of its candidates, in their order."""
        rows = candidates.rows
        return cls(queries.directed_relations(relation_count)[rows], queries.anchors[rows], candidates.ids)

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, places: IntArray) -> "Pairs":
        return Pairs(self.relations[places], self.anchors[places], self.candidates[places])

    def distinct(self) -> tuple["Pairs", IntArray]:
        """The distinct pairs, and for each pair its place among them."""
        keys = np.stack([self.relations, self.anchors, self.candidates])
        found, place_of = np.unique(keys, axis=1, return_inverse=True)
        return Pairs(*found), place_of.reshape(-1)


class PairHead(nn.Module):
    """From the state of [CLS] to a score, as in BERT's own classifiers, and to a relation, for KG-BERT's loss."""

    def __init__(self, width: int, relation_count: int) -> None:
        super().__init__()
        self._width = width
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, 1)
        self.relation_classifier = nn.Linear(width, 2 * relation_count)

    def forward(self, read: Tensor) -> Tensor:
        """Scores; shape (pairs,)."""
        scores: Tensor = self.classifier(self.pooled(read))[:, 0]
        return scores

    def pooled(self, read: Tensor) -> Tensor:
        """The input of both classifiers, from the state of [CLS]; shape (pairs, width)."""
        pooled: Tensor = self.pooler(read[:, : self._width]).tanh()
        return pooled


class PairEncoder(nn.Module):
    """Reads pairs with a pretrained model that is split at a layer.

    Below the split, each relation and entity is read alone, once. Above it, the three segments are joined, and each
    token gets the embedding of its segment. Split at 0, the input is one text, "[CLS] relation | anchor [SEP] candidate
    [SEP]", as in any cross encoder.
    """

    def __init__(self, base: BaseModel, texts: GraphTexts, split: int) -> None:
        super().__init__()
        if split == 0:
            _check_length(base, texts)
        lower = FrozenLayers(base, split)
        self._base, self.texts, self.split, self.width = base, texts, split, base.width
        self.upper = base.layers[split:]
        for parameter in base.encoder.parameters():
            parameter.requires_grad_(False)
        for parameter in self.upper.parameters():
            parameter.requires_grad_(True)
        self.segment_embeddings = nn.Parameter(torch.zeros(_SEGMENTS, base.width), requires_grad=split > 0)
        self._states = StateCache(lower, texts.relations, "relations"), StateCache(lower, texts.entities)
        self._anchor_texts, self._anchor_states = texts.entities, self._states[1]

    def for_new_anchors(self, anchors: Tokens) -> "PairEncoder":
        """The same encoder with anchors that the graph does not have; all other states are shared."""
        encoder = copy.copy(self)
        encoder._anchor_texts, encoder._anchor_states = anchors, self._anchor_states.for_others(anchors)
        return encoder

    def read_all(self) -> list[Tensor]:
        """Read all texts with the lower layers now, rather than when each is first needed: relations, then entities."""
        texts = (self.texts.relations, self.texts.entities) if self.split else ()
        return [cache.of(np.arange(len(some))).rows for some, cache in zip(texts, self._states, strict=False)]

    def states(self) -> dict[str, Tensor]:
        """The states of all texts after the lower layers, to be saved; empty if there are no such layers."""
        return dict(zip(_SAVED, self.read_all(), strict=False))

    def take_states(self, states: Mapping[str, Tensor]) -> None:
        """Restore saved states; texts without one are read when they are needed."""
        for name, cache in zip(_SAVED, self._states, strict=True):
            if name in states:
                cache.take(states[name])

    def lengths(self, pairs: Pairs) -> IntArray:
        """How many tokens each pair has; shape (pairs,)."""
        special = 2 * _SEGMENTS if self.split else _SEGMENTS + 1  # tokens such as [CLS]
        relations, entities = self.texts.relations.counts, self.texts.entities.counts
        anchors = self._anchor_texts.counts[pairs.anchors]
        return relations[pairs.relations] + anchors + entities[pairs.candidates] + special

    def forward(self, pairs: Pairs) -> Tensor:
        """The state of [CLS] after all layers; shape (pairs, width)."""
        return encode_pairs(self.upper, self._joined(pairs))

    def _joined(self, pairs: Pairs) -> JoinedPairs:
        if self.split == 0:
            return JoinedPairs.whole(*self._embedded(pairs))
        return JoinedPairs.of(self._segments(pairs), self.segment_embeddings)

    def lower(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """The input of the upper layers with padding, (pairs, tokens, width), and the mask of the tokens."""
        if self.split == 0:
            return self._embedded(pairs)
        states, mask, numbers = join(self._segments(pairs))
        # embedding(), not indexing: its gradient is summed in a fixed order, so a resumed training is the same.
        return states + embedding(numbers, self.segment_embeddings), mask

    def _segments(self, pairs: Pairs) -> list[tuple[States, IntArray]]:
        """The states of relations, anchors and candidates, each with the text of every pair."""
        texts = pairs.relations, pairs.anchors, pairs.candidates
        caches = self._states[0], self._anchor_states, self._states[1]
        return [(cache.of(some), some) for cache, some in zip(caches, texts, strict=True)]

    def _embedded(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        tokens, types, mask = self.tokens(pairs)
        with torch.no_grad():
            return self._base.embed(tokens, types), mask

    def tokens(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids, types (0 for the question, 1 for the candidate) and mask of complete inputs, (pairs, tokens)."""
        tokenizer = self._base.tokenizer
        begin, end = tokenizer.cls_token_id, tokenizer.sep_token_id
        (bar,) = tokenizer("|", add_special_tokens=False)["input_ids"]
        longest = int(self.lengths(pairs).max(initial=0))
        tokens = np.full((len(pairs), longest), tokenizer.pad_token_id, dtype=np.int64)
        types, mask = np.zeros_like(tokens), np.zeros(tokens.shape, dtype=bool)
        for row in range(len(pairs)):
            relation = self.texts.relations[pairs.relations[row]]
            anchor, candidate = self._anchor_texts[pairs.anchors[row]], self.texts.entities[pairs.candidates[row]]
            question = [begin, *relation, bar, *anchor, end]
            ids = [*question, *candidate, end]
            tokens[row, : len(ids)] = ids
            types[row, len(question) : len(ids)] = 1
            mask[row, : len(ids)] = True
        return torch.from_numpy(tokens), torch.from_numpy(types), torch.from_numpy(mask)


def _check_length(base: BaseModel, texts: GraphTexts) -> None:
    """Refuse pairs that are longer than the texts that the whole model can read."""
    relation, entity = (int(some.counts.max(initial=0)) for some in (texts.relations, texts.entities))
    longest = relation + 2 * entity + _SEGMENTS + 1
    if longest > base.token_limit:
        raise SettingsError(
            f"split_layer is 0, so a question and a candidate are read as one text of up to {longest:,} tokens, but "
            f"{base.name} reads {base.token_limit} at most. Lower max_tokens, or set split_layer to 1 or more."
        )
