"""The tokens of late interaction: the rows that are kept of each text, and how they are matched (ColBERT's MaxSim).

A question's token counts by its best match. The relation decides what a token of the anchor looks for and how much it
counts, so that "capital of Spain" looks for Spain if the question is what Madrid is part of, and for capitals if it is
what kind of thing Madrid is.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import embedding, layer_norm, normalize

from cascader.graph import IntArray, KnowledgeGraph
from cascader.graph.arrays import offsets_of, positions_within
from cascader.models.device import to_device
from cascader.models.files import array_of
from cascader.models.optimization import BackwardContext
from cascader.models.text.base_model import BaseModel
from cascader.models.text.reading import TOKENS_AT_ONCE, FrozenLayers
from cascader.models.text.settings import LateSettings
from cascader.models.text.split_encoder import token_batches
from cascader.models.text.text_model import GraphTexts, Tokens, name_in_text

#: The parts of texts: [CLS], which stands for a text as a whole, names, descriptions, and the phrases of relations.
WHOLE, NAME, DESCRIPTION, PHRASE = range(4)
PARTS = 4
#: Texts whose rows are in 32 bits at once: more would take up memory. Batches to read are drawn from as many.
_TEXTS_AT_ONCE = 4096
#: Dot products are computed in blocks that stay in a core's cache: rows of questions' tokens, columns of entities'.
_ROWS_AT_ONCE = 128
_COLUMNS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False)
class TokenRows:
    """A row for each token of texts: those of text i are `rows[offsets[i]:offsets[i + 1]]`, [CLS] first.

    [SEP] has no row. So a text of n tokens has n + 1 rows, and one without words still has its [CLS].
    """

    offsets: IntArray  # (texts + 1,)
    rows: Tensor  # (tokens, width)
    parts: Tensor  # (tokens,) uint8

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> IntArray:
        """How many rows each text has; shape (texts,)."""
        return np.diff(self.offsets)

    def mapped(self, rows_of: Callable[["TokenRows"], Tensor]) -> "TokenRows":
        """The same tokens with what `rows_of` makes of their rows, some texts at a time, in 16 bits."""
        rows = [rows_of(self.take(texts)).half() for texts in _runs(len(self))]
        return self.with_rows(torch.cat(rows))

    def to(self, device: torch.device) -> "TokenRows":
        """The same on a device."""
        return TokenRows(self.offsets, self.rows.to(device), self.parts.to(device))

    def tensors(self) -> dict[str, Tensor]:
        """What is saved of them."""
        return {"offsets": torch.from_numpy(self.offsets), "rows": self.rows, "parts": self.parts}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor]) -> "TokenRows":
        """The inverse of `tensors`."""
        rows, parts = tensors["rows"], tensors["parts"]
        offsets = array_of(tensors, "offsets", (None,), below=len(rows) + 1)
        array_of(tensors, "parts", (len(rows),), below=PARTS)
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(rows) or (np.diff(offsets) < 1).any():
            raise ValueError(f"its offsets do not cut {len(rows):,} tokens into texts")
        return cls(offsets, rows, parts)

    def with_rows(self, rows: Tensor) -> "TokenRows":
        """Other rows for the same tokens."""
        return TokenRows(self.offsets, rows, self.parts)

    def take(self, texts: IntArray) -> "TokenRows":
        """Some of the texts, in the order given."""
        counts = self.counts[texts]
        places = torch.from_numpy(np.repeat(self.offsets[texts], counts) + positions_within(counts))
        return TokenRows(offsets_of(counts), self.rows[places], self.parts[places])

    def padded(self, texts: IntArray) -> tuple[Tensor, Tensor]:
        """Where the rows of each text are, (texts, longest), and which of these places are tokens, not padding."""
        within, counts = np.arange(self.counts[texts].max(initial=1)), self.counts[texts][:, None]
        is_token = within < counts
        places = self.offsets[texts][:, None] + within * is_token
        return to_device(places, self.rows.device), to_device(is_token, self.rows.device)


@dataclass(frozen=True, eq=False)
class LateTexts:
    """The tokens of a graph and their parts; as in embeddings, inverse relations come after the others."""

    entities: Tokens
    entity_parts: Tensor
    relations: Tokens  # (2 × relations)
    relation_parts: Tensor

    @classmethod
    def of(cls, kg: KnowledgeGraph, base: BaseModel, max_tokens: int) -> "LateTexts":
        """Tokenize every entity and relation; entities are truncated after `max_tokens`, relations are not."""
        texts = GraphTexts.of(kg, base, max_tokens)
        names = Tokens.of([name_in_text(entity) for entity in kg.entities], base, max_tokens)
        of_entities, of_relations = (
            _parts(texts.entities, names.counts),
            _parts(texts.relations, texts.relations.counts),
        )
        of_relations[of_relations == NAME] = PHRASE
        return cls(texts.entities, of_entities, texts.relations, of_relations)

    def read(self, lower: FrozenLayers) -> tuple[TokenRows, TokenRows]:
        """The states of the tokens of entities and of relations after the given layers."""
        return (
            _read(lower, self.entities, self.entity_parts),
            _read(lower, self.relations, self.relation_parts),
        )

    def blank(self, width: int) -> tuple[TokenRows, TokenRows]:
        """Random states instead of those that reading would give."""
        texts = (self.entities, self.entity_parts), (self.relations, self.relation_parts)
        entities, relations = (
            TokenRows(offsets_of(tokens.counts + 1), torch.rand(len(parts), width).half(), parts)
            for tokens, parts in texts
        )
        return entities, relations


def _runs(count: int) -> Iterator[IntArray]:
    """The places of so many texts, some at a time; at least one run, which may be empty."""
    for start in range(0, max(1, count), _TEXTS_AT_ONCE):
        yield np.arange(start, min(start + _TEXTS_AT_ONCE, count))


def _parts(tokens: Tokens, name_counts: IntArray) -> Tensor:
    """The part of each token of texts that begin with a name of so many tokens, (texts,)."""
    counts = tokens.counts + 1
    place = positions_within(counts)
    is_name = place <= np.repeat(name_counts, counts)
    return torch.from_numpy(np.where(place == 0, WHOLE, np.where(is_name, NAME, DESCRIPTION)).astype(np.uint8))


def _read(lower: FrozenLayers, tokens: Tokens, parts: Tensor) -> TokenRows:
    """Read texts once, and keep the states of their tokens in 16 bits."""
    lengths = tokens.counts + 2
    batches = (run[some] for run in _runs(len(tokens)) for some in token_batches(lengths[run], TOKENS_AT_ONCE))
    states = lower.read(tokens, batches=batches, kept="float16")
    is_kept = torch.ones(len(states.rows), dtype=torch.bool)
    is_kept[torch.from_numpy(states.offsets[1:] - 1)] = False  # [SEP]
    return TokenRows(offsets_of(tokens.counts + 1), states.rows[is_kept], parts)


@dataclass(frozen=True, eq=False)
class QuestionTokens:
    """The tokens of questions that are matched; a score is the sum of their best dot products."""

    vectors: Tensor  # (questions, tokens, dim) scaled by their weights; 0 where a question has fewer tokens
    places: Tensor  # (questions, tokens) of each in the padded segments of its question
    weights: Tensor  # (questions, tokens) their sum is 1 for each question


class TokenMatcher(nn.Module):
    """Small projections of token states, for entities and for questions, and the weights of a question's tokens.

    Both projections start alike: before training, tokens are compared by their states.
    """

    def __init__(self, width: int, relation_count: int, settings: LateSettings) -> None:
        super().__init__()
        self._width, self._most = width, settings.question_tokens
        self.dropout = nn.Dropout(settings.dropout)
        self.entity_projection = nn.Linear(width, settings.dim, bias=False)
        self.question_projection = nn.Linear(width, settings.dim, bias=False)
        self.question_projection.load_state_dict(self.entity_projection.state_dict())
        self.entity_parts = nn.Parameter(torch.zeros(PARTS, settings.dim))
        self.question_parts = nn.Parameter(torch.zeros(PARTS, settings.dim))
        # By directed relation, and by part where a name and a description do not mean the same to it.
        self.relation_scales = nn.Parameter(torch.zeros(2 * relation_count, settings.dim))
        self.relation_offsets = nn.Parameter(0.02 * torch.randn(2 * relation_count * PARTS, settings.dim))
        self.importance = nn.Linear(width, 1)
        self.relation_importance = nn.Parameter(torch.zeros(2 * relation_count, settings.dim))
        self.part_importance = nn.Parameter(torch.zeros(2 * relation_count * PARTS, 1))
        self.log_scale = nn.Parameter(torch.tensor(-math.log(settings.temperature)))

    def entity_vectors(self, tokens: TokenRows) -> Tensor:
        """The unit vectors of entities' tokens, from their states; shape (tokens, dim)."""
        projected = self.entity_projection(self._scaled(tokens.rows))
        projected = projected + embedding(tokens.parts.long(), self.entity_parts)
        return normalize(projected, dim=1)

    def features(self, tokens: TokenRows) -> Tensor:
        """What questions use of tokens, whatever their relation: a vector and an importance, (tokens, dim + 1)."""
        states = self._scaled(tokens.rows)
        projected = self.question_projection(states) + embedding(tokens.parts.long(), self.question_parts)
        return torch.cat([projected, self.importance(states)], dim=1)

    def question_tokens(self, segments: Sequence[tuple[TokenRows, IntArray]], relations: Tensor) -> QuestionTokens:
        """Let the relation of each question weigh, choose and move its tokens.

        `segments` are the features of texts, and the text of each question; `relations`, (questions,), has inverse
        relations after the others.
        """
        features, parts, is_token = _joined(segments)
        vectors, importance = features[:, :, :-1], features[:, :, -1]
        of_part = relations[:, None] * PARTS + parts
        asked = (vectors @ embedding(relations, self.relation_importance)[:, :, None])[:, :, 0]
        logits = importance + asked + embedding(of_part, self.part_importance)[:, :, 0]
        kept = logits.masked_fill(~is_token, -torch.inf).topk(min(self._most, logits.shape[1]), dim=1)
        weights = kept.values.softmax(dim=1)
        vectors = vectors.gather(1, kept.indices[:, :, None].expand(-1, -1, vectors.shape[2]))
        moved = vectors * (1 + embedding(relations, self.relation_scales)[:, None])
        moved = moved + embedding(of_part.gather(1, kept.indices), self.relation_offsets)
        scaled = self.log_scale.exp() * weights[:, :, None] * normalize(moved, dim=2)
        return QuestionTokens(scaled, kept.indices, weights)

    def _scaled(self, states: Tensor) -> Tensor:
        scaled: Tensor = self.dropout(layer_norm(states.float(), (self._width,)))
        return scaled


def _joined(segments: Sequence[tuple[TokenRows, IntArray]]) -> tuple[Tensor, Tensor, Tensor]:
    """The rows of the segments of each question, (questions, tokens, width), their parts, and which are no padding."""
    rows, parts, is_token = [], [], []
    for tokens, texts in segments:
        places, is_one = tokens.padded(texts)
        rows.append(embedding(places, tokens.rows).float())
        parts.append(tokens.parts[places].long())
        is_token.append(is_one)
    return torch.cat(rows, dim=1), torch.cat(parts, dim=1), torch.cat(is_token, dim=1)


@dataclass(frozen=True, eq=False)
class Group:
    """Texts of similar length, padded to the longest of them."""

    places: IntArray  # (texts,) in what was grouped
    rows: IntArray  # (longest × texts,) of their tokens: the first of every text, the second of every text, ...


def by_length(tokens: TokenRows, texts: IntArray) -> Iterator[Group]:
    """Group texts by their number of tokens; a short text repeats its first token, which changes no maximum."""
    lengths = tokens.counts[texts]
    for places in token_batches(lengths, _COLUMNS_AT_ONCE):
        within = np.arange(lengths[places].max())[:, None]
        within = np.where(within < lengths[places], within, 0)
        yield Group(places, (tokens.offsets[texts[places]] + within).reshape(-1))


def best_matches(questions: Tensor, tokens: Tensor, count: int) -> Tensor:
    """Add up the best dot products of each question's tokens with the tokens of `count` entities.

    `questions` is (questions, tokens, dim), `tokens` is (dim, longest × count) in the order of a `Group`; the sums are
    (questions, count).
    """
    size, width, dim = questions.shape
    at_once = max(1, _ROWS_AT_ONCE // width)
    sums, buffer = questions.new_empty(size, count), questions.new_empty(at_once * width, tokens.shape[1])
    for start in range(0, size, at_once):
        some = questions[start : start + at_once]
        products = buffer[: len(some) * width]  # memory that is used again is twice as fast as new memory
        torch.mm(some.reshape(-1, dim), tokens, out=products)
        sums[start : start + at_once] = products.view(len(some), width, -1, count).amax(dim=2).sum(dim=1)
    return sums


def learned_matches(questions: Tensor, tokens: Tensor, count: int) -> Tensor:
    """The same, but with a gradient, and with `tokens` as (longest × count, dim)."""
    sums: Tensor = _BestMatches.apply(questions, tokens, count)  # type: ignore[no-untyped-call]
    return sums


class _BestMatches(torch.autograd.Function):
    """Keeps which token was the best match: only it has a gradient, so going back needs no dense products."""

    @staticmethod
    def forward(ctx: BackwardContext, questions: Tensor, tokens: Tensor, count: int) -> Tensor:
        rows, longest = questions.flatten(0, 1), len(tokens) // count
        best, chosen = rows.new_empty(len(rows), count), rows.new_empty(len(rows), count, dtype=torch.int32)
        columns = tokens.T.contiguous()
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            best[some], chosen[some] = _max((rows[some] @ columns).view(-1, longest, count))
        ctx.save_for_backward(questions, tokens, chosen)
        return best.view(*questions.shape[:2], count).sum(dim=1)

    @staticmethod
    def backward(ctx: BackwardContext, of_sums: Tensor) -> tuple[Tensor, Tensor, None]:
        # scipy's sparse products are those of the CPU; torch has none on some devices.
        questions, tokens, chosen = (tensor.cpu() for tensor in ctx.saved_tensors)
        count, width = chosen.shape[1], questions.shape[1]
        rows = questions.flatten(0, 1)
        matched = (chosen * count + torch.arange(count, dtype=torch.int32)).numpy()  # (rows, count) places in `tokens`
        weights = of_sums.cpu().repeat_interleave(width, dim=0).numpy()
        starts = np.arange(0, matched.size + 1, count)
        matches = csr_array((weights.reshape(-1), matched.reshape(-1), starts), shape=(len(rows), len(tokens)))
        of_questions = to_device(matches @ tokens.numpy(), of_sums.device).view_as(questions)
        return of_questions, to_device(matches.T @ rows.numpy(), of_sums.device), None


def _max(products: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum over the second of three dimensions, and its place; changes `products`.

    torch.max is ten times slower with places than amax is without. So the place is written into the lowest bits of each
    number, which changes it by one part in ten thousand at most, and read off the maximum.
    """
    longest = products.shape[1]
    low = (1 << (longest - 1).bit_length()) - 1
    bits = products.view(torch.int32)
    bits &= ~low
    bits |= torch.arange(longest, dtype=torch.int32, device=products.device)[None, :, None]
    best = products.amax(dim=1)
    return best, (best.view(torch.int32) & low).clamp(max=longest - 1)  # without a limit, NaN would point anywhere
