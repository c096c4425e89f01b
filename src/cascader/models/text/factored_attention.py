"""The last layer over several parts at once, without ever joining them.

When only one layer lies above the split, and only its first token is read, that token's attention over the parts of an
input falls apart: what it gathers from a part depends on the part and on the first token alone. So each part is looked
at once for each first token, and a pair costs no more than putting three partial together. The result is that of the
layer itself, to rounding.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import dropout

from cascader.graph import IntArray
from cascader.models.text.batches import padded, token_batches
from cascader.models.text.split_encoder import States

_TOKENS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class PartialAttention:
    """What first tokens gather from texts: for each look and head how much it draws, and what it is."""

    draws: Tensor  # (looks, heads) the logarithm of the sum of the attention's exponentials
    gathered: Tensor  # (looks, heads, width of a head)

    def of(self, looks: Tensor) -> "PartialAttention":
        """Some of them, in the order given."""
        return PartialAttention(self.draws.index_select(0, looks), self.gathered.index_select(0, looks))


def attend_once(layer: Any, first: Tensor, states: States, texts: IntArray, mark: Tensor) -> PartialAttention:  # noqa: ANN401
    """Look at each of `texts` with the first token beside it, whose states are (looks, width).

    `layer` is of the BERT family; `mark` is added to the state of each of the text's tokens.
    """
    attention = layer.attention.self
    queries = attention.query(first).unflatten(1, (attention.num_attention_heads, -1))  # (looks, heads, ·)
    order, parts = [], []
    for places in token_batches(states.counts[texts], _TOKENS_AT_ONCE):
        order.append(places)
        parts.append(_attend_once(layer, queries[torch.from_numpy(places)], states, texts[places], mark))
    back = torch.from_numpy(np.argsort(np.concatenate(order)))
    together = PartialAttention(*(torch.cat([getattr(part, name) for part in parts]) for name in ("draws", "gathered")))
    return together.of(back)


def _attend_once(layer: Any, queries: Tensor, states: States, texts: IntArray, mark: Tensor) -> PartialAttention:  # noqa: ANN401
    attention, heads = layer.attention.self, queries.shape[1]
    counts = states.counts[texts]
    longest = int(counts.max())
    from_flat, to_block = padded(states.offsets, texts, longest)
    tokens = states.rows[torch.from_numpy(from_flat)].float() + mark
    keys, values = (project(tokens).unflatten(1, (heads, -1)) for project in (attention.key, attention.value))
    looks = torch.from_numpy(np.repeat(np.arange(len(texts)), counts))
    logits = (queries.index_select(0, looks) * keys).sum(dim=2) * attention.scaling  # (tokens, heads)
    block = torch.full((len(texts) * longest, heads), -torch.inf).index_copy(0, torch.from_numpy(to_block), logits)
    draws = block.view(len(texts), longest, heads).logsumexp(dim=1)
    weights = (logits - draws.index_select(0, looks)).exp()
    weights = dropout(weights, attention.dropout.p, attention.training)
    gathered = torch.zeros(len(texts), *values.shape[1:]).index_add(0, looks, weights[:, :, None] * values)
    return PartialAttention(draws, gathered)


def merge(layer: Any, first: Tensor, parts: list[PartialAttention]) -> Tensor:  # noqa: ANN401 - a layer, as above
    """The state of the first token after the layer, (pairs, width), from what it gathers of each part.

    `first` is its state before the layer, (pairs, width); every part has one attend_once for each pair.
    """
    shares = torch.stack([part.draws for part in parts]).softmax(dim=0)  # (parts, pairs, heads)
    seen = sum(share[:, :, None] * part.gathered for share, part in zip(shares, parts, strict=True))
    attended = layer.attention.output(torch.as_tensor(seen).flatten(1), first)
    read: Tensor = layer.output(layer.intermediate(attended), attended)
    return read
