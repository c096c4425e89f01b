"""Train a context encoder: each question is compared with the answers of all questions of its batch."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cascader.graph import IntArray, KnowledgeGraph, Queries
from cascader.models.device import to_device
from cascader.models.optimization import Draws, GradientTraining, in_batches, trainable_parameters
from cascader.models.text.context_towers import ContextTowers, Facts, Texts
from cascader.models.text.settings import ContextSettings
from cascader.models.text.split_encoder import States

#: Batches are made of questions of similar length, from this many batches' worth at a time.
_BATCHES_SORTED = 16
#: The rate of learning grows for so many steps, and falls with the root of the steps after so many.
_WARMING, _CONSTANT = 100, 1000
_GRADIENT_NORM = 1.0


class ContextTraining(GradientTraining[IntArray]):
    """The training of both towers on all facts of train, asked in both directions."""

    def __init__(
        self,
        towers: ContextTowers,
        states: States,
        vectors: tuple[Tensor, Tensor],
        settings: ContextSettings,
        kg: KnowledgeGraph,
        encode_entities: Callable[[], Tensor],
        validate: Callable[[Tensor], float | None],
    ) -> None:
        self._towers, self._states, self._settings = towers, states, settings
        self._vectors, self._phrases = vectors  # (entities, width), (2 × relations, width)
        self._encode_entities, self._validate = encode_entities, validate
        layers = [*towers.question_tower.layers.parameters(), *towers.entity_tower.layers.parameters()]
        of_layers = {id(parameter) for parameter in layers}
        others = [parameter for parameter in towers.parameters() if id(parameter) not in of_layers]
        self._rates = settings.encoder_learning_rate, settings.learning_rate
        optimizer = torch.optim.AdamW(
            [{"params": layers}, {"params": others}], lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        super().__init__(trainable_parameters(towers), optimizer, settings.seed)
        self._known, self._queries = kg.known(("train",)), Queries.from_triples(kg.train)
        self._facts = Facts(self._known)
        self._relations = self._queries.directed_relations(len(kg.relations))
        self._relation_count = len(kg.relations)
        self._encoded: Tensor | None = None  # the entities with the current weights, once they are known
        self._answers: Tensor  # the entities with the weights before the epoch

    def _start_epoch(self, state: Mapping[str, Tensor] | None) -> None:
        """Encode all entities with the weights before the epoch, unless that was done before it was interrupted."""
        self._answers = self.entities() if state is None else state["answers"].to(self._device)
        self._encoded = None  # they are about to change
        self._towers.train()

    def epoch_state(self) -> dict[str, Tensor]:
        """The draws, and the entities as they were encoded before the epoch."""
        return {**super().epoch_state(), "answers": self._answers}

    def _step(self, number: int) -> None:
        self._set_rates(number)
        nn.utils.clip_grad_norm_(self._towers.parameters(), _GRADIENT_NORM)
        super()._step(number)

    @property
    def step_count(self) -> int:
        """The number of batches in an epoch."""
        return -(-len(self._queries) // self._settings.batch_size)

    def validate(self) -> float | None:
        """The MRR on valid of the current towers."""
        self._towers.eval()
        return self._validate(self.entities())

    def load(self, weights: Mapping[str, Tensor], optimizer_state: Mapping[str, Tensor] | None) -> None:
        """Restore weights, and the state of the optimizer if training is to continue."""
        self._encoded = None
        super().load(weights, optimizer_state)

    def entities(self) -> Tensor:
        """The vectors of all entities with the current weights; shape (entities, coordinates)."""
        if self._encoded is None:
            self._towers.eval()
            self._encoded = self._encode_entities()
        return self._encoded

    def _batches(self, epoch: int, draws: Draws) -> list[IntArray]:
        """Questions of similar length, so that little is padded; the order of the batches is random."""
        size = self._settings.batch_size
        lengths = self._states.counts[self._queries.anchors]
        batches: list[IntArray] = []
        for some in in_batches(draws.numpy.permutation(len(self._queries)), size * _BATCHES_SORTED):
            batches += in_batches(some[np.argsort(lengths[some], kind="stable")], size)
        return [batches[place] for place in draws.numpy.permutation(len(batches))]

    def _set_rates(self, step: int) -> None:
        factor = min((step + 1) / _WARMING, math.sqrt(_CONSTANT / max(step, _CONSTANT)))
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = factor * rate

    def _loss(self, batch: IntArray, draws: Draws) -> Tensor:
        """Cross-entropy of each answer against those of the other questions, unless they are answers as well."""
        questions, relations = self._queries[batch], self._relations[batch]
        asked = self._question_vectors(questions, relations, self._answers, draws.numpy)
        scores = self._towers.log_scale.exp() * asked @ self._answer_vectors(questions, relations, draws.numpy).T
        scores = scores.masked_fill(self._is_other_answer(questions).to(self._device), -torch.inf)
        return cross_entropy(scores, torch.arange(len(batch), device=self._device))

    def _question_vectors(
        self, questions: Queries, relations: IntArray, answers: Tensor, rng: np.random.Generator
    ) -> Tensor:
        neighbors = self._facts.sample(questions, relations, self._settings.neighbors, rng)
        asked, ids = to_device(relations, self._device), torch.from_numpy(neighbors.ids)
        texts = Texts.of(self._states, self._vectors, questions.anchors)
        return self._towers.questions(asked, self._phrases[asked], texts, neighbors, (self._vectors[ids], answers[ids]))

    def _answer_vectors(self, questions: Queries, relations: IntArray, rng: np.random.Generator) -> Tensor:
        """The golds, each without the fact that makes it one."""
        golds = questions.required_golds()
        count = self._relation_count
        inverse = np.where(relations < count, relations + count, relations - count)
        reversed_ = Queries(golds, questions.relations, ~questions.predicts_tail, questions.anchors)
        neighbors = self._facts.sample(reversed_, inverse, self._settings.neighbors, rng)
        texts = Texts.of(self._states, self._vectors, golds)
        return self._towers.entities(texts, neighbors, self._vectors[torch.from_numpy(neighbors.ids)])

    def _is_other_answer(self, questions: Queries) -> Tensor:
        """Where the gold of another question is an answer to this one, too; shape (questions, questions)."""
        known, golds = self._known.of(questions), questions.required_golds()
        compared, place_of = np.unique(golds, return_inverse=True)
        places = np.searchsorted(compared, known.ids).clip(max=len(compared) - 1)
        is_compared = compared[places] == known.ids
        is_answer = np.zeros((len(questions), len(compared)), dtype=bool)
        is_answer[known.rows[is_compared], places[is_compared]] = True
        others = is_answer[:, place_of.reshape(-1)]
        np.fill_diagonal(others, False)
        return torch.from_numpy(others)
