"""Read a question and a candidate together: the relation, the anchor and the candidate, as one input."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from cascader.graph import Candidates, IntArray, Queries
from cascader.models.embeddings.embedding import directed
from cascader.models.text.base_model import BaseModel
from cascader.models.text.factored_attention import attend_once, merge
from cascader.models.text.split_encoder import FrozenLayers, StateCache, States, encode_cls, join
from cascader.models.text.texts import GraphTexts, Tokens

_PARTS = 3
#: What the lower layers' states are kept as.
_KEPT = ("relations", "entities")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Questions with one candidate each."""

    relations: IntArray  # (pairs,) those asked backwards behind the others
    anchors: IntArray  # (pairs,)
    candidates: IntArray  # (pairs,)

    @classmethod
    def of(cls, queries: Queries, candidates: Candidates, relation_count: int) -> "Pairs":
        """Every query with each of its candidates, in their order."""
        rows = candidates.rows
        return cls(directed(queries, relation_count)[rows], queries.anchors[rows], candidates.ids)

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, places: IntArray) -> "Pairs":
        return Pairs(self.relations[places], self.anchors[places], self.candidates[places])

    def distinct(self) -> tuple["Pairs", IntArray]:
        """Each pair once, and for each pair its place among those."""
        keys = np.stack([self.relations, self.anchors, self.candidates])
        found, place_of = np.unique(keys, axis=1, return_inverse=True)
        return Pairs(*found), place_of.reshape(-1)


class PairEncoder(nn.Module):
    """Reads pairs with a language model that is split at a layer.

    Below the split, each relation and entity is read alone, once. Above it, the three parts are joined, each token
    marked with the part it belongs to. Split at 0 the input is one text, "[CLS] relation | anchor [SEP] candidate
    [SEP]", as any cross encoder reads it.
    """

    def __init__(self, base: BaseModel, texts: GraphTexts, split: int) -> None:
        super().__init__()
        lower = FrozenLayers(base, split)
        self._base, self.texts, self._split, self.width = base, texts, split, base.width
        self.upper = base.layers[split:]
        for parameter in base.encoder.parameters():
            parameter.requires_grad_(False)
        for parameter in self.upper.parameters():
            parameter.requires_grad_(True)
        self.parts = nn.Parameter(torch.zeros(_PARTS, base.width), requires_grad=split > 0)
        self._read_once = StateCache(lower, texts.relations, "relations"), StateCache(lower, texts.entities)
        self._anchor_texts, self._read_anchors = texts.entities, self._read_once[1]

    def about_new(self, anchors: Tokens) -> "PairEncoder":
        """The same reader for anchors that the graph does not have; what was read of all others is shared."""
        reader = copy.copy(self)
        reader._anchor_texts, reader._read_anchors = anchors, self._read_anchors.for_others(anchors)
        return reader

    def read_all(self) -> list[Tensor]:
        """Read all texts with the lower layers now, and not when each is first needed: relations, then entities."""
        texts = (self.texts.relations, self.texts.entities) if self._split else ()
        return [once.of(np.arange(len(some))).rows for some, once in zip(texts, self._read_once, strict=False)]

    def states(self) -> dict[str, Tensor]:
        """What the lower layers make of all texts, to be kept; nothing where there are none."""
        return dict(zip(_KEPT, self.read_all(), strict=False))

    def take_states(self, states: Mapping[str, Tensor]) -> None:
        """Take what was kept; texts that came later are read when they are needed."""
        for name, once in zip(_KEPT, self._read_once, strict=True):
            if name in states:
                once.take(states[name])

    def lengths(self, pairs: Pairs) -> IntArray:
        """How many tokens each pair has; shape (pairs,)."""
        marks = 2 * _PARTS if self._split else _PARTS + 1
        relations, entities = self.texts.relations.counts, self.texts.entities.counts
        anchors = self._anchor_texts.counts[pairs.anchors]
        return relations[pairs.relations] + anchors + entities[pairs.candidates] + marks

    def new_lengths(self, pairs: Pairs) -> IntArray:
        """How many tokens each pair adds to what those before it have looked at; shape (pairs,)."""
        tokens = np.zeros(len(pairs), dtype=np.int64)
        of_anchors, of_candidates = self._anchor_texts.counts, self.texts.entities.counts
        for texts, counts in ((pairs.anchors, of_anchors), (pairs.candidates, of_candidates)):
            _, firsts = np.unique(np.stack([pairs.relations, texts]), axis=1, return_index=True)
            tokens[firsts] += counts[texts[firsts]]
        return tokens

    @property
    def has_single_joint_layer(self) -> bool:
        """Whether a single layer sees the pair: then a pair costs next to nothing."""
        return self._split > 0 and len(self.upper) == 1

    def forward(self, pairs: Pairs) -> Tensor:
        """The state of the first token, which has seen all others; shape (pairs, width).

        Where a single layer sees the pair, (pairs, 4 · width): then the first token before it, and what that gathered
        from the anchor and from the candidate, lie behind it.
        """
        if self.has_single_joint_layer:
            return self._put_together(pairs)
        states, mask = self.lower(pairs)
        return encode_cls(self.upper, states, mask)

    def _put_together(self, pairs: Pairs) -> Tensor:
        """The same by partial: the first token is the relation's, so each text is looked at once for each relation."""
        parts = self._states_of(pairs)
        relations, _ = parts[0]
        first = relations.rows[torch.from_numpy(relations.offsets[pairs.relations])].float() + self.parts[0]
        partial = []
        for mark, (states, texts) in zip(self.parts, parts, strict=True):
            keys = np.stack([pairs.relations, texts])
            looks, place, look_of = np.unique(keys, axis=1, return_index=True, return_inverse=True)
            asking = first.index_select(0, torch.from_numpy(place))
            found = attend_once(self.upper[0], asking, states, looks[1], mark)
            partial.append(found.of(torch.from_numpy(look_of.reshape(-1))))
        gathered = [part.gathered.flatten(1) for part in partial[1:]]
        return torch.cat([merge(self.upper[0], first, partial), first, *gathered], dim=1)

    @torch.no_grad()
    def gathered(self, relation: int, entities: IntArray) -> tuple[Tensor, Tensor]:
        """The first token of a relation, (width,), and what it gathers from each entity alone, (entities, width).

        As the layer is now, without its dropout, and only where it is the only one that sees the pair.
        """
        relations, states = self._read_once[0].of(np.array([relation])), self._read_once[1].of(entities)
        first = relations.rows[relations.offsets[relation]].float() + self.parts[0]
        was_training = self.training
        found = attend_once(self.eval().upper[0], first.expand(len(entities), -1), states, entities, self.parts[2])
        self.train(was_training)
        return first, found.gathered.flatten(1)

    def lower(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """What the upper layers read, (pairs, tokens, width), and the mask of the tokens."""
        if self._split == 0:
            return self._embedded(pairs)
        states, mask, numbers = join(self._states_of(pairs))
        # embedding() and not indexing: its gradient adds up in a fixed order, so that a resumed training is the same.
        return states + embedding(numbers, self.parts), mask

    def _states_of(self, pairs: Pairs) -> list[tuple[States, IntArray]]:
        """What the lower layers make of relation, anchor and candidate, and which text each pair has there."""
        texts = pairs.relations, pairs.anchors, pairs.candidates
        readers = self._read_once[0], self._read_anchors, self._read_once[1]
        return [(once.of(some), some) for once, some in zip(readers, texts, strict=True)]

    def _embedded(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        tokens, types, mask = self.tokens(pairs)
        with torch.no_grad():
            return self._base.embed(tokens, types), mask

    def tokens(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids, types (0 for the question, 1 for the candidate) and mask of whole inputs, (pairs, tokens)."""
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
