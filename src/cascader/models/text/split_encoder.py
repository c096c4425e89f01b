"""An encoder that is split at a layer.

The lower layers read each segment of an input (a relation, an entity) alone, once, and their states are cached; the
upper layers read the joined segments. Split at 0, all layers see all segments; split at the top, none does, and what
remains is one vector per text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from cascader.display import progress
from cascader.errors import SettingsError
from cascader.graph import IntArray
from cascader.graph.arrays import offsets_of, positions_within
from cascader.models.text.base_model import BaseModel, Layer
from cascader.models.text.text_model import Tokens

TOKENS_AT_ONCE = 4096
#: The most memory for the states of texts that may be asked about again: some ten thousand texts.
_RECENT_BYTES = 256 << 20


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


class FrozenLayers(nn.Module):
    """The embeddings and the lower layers of an encoder, which read each text alone and are not trained."""

    def __init__(self, base: BaseModel, split: int) -> None:
        super().__init__()
        if not 0 <= split <= base.layer_count:
            raise SettingsError(
                f"the encoder would be split at layer {split}, but {base.name} has {base.layer_count} layers. "
                f"Choose from 0 to {base.layer_count}."
            )
        self._base, self._split = base, split
        self.width = base.width

    @torch.inference_mode()
    def read(self, tokens: Tokens, description: str = "reading texts", batch_tokens: int = TOKENS_AT_ONCE) -> States:
        """Read every text once, as "[CLS] text [SEP]"; the states are in main memory, wherever they were computed."""
        begin, end = self._base.tokenizer.cls_token_id, self._base.tokenizer.sep_token_id
        counts = tokens.counts + 2
        offsets = offsets_of(counts)
        rows = torch.empty(int(offsets[-1]), self._base.width)
        with progress(description, total=len(tokens), unit="texts") as advance:
            for texts in token_batches(counts, batch_tokens):
                longest = int(counts[texts].max())
                block = torch.full((len(texts), longest), self._base.tokenizer.pad_token_id)
                mask = torch.zeros(len(texts), longest, dtype=torch.bool)
                for row, text in enumerate(texts):
                    ids = [begin, *tokens[text].tolist(), end]
                    block[row, : len(ids)] = torch.tensor(ids)
                    mask[row, : len(ids)] = True
                block, mask = block.to(self._base.device), mask.to(self._base.device)
                states = self._base.embed(block, torch.zeros_like(block))
                states = run_layers(self._base.layers[: self._split], states, mask)
                from_flat, to_block = padded(offsets, texts, longest)
                rows[torch.from_numpy(from_flat)] = states.flatten(0, 1)[torch.from_numpy(to_block)].cpu()
                advance(len(texts))
        return States(offsets, rows)


class StateCache:
    """The states of texts after the lower layers, in float16 in main memory, each computed when it is first needed.

    Each text is read by itself: in a batch, its last bits would depend on the other texts, and a resumed job has other
    batches than an uninterrupted one.
    """

    def __init__(self, lower: FrozenLayers, tokens: Tokens, what: str = "texts") -> None:
        self._lower, self._tokens, self._what = lower, tokens, what
        offsets = offsets_of(tokens.counts + 2)
        self._states = States(offsets, torch.empty(int(offsets[-1]), lower.width, dtype=torch.float16))
        self._is_read = np.zeros(len(tokens), dtype=bool)

    def for_others(self, tokens: Tokens) -> "StateCache":
        """The same for other texts."""
        return StateCache(self._lower, tokens, self._what)

    def of(self, texts: IntArray) -> States:
        """The states of all texts, of which those of `texts` are valid."""
        missing = np.unique(texts[~self._is_read[texts]])
        if len(missing):
            read = self._lower.read(self._tokens.take(missing), f"reading {self._what}, lower layers", 1)
            places, _ = padded(self._states.offsets, missing, int(self._tokens.counts.max()) + 2)
            with torch.no_grad():
                self._states.rows[torch.from_numpy(places)] = read.rows.half()
            self._is_read[missing] = True
        return self._states

    def take(self, rows: Tensor) -> None:
        """Restore the states of all texts, or of the first ones."""
        places = self._states.offsets.searchsorted(len(rows))
        if places < len(self._states.offsets) and self._states.offsets[places] == len(rows):
            self._states.rows[: len(rows)] = rows
            self._is_read[:places] = True


class RecentStates:
    """The states of texts that were asked for, likewise each read by itself; once its memory is full, it starts over.

    The memory is taken at once, for all texts or as much as there may be: a server must not grow with what it is asked.
    """

    def __init__(self, lower: FrozenLayers, tokens: Tokens, most_bytes: int = _RECENT_BYTES) -> None:
        self._lower, self._tokens = lower, tokens
        self.counts = tokens.counts + 2  #: how many tokens each text has, (texts,)
        room = most_bytes // (lower.width * torch.float16.itemsize)
        # Filled, because the system gives memory only when it is first written to.
        self._rows = torch.empty(min(int(self.counts.sum()), room), lower.width, dtype=torch.float16).fill_(0)
        self._starts, self._end = np.full(len(tokens), -1), 0  # -1: not among them
        self._lock = Lock()  # threads may share a model, and one must not empty what another reads

    def of(self, texts: IntArray) -> States:
        """The states of these texts, in this order."""
        counts = self.counts[texts]
        with self._lock:
            self._read(np.unique(texts))
            places = np.repeat(self._starts[texts], counts) + positions_within(counts)
            return States(offsets_of(counts), self._rows.index_select(0, torch.from_numpy(places)))

    def _read(self, distinct: IntArray) -> None:
        missing = distinct[self._starts[distinct] < 0]
        if self._end + self.counts[missing].sum() > len(self._rows):
            self._starts[:], self._end, missing = -1, 0, distinct
        if len(missing):
            self._keep(missing)

    def _keep(self, texts: IntArray) -> None:
        read = self._lower.read(self._tokens.take(texts), "reading texts, lower layers", 1)
        with torch.no_grad():
            self._rows[self._end : self._end + len(read.rows)] = read.rows.half()
        self._starts[texts] = self._end + read.offsets[:-1]
        self._end += len(read.rows)


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
