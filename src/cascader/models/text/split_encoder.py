"""An encoder that is split at a layer.

The lower layers read each segment of an input (a relation, an entity) alone, once, and their states are cached; the
upper layers read the joined segments. Split at 0, all layers see all segments; split at the top, none does, and what
remains is one vector per text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from cascader.graph import IntArray
from cascader.models.text.base_model import Layer


@dataclass(frozen=True, eq=False)
class States:
    """The token states of texts: those of text i are `rows[offsets[i]:offsets[i + 1]]`."""

    offsets: IntArray  # (texts + 1,)
    rows: Tensor  # (tokens, width)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> IntArray:
        """How many tokens each text has; shape (texts,)."""
        return np.diff(self.offsets)

    def means(self) -> Tensor:
        """The mean of each text's token states; shape (texts, width)."""
        sums = torch.zeros(len(self), self.rows.shape[1])
        counts = torch.from_numpy(self.counts)
        of_token = torch.repeat_interleave(torch.arange(len(self)), counts)
        return sums.index_add_(0, of_token, self.rows.float()) / counts[:, None]


def run_layers(layers: nn.ModuleList, states: Tensor, mask: Tensor) -> Tensor:
    """Apply the layers to `states`, (texts, tokens, width); `mask` is True where there is a token."""
    for layer in layers:
        states = layer(states, attention_mask=mask[:, None, None, :])
    return states


def encode_cls(layers: nn.ModuleList, states: Tensor, mask: Tensor) -> Tensor:
    """The state of [CLS] after the layers, (texts, width); the last layer computes no other token's."""
    if len(layers) == 0:
        return states[:, 0]
    return _encode_cls(layers[-1], run_layers(layers[:-1], states, mask), mask)


def _encode_cls(layer: Layer, states: Tensor, mask: Tensor) -> Tensor:
    attention, first = layer.attention.self, states[:, :1]
    query, key, value = (
        project(read).unflatten(2, (attention.num_attention_heads, -1)).transpose(1, 2)  # (texts, heads, tokens, ·)
        for project, read in ((attention.query, first), (attention.key, states), (attention.value, states))
    )
    dropout = attention.dropout.p if attention.training else 0.0
    seen = scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :], dropout_p=dropout)
    attended = layer.attention.output(seen.transpose(1, 2).flatten(2), first)
    read: Tensor = layer.output(layer.intermediate(attended), attended)
    return read[:, 0]


def join(segments: Sequence[tuple[States, IntArray]], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Concatenate the segments of each input, on a device.

    A segment has a text for each input: `texts[j]` of its `States` for input j. Returns the states (inputs, tokens,
    width), the mask of the tokens, and the number of each token's segment (inputs, tokens).
    """
    counts = np.stack([states.counts[texts] for states, texts in segments])  # (segments, inputs)
    inputs, longest = counts.shape[1], int(counts.sum(axis=0).max(initial=0))
    starts = np.cumsum(counts, axis=0) - counts
    block = torch.zeros(inputs * longest, segments[0][0].rows.shape[1])
    mask = torch.zeros(inputs * longest, dtype=torch.bool)
    numbers = torch.zeros(inputs * longest, dtype=torch.long)
    for number, (states, texts) in enumerate(segments):
        from_flat, to_block = padded(states.offsets, texts, longest)
        places = torch.from_numpy(to_block + np.repeat(starts[number], counts[number]))
        block[places] = states.rows[torch.from_numpy(from_flat)].float()
        mask[places] = True
        numbers[places] = number
    shape = (inputs, longest)
    return block.view(*shape, -1).to(device), mask.view(shape).to(device), numbers.view(shape).to(device)


def token_batches(lengths: IntArray, budget: int) -> Iterator[IntArray]:
    """Yield batches of texts of similar length, each of at most `budget` tokens when padded to its longest text.

    The longest come first, so that a lack of memory shows at once.

    >>> [batch.tolist() for batch in token_batches(np.array([2, 9, 3, 2]), budget=6)]
    [[1], [2, 0], [3]]
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, budget // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def padded(offsets: IntArray, texts: IntArray, longest: int) -> tuple[IntArray, IntArray]:
    """Where the tokens of ragged texts go in a padded block: places in the flat array, and in the flattened block."""
    counts = offsets[texts + 1] - offsets[texts]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    from_flat = np.repeat(offsets[texts], counts) + within
    to_block = np.repeat(np.arange(len(texts)) * longest, counts) + within
    return from_flat, to_block
