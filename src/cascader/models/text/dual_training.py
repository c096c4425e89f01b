"""Train a dual encoder (Section 2.2 of the paper): its batches, and what their answers are compared with.

sentence-transformers' trainer would tokenize the texts again at every step, cannot use the cached states of the lower
layers, and leaves the heads out of its checkpoints.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from cascader.graph import IntArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.models.plausibility import Plausibility
from cascader.models.text.settings import DualSettings
from cascader.models.text.text_encoder import TextEncoder
from cascader.models.text.towers import Batch, Towers
from cascader.models.training.optimization import (
    GradientTraining,
    hard_negatives,
    sample_entities,
    trainable_parameters,
)
from cascader.scoring.scorer import Scorer


class DualTraining(GradientTraining):
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
        super().__init__(trainable_parameters(self._modules), optimizer)
        # A score that must only add what the graph does not say by itself can leave that to the prior.
        self._prior = Plausibility().fit(kg) if settings.prior_weight else None
        self._known = KnownAnswers(kg.train, len(kg.entities), len(kg.relations))
        queries = Queries.from_triples(kg.train)
        self._questions = queries.unique()[0]
        self._answers_per_question = len(queries) / len(self._questions)
        self._hard = hard_negatives(earlier, self._questions, self._known, settings.hard_negatives)

    def steps(self, epoch: int) -> Iterator[tuple[float, int]]:
        """Ask every question once, batch by batch, and yield the loss and the number of questions of each batch."""
        generator = torch.Generator().manual_seed(self._settings.seed * 1_000_003 + epoch)
        self._modules.train()
        with torch.random.fork_rng(devices=[]):  # dropout draws from torch's global generator
            torch.manual_seed(self._settings.seed * 1_000_003 + epoch)
            for asked in self._batches(epoch, generator):
                self._optimizer.zero_grad()
                loss = self._towers.loss(self._encoder, asked)
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
                yield loss.item(), len(asked.anchors)

    @property
    def step_count(self) -> int:
        """The number of batches in an epoch."""
        return -(-len(self._questions) // self._settings.batch_size)

    def _batches(self, epoch: int, generator: torch.Generator) -> Iterator[Batch]:
        order = np.random.default_rng([self._settings.seed, epoch]).permutation(len(self._questions))
        for start in range(0, len(order), self._settings.batch_size):
            yield self._asked(order[start : start + self._settings.batch_size], generator)

    def _asked(self, places: IntArray, generator: torch.Generator) -> Batch:
        questions = self._questions[places]
        known = self._known.of(questions)
        rows, golds = torch.from_numpy(known.rows), torch.from_numpy(known.ids).long()
        anchors = torch.from_numpy(questions.anchors).long()
        compared = self._compared(torch.cat([golds, anchors, self._hard[places].flatten()]), generator)
        answers = torch.searchsorted(compared, golds)
        is_known = torch.zeros(len(questions), len(compared), dtype=torch.bool)
        is_known[rows, answers] = True
        return Batch(
            anchors=anchors,
            relations=torch.from_numpy(questions.directed_relations(len(self._kg.relations))),
            rows=rows,
            answers=answers,
            weights=torch.full(rows.shape, 1 / (len(questions) * self._answers_per_question)),
            compared=compared,
            is_known=is_known,
            prior=self._prior_of(questions, compared),
        )

    def _prior_of(self, questions: Queries, compared: Tensor) -> Tensor | None:
        if self._prior is None:
            return None
        return self._settings.prior_weight * torch.from_numpy(self._prior.score_all(questions)[:, compared.numpy()])

    def _compared(self, needed: Tensor, generator: torch.Generator) -> Tensor:
        """The entities that answers are compared with, ascending: those `needed`, and a sample of the others."""
        entity_count = len(self._kg.entities)
        if entity_count <= self._settings.negatives:
            return torch.arange(entity_count)
        sampled = sample_entities(self._settings.negatives, entity_count, generator)
        compared: Tensor = torch.unique(torch.cat([needed, sampled]))
        return compared

    def validate(self) -> float | None:
        """The MRR on valid of the current towers."""
        self._modules.eval()
        return self._validate()
