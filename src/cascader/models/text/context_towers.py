"""The two towers of a context encoder: the upper layers of a language model over a text and the facts beside it.

A token that asks, which is the relation's in a question, attends to the tokens of an entity's text and to one token for
each of its facts. Only that token's state is needed, so the last layer computes no other.
"""

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, layer_norm, normalize, scaled_dot_product_attention

from cascader.graph import BoolArray, FloatArray, IntArray, KnownAnswers, Queries
from cascader.graph.arrays import offsets_of, positions_within
from cascader.models.device import to_device
from cascader.models.text.base_model import BaseModel, Layer
from cascader.models.text.settings import ContextSettings
from cascader.models.text.split_encoder import States

_HIDDEN = 512
#: Gates learn this many times faster than other weights: each belongs to one pair of relations.
_GATE_SPEED = 10.0


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Facts of entities: entity `rows[i]` of a batch is linked to `ids[i]` by `relations[i]`."""

    rows: IntArray  # (facts,) ascending
    relations: IntArray  # (facts,) directed: inverse relations after the others
    ids: IntArray  # (facts,)

    def of(self, rows: IntArray) -> tuple["Neighbors", BoolArray]:
        """The facts of some entities of the batch, ascending, which are numbered anew; and which facts these are."""
        is_kept = np.isin(self.rows, rows)
        place = np.searchsorted(rows, self.rows[is_kept])
        return Neighbors(place, self.relations[is_kept], self.ids[is_kept]), is_kept

    @classmethod
    def none(cls) -> "Neighbors":
        """No facts at all, as for entities that the graph does not have."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, nothing, nothing)


class Facts:
    """The known facts of every entity, of which a few at a time are read."""

    def __init__(self, known: KnownAnswers) -> None:
        queries = Queries.from_triples(known.triples)
        order = np.argsort(queries.anchors, kind="stable")
        self._relations = queries.directed_relations(known.relation_count)[order]
        self._ids = queries.required_golds()[order].astype(np.int64)
        self._offsets = offsets_of(np.bincount(queries.anchors, minlength=known.entity_count))
        # The facts of a hub are drawn in an order that does not change from one question to the next.
        self._order = np.random.default_rng(0).random(len(order))

    def of(self, entities: IntArray, count: int) -> Neighbors:
        """Return at most `count` facts of each entity, always the same ones."""
        rows, places = self._all(entities)
        return self._first(rows, places, self._order[places], count)

    def sample(self, questions: Queries, relations: IntArray, count: int, rng: np.random.Generator) -> Neighbors:
        """Draw at most `count` facts of each anchor; the fact that answers the question is left out."""
        rows, places = self._all(questions.anchors)
        golds = questions.required_golds()
        is_asked = (self._relations[places] == relations[rows]) & (self._ids[places] == golds[rows])
        rows, places = rows[~is_asked], places[~is_asked]
        return self._first(rows, places, rng.random(len(places)), count)

    def _all(self, entities: IntArray) -> tuple[IntArray, IntArray]:
        counts = np.diff(self._offsets)[entities]
        rows = np.repeat(np.arange(len(entities)), counts)
        return rows, np.repeat(self._offsets[entities], counts) + positions_within(counts)

    def _first(self, rows: IntArray, places: IntArray, order: FloatArray, count: int) -> Neighbors:
        """The first facts of each row by `order`."""
        by_row = np.lexsort((order, rows))
        rows, places = rows[by_row], places[by_row]
        is_first = positions_within(np.bincount(rows)) < count if len(rows) else np.empty(0, dtype=bool)
        rows, places = rows[is_first], places[is_first]
        return Neighbors(rows, self._relations[places], self._ids[places])


class ContextTower(nn.Module):
    """Encodes entities with their texts and facts, as seen by a token that asks."""

    def __init__(self, base: BaseModel, asking_count: int, relation_count: int, settings: ContextSettings) -> None:
        super().__init__()
        width = base.width
        self._width = width
        self.layers = copy.deepcopy(base.layers[base.layer_count - settings.trainable_layers :])
        self.asking = nn.Embedding(asking_count, width)
        self.relations = nn.Embedding(2 * relation_count, width)
        nn.init.normal_(self.asking.weight, std=0.1)
        nn.init.normal_(self.relations.weight, std=0.1)
        self.asking_network, self.asking_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.neighbor_network, self.neighbor_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.output = nn.Sequential(nn.Dropout(settings.dropout), nn.Linear(width, settings.dim))
        self.correction = nn.Sequential(
            nn.Dropout(settings.dropout),
            nn.Linear(2 * width, _HIDDEN),
            nn.GELU(),
            nn.Dropout(settings.dropout),
            nn.Linear(_HIDDEN, settings.dim),
        )

    def forward(self, asking: Tensor, phrases: Tensor, texts: "Texts", neighbors: Neighbors, of_ids: Tensor) -> Tensor:
        """Unit vectors; shape (entities, coordinates).

        `asking` (entities,) numbers the tokens that ask, and `phrases` (entities, width) says what they mean; `of_ids`
        (facts, width) are the vectors of the neighbors' texts.
        """
        count = len(asking)
        first = self.asking_norm(self.asking_network(phrases) + self.asking(asking))
        relations = self.relations(to_device(neighbors.relations, asking.device))
        of_facts = self.neighbor_norm(self.neighbor_network(of_ids)) + relations
        tokens = torch.cat([first, texts.states, of_facts])
        of_text = np.bincount(texts.rows, minlength=count)
        rows = np.concatenate([np.arange(count), texts.rows, neighbors.rows])
        after_text = 1 + of_text[neighbors.rows] + positions_within(np.bincount(neighbors.rows, minlength=count))
        positions = np.concatenate([np.zeros(count, dtype=np.int64), 1 + positions_within(of_text), after_text])
        read = _read(self.layers, tokens, _Places.of(rows, positions, count, asking.device))
        return normalize(self.output(read) + self.correction(torch.cat([texts.vectors, read], dim=1)), dim=1)


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of a batch of entities, as the lower layers leave them."""

    rows: IntArray  # (tokens,) the entity of each token, ascending
    states: Tensor  # (tokens, width)
    vectors: Tensor  # (entities, width) of whole texts

    @classmethod
    def of(cls, states: States, vectors: Tensor, entities: IntArray) -> "Texts":
        """Gather the texts of entities; `vectors` are those of all entities."""
        counts = states.counts[entities]
        places = np.repeat(states.offsets[entities], counts) + positions_within(counts)
        tokens = states.rows.index_select(0, torch.from_numpy(places)).to(vectors.device).float()
        rows = np.repeat(np.arange(len(entities)), counts)
        return cls(rows, tokens, vectors.index_select(0, to_device(entities, vectors.device).long()))


@dataclass(frozen=True, eq=False)
class _Places:
    """Where tokens without padding lie in a padded block."""

    flat: Tensor  # (tokens,)
    mask: Tensor  # (inputs, 1, 1, longest) True where there is a token

    @classmethod
    def of(cls, rows: IntArray, positions: IntArray, count: int, device: torch.device) -> "_Places":
        longest = int(positions.max(initial=0)) + 1
        flat = torch.from_numpy(rows * longest + positions)
        mask = torch.zeros(count * longest, dtype=torch.bool)
        mask[flat] = True
        return cls(flat.to(device), mask.view(count, 1, 1, longest).to(device))

    def padded(self, tokens: Tensor, heads: int) -> Tensor:
        """Shape (inputs, heads, longest, width of a head)."""
        count, *_, longest = self.mask.shape
        block = tokens.new_zeros(count * longest, tokens.shape[1]).index_copy(0, self.flat, tokens)
        return block.view(count, longest, heads, -1).transpose(1, 2)


def _read(layers: nn.ModuleList, tokens: Tensor, places: _Places) -> Tensor:
    """The states of the tokens that ask, which come first, after all layers; shape (inputs, width)."""
    count = len(places.mask)
    *lower, last = cast("Iterable[Layer]", layers)  # a ModuleList does not know what it holds
    for layer in lower:
        seen = _attend(layer, places.padded(layer.attention.self.query(tokens), _heads(layer)), tokens, places)
        tokens = _after_attention(layer, seen.index_select(0, places.flat), tokens)
    first = tokens[:count]
    asking = last.attention.self.query(first).view(count, 1, _heads(last), -1).transpose(1, 2)
    return _after_attention(last, _attend(last, asking, tokens, places), first)


def _heads(layer: Layer) -> int:
    return int(layer.attention.self.num_attention_heads)


def _attend(layer: Layer, queries: Tensor, tokens: Tensor, places: _Places) -> Tensor:
    """What `queries` see of the tokens; shape (inputs · queries, width)."""
    attention, heads = layer.attention.self, _heads(layer)
    keys, values = (places.padded(project(tokens), heads) for project in (attention.key, attention.value))
    seen = scaled_dot_product_attention(queries, keys, values, attn_mask=places.mask)
    return seen.transpose(1, 2).flatten(2).flatten(0, 1)


def _after_attention(layer: Layer, seen: Tensor, before: Tensor) -> Tensor:
    attended = layer.attention.output(seen, before)
    read: Tensor = layer.output(layer.intermediate(attended), attended)
    return read


class ContextTowers(nn.Module):
    """A tower for questions, one for entities, and gates through which a neighbor can be part of the question.

    The gate of a relation asked and a relation known says how much of a neighbor's own vector a question takes over:
    all of it where the known relation is the inverse of a symmetric one.
    """

    def __init__(self, base: BaseModel, relation_count: int, settings: ContextSettings) -> None:
        super().__init__()
        self._width = base.width
        self.question_tower = ContextTower(base, 2 * relation_count, relation_count, settings)
        self.entity_tower = ContextTower(base, 1, relation_count, settings)
        self.gates = nn.Parameter(torch.zeros(2 * relation_count * 2 * relation_count, 1))
        self.log_scale = nn.Parameter(torch.tensor(-math.log(settings.temperature)))

    def questions(
        self,
        relations: Tensor,
        phrases: Tensor,
        texts: Texts,
        neighbors: Neighbors,
        of_ids: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Unit vectors; shape (questions, coordinates).

        `of_ids` are the vectors of the neighbors' texts, (facts, width), and those of the neighbors as answers, (facts,
        coordinates).
        """
        alone = self.question_tower(relations, phrases, texts, neighbors, of_ids[0])
        rows = to_device(neighbors.rows, alone.device)
        count = self.question_tower.relations.num_embeddings
        known = to_device(neighbors.relations, alone.device)
        gates = embedding(relations[rows] * count + known, self.gates)
        taken_over = torch.zeros_like(alone).index_add(0, rows, _GATE_SPEED * gates * of_ids[1])
        return normalize(alone + taken_over, dim=1)

    def entities(self, texts: Texts, neighbors: Neighbors, of_ids: Tensor) -> Tensor:
        """Unit vectors; shape (entities, coordinates)."""
        count = len(texts.vectors)
        nothing = texts.vectors.new_zeros(count, self._width)
        asking = nothing.new_zeros(count, dtype=torch.long)
        vectors: Tensor = self.entity_tower(asking, nothing, texts, neighbors, of_ids)
        return vectors


def scaled(vectors: Tensor) -> Tensor:
    """Vectors of texts with mean 0 and variance 1 each, as layers expect them."""
    return layer_norm(vectors, vectors.shape[1:])
