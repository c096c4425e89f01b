"""A cheap relative of the cross encoder: question and candidate meet as pooled vectors, and never token by token.

With one layer above the split, and only the state of [CLS] needed after it, no token of the question ever meets a token
of the candidate. So each text is attended to once for each relation, and a pair costs next to nothing. The head can
start by learning which texts match, before any pair is read.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, layer_norm, normalize

from cascader.display import progress
from cascader.errors import SettingsError
from cascader.graph import Candidates, IntArray, KnowledgeGraph, Queries
from cascader.models.device import forked_rng, to_device
from cascader.models.optimization import softmax_loss
from cascader.models.settings import Settings
from cascader.models.text.base_model import BaseModel, Layer
from cascader.models.text.pair_model import PairModel
from cascader.models.text.pairs import PairEncoder, PairHead, Pairs
from cascader.models.text.settings import PooledOptions, PooledSettings
from cascader.models.text.split_encoder import States, padded, token_batches
from cascader.models.text.text_model import GraphTexts
from cascader.models.text.towers import small_network
from cascader.models.training import seconds_per_step

_ATTENDED_AT_ONCE = 8192
_DIM, _HIDDEN, _DROPOUT = 256, 512, 0.3
_TEMPERATURE = 0.05
#: Enough pairs to share many texts.
_PAIRS_AT_ONCE = 8192
_BATCH = 128
_LEARNING_RATE, _WEIGHT_DECAY = 1e-3, 1e-4
#: The contexts of all relations and entities are cached if they take no more than this.
_CACHED_BYTES = 512 << 20
#: If they take more, questions are compared with this many entities and their answers.
_COMPARED = 1024


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
    masses, contexts = (torch.cat(each) for each in zip(*((f.log_mass, f.context) for f in found), strict=True))
    return PartialAttention(masses, contexts).of(to_device(np.argsort(np.concatenate(order)), cls.device))


def _attend_once(layer: Layer, queries: Tensor, states: States, texts: IntArray, segment: Tensor) -> PartialAttention:
    attention, heads = layer.attention.self, queries.shape[1]
    counts = states.counts[texts]
    longest = int(counts.max())
    from_flat, to_block = padded(states.offsets, texts, longest)
    tokens = states.rows[torch.from_numpy(from_flat)].to(segment.device).float() + segment
    keys, values = (project(tokens).unflatten(1, (heads, -1)) for project in (attention.key, attention.value))
    lookups = to_device(np.repeat(np.arange(len(texts)), counts), queries.device)
    logits = (queries.index_select(0, lookups) * keys).sum(dim=2) * attention.scaling  # (tokens, heads)
    block = logits.new_full((len(texts) * longest, heads), -torch.inf)
    block = block.index_copy(0, to_device(to_block, logits.device), logits)
    log_mass = block.view(len(texts), longest, heads).logsumexp(dim=1)
    weights = (logits - log_mass.index_select(0, lookups)).exp()
    weights = dropout(weights, attention.dropout.p, attention.training)
    context = values.new_zeros(len(texts), *values.shape[1:]).index_add(0, lookups, weights[:, :, None] * values)
    return PartialAttention(log_mass, context)


def merge(layer: Layer, cls: Tensor, partial: list[PartialAttention]) -> Tensor:
    """The state of [CLS] after the layer, (pairs, width), from its attention to each segment.

    `cls` is its state before the layer, (pairs, width); every segment has one lookup for each pair.
    """
    shares = torch.stack([segment.log_mass for segment in partial]).softmax(dim=0)  # (segments, pairs, heads)
    context = reduce(torch.add, (s[:, :, None] * segment.context for s, segment in zip(shares, partial, strict=True)))
    attended = layer.attention.output(context.flatten(1), cls)
    after: Tensor = layer.output(layer.intermediate(attended), attended)
    return after


class PoolingEncoder(PairEncoder):
    """Reads pairs with the last layer of a pretrained model; all layers below it read each text alone, once."""

    def __init__(self, base: BaseModel, texts: GraphTexts) -> None:
        super().__init__(base, texts, base.layer_count - 1)
        self.match_embeddings.requires_grad_(False)  # no text is read with another one in view

    def forward(self, pairs: Pairs) -> Tensor:
        """[CLS] after and before the layer, and its contexts from anchor and candidate; shape (pairs, 4 · width)."""
        segments = self._segments(pairs)
        relations, _ = segments[0]
        starts = torch.from_numpy(relations.offsets[pairs.relations])
        cls = relations.rows[starts].to(self._base.device).float() + self.segment_embeddings[0]
        partial = []
        for segment, (states, texts) in zip(self.segment_embeddings, segments, strict=True):
            keys = np.stack([pairs.relations, texts])
            lookups, place, lookup_of = np.unique(keys, axis=1, return_index=True, return_inverse=True)
            asking = cls.index_select(0, to_device(place, cls.device))
            found = attend_once(self.upper[0], asking, states, lookups[1], segment)
            partial.append(found.of(to_device(lookup_of.reshape(-1), cls.device)))
        contexts = [segment.context.flatten(1) for segment in partial[1:]]
        return torch.cat([merge(self.upper[0], cls, partial), cls, *contexts], dim=1)

    @torch.no_grad()
    def contexts(self, relation: int, entities: IntArray) -> tuple[Tensor, Tensor]:
        """The [CLS] of a relation, (width,), and its attention context from each entity, (entities, width).

        With the current weights and without dropout.
        """
        relations, states = self._states[0].of(np.array([relation])), self._states[1].of(entities)
        cls = relations.rows[relations.offsets[relation]].to(self._base.device).float() + self.segment_embeddings[0]
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


class MatchingHead(PairHead):
    """Adds how well the attention context of the anchor matches that of the candidate.

    Through a single layer, [CLS] sees the sum of both, and a match is slow to learn from a sum.
    """

    def __init__(self, width: int, relation_count: int) -> None:
        super().__init__(width, relation_count)
        nn.init.zeros_(self.classifier.weight)  # the pair's own score starts as no correction
        nn.init.zeros_(self.classifier.bias)
        self.match = MatchScorer(width)

    def forward(self, read: Tensor) -> Tensor:
        """Scores; shape (pairs,). `read` is [CLS] after and before the layer, and both contexts: (pairs, 4 · width)."""
        _, first, anchor, candidate = read.chunk(4, dim=1)
        matched = (self.match.questions(first, anchor) * self.match.candidates(candidate)).sum(dim=1)
        scores: Tensor = super().forward(read) + matched
        return scores


class MatchScorer(nn.Module):
    """Encodes the two sides of a pair; the dot product says how well they match."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.question_network = small_network(2 * width, _HIDDEN, _DIM, _DROPOUT)
        self.candidate_network = small_network(width, _HIDDEN, _DIM, _DROPOUT)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(_TEMPERATURE)))

    def questions(self, first: Tensor, anchor: Tensor) -> Tensor:
        """From [CLS] before the layer and the anchor's context; shape (questions, coordinates)."""
        joined = torch.cat([_scaled(first), _scaled(anchor)], dim=1)
        return self.log_scale.exp() * normalize(self.question_network(joined), dim=1)

    def candidates(self, context: Tensor) -> Tensor:
        """Unit vectors; shape (candidates, coordinates)."""
        return normalize(self.candidate_network(_scaled(context)), dim=1)


def _scaled(vectors: Tensor) -> Tensor:
    return layer_norm(vectors, vectors.shape[1:])


def pretrain_matching(match: MatchScorer, encoder: PoolingEncoder, kg: KnowledgeGraph, epochs: int, seed: int) -> None:
    """Train the two networks on all questions of train; the encoder is not changed."""
    matching = MatchTraining(match, encoder, kg, seed)
    with progress("learning to match", total=epochs, unit="epochs") as advance:
        for epoch in range(1, epochs + 1):
            losses = list(matching.steps(epoch))
            advance(1, f"loss {np.mean(losses):.4f}")


class MatchTraining:
    """The training of a match scorer on the contexts of an encoder, before a pair is read.

    With the pretrained layer, the attention context of [CLS] from a text depends on the relation and the text alone.
    So a question can be compared with all entities at once, where reading pairs affords only a handful of negatives.
    """

    def __init__(self, match: MatchScorer, encoder: PoolingEncoder, kg: KnowledgeGraph, seed: int) -> None:
        self._match, self._kg, self._seed, self._device = match, kg, seed, match.log_scale.device
        self._contexts = _Contexts(encoder, len(kg.entities), len(kg.relations))
        self._optimizer = torch.optim.AdamW(match.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
        self._known = kg.known(("train",))
        queries = Queries.from_triples(kg.train)
        self._questions = queries.unique()[0]
        self._answers_per_question = len(queries) / max(len(self._questions), 1)
        self._relations = self._questions.directed_relations(len(kg.relations))

    def steps(self, epoch: int) -> Iterator[float]:
        """Ask every question once, batch by batch, and yield the loss of each."""
        rng = np.random.default_rng([self._seed, epoch])
        self._match.train()
        with forked_rng(self._device):  # dropout draws from torch's global generator
            torch.manual_seed(self._seed * 1_000_003 + epoch)
            for places in self._batches(rng):
                self._optimizer.zero_grad()
                loss = self._loss(places, rng)
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
                yield loss.item()

    @property
    def step_count(self) -> int:
        """The number of batches in an epoch."""
        return sum(1 for _ in self._batches(np.random.default_rng(0)))

    def _batches(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """Questions of one relation and side at a time, because they share the contexts of texts."""
        shuffled = rng.permutation(len(self._questions))
        order = shuffled[np.argsort(self._relations[shuffled], kind="stable")]
        groups = np.split(order, np.flatnonzero(np.diff(self._relations[order])) + 1)
        batches = [group[i : i + _BATCH] for group in groups for i in range(0, len(group), _BATCH)]
        yield from (batches[place] for place in rng.permutation(len(batches)))

    def _loss(self, places: IntArray, rng: np.random.Generator) -> Tensor:
        """Cross-entropy of the answers against all compared entities."""
        questions, relation = self._questions[places], int(self._relations[places[0]])
        known = self._known.of(questions)
        compared = self._compared(known.ids, rng)
        cls, of_anchors = self._contexts.of(relation, questions.anchors)
        _, of_compared = self._contexts.of(relation, compared)
        scores = self._match.questions(cls.expand(len(places), -1), of_anchors) @ self._match.candidates(of_compared).T
        answered = known.rows, np.searchsorted(compared, known.ids)
        rows, answers = (to_device(each, self._device) for each in answered)
        weights = torch.full(rows.shape, 1 / (len(places) * self._answers_per_question), device=self._device)
        return softmax_loss(scores, rows, answers, weights, label_smoothing=0.0)

    def _compared(self, answers: IntArray, rng: np.random.Generator) -> IntArray:
        everyone = np.arange(len(self._kg.entities), dtype=np.int32)
        if self._contexts.is_cached or len(everyone) <= _COMPARED:
            return everyone
        return np.unique(np.concatenate([answers, rng.choice(everyone, _COMPARED, replace=False)]))


class _Contexts:
    """The attention contexts from entities, cached if they fit."""

    def __init__(self, encoder: PoolingEncoder, entity_count: int, relation_count: int) -> None:
        self._encoder, self._everyone = encoder, np.arange(entity_count)
        self._cached: dict[int, tuple[Tensor, Tensor]] = {}
        self.is_cached = 2 * relation_count * entity_count * encoder.width * 4 <= _CACHED_BYTES

    def of(self, relation: int, entities: IntArray) -> tuple[Tensor, Tensor]:
        """The [CLS] of a relation, (width,), and its context from each entity, (entities, width)."""
        if not self.is_cached:
            return self._encoder.contexts(relation, entities)
        if relation not in self._cached:
            self._cached[relation] = self._encoder.contexts(relation, self._everyone)
        cls, contexts = self._cached[relation]
        return cls, contexts[torch.from_numpy(entities).long()]


class PooledEncoder(PairModel):
    """Scores an answer by what a relation gathers from the texts of question and candidate, each pooled into a vector.

    Its settings are those of `PooledSettings`. No token of the question meets a token of the candidate, which makes it
    many times cheaper than a `CrossEncoder`, and blind to the words that the two share.

    >>> from cascader import Candidates, Entity, KnowledgeGraph, Relation
    >>> entities = Entity("d", "aspirin", "a drug against pain"), Entity("s", "pain", "a feeling that hurts")
    >>> kg = KnowledgeGraph("drugs", entities, (Relation("r", "treats"),), [[0, 0, 1]], [], [])
    >>> pooled = PooledEncoder(rounds=1).fit(kg)
    >>> pooled.score(kg.query("aspirin", "treats"), Candidates.from_lists([[1]])).shape
    (1,)
    """

    name = "pooled"
    tier = "pooled"
    settings_class: ClassVar[type[Settings]] = PooledSettings
    settings: PooledSettings

    _encoder: PoolingEncoder

    def __init__(self, **settings: Unpack[PooledOptions]) -> None:
        super().__init__(**settings)

    def _make(self, base: BaseModel, texts: GraphTexts, relation_count: int) -> tuple[PoolingEncoder, PairHead]:
        if base.layer_count < 2:
            raise SettingsError(
                f"{base.name} has {base.layer_count} layer, but a pooled encoder needs one to read texts and one more "
                "to pool them. Choose a base of at least two layers."
            )
        head = MatchingHead if self.settings.pretraining_epochs else PairHead
        return PoolingEncoder(base, texts), head(base.width, relation_count)

    def _pretrain(self, kg: KnowledgeGraph) -> None:
        if isinstance(self._head, MatchingHead):
            pretrain_matching(self._head.match, self._encoder, kg, self.settings.pretraining_epochs, self.settings.seed)

    def _seconds_to_pretrain(self, kg: KnowledgeGraph) -> float:
        if not isinstance(self._head, MatchingHead):
            return 0.0
        matching = MatchTraining(self._head.match, self._encoder, kg, self.settings.seed)
        step = seconds_per_step(matching.steps(1))
        return step * matching.step_count * self.settings.pretraining_epochs

    def _blocks(self, pairs: Pairs) -> Iterator[IntArray]:
        for start in range(0, len(pairs), _PAIRS_AT_ONCE):
            yield np.arange(start, min(start + _PAIRS_AT_ONCE, len(pairs)))

    def token_counts(self, queries: Queries, candidates: Candidates) -> IntArray:
        """How many tokens are read for each pair, (candidates,); the first pair pays for a text that it shares."""
        pairs = self._pairs(queries, candidates)
        tokens = np.zeros(len(pairs), dtype=np.int64)
        for places in self._blocks(pairs):
            tokens[places] = self._encoder.new_lengths(pairs[places])
        return tokens

    @property
    def pairs_to_measure(self) -> int:
        """How many pairs it takes to measure the speed: enough to share as many texts as usual."""
        return _PAIRS_AT_ONCE
