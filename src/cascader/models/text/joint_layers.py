"""The layers that see a pair's question and candidate together, computed without padding.

The tokens of all pairs are the rows of one matrix, and pairs of equal length stand next to each other, so that the
attention of a whole run of pairs is one call without a mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, linear, scaled_dot_product_attention

from cascader.graph import IntArray
from cascader.graph.arrays import offsets_of, positions_within
from cascader.models.text.base_model import Layer
from cascader.models.text.split_encoder import States

#: The pairs of a run and the tokens of each.
Run = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Segment:
    """The token states of distinct texts, which many pairs share, and the embedding that is added to each token."""

    rows: Tensor  # (tokens, width) without a gradient
    embedding: Tensor  # (width,)


@dataclass(frozen=True, eq=False)
class JoinedPairs:
    """The tokens of pairs, one pair after the other, ordered by length."""

    segments: Sequence[Segment]
    places: Tensor  # (tokens,) of each token of each pair among the rows of all segments
    lengths: IntArray  # (pairs,) ascending
    order: IntArray  # (pairs,) which pair stands at each place

    @classmethod
    def of(cls, texts: Sequence[tuple[States, IntArray]], embeddings: Tensor) -> "JoinedPairs":
        """Join the segments of each pair: `texts[j]` of a segment's `States` for pair j."""
        counts = np.stack([states.counts[some] for states, some in texts], axis=1)  # (pairs, segments)
        order = np.argsort(counts.sum(axis=1), kind="stable")
        segments, starts, row_count = [], np.empty_like(counts), 0
        for number, (states, some) in enumerate(texts):
            distinct, text_of = np.unique(some, return_inverse=True)
            rows = states.rows[torch.from_numpy(_ranges(states.offsets[distinct], states.counts[distinct]))].float()
            starts[:, number] = row_count + offsets_of(states.counts[distinct])[text_of]
            segments.append(Segment(rows, embeddings[number]))
            row_count += len(rows)
        places = torch.from_numpy(_ranges(starts[order].reshape(-1), counts[order].reshape(-1)))
        return cls(segments, places, counts.sum(axis=1)[order], order)

    @classmethod
    def whole(cls, states: Tensor, mask: Tensor) -> "JoinedPairs":
        """Pairs that share no text: states (pairs, tokens, width) and their mask, (pairs, tokens)."""
        lengths = mask.sum(dim=1).numpy()
        order = np.argsort(lengths, kind="stable")
        rows = states[torch.from_numpy(order)][mask[torch.from_numpy(order)]]
        return cls([Segment(rows, torch.zeros(rows.shape[1]))], torch.arange(len(rows)), lengths[order], order)

    def states(self) -> Tensor:
        """The input of the first layer; shape (tokens, width)."""
        # embedding(), not indexing: its gradient is summed in a fixed order, so a resumed training is the same.
        return embedding(self.places, torch.cat([segment.rows + segment.embedding for segment in self.segments]))

    def projected(self, project: nn.Linear) -> Tensor:
        """A projection of that input, computed once for each distinct text; shape (tokens, width).

        W (x + e) + b is W x + (W e + b), so no gradient flows to the rows.
        """
        parts = [linear(segment.rows, project.weight, project(segment.embedding)) for segment in self.segments]
        return embedding(self.places, torch.cat(parts))

    def in_order(self, read: Tensor) -> Tensor:
        """One row for each pair, in the order in which the pairs were given."""
        return read.index_select(0, torch.from_numpy(np.argsort(self.order)))

    @property
    def runs(self) -> list[Run]:
        """The pairs of each length."""
        lengths, pair_counts = np.unique(self.lengths, return_counts=True)
        return list(zip(pair_counts.tolist(), lengths.tolist(), strict=True))


def _ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """The numbers from each start on, as many as its count; shape (sum of counts,)."""
    return np.repeat(starts, counts) + positions_within(counts)


def encode_pairs(layers: nn.ModuleList, pairs: JoinedPairs) -> Tensor:
    """The state of each pair's [CLS] after the layers; shape (pairs, width).

    Up to rounding, this is what `encode_cls` gives for the padded pairs. While training, only the last layer drops
    attention weights: between all tokens it would double the cost of attention.
    """
    states, runs = pairs.states(), pairs.runs
    for number, layer in enumerate(layers[:-1]):
        states = _read_tokens(layer, states, runs, pairs if number == 0 else None)
    first = states.index_select(0, torch.from_numpy(offsets_of(pairs.lengths)[:-1]))  # (pairs, width)
    return pairs.in_order(_read_first(layers[-1], first, states, runs) if len(layers) else first)


def _read_tokens(layer: Layer, states: Tensor, runs: list[Run], shared: JoinedPairs | None) -> Tensor:
    """The states of all tokens after a layer, (tokens, width); `shared` are the pairs if it is the first layer."""
    attention = layer.attention.self
    query, key, value = (
        project(states) if shared is None else shared.projected(project)
        for project in (attention.query, attention.key, attention.value)
    )
    parts = zip(_split(query, runs), _split(key, runs), _split(value, runs), runs, strict=True)
    seen = [_attend(*part, attention.num_attention_heads) for part in parts]
    attended = layer.attention.output(torch.cat(seen), states)
    after: Tensor = layer.output(layer.intermediate(attended), attended)
    return after


def _split(rows: Tensor, runs: list[Run]) -> tuple[Tensor, ...]:
    return torch.split(rows, [pairs * length for pairs, length in runs])


def _attend(query: Tensor, key: Tensor, value: Tensor, run: Run, heads: int) -> Tensor:
    """What each token of a run's pairs sees of its own pair; shape (tokens, width)."""
    seen = scaled_dot_product_attention(
        _by_head(query, run, heads), _by_head(key, run, heads), _by_head(value, run, heads)
    )
    return seen.transpose(1, 2).flatten(2).flatten(0, 1)


def _by_head(rows: Tensor, run: Run, heads: int) -> Tensor:
    """A view of shape (pairs, heads, tokens, width of a head)."""
    return rows.view(*run, heads, -1).transpose(1, 2)


def _read_first(layer: Layer, first: Tensor, states: Tensor, runs: list[Run]) -> Tensor:
    """The state of each [CLS] after the last layer, (pairs, width), without the keys and values of the tokens.

    Its logit for a token is (Wk q) x rather than q (Wk x), and what it sees is Wv (sum of a x) rather than the sum of
    a (Wv x): two products for each pair instead of two for each token. A key's bias changes no attention.
    """
    attention, heads = layer.attention.self, layer.attention.self.num_attention_heads
    query = attention.query(first).unflatten(1, (heads, -1)).transpose(0, 1)  # (heads, pairs, width of a head)
    asked = (query @ attention.key.weight.unflatten(0, (heads, -1))).transpose(0, 1) * attention.scaling
    seen, masses = [], []
    for rows, part, run in zip(
        _split(states, runs), torch.split(asked, [pairs for pairs, _ in runs]), runs, strict=True
    ):
        tokens = rows.view(*run, -1)  # (pairs, tokens, width)
        weights = (part @ tokens.transpose(1, 2)).softmax(dim=2)  # (pairs, heads, tokens)
        weights = dropout(weights, attention.dropout.p, attention.training)
        seen.append(weights @ tokens)
        masses.append(weights.sum(dim=2))
    context = torch.cat(seen).transpose(0, 1) @ attention.value.weight.unflatten(0, (heads, -1)).transpose(1, 2)
    bias = torch.cat(masses)[:, :, None] * attention.value.bias.unflatten(0, (heads, -1))
    attended = layer.attention.output((context.transpose(0, 1) + bias).flatten(1), first)
    after: Tensor = layer.output(layer.intermediate(attended), attended)
    return after
