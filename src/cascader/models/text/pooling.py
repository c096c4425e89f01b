"""A pair as two pooled texts: [CLS] looks at each text alone, and only what it gathered there meets.

With one layer above the split, and only the state of [CLS] needed after it, no token of the question ever meets a token
of the candidate. So each text is attended to once for each relation, and a pair costs next to nothing.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import dropout

from cascader.graph import IntArray
from cascader.models.text.base_model import BaseModel, Layer
from cascader.models.text.pairs import PairEncoder, Pairs
from cascader.models.text.split_encoder import States, padded, token_batches
from cascader.models.text.text_model import GraphTexts

_ATTENDED_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class PartialAttention:
    """The attention of [CLS] over single segments, one lookup each.

    If only one layer lies above the split, and only the state of [CLS] is needed after it, then the attention of [CLS]
    factors over the segments of the input: its context from a segment depends on that segment and on [CLS] alone. So
    each segment is attended to once for each [CLS], and a pair only costs merging three contexts. The result is that of
    the layer itself, up to rounding.
    """

    log_mass: Tensor  # (lookups, heads) the logsumexp of the attention logits
    context: Tensor  # (lookups, heads, width of a head) the attention-weighted mean of the values

    def of(self, lookups: Tensor) -> "PartialAttention":
        """Some of the lookups, in the order given."""
        return PartialAttention(self.log_mass.index_select(0, lookups), self.context.index_select(0, lookups))


def attend_once(layer: Layer, cls: Tensor, states: States, texts: IntArray, segment: Tensor) -> PartialAttention:
    """Attend from each [CLS], whose states are (lookups, width), to one of `texts`.

    `layer` is of the BERT family; `segment` is the embedding that is added to each token of the texts.
    """
    attention = layer.attention.self
    queries = attention.query(cls).unflatten(1, (attention.num_attention_heads, -1))  # (lookups, heads, ·)
    order, found = [], []
    for places in token_batches(states.counts[texts], _ATTENDED_AT_ONCE):
        order.append(places)
        found.append(_attend_once(layer, queries[torch.from_numpy(places)], states, texts[places], segment))
    back = torch.from_numpy(np.argsort(np.concatenate(order)))
    together = PartialAttention(
        torch.cat([each.log_mass for each in found]), torch.cat([each.context for each in found])
    )
    return together.of(back)


def _attend_once(layer: Layer, queries: Tensor, states: States, texts: IntArray, segment: Tensor) -> PartialAttention:
    attention, heads = layer.attention.self, queries.shape[1]
    counts = states.counts[texts]
    longest = int(counts.max())
    from_flat, to_block = padded(states.offsets, texts, longest)
    tokens = states.rows[torch.from_numpy(from_flat)].float() + segment
    keys, values = (project(tokens).unflatten(1, (heads, -1)) for project in (attention.key, attention.value))
    lookups = torch.from_numpy(np.repeat(np.arange(len(texts)), counts))
    logits = (queries.index_select(0, lookups) * keys).sum(dim=2) * attention.scaling  # (tokens, heads)
    block = torch.full((len(texts) * longest, heads), -torch.inf).index_copy(0, torch.from_numpy(to_block), logits)
    log_mass = block.view(len(texts), longest, heads).logsumexp(dim=1)
    weights = (logits - log_mass.index_select(0, lookups)).exp()
    weights = dropout(weights, attention.dropout.p, attention.training)
    context = torch.zeros(len(texts), *values.shape[1:]).index_add(0, lookups, weights[:, :, None] * values)
    return PartialAttention(log_mass, context)


def merge(layer: Layer, cls: Tensor, partial: list[PartialAttention]) -> Tensor:
    """The state of [CLS] after the layer, (pairs, width), from its attention to each segment.

    `cls` is its state before the layer, (pairs, width); every segment has one lookup for each pair.
    """
    shares = torch.stack([segment.log_mass for segment in partial]).softmax(dim=0)  # (segments, pairs, heads)
    context = sum(share[:, :, None] * segment.context for share, segment in zip(shares, partial, strict=True))
    attended = layer.attention.output(torch.as_tensor(context).flatten(1), cls)
    after: Tensor = layer.output(layer.intermediate(attended), attended)
    return after


class PoolingEncoder(PairEncoder):
    """Reads pairs with the last layer of a pretrained model; all layers below it read each text alone, once."""

    def __init__(self, base: BaseModel, texts: GraphTexts) -> None:
        super().__init__(base, texts, base.layer_count - 1)

    def forward(self, pairs: Pairs) -> Tensor:
        """[CLS] after and before the layer, and its contexts from anchor and candidate; shape (pairs, 4 · width)."""
        segments = self._segments(pairs)
        relations, _ = segments[0]
        starts = torch.from_numpy(relations.offsets[pairs.relations])
        cls = relations.rows[starts].float() + self.segment_embeddings[0]
        partial = []
        for segment, (states, texts) in zip(self.segment_embeddings, segments, strict=True):
            keys = np.stack([pairs.relations, texts])
            lookups, place, lookup_of = np.unique(keys, axis=1, return_index=True, return_inverse=True)
            asking = cls.index_select(0, torch.from_numpy(place))
            found = attend_once(self.upper[0], asking, states, lookups[1], segment)
            partial.append(found.of(torch.from_numpy(lookup_of.reshape(-1))))
        contexts = [segment.context.flatten(1) for segment in partial[1:]]
        return torch.cat([merge(self.upper[0], cls, partial), cls, *contexts], dim=1)

    @torch.no_grad()
    def contexts(self, relation: int, entities: IntArray) -> tuple[Tensor, Tensor]:
        """The [CLS] of a relation, (width,), and its attention context from each entity, (entities, width).

        With the current weights and without dropout.
        """
        relations, states = self._states[0].of(np.array([relation])), self._states[1].of(entities)
        cls = relations.rows[relations.offsets[relation]].float() + self.segment_embeddings[0]
        asking, was_training = cls.expand(len(entities), -1), self.training
        found = attend_once(self.eval().upper[0], asking, states, entities, self.segment_embeddings[2])
        self.train(was_training)
        return cls, found.context.flatten(1)

    def new_lengths(self, pairs: Pairs) -> IntArray:
        """How many tokens each pair adds to those that the pairs before it have attended to; shape (pairs,)."""
        tokens = np.zeros(len(pairs), dtype=np.int64)
        of_anchors, of_candidates = self._anchor_texts.counts, self.texts.entities.counts
        for texts, counts in ((pairs.anchors, of_anchors), (pairs.candidates, of_candidates)):
            _, firsts = np.unique(np.stack([pairs.relations, texts]), axis=1, return_index=True)
            tokens[firsts] += counts[texts[firsts]]
        return tokens
