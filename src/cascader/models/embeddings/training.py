"""Train an embedding: batches, losses, regularizers and validation."""

import os
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding

from cascader.errors import SettingsError
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.graph import IntArray, KnowledgeGraph, Queries
from cascader.graph.arrays import positions_within
from cascader.models.device import current_device
from cascader.models.embeddings.embedding import Embedding
from cascader.models.optimization import (
    Draws,
    GradientTraining,
    in_batches,
    is_negative,
    sample_entities,
    self_adversarial,
    softmax_loss,
)
from cascader.models.training import TrainingCost, seconds_for, seconds_per_step

#: A validation scores all entities for each question: in a large graph, a sample of valid has to do.
_MOST_SCORES = 1_000_000_000
#: The power of norms in each regularizer that does not leave it to the settings.
_POWERS = {"n3": 3.0, "dura": 2.0}
#: Where torch has sparse gradients.
_SPARSE_DEVICES = ("cpu", "cuda")
#: To time a training on a large graph, a sample is enough: a batch is no slower for the triples outside of it.
_TIMED_TRIPLES = 20_000


def check_memory(model: Embedding, kg: KnowledgeGraph) -> None:
    """Refuse a training on the CPU that needs more memory than the machine has.

    It needs the weights, their gradients, the optimizer's state, the best weights, and a batch of scores.
    """
    if current_device().type != "cpu":
        return
    settings, (entity_width, relation_width) = model.settings, model.widths()
    weights = len(kg.entities) * entity_width + 2 * len(kg.relations) * relation_width
    is_sampled = settings.loss in ("1-vs-sample", "negative-sampling")
    compared = settings.batch_size + settings.negatives if is_sampled else len(kg.entities)
    needed = 4 * (6 * weights + 3 * settings.batch_size * compared)
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return
    if needed > there:
        raise SettingsError(
            f"training {model.name} with dim {model.settings.dim} and batch_size {model.settings.batch_size} on "
            f"{kg.name} needs about {needed / 1e9:.0f} GB, and this machine has {there / 1e9:.0f}. "
            "Lower dim or batch_size."
        )


@dataclass(frozen=True)
class _Rows:
    """The facts of a batch, row after row: those of a row share their question."""

    facts: IntArray
    counts: IntArray  # the facts of each row

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True)
class _Batch:
    """Questions, and the answers that the loss needs."""

    anchors: Tensor
    relations: Tensor
    golds: Tensor  # (answers,)
    rows: Tensor  # (answers,) the question of each answer
    weights: Tensor  # (answers,) of each answer in the loss; they sum to about 1
    queries: Queries


class EmbeddingTraining(GradientTraining[_Rows]):
    """The training of an embedding on a graph."""

    def __init__(self, model: Embedding, kg: KnowledgeGraph) -> None:
        settings = model.settings
        generator = torch.Generator().manual_seed(settings.seed)
        entities, relations = model.initial(generator, len(kg.entities), len(kg.relations))
        entities, relations = (vectors.to(current_device()) for vectors in (entities, relations))
        self._entity_vectors, self._relation_vectors = entities.requires_grad_(), relations.requires_grad_()
        self._model, self._kg, self._settings = model, kg, settings
        self.take_vectors()
        parameters = {"entities": self._entity_vectors, "relations": self._relation_vectors}
        kind = torch.optim.Adagrad if settings.optimizer == "adagrad" else torch.optim.Adam
        super().__init__(parameters, kind(list(parameters.values()), lr=settings.learning_rate), settings.seed)
        self._facts = Queries.from_triples(kg.train)
        self._question_of = self._facts.unique()[1]
        self._row_count = _row_count(self._question_of, self.answers_per_row)

    def take_vectors(self) -> None:
        """Let the model score with what was learned so far."""
        model = self._model
        model.entities_ = self._entity_vectors.detach()
        model.relations_ = model.with_inverses(self._relation_vectors.detach())

    def _step(self, number: int) -> None:
        # Without an explicit choice, torch warns.
        with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
            super()._step(number)

    @property
    def step_count(self) -> int:
        """The number of batches in an epoch."""
        return -(-self._row_count // self._settings.batch_size)

    @property
    def answers_per_row(self) -> int:
        """How many answers may share a row; sampled negatives are for one answer."""
        return 1 if self._settings.loss == "negative-sampling" else self._settings.answers_per_row

    def _batches(self, epoch: int, draws: Draws) -> list[_Rows]:
        facts, row_of = self._rows(draws.numpy)
        starts = np.searchsorted(row_of, np.arange(row_of[-1] + 2))  # of each row's facts
        batches = []
        for chosen in in_batches(draws.numpy.permutation(len(starts) - 1), self._settings.batch_size):
            counts = starts[chosen + 1] - starts[chosen]
            batches.append(_Rows(facts[np.repeat(starts[chosen], counts) + positions_within(counts)], counts))
        return batches

    def _batch(self, rows: _Rows) -> _Batch:
        """The questions and answers of a batch as the loss needs them."""
        row_of = np.repeat(np.arange(len(rows)), rows.counts)
        queries = self._facts[rows.facts[np.cumsum(rows.counts) - rows.counts]]  # the first fact of each row
        golds = self._facts.required_golds()[rows.facts]
        device = self.device
        return _Batch(
            anchors=torch.from_numpy(queries.anchors.astype(np.int64)).to(device),
            relations=torch.from_numpy(queries.directed_relations(len(self._kg.relations))).to(device),
            golds=torch.from_numpy(golds.astype(np.int64)).to(device),
            rows=torch.from_numpy(row_of).to(device),
            weights=self._weights(torch.from_numpy(row_of), len(rows)).to(device),
            queries=queries,
        )

    def _rows(self, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """The facts in the order of their rows, and the row of each; shapes (facts,).

        Answers that share a row share its scores: the loss is the same as with one row per answer, for far fewer
        products, but also with fewer steps of the optimizer.
        """
        shuffled = rng.permutation(len(self._facts))
        facts = shuffled[np.argsort(self._question_of[shuffled], kind="stable")]
        questions = self._question_of[facts]
        place = np.arange(len(facts)) - np.searchsorted(questions, questions)  # of a fact among its question's
        is_first = place % self.answers_per_row == 0
        return facts, np.cumsum(is_first) - 1

    def _weights(self, rows: Tensor, row_count: int) -> Tensor:
        """The weight of each answer: all equal, or all questions equal."""
        if self._settings.loss == "k-vs-all":
            return 1 / (row_count * torch.bincount(rows)[rows])
        return torch.full(rows.shape, 1 / (row_count * (len(self._facts) / self._row_count)))

    def _loss(self, batch: _Rows, draws: Draws) -> Tensor:
        return self._loss_of(self._batch(batch), draws.torch)

    def _loss_of(self, batch: _Batch, generator: torch.Generator) -> Tensor:
        model, settings = self._model, self._settings
        anchors = self._entities(batch.anchors)
        directed = model.with_inverses(self._relation_vectors)
        relations = embedding(batch.relations, directed)
        golds = self._entities(batch.golds)
        predicted = model.transform(
            _dropped(anchors, settings.dropout, generator), _dropped(relations, settings.relation_dropout, generator)
        )
        if settings.loss == "negative-sampling":
            loss = self._sampled_loss(batch, predicted, golds, generator)
        else:
            entities, answers = self._compared(batch.golds, generator)
            scores = model.similarity(predicted, entities)
            loss = softmax_loss(scores, batch.rows, answers, batch.weights, settings.label_smoothing)
        if settings.relation_weight:
            scores = model.relation_scores(anchors.index_select(0, batch.rows), golds, directed)
            losses = cross_entropy(scores, batch.relations[batch.rows], reduction="none")
            loss = loss + settings.relation_weight * (losses @ batch.weights)
        if settings.regularizer != "none" and settings.regularizer_weight:
            of_questions = anchors.new_zeros(len(anchors)).index_add_(0, batch.rows, batch.weights)
            # DURA keeps the prediction small in place of what it is made from.
            parts = [predicted] if settings.regularizer == "dura" else [anchors, relations]
            penalty = sum((self._penalty(part) @ of_questions for part in parts), self._penalty(golds) @ batch.weights)
            loss = loss + settings.regularizer_weight * penalty
        return loss

    def _entities(self, places: Tensor) -> Tensor:
        """The vectors of entities; shape (places, entity width)."""
        # embedding(), not indexing: its gradient is summed in a fixed order, so a resumed training is the same.
        # With a sparse gradient, the optimizer skips the entities that are not in the batch.
        is_sparse = self._settings.loss == "1-vs-sample" and self._settings.optimizer == "adagrad"
        is_sparse = is_sparse and self.device.type in _SPARSE_DEVICES
        return embedding(places, self._entity_vectors, sparse=is_sparse)

    def _compared(self, golds: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The vectors that answers are compared with, (entities, entity width), and the answers' places among them."""
        if self._settings.loss != "1-vs-sample":
            return self._entity_vectors, golds
        sampled = sample_entities(self._settings.negatives, len(self._kg.entities), generator).to(self.device)
        compared: Tensor = torch.unique(torch.cat([golds, sampled]))
        return self._entities(compared), torch.searchsorted(compared, golds)

    def _sampled_loss(self, batch: _Batch, predicted: Tensor, golds: Tensor, generator: torch.Generator) -> Tensor:
        model, settings = self._model, self._settings
        sampled = sample_entities(settings.negatives, len(self._kg.entities), generator)
        known = self._kg.known(("train",)).of(batch.queries)
        negative = is_negative(sampled, known, len(self._kg.entities)).to(self.device)
        return self_adversarial(
            model.pairwise(predicted, golds),
            model.similarity(predicted, self._entities(sampled.to(self.device))),
            negative,
            settings.margin,
            settings.adversarial_temperature,
        )

    def _penalty(self, used: Tensor) -> Tensor:
        """Regularize the vectors of a batch, so frequent ones more often (Lacroix et al., 2018); shape (vectors,)."""
        power = _POWERS.get(self._settings.regularizer, self._settings.regularizer_power)
        return (self._model.norms(used) ** power).sum(dim=1)

    def validate(self) -> float | None:
        """The MRR on valid."""
        if len(self._kg.valid) == 0:
            return None
        self.take_vectors()
        with torch.no_grad():
            return _valid_mrr(self._model, self._kg, validated_triples(self._kg))


def validated_triples(kg: KnowledgeGraph) -> int:
    """How many triples of valid are asked for in a validation: all, unless there are very many entities."""
    return min(len(kg.valid), max(1, _MOST_SCORES // (2 * len(kg.entities))))


def _valid_mrr(model: Embedding, kg: KnowledgeGraph, count: int) -> float:
    """The MRR on a sample of valid, always the same."""
    queries = Queries.from_triples(kg.sample("valid", count, seed=0)).with_known(kg.known_before("valid"))
    return mean_reciprocal_rank(model, queries, kg.known())


def _dropped(vectors: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Set a share of the coordinates to 0, and scale up the others to compensate."""
    if not share:
        return vectors
    kept = (torch.rand(vectors.shape, generator=generator) >= share).to(vectors.device)
    return vectors * kept / (1 - share)


def _row_count(question_of: IntArray, answers_per_row: int) -> int:
    """How many rows it takes to ask every question, given the question of each fact."""
    return int(np.ceil(np.bincount(question_of) / answers_per_row).sum())


def estimate_cost(model: Embedding, kg: KnowledgeGraph) -> TrainingCost:
    """Time a few batches and a few validation queries, and estimate the whole training from them."""
    settings, sample = model.settings, _sample(kg)
    started = time.perf_counter()
    training = EmbeddingTraining(model, sample)
    preparing = (time.perf_counter() - started) * len(kg.train) / len(sample.train)
    step = seconds_per_step(training.steps(1))
    training.take_vectors()

    rows = _row_count(Queries.from_triples(kg.train).unique()[1], training.answers_per_row)
    return TrainingCost(
        preparing=preparing,
        epoch=step * -(-rows // settings.batch_size),
        look=seconds_for(lambda count: _valid_mrr(model, kg, count), validated_triples(kg)),
        epochs=settings.epochs,
        valid_every=settings.valid_every,
        parameters=model.parameter_count,
    )


def _sample(kg: KnowledgeGraph) -> KnowledgeGraph:
    if len(kg.train) <= _TIMED_TRIPLES:
        return kg
    return replace(kg, train=np.random.default_rng(0).permutation(kg.train)[:_TIMED_TRIPLES])
