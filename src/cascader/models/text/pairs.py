"""Pairs of a question and a candidate, and the layers that see both together, computed without padding.

The tokens of all pairs are the rows of one matrix, and pairs of equal length stand next to each other, so that the
attention of a whole run of pairs is one call without a mask.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, linear, scaled_dot_product_attention

from cascader.errors import SettingsError
from cascader.graph import Candidates, IntArray, Queries
from cascader.graph.arrays import offsets_of, positions_within
from cascader.models.device import to_device
from cascader.models.text.base_model import BaseModel, Layer
from cascader.models.text.reading import FrozenLayers, StateCache
from cascader.models.text.split_encoder import States, join
from cascader.models.text.text_model import GraphTexts, Tokens
from cascader.models.text.words import SharedTokens

_SEGMENTS = 3
#: The names of the saved states.
_SAVED = ("relations", "entities")
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
    shared: Tensor  # (tokens, segments) how rare the tokens are that the other text has
    match_embeddings: Tensor  # (segments, width) which are added in that proportion

    @classmethod
    def of(
        cls,
        texts: Sequence[tuple[States, IntArray]],
        embeddings: Tensor,
        match_embeddings: Tensor,
        shared: Callable[[IntArray], Tensor],
    ) -> "JoinedPairs":
        """Join the segments of each pair: `texts[j]` of a segment's `States` for pair j."""
        counts = np.stack([states.counts[some] for states, some in texts], axis=1)  # (pairs, segments)
        order = np.argsort(counts.sum(axis=1), kind="stable")
        segments, starts, row_count = [], np.empty_like(counts), 0
        for number, (states, some) in enumerate(texts):
            distinct, text_of = np.unique(some, return_inverse=True)
            kept = states.rows[torch.from_numpy(_ranges(states.offsets[distinct], states.counts[distinct]))]
            rows = kept.to(embeddings.device).float()
            starts[:, number] = row_count + offsets_of(states.counts[distinct])[text_of]
            segments.append(Segment(rows, embeddings[number]))
            row_count += len(rows)
        places = to_device(_ranges(starts[order].reshape(-1), counts[order].reshape(-1)), embeddings.device)
        matches = shared(order).to(embeddings.device)
        return cls(segments, places, counts.sum(axis=1)[order], order, matches, match_embeddings)

    @classmethod
    def whole(cls, states: Tensor, mask: Tensor) -> "JoinedPairs":
        """Pairs that share no text: states (pairs, tokens, width) and their mask, (pairs, tokens)."""
        lengths = mask.sum(dim=1).cpu().numpy()
        order = np.argsort(lengths, kind="stable")
        rows = states[torch.from_numpy(order)][mask[torch.from_numpy(order)]]
        segment, nothing = Segment(rows, rows.new_zeros(rows.shape[1])), rows.new_zeros(1, rows.shape[1])
        places = torch.arange(len(rows), device=rows.device)
        return cls([segment], places, lengths[order], order, rows.new_zeros(len(rows), 1), nothing)

    def states(self) -> Tensor:
        """The input of the first layer; shape (tokens, width)."""
        # embedding(), not indexing: its gradient is summed in a fixed order, so a resumed training is the same.
        states = embedding(self.places, torch.cat([segment.rows + segment.embedding for segment in self.segments]))
        return torch.addmm(states, self.shared, self.match_embeddings)

    def projected(self, project: nn.Linear) -> Tensor:
        """A projection of that input, computed once for each distinct text; shape (tokens, width).

        W (x + e) + b is W x + (W e + b), so no gradient flows to the rows.
        """
        parts = [linear(segment.rows, project.weight, project(segment.embedding)) for segment in self.segments]
        matches = linear(self.match_embeddings, project.weight)
        return torch.addmm(embedding(self.places, torch.cat(parts)), self.shared, matches)

    def in_order(self, read: Tensor) -> Tensor:
        """One row for each pair, in the order in which the pairs were given."""
        return read.index_select(0, to_device(np.argsort(self.order), read.device))

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
    first = states.index_select(0, to_device(offsets_of(pairs.lengths)[:-1], states.device))  # (pairs, width)
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
    token gets the embedding of its segment, and another one if the other text has it, too. Split at 0, the input is one
    text, "[CLS] relation | anchor [SEP] candidate [SEP]", as in any cross encoder.
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
        self.match_embeddings = nn.Parameter(torch.zeros(_SEGMENTS, base.width), requires_grad=split > 0)
        self._shared = SharedTokens(texts.entities, len(base.tokenizer))
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
        segments, embeddings = self._segments(pairs), (self.segment_embeddings, self.match_embeddings)
        return JoinedPairs.of(segments, *embeddings, lambda order: self._rarity(pairs[order]))

    def lower(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """The input of the upper layers with padding, (pairs, tokens, width), and the mask of the tokens."""
        if self.split == 0:
            return self._embedded(pairs)
        states, mask, numbers = join(self._segments(pairs), self._base.device)
        # embedding(), not indexing: its gradient is summed in a fixed order, so a resumed training is the same.
        states = states + embedding(numbers, self.segment_embeddings)
        states[mask] += self._rarity(pairs).to(states.device) @ self.match_embeddings
        return states, mask

    def _rarity(self, pairs: Pairs) -> Tensor:
        """How rare the tokens are that question and candidate share; shape (tokens of all pairs, segments)."""
        texts = self.texts.relations, self._anchor_texts, self.texts.entities
        places = pairs.relations, pairs.anchors, pairs.candidates
        return self._shared.rarity([some.take(each) for some, each in zip(texts, places, strict=True)])

    def _segments(self, pairs: Pairs) -> list[tuple[States, IntArray]]:
        """The states of relations, anchors and candidates, each with the text of every pair."""
        texts = pairs.relations, pairs.anchors, pairs.candidates
        caches = self._states[0], self._anchor_states, self._states[1]
        return [(cache.of(some), some) for cache, some in zip(caches, texts, strict=True)]

    def _embedded(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        tokens, types, mask = (each.to(self._base.device) for each in self.tokens(pairs))
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
