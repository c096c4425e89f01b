"""The two towers of a dual encoder, for questions and for entities; a score is the dot product of their tops.

What is looked up several times is looked up with embedding() or index_select(): the gradient of indexing adds up in a
random order when there are several threads, and a resumed training would not be the same.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, layer_norm, logsigmoid, normalize, relu

from cascader.models.text.settings import DualSettings
from cascader.models.text.text_encoder import Reader
from cascader.models.training.losses import masked_softmax_loss, softmax_loss


@dataclass(frozen=True)
class Batch:
    """A batch of questions, their answers, and the entities that these are compared with."""

    anchors: Tensor  # (questions,)
    relations: Tensor  # (questions,) those asked backwards behind the others
    rows: Tensor  # (answers,) the question of each answer
    answers: Tensor  # (answers,) its place among the compared entities
    weights: Tensor  # (answers,) what it counts
    compared: Tensor  # (compared,) entities
    is_known: Tensor  # (questions, compared) True where an entity is an answer


class Towers(nn.Module):
    """Vectors of questions and entities, and the loss that shapes them."""

    def question_vectors(self, reader: Reader, anchors: Tensor, relations: Tensor) -> Tensor:
        """Shape (questions, coordinates)."""
        raise NotImplementedError

    def entity_vectors(self, reader: Reader, entities: Tensor) -> Tensor:
        """Shape (entities, coordinates)."""
        raise NotImplementedError

    def loss(self, reader: Reader, asked: Batch) -> Tensor:
        """How far the vectors are from what they should be."""
        raise NotImplementedError


class ContrastiveTowers(Towers):
    """Cosines of two small networks on text vectors, with a learnt temperature and a softmax over all that is compared.

    The relation is its text's vector plus an offset of its own, for what its name does not say.
    """

    def __init__(self, width: int, relation_count: int, settings: DualSettings) -> None:
        super().__init__()
        self._width, self._margin, self._other_answers = width, settings.margin, settings.other_answers
        self.entity_network = small_network(width, settings.hidden, settings.dim, settings.dropout)
        self.anchor_network = small_network(width, settings.hidden, settings.dim, settings.dropout)
        self.relation_network = nn.Linear(width, settings.dim)
        self.relation_offsets = nn.Parameter(0.1 * torch.randn(2 * relation_count, settings.dim))
        self.joint_network = nn.Sequential(
            nn.Linear(2 * settings.dim, settings.hidden),
            nn.GELU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, settings.dim),
        )
        self.log_scale = nn.Parameter(torch.tensor(-math.log(settings.temperature)))

    def question_vectors(self, reader: Reader, anchors: Tensor, relations: Tensor) -> Tensor:
        """The anchor, moved by the relation; as long as the temperature says."""
        anchor = self.anchor_network(self._scaled(reader.entities(anchors)))
        offset = embedding(relations, self.relation_offsets)
        relation = self.relation_network(self._scaled(reader.relations(relations))) + offset
        moved = anchor + self.joint_network(torch.cat([anchor, relation], dim=1))
        return self.log_scale.exp() * normalize(moved, dim=1)

    def entity_vectors(self, reader: Reader, entities: Tensor) -> Tensor:
        """Of length one."""
        return normalize(self.entity_network(self._scaled(reader.entities(entities))), dim=1)

    def loss(self, reader: Reader, asked: Batch) -> Tensor:
        """Cross-entropy of the answers against everything compared (InfoNCE), with an additive margin."""
        questions = self.question_vectors(reader, asked.anchors, asked.relations)
        scores = questions @ self.entity_vectors(reader, asked.compared).T
        if self._margin:
            scores = scores - self._margin * self.log_scale.exp() * asked.is_known
        if self._other_answers == "masked":
            return masked_softmax_loss(scores, asked.rows, asked.answers, asked.weights, asked.is_known)
        return softmax_loss(scores, asked.rows, asked.answers, asked.weights, label_smoothing=0.0)

    def _scaled(self, vectors: Tensor) -> Tensor:
        return layer_norm(vectors, (self._width,))


def small_network(width: int, hidden: int, dim: int, dropout: float) -> nn.Sequential:
    """From vectors of `width` to coordinates, through one layer of hidden units."""
    return nn.Sequential(
        nn.Dropout(dropout), nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, dim)
    )


class StarTowers(Towers):
    """The paper's dual encoder: a linear head on [u; u∘v; u-v; v] of a question's vector u and an entity's v.

    The head is linear, so the score is u·(a + c) + v·(d - c) + (b∘u)·v: the dot product of two longer vectors.
    """

    def __init__(self, width: int, relation_count: int, settings: DualSettings) -> None:
        super().__init__()
        self._margin = settings.margin or 1.0
        self.head = nn.Linear(4 * width, 1)
        self.relation_head = nn.Linear(4 * width, 2 * relation_count)

    def question_vectors(self, reader: Reader, anchors: Tensor, relations: Tensor) -> Tensor:
        """[b∘u; 1; u·(a + c) + bias]."""
        return self._of_questions(reader.questions(anchors, relations))

    def entity_vectors(self, reader: Reader, entities: Tensor) -> Tensor:
        """[v; v·(d - c); 1]."""
        return self._of_entities(reader.entities(entities))

    def loss(self, reader: Reader, asked: Batch) -> Tensor:
        """Is the triple true, is the gold above the others, and which relation is it: the paper's three."""
        u, v = reader.questions(asked.anchors, asked.relations), reader.entities(asked.compared)
        scores = self._of_questions(u) @ self._of_entities(v).T
        golds, negative = scores[asked.rows, asked.answers], ~asked.is_known
        of_negatives = (logsigmoid(-scores) * negative).sum(dim=1) / negative.sum(dim=1).clamp_min(1)
        is_true = -(logsigmoid(golds) + of_negatives.index_select(0, asked.rows)) / 2
        shortfall = relu(self._margin - golds[:, None] + embedding(asked.rows, scores)) * negative[asked.rows]
        is_above = shortfall.sum(dim=1) / negative[asked.rows].sum(dim=1).clamp_min(1)
        u, v = embedding(asked.rows, u), embedding(asked.answers, v)
        relation_scores = self.relation_head(torch.cat([u, u * v, u - v, v], dim=1))
        which = cross_entropy(relation_scores, asked.relations[asked.rows], reduction="none")
        return (is_true + is_above + 0.25 * which) @ asked.weights

    def _of_questions(self, u: Tensor) -> Tensor:
        a, b, c, _ = self.head.weight[0].chunk(4)
        constant = u @ (a + c) + self.head.bias
        return torch.cat([b * u, torch.ones(len(u), 1), constant[:, None]], dim=1)

    def _of_entities(self, v: Tensor) -> Tensor:
        *_, c, d = self.head.weight[0].chunk(4)
        return torch.cat([v, (v @ (d - c))[:, None], torch.ones(len(v), 1)], dim=1)


class TowerEnsemble(Towers):
    """Several towers that stand on the same texts and learn from the same questions; a score is the mean of theirs.

    They start from different weights and err differently. The vectors lie end to end, so that all answers to a
    question are still one matrix product.
    """

    def __init__(self, members: Iterable[Towers]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def question_vectors(self, reader: Reader, anchors: Tensor, relations: Tensor) -> Tensor:
        """Those of all members, each with its share."""
        found = [towers.question_vectors(reader, anchors, relations) for towers in self._towers()]
        return torch.cat(found, dim=1) / len(found)

    def entity_vectors(self, reader: Reader, entities: Tensor) -> Tensor:
        """Those of all members."""
        return torch.cat([towers.entity_vectors(reader, entities) for towers in self._towers()], dim=1)

    def loss(self, reader: Reader, asked: Batch) -> Tensor:
        """Each member learns by itself: what is wanted is that they differ."""
        return torch.stack([towers.loss(reader, asked) for towers in self._towers()]).mean()

    def _towers(self) -> Iterator[Towers]:
        for towers in self.members:
            assert isinstance(towers, Towers)  # noqa: S101 - a ModuleList forgets what it holds
            yield towers


_TOWERS: dict[str, Callable[[int, int, DualSettings], Towers]] = {"contrastive": ContrastiveTowers, "star": StarTowers}


def build_towers(width: int, relation_count: int, settings: DualSettings) -> Towers:
    """The towers that a settings asks for, with fresh weights; `width` is that of a text's vector."""
    members = [_TOWERS[settings.objective](width, relation_count, settings) for _ in range(settings.ensemble_size)]
    return TowerEnsemble(members) if len(members) > 1 else members[0]
