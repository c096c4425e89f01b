"""Train a context encoder: each question is compared with the answers of all questions of its batch."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cascader.graph import FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.models.device import to_device
from cascader.models.optimization import Draws, in_batches, trainable_parameters
from cascader.models.parallel import SharedTraining, parts_of
from cascader.models.text.context_towers import ContextTowers, Facts, Neighbors, Texts
from cascader.models.text.settings import ContextSettings
from cascader.models.text.split_encoder import States

#: Batches are made of questions of similar length, from this many batches' worth at a time.
_BATCHES_SORTED = 16
#: The rate of learning grows for so many steps, and falls with the root of the steps after so many.
_WARMING, _CONSTANT = 100, 1000
_GRADIENT_NORM = 1.0


@dataclass(frozen=True, eq=False)
class ContextWork:
    """The questions of a batch, and the facts that they and their answers are read with."""

    questions: Queries
    relations: IntArray  # (questions,) inverse relations after the others
    beside_questions: Neighbors
    taken_over: FloatArray  # (facts, coordinates) the neighbors of questions as answers, before the epoch
    beside_answers: Neighbors
    rows: IntArray  # ascending: the questions that are compared, with the answers of all

    def __len__(self) -> int:
        return len(self.rows)

    def shares(self, count: int) -> list[tuple["ContextWork", float]]:
        """Cut the questions into so many parts; every process encodes the answers to all of them."""
        parts = [self.rows[places] for places in parts_of(len(self), count)]
        return [(replace(self, rows=rows), len(rows) / len(self)) for rows in parts]


class ContextTraining(SharedTraining[IntArray, ContextWork]):
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
        self._answers = self.entities() if state is None else state["answers"].to(self.device)
        self._encoded = None  # they are about to change
        self._towers.train()

    def start_helping(self) -> None:
        """In a helper: prepare the towers for training; what an epoch starts with is part of the work."""
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

    def _drawn(self, batch: IntArray, draws: Draws) -> ContextWork:
        """Draw the facts; those of an answer leave out the one that makes it an answer."""
        questions, relations, count = self._queries[batch], self._relations[batch], self._relation_count
        beside = self._facts.sample(questions, relations, self._settings.neighbors, draws.numpy)
        taken_over = self._answers[torch.from_numpy(beside.ids)].cpu().numpy()
        inverse = np.where(relations < count, relations + count, relations - count)
        golds = questions.required_golds()
        reversed_ = Queries(golds, questions.relations, ~questions.predicts_tail, questions.anchors)
        of_answers = self._facts.sample(reversed_, inverse, self._settings.neighbors, draws.numpy)
        return ContextWork(questions, relations, beside, taken_over, of_answers, np.arange(len(batch)))

    def loss_of(self, work: ContextWork) -> Tensor:
        """Cross-entropy of each answer against those of the other questions, unless they are answers as well."""
        asked = self._question_vectors(work)
        scores = self._towers.log_scale.exp() * asked @ self._answer_vectors(work).T
        is_other = self._is_other_answer(work.questions)[work.rows]
        scores = scores.masked_fill(is_other.to(self.device), -torch.inf)
        return cross_entropy(scores, to_device(work.rows, self.device))

    def _question_vectors(self, work: ContextWork) -> Tensor:
        neighbors, is_mine = work.beside_questions.of(work.rows)
        asked, ids = to_device(work.relations[work.rows], self.device), torch.from_numpy(neighbors.ids)
        texts = Texts.of(self._states, self._vectors, work.questions.anchors[work.rows])
        taken_over = to_device(work.taken_over[is_mine], self.device)
        return self._towers.questions(asked, self._phrases[asked], texts, neighbors, (self._vectors[ids], taken_over))

    def _answer_vectors(self, work: ContextWork) -> Tensor:
        texts, ids = Texts.of(self._states, self._vectors, work.questions.required_golds()), work.beside_answers.ids
        return self._towers.entities(texts, work.beside_answers, self._vectors[torch.from_numpy(ids)])

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
