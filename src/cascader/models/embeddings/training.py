"""Train an embedding: batches, losses, regularizers, and a look at valid."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding

from cascader.errors import DataError, SettingsError
from cascader.evaluation import evaluate
from cascader.graph import IntArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.graph.ragged import positions_within
from cascader.models.embeddings.embedding import Embedding, directed
from cascader.models.training import Schedule, train
from cascader.models.training.checkpoints import Checkpoint
from cascader.models.training.losses import self_adversarial, softmax_loss
from cascader.models.training.negatives import is_negative, sample_entities
from cascader.models.training.optimizers import memory_of, restore_memory


def fit(model: Embedding, kg: KnowledgeGraph, folder: Path | None, max_minutes: float) -> None:
    """Train `model` on `kg`, and leave in it the vectors that were best on valid."""
    check_trainable(model, kg)
    settings, started = model.settings, time.monotonic()
    training = Training(model, kg)
    schedule = Schedule(settings.epochs, settings.valid_every, settings.patience, max_minutes)
    history = train(training, schedule, _checkpoint(model, kg, folder), time.monotonic() - started)
    model.entities_, model.relations_ = model.entities_.detach(), model.relations_.detach()
    model.history_ = history.as_dict()


def _checkpoint(model: Embedding, kg: KnowledgeGraph, folder: Path | None) -> Checkpoint | None:
    if folder is None:
        return None
    # More epochs or more patience may be asked for later; anything else makes it another training.
    settings = {k: v for k, v in model.settings.as_dict().items() if k not in ("epochs", "patience")}
    identity = {"model": model.name, "data hash": kg.data_hash, **settings}
    return Checkpoint(folder / "checkpoint.safetensors", identity, type(model)().settings.as_dict())


def check_trainable(model: Embedding, kg: KnowledgeGraph) -> None:
    """Refuse a graph without triples, and one that is too large for the machine."""
    if len(kg.train) == 0:
        raise DataError(f"{kg.name} has no train triples to learn from. Add some, or hold fewer back.")
    _check_memory(model, kg)


def _check_memory(model: Embedding, kg: KnowledgeGraph) -> None:
    """Refuse what cannot fit: weights, gradients, the optimizer's memory, the best weights, and a batch of scores."""
    entity_width, relation_width = model.widths()
    weights = len(kg.entities) * entity_width + 2 * len(kg.relations) * relation_width
    needed = 4 * (6 * weights + 3 * model.settings.batch_size * len(kg.entities))
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
class _Batch:
    """Questions with the answers that the loss needs."""

    anchors: Tensor
    relations: Tensor
    golds: Tensor  # (answers,)
    rows: Tensor  # (answers,) the question that each answer belongs to
    weights: Tensor  # (answers,) what each answer counts; in all, about one
    queries: Queries


class Training:
    """What the loop trains: an embedding on a graph."""

    def __init__(self, model: Embedding, kg: KnowledgeGraph) -> None:
        settings = model.settings
        generator = torch.Generator().manual_seed(settings.seed)
        entities, relations = model.initial(generator, len(kg.entities), len(kg.relations))
        model.entities_, model.relations_ = entities.requires_grad_(), relations.requires_grad_()
        self._model, self._kg, self._recipe = model, kg, settings
        parameters = [model.entities_, model.relations_]
        kind = torch.optim.Adagrad if settings.optimizer == "adagrad" else torch.optim.Adam
        self._optimizer: torch.optim.Optimizer = kind(parameters, lr=settings.learning_rate)
        self._known = KnownAnswers(kg.train, len(kg.entities), len(kg.relations))
        self._facts = Queries.from_triples(kg.train)
        self._question_of = self._facts.unique()[1]

    def train_epoch(self, epoch: int) -> float:
        """Train on every fact once from each side, and return the mean loss."""
        total, row_count = 0.0, 0
        for loss, rows in self.steps(epoch):
            total += loss * rows
            row_count += rows
            if not np.isfinite(total):
                break  # no use to go on: the loop says so
        return total / row_count

    def steps(self, epoch: int) -> Iterator[tuple[float, int]]:
        """Train an epoch batch by batch, each with its loss and how many rows it had."""
        generator = torch.Generator().manual_seed(self._recipe.seed * 1_000_003 + epoch)
        for batch in self._batches(epoch):
            self._optimizer.zero_grad()
            loss = self._loss(batch, generator)
            loss.backward()  # type: ignore[no-untyped-call]
            # Said aloud, or torch warns that nobody has decided.
            with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
                self._optimizer.step()
            yield loss.item(), len(batch.queries)

    def _batches(self, epoch: int) -> Iterator[_Batch]:
        rng = np.random.default_rng([self._recipe.seed, epoch])
        facts, row_of = self._rows(rng)
        starts = np.searchsorted(row_of, np.arange(row_of[-1] + 2))  # of each row's facts
        order = rng.permutation(len(starts) - 1)
        answers_per_row = len(facts) / len(order)
        for first in range(0, len(order), self._recipe.batch_size):
            chosen = order[first : first + self._recipe.batch_size]
            counts = starts[chosen + 1] - starts[chosen]
            rows = torch.from_numpy(np.repeat(np.arange(len(chosen)), counts))
            queries = self._facts[facts[starts[chosen]]]
            golds = self._facts.required_golds()[facts[np.repeat(starts[chosen], counts) + positions_within(counts)]]
            yield _Batch(
                anchors=torch.from_numpy(queries.anchors.astype(np.int64)),
                relations=torch.from_numpy(directed(queries, len(self._kg.relations))),
                golds=torch.from_numpy(golds.astype(np.int64)),
                rows=rows,
                weights=self._weights(rows, len(chosen), answers_per_row),
                queries=queries,
            )

    def _rows(self, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """The facts in the order of their rows, and the row of each; shapes (facts,).

        Answers that share a row share its scores: the same loss as a row an answer, for far fewer products, but also
        for fewer steps of the optimizer.
        """
        at_most = 1 if self._recipe.loss == "negative-sampling" else self._recipe.answers_per_row
        shuffled = rng.permutation(len(self._facts))
        facts = shuffled[np.argsort(self._question_of[shuffled], kind="stable")]
        questions = self._question_of[facts]
        place = np.arange(len(facts)) - np.searchsorted(questions, questions)  # of a fact among its question's
        is_first = place % at_most == 0
        return facts, np.cumsum(is_first) - 1

    def _weights(self, rows: Tensor, row_count: int, answers_per_row: float) -> Tensor:
        """What each answer counts: all alike, or a question's answers as much as another's."""
        if self._recipe.loss == "k-vs-all":
            return 1 / (row_count * torch.bincount(rows)[rows])
        return torch.full(rows.shape, 1 / (row_count * answers_per_row))

    def _loss(self, batch: _Batch, generator: torch.Generator) -> Tensor:
        model, settings = self._model, self._recipe
        anchors = self._entities(batch.anchors)
        relations = embedding(batch.relations, model.relations_)
        golds = self._entities(batch.golds)
        expected = model.translate(
            _dropped(anchors, settings.dropout, generator), _dropped(relations, settings.relation_dropout, generator)
        )
        if settings.loss == "negative-sampling":
            loss = self._sampled_loss(batch, expected, golds, generator)
        else:
            entities, answers = self._compared(batch.golds, generator)
            scores = model.similarity(expected, entities)
            loss = softmax_loss(scores, batch.rows, answers, batch.weights, settings.label_smoothing)
        if settings.relation_weight:
            scores = model.relation_scores(anchors.index_select(0, batch.rows), golds, model.relations_)
            losses = cross_entropy(scores, batch.relations[batch.rows], reduction="none")
            loss = loss + settings.relation_weight * (losses @ batch.weights)
        if settings.regularizer != "none" and settings.regularizer_weight:
            of_questions = torch.zeros(len(anchors)).index_add_(0, batch.rows, batch.weights)
            penalty = self._penalty(anchors) @ of_questions + self._penalty(relations) @ of_questions
            loss = loss + settings.regularizer_weight * (penalty + self._penalty(golds) @ batch.weights)
        return loss

    def _entities(self, places: Tensor) -> Tensor:
        """Vectors of entities; shape (places, entity width)."""
        # embedding() and not indexing: its gradient adds up in a fixed order, so that a resumed training is the same.
        # A sparse gradient spares the optimizer the entities that a batch has not touched.
        is_sparse = self._recipe.loss == "1-vs-sample" and self._recipe.optimizer == "adagrad"
        return embedding(places, self._model.entities_, sparse=is_sparse)

    def _compared(self, golds: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The vectors that the answers are compared with, (entities, entity width), and where the answers stand."""
        if self._recipe.loss != "1-vs-sample":
            return self._model.entities_, golds
        sampled = sample_entities(self._recipe.negatives, len(self._kg.entities), generator)
        compared: Tensor = torch.unique(torch.cat([golds, sampled]))
        return self._entities(compared), torch.searchsorted(compared, golds)

    def _sampled_loss(self, batch: _Batch, expected: Tensor, golds: Tensor, generator: torch.Generator) -> Tensor:
        model, settings = self._model, self._recipe
        sampled = sample_entities(settings.negatives, len(self._kg.entities), generator)
        negative = is_negative(sampled, self._known.of(batch.queries), len(self._kg.entities))
        return self_adversarial(
            model.pairwise(expected, golds),
            model.similarity(expected, self._entities(sampled)),
            negative,
            settings.margin,
            settings.adversarial_temperature,
        )

    def _penalty(self, used: Tensor) -> Tensor:
        """Keep what a batch uses small, the frequent more often (Lacroix et al., 2018); shape (vectors,)."""
        power = 3.0 if self._recipe.regularizer == "n3" else self._recipe.regularizer_power
        return (self._model.sizes(used) ** power).sum(dim=1)

    def validate(self) -> float | None:
        """The MRR on valid."""
        if len(self._kg.valid) == 0:
            return None
        with torch.no_grad():
            return evaluate(self._model, self._kg, "valid").mrr

    def weights(self) -> dict[str, Tensor]:
        """The vectors."""
        return {"entities": self._model.entities_.detach(), "relations": self._model.relations_.detach()}

    def optimizer_state(self) -> dict[str, Tensor]:
        """What the optimizer remembers of each vector."""
        return memory_of(self._optimizer)

    def load(self, weights: Mapping[str, Tensor], optimizer_state: Mapping[str, Tensor] | None) -> None:
        """Take vectors, and the optimizer's memory if it is to go on."""
        with torch.no_grad():
            self._model.entities_.copy_(weights["entities"])
            self._model.relations_.copy_(weights["relations"])
        if optimizer_state:
            restore_memory(self._optimizer, optimizer_state)


def _dropped(vectors: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Set a share of the coordinates to nought, and make up for it in the others."""
    if not share:
        return vectors
    kept = torch.rand(vectors.shape, generator=generator) >= share
    return vectors * kept / (1 - share)
