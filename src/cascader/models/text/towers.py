"""The two towers of a dual encoder, for questions and for entities (Section 2.2 of the paper), and their training.

A score is the dot product of their outputs. Repeated lookups use embedding() or index_select(): with several threads,
the gradient of indexing is summed in a random order, and a resumed training would not be the same.
sentence-transformers' trainer would tokenize the texts again at every step, cannot use the cached states of the lower
layers, and leaves the heads out of its checkpoints.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, layer_norm, logsigmoid, normalize, relu

from cascader.graph import IntArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.models.device import to_device
from cascader.models.optimization import (
    Draws,
    hard_negatives,
    in_batches,
    masked_softmax_loss,
    sample_entities,
    softmax_loss,
    trainable_parameters,
)
from cascader.models.parallel import ComparedQuestions, SharedTraining
from cascader.models.plausibility import Plausibility
from cascader.models.text.settings import DualSettings
from cascader.models.text.text_encoder import Encoder, TextEncoder
from cascader.scoring.scorer import Scorer


@dataclass(frozen=True)
class Batch:
    """A batch of questions, their answers, and the entities that these are compared with."""

    anchors: Tensor  # (questions,)
    relations: Tensor  # (questions,) inverse relations after the others
    rows: Tensor  # (answers,) the question of each answer
    answers: Tensor  # (answers,) its place among the compared entities
    weights: Tensor  # (answers,) of each answer in the loss
    compared: Tensor  # (compared,) entities
    is_known: Tensor  # (questions, compared) True where an entity is an answer
    prior: Tensor | None = None  # (questions, compared) added to the scores: what need not be learned from texts


class Towers(nn.Module):
    """Encodes questions and entities, and has the loss that trains it."""

    def question_vectors(self, encoder: Encoder, anchors: Tensor, relations: Tensor) -> Tensor:
        """Shape (questions, coordinates)."""
        raise NotImplementedError

    def entity_vectors(self, encoder: Encoder, entities: Tensor) -> Tensor:
        """Shape (entities, coordinates)."""
        raise NotImplementedError

    def loss(self, encoder: Encoder, asked: Batch) -> Tensor:
        """The loss of a batch."""
        raise NotImplementedError


class ContrastiveTowers(Towers):
    """Cosines of two small networks on text vectors, with a learned temperature and a softmax over entities.

    A relation is its text's vector plus a learned offset, for what its name does not say.
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

    def question_vectors(self, encoder: Encoder, anchors: Tensor, relations: Tensor) -> Tensor:
        """The anchor, moved by the relation; scaled by the inverse temperature."""
        anchor = self.anchor_network(self._scaled(encoder.entities(anchors)))
        offset = embedding(relations, self.relation_offsets)
        relation = self.relation_network(self._scaled(encoder.relations(relations))) + offset
        moved = anchor + self.joint_network(torch.cat([anchor, relation], dim=1))
        return self.log_scale.exp() * normalize(moved, dim=1)

    def entity_vectors(self, encoder: Encoder, entities: Tensor) -> Tensor:
        """Unit vectors."""
        return normalize(self.entity_network(self._scaled(encoder.entities(entities))), dim=1)

    def loss(self, encoder: Encoder, asked: Batch) -> Tensor:
        """Cross-entropy of the answers against everything compared (InfoNCE), with an additive margin."""
        questions = self.question_vectors(encoder, asked.anchors, asked.relations)
        scores = questions @ self.entity_vectors(encoder, asked.compared).T
        if asked.prior is not None:
            scores = scores + asked.prior
        if self._margin:
            scores = scores - self._margin * self.log_scale.exp() * asked.is_known
        if self._other_answers == "masked":
            return masked_softmax_loss(scores, asked.rows, asked.answers, asked.weights, asked.is_known)
        return softmax_loss(scores, asked.rows, asked.answers, asked.weights, label_smoothing=0.0)

    def _scaled(self, vectors: Tensor) -> Tensor:
        return layer_norm(vectors, (self._width,))


def small_network(width: int, hidden: int, dim: int, dropout: float) -> nn.Sequential:
    """A network with one hidden layer, from `width` to `dim`."""
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

    def question_vectors(self, encoder: Encoder, anchors: Tensor, relations: Tensor) -> Tensor:
        """[b∘u; 1; u·(a + c) + bias]."""
        return self._of_questions(encoder.questions(anchors, relations))

    def entity_vectors(self, encoder: Encoder, entities: Tensor) -> Tensor:
        """[v; v·(d - c); 1]."""
        return self._of_entities(encoder.entities(entities))

    def loss(self, encoder: Encoder, asked: Batch) -> Tensor:
        """The paper's three losses: triple classification, ranking, and relation classification."""
        u, v = encoder.questions(asked.anchors, asked.relations), encoder.entities(asked.compared)
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
        return torch.cat([b * u, u.new_ones(len(u), 1), constant[:, None]], dim=1)

    def _of_entities(self, v: Tensor) -> Tensor:
        *_, c, d = self.head.weight[0].chunk(4)
        return torch.cat([v, (v @ (d - c))[:, None], v.new_ones(len(v), 1)], dim=1)


class TowerEnsemble(Towers):
    """Several towers that share texts and batches but start from different weights; a score is the mean of theirs.

    Their vectors are concatenated, so scoring all answers to a question is still one matrix product.
    """

    def __init__(self, members: Iterable[Towers]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def question_vectors(self, encoder: Encoder, anchors: Tensor, relations: Tensor) -> Tensor:
        """Those of all members, divided by their number."""
        found = [towers.question_vectors(encoder, anchors, relations) for towers in self._towers()]
        return torch.cat(found, dim=1) / len(found)

    def entity_vectors(self, encoder: Encoder, entities: Tensor) -> Tensor:
        """Those of all members."""
        return torch.cat([towers.entity_vectors(encoder, entities) for towers in self._towers()], dim=1)

    def loss(self, encoder: Encoder, asked: Batch) -> Tensor:
        """The mean of the members' losses: each learns by itself, so that they differ."""
        return torch.stack([towers.loss(encoder, asked) for towers in self._towers()]).mean()

    def _towers(self) -> Iterator[Towers]:
        for towers in self.members:
            assert isinstance(towers, Towers)  # noqa: S101 - a ModuleList does not know what it holds
            yield towers


_TOWERS: dict[str, Callable[[int, int, DualSettings], Towers]] = {"contrastive": ContrastiveTowers, "star": StarTowers}


def build_towers(width: int, relation_count: int, settings: DualSettings) -> Towers:
    """Untrained towers for these settings; `width` is that of a text's vector."""
    members = [_TOWERS[settings.objective](width, relation_count, settings) for _ in range(settings.ensemble_size)]
    return TowerEnsemble(members) if len(members) > 1 else members[0]


class DualTraining(SharedTraining[IntArray, ComparedQuestions]):
    """The training of two towers, and of the trainable layers below them, on the texts of a graph."""

    def __init__(
        self,
        towers: Towers,
        encoder: TextEncoder,
        settings: DualSettings,
        kg: KnowledgeGraph,
        earlier: Scorer | None,
        validate: Callable[[], float | None],
    ) -> None:
        self._towers, self._encoder, self._settings, self._kg = towers, encoder, settings, kg
        self._validate = validate
        self._modules = nn.ModuleDict({"towers": towers, "upper": encoder.upper})
        optimizer = torch.optim.AdamW(
            [
                {"params": list(towers.parameters()), "lr": settings.learning_rate},
                {"params": list(encoder.upper.parameters()), "lr": settings.encoder_learning_rate},
            ],
            weight_decay=settings.weight_decay,
        )
        super().__init__(trainable_parameters(self._modules), optimizer, settings.seed)
        # A score that must only add what the graph does not say by itself can leave that to the prior.
        self._prior = Plausibility().fit(kg) if settings.prior_weight else None
        self._known = KnownAnswers(kg.train, len(kg.entities), len(kg.relations))
        queries = Queries.from_triples(kg.train)
        self._questions = queries.unique()[0]
        self._answers_per_question = len(queries) / len(self._questions)
        self._hard = hard_negatives(earlier, self._questions, self._known, settings.hard_negatives)

    def _start_epoch(self, state: Mapping[str, Tensor] | None) -> None:
        self._modules.train()

    def _drawn(self, batch: IntArray, draws: Draws) -> ComparedQuestions:
        questions = self._questions[batch]
        needed = np.concatenate([self._known.of(questions).ids, questions.anchors, self._hard[batch].flatten().numpy()])
        return ComparedQuestions(questions, self._compared(needed, draws.torch))

    def loss_of(self, work: ComparedQuestions) -> Tensor:
        """The loss of some questions."""
        return self._towers.loss(self._encoder, self._asked(work.questions, torch.from_numpy(work.compared)))

    @property
    def step_count(self) -> int:
        """The number of batches in an epoch."""
        return -(-len(self._questions) // self._settings.batch_size)

    def _batches(self, epoch: int, draws: Draws) -> list[IntArray]:
        """Every question once, in batches."""
        return in_batches(draws.numpy.permutation(len(self._questions)), self._settings.batch_size)

    def _asked(self, questions: Queries, compared: Tensor) -> Batch:
        known = self._known.of(questions)
        rows, golds = torch.from_numpy(known.rows), torch.from_numpy(known.ids).long()
        anchors = torch.from_numpy(questions.anchors).long()
        answers = torch.searchsorted(compared, golds)
        is_known = torch.zeros(len(questions), len(compared), dtype=torch.bool)
        is_known[rows, answers] = True
        weight, prior, device = (
            1 / (len(questions) * self._answers_per_question),
            self._prior_of(questions, compared),
            self.device,
        )
        return Batch(
            anchors=anchors.to(device),
            relations=to_device(questions.directed_relations(len(self._kg.relations)), device),
            rows=rows.to(device),
            answers=answers.to(device),
            weights=torch.full(rows.shape, weight, device=device),
            compared=compared.to(device),
            is_known=is_known.to(device),
            prior=None if prior is None else prior.to(device),
        )

    def _prior_of(self, questions: Queries, compared: Tensor) -> Tensor | None:
        if self._prior is None:
            return None
        return self._settings.prior_weight * torch.from_numpy(self._prior.score_all(questions)[:, compared.numpy()])

    def _compared(self, needed: IntArray, generator: torch.Generator) -> IntArray:
        """The entities that answers are compared with, ascending: those `needed`, and a sample of the others."""
        entity_count = len(self._kg.entities)
        if entity_count <= self._settings.negatives:
            return np.arange(entity_count)
        sampled = sample_entities(self._settings.negatives, entity_count, generator).numpy()
        return np.unique(np.concatenate([needed, sampled]))

    def validate(self) -> float | None:
        """The MRR on valid of the current towers."""
        self._modules.eval()
        return self._validate()
