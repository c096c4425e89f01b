"""Train late interaction: questions are compared with their answers, and with what else a batch names or draws."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from cascader.graph import IntArray, KnowledgeGraph, Queries
from cascader.models.device import to_device
from cascader.models.optimization import (
    Draws,
    hard_negatives,
    in_batches,
    sample_entities,
    softmax_loss,
    trainable_parameters,
)
from cascader.models.parallel import ComparedQuestions, SharedTraining
from cascader.models.plausibility import Plausibility
from cascader.models.text.late_tokens import QuestionTokens, TokenMatcher, TokenRows, by_length, learned_matches
from cascader.models.text.settings import LateSettings
from cascader.scoring.scorer import Scorer


class LateTraining(SharedTraining[IntArray, ComparedQuestions]):
    """The training of a matcher on the kept states of a graph's tokens."""

    def __init__(
        self,
        matcher: TokenMatcher,
        states: tuple[TokenRows, TokenRows],
        settings: LateSettings,
        kg: KnowledgeGraph,
        earlier: Scorer | None,
        validate: Callable[[], float | None],
    ) -> None:
        self._matcher, self.states = matcher, states
        self._entities, self._relations = states
        self._settings, self._kg, self._validate = settings, kg, validate
        rate, decay = settings.learning_rate, settings.weight_decay
        optimizer = torch.optim.AdamW(matcher.parameters(), lr=rate, weight_decay=decay)
        super().__init__(trainable_parameters(matcher), optimizer, settings.seed)
        # A score that must only add what the graph does not say by itself can leave that to the prior.
        self._prior = Plausibility().fit(kg) if settings.prior_weight else None
        self._known = kg.known(("train",))
        queries = Queries.from_triples(kg.train)
        self._questions = queries.unique()[0]
        self._answers_per_question = len(queries) / len(self._questions)
        self._hard = hard_negatives(earlier, self._questions, self._known, settings.hard_negatives).numpy()

    def _start_epoch(self, state: Mapping[str, Tensor] | None) -> None:
        self._matcher.train()

    def _batches(self, epoch: int, draws: Draws) -> list[IntArray]:
        """Every question once, in batches."""
        return in_batches(draws.numpy.permutation(len(self._questions)), self._settings.batch_size)

    @property
    def step_count(self) -> int:
        """The number of batches in an epoch."""
        return -(-len(self._questions) // self._settings.batch_size)

    def _drawn(self, batch: IntArray, draws: Draws) -> ComparedQuestions:
        questions = self._questions[batch]
        needed = np.concatenate([self._known.of(questions).ids, questions.anchors, self._hard[batch].reshape(-1)])
        return ComparedQuestions(questions, self._compared(needed, draws.torch))

    def loss_of(self, work: ComparedQuestions) -> Tensor:
        """Cross-entropy of the known answers against everything compared, other answers included."""
        questions, compared = work.questions, work.compared
        known = self._known.of(questions)
        scores = self._scores(questions, compared)
        if self._prior is not None:
            prior = self._prior.score_all(questions)[:, compared]
            scores = scores + self._settings.prior_weight * to_device(prior, self.device)
        answers = to_device(np.searchsorted(compared, known.ids), self.device)
        rows, weight = to_device(known.rows, self.device), 1 / (len(questions) * self._answers_per_question)
        weights = torch.full(rows.shape, weight, device=self.device)
        return softmax_loss(scores, rows, answers, weights, label_smoothing=0.0)

    def _compared(self, needed: IntArray, generator: torch.Generator) -> IntArray:
        """The entities that answers are compared with, ascending: those `needed`, and a sample of the others."""
        count = len(self._kg.entities)
        if count <= self._settings.negatives:
            return np.arange(count)
        sampled = sample_entities(self._settings.negatives, count, generator).numpy()
        return np.unique(np.concatenate([needed, sampled]))

    def _scores(self, questions: Queries, compared: IntArray) -> Tensor:
        """Shape (questions, compared)."""
        asked = self._asked(questions).vectors
        entities = self._entities.take(compared)
        vectors = self._matcher.entity_vectors(entities)
        found, order = [], []
        for group in by_length(entities, np.arange(len(compared))):
            tokens = vectors.index_select(0, to_device(group.rows, self.device))
            found.append(learned_matches(asked, tokens, len(group.places)))
            order.append(group.places)
        back = np.argsort(np.concatenate(order))
        return torch.cat(found, dim=1).index_select(1, to_device(back, self.device))

    def _asked(self, questions: Queries) -> QuestionTokens:
        relations, each = questions.directed_relations(len(self._kg.relations)), np.arange(len(questions))
        texts = self._relations.take(relations), self._entities.take(questions.anchors)
        segments = [(tokens.with_rows(self._matcher.features(tokens)), each) for tokens in texts]
        return self._matcher.question_tokens(segments, to_device(relations, self.device))

    def validate(self) -> float | None:
        """The MRR on valid with the current weights."""
        self._matcher.eval()
        return self._validate()
