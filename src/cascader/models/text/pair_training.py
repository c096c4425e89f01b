"""Train a model that reads pairs (Section 2.2 of the paper): golds against what the earlier tiers rank highest.

The listwise objective is ours; "kg-bert" is the paper's sum of three losses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid, relu

from cascader.graph import IntArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.models.device import to_device
from cascader.models.optimization import Draws, hard_negatives, in_batches, trainable_parameters
from cascader.models.parallel import SharedTraining, parts_of
from cascader.models.text.pairs import PairEncoder, PairHead, Pairs
from cascader.models.text.settings import CrossObjective, PairSettings
from cascader.scoring.scorer import Scorer

_KG_BERT_MARGIN = 1.0
_KG_BERT_RELATION_WEIGHT = 0.25
#: Steps until the learning rate is reached. It stays there: a decay would have to know how many rounds are to come.
_WARM_UP = 50
#: What the mean of the weights keeps of itself at each step: it is a mean over about a hundred.
_KEPT = 0.99
_CURRENT = "current/"
#: When the earlier tiers are asked for hard negatives.
_QUESTIONS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Lists:
    """Questions with the candidates that are read for each."""

    relations: IntArray  # (queries,) inverse relations after the others
    anchors: IntArray  # (queries,)
    candidates: IntArray  # (queries, 1 + negatives) the gold first

    def __len__(self) -> int:
        return len(self.anchors)

    def shares(self, count: int) -> list[tuple["Lists", float]]:
        """Cut the questions into so many parts; the loss is a mean over them."""
        return [
            (Lists(self.relations[some], self.anchors[some], self.candidates[some]), len(some) / len(self))
            for some in parts_of(len(self), count)
        ]

    def pairs(self) -> Pairs:
        """Every question with each of its candidates."""
        repeats = self.candidates.shape[1]
        return Pairs(np.repeat(self.relations, repeats), np.repeat(self.anchors, repeats), self.candidates.reshape(-1))


class PairTraining(SharedTraining[IntArray, Lists]):
    """The training of a pair encoder and its head; an epoch of the loop is a round of `queries_per_round`."""

    def __init__(
        self,
        encoder: PairEncoder,
        head: PairHead,
        settings: PairSettings,
        objective: CrossObjective,
        kg: KnowledgeGraph,
        earlier: Scorer | None,
        validate: Callable[[], float | None],
    ) -> None:
        self._encoder, self._head, self._settings, self._kg = encoder, head, settings, kg
        self._objective, self._validate = objective, validate
        self._modules = nn.ModuleDict({"encoder": encoder, "head": head})
        parameters = trainable_parameters(self._modules)
        rate, decay = settings.learning_rate, settings.weight_decay
        optimizer = torch.optim.AdamW(list(parameters.values()), lr=rate, weight_decay=decay)
        super().__init__(parameters, optimizer, settings.seed)
        self._queries = Queries.from_triples(kg.train)
        self._known = kg.known(("train",))
        pool = settings.hard_negative_pool if objective == "listwise" else 0
        first_pass = self._order(0)
        self._hard = _HardNegatives(earlier, self._queries[first_pass], self._known, pool)
        self._place_of = np.argsort(first_pass)

    def _start_epoch(self, state: Mapping[str, Tensor] | None) -> None:
        self._modules.train()

    def _step(self, number: int) -> None:
        nn.utils.clip_grad_norm_(self._modules.parameters(), 1.0)
        super()._step(number)

    @property
    def step_count(self) -> int:
        """The number of batches in a round."""
        return -(-self._round_size // self._settings.batch_size)

    @property
    def _round_size(self) -> int:
        return min(self._settings.queries_per_round, len(self._queries))  # on a small graph, one pass over train

    def _batches(self, epoch: int, draws: Draws) -> list[IntArray]:
        """The queries of a round, from a stream of passes over train, each in its own order."""
        size = self._round_size
        start = (epoch - 1) * size
        stream = np.arange(start, start + size)
        number, place = np.divmod(stream, len(self._queries))
        orders = {p: self._order(p) for p in set(number)}
        places = np.array([orders[p][i] for p, i in zip(number, place, strict=True)])
        return in_batches(places, self._settings.batch_size)

    def _order(self, number: int) -> IntArray:
        """The order of the queries in a pass over train."""
        return np.random.default_rng([self._settings.seed, number]).permutation(len(self._queries))

    def _drawn(self, batch: IntArray, draws: Draws) -> Lists:
        queries = self._queries[batch]
        lists = np.concatenate([queries.required_golds()[:, None], self._negatives(batch, draws.numpy)], axis=1)
        return Lists(queries.directed_relations(len(self._kg.relations)), queries.anchors, lists)

    def loss_of(self, work: Lists) -> Tensor:
        """The loss of some questions: the mean over them."""
        pairs, repeats = work.pairs(), work.candidates.shape[1]
        first = self._encoder(pairs)
        scores = self._head(first).view(-1, repeats)  # (queries, 1 + negatives), the gold first
        if self._objective == "listwise":
            return cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))
        golds, others = scores[:, :1], scores[:, 1:]
        is_true = -(logsigmoid(golds).mean() + logsigmoid(-others).mean()) / 2
        is_above = relu(_KG_BERT_MARGIN - golds + others).mean()
        relation_scores = self._head.relation_classifier(self._head.pooled(first[::repeats]))
        which = cross_entropy(relation_scores, to_device(pairs.relations[::repeats], scores.device).long())
        return is_true + is_above + _KG_BERT_RELATION_WEIGHT * which

    def _negatives(self, places: IntArray, rng: np.random.Generator) -> IntArray:
        """Entities that are not known answers, hard ones first; shape (queries, negatives)."""
        count, hard_count = self._settings.negatives, 0
        parts = []
        if self._hard.count:
            hard_count = max(1, count - self._settings.random_negatives)
            pool = self._hard.of(self._place_of[places])
            drawn = rng.random(pool.shape).argsort(axis=1)[:, :hard_count]
            parts.append(np.take_along_axis(pool, drawn, axis=1))
        if count > hard_count:
            parts.append(self._random(places, count - hard_count, rng))
        return np.concatenate(parts, axis=1)

    def _random(self, places: IntArray, count: int, rng: np.random.Generator) -> IntArray:
        """Random entities; known answers are redrawn a few times, which is enough on all but tiny graphs."""
        known = self._known.of(self._queries[places])
        drawn = rng.integers(len(self._kg.entities), size=(len(places), count))
        for _ in range(10):
            wrong = np.stack([np.isin(row, known[i]) for i, row in enumerate(drawn)])
            if not wrong.any():
                break
            drawn[wrong] = rng.integers(len(self._kg.entities), size=int(wrong.sum()))
        return drawn

    def validate(self) -> float | None:
        """The MRR on valid after reranking with the current weights."""
        self._modules.eval()
        return self._validate()


class _HardNegatives:
    """What the earlier tiers rank highest for queries, asked when a query is first trained on.

    Asking about all of train can take longer than the training itself. The queries come in the order of the first pass,
    and their questions are asked in fixed blocks: a resumed training gets the same answers to the last bit.
    """

    def __init__(self, earlier: Scorer | None, queries: Queries, known: KnownAnswers, count: int) -> None:
        self._earlier, self._known = earlier, known
        self.count = 0 if earlier is None else count
        questions, question_of = queries.unique()
        _, first = np.unique(question_of, return_index=True)
        order = np.argsort(first)  # as they are first asked
        self._place_of = np.argsort(order)[question_of]
        self._blocks = list(questions[order].blocks(_QUESTIONS_AT_ONCE))
        self._found: dict[int, IntArray] = {}

    def of(self, places: IntArray) -> IntArray:
        """The pools of the queries at these places; shape (queries, at most `count`)."""
        numbers, rows = np.divmod(self._place_of[places], _QUESTIONS_AT_ONCE)
        return np.stack([self._block(number)[row] for number, row in zip(numbers, rows, strict=True)])

    def _block(self, number: int) -> IntArray:
        if number not in self._found:
            found = hard_negatives(self._earlier, self._blocks[number], self._known, self.count)
            self._found[number] = found.numpy().astype(np.int32)
        return self._found[number]


class AveragedTraining(PairTraining):
    """The same, but what is validated and used is a running mean of the weights, which does what a decay would do."""

    @cached_property
    def _mean(self) -> dict[str, Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def _step(self, number: int) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.learning_rate * min(1.0, (number + 1) / _WARM_UP)
        super()._step(number)
        kept = min(_KEPT, (number + 1) / (number + 10))  # the first weights are forgotten sooner
        for name, parameter in self._parameters.items():
            self._mean[name].lerp_(parameter, 1 - kept)

    def validate(self) -> float | None:
        """The MRR on valid after reranking with the mean of the weights."""
        current = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        super().load(self._mean, None)
        mrr = super().validate()
        super().load(current, None)
        return mrr

    def weights(self) -> dict[str, Tensor]:
        """The mean of the weights."""
        return self._mean

    def optimizer_state(self) -> dict[str, Tensor]:
        """What training goes on from: the weights themselves, and the optimizer's state."""
        current = {f"{_CURRENT}{name}": parameter.detach() for name, parameter in self._parameters.items()}
        return {**current, **super().optimizer_state()}

    def load(self, weights: Mapping[str, Tensor], optimizer_state: Mapping[str, Tensor] | None) -> None:
        """Restore the mean and, if training is to continue, what it goes on from."""
        for name, mean in self._mean.items():
            mean.copy_(weights[name])
        if optimizer_state is None:
            super().load(weights, None)
            return
        current = {name.removeprefix(_CURRENT): each for name, each in optimizer_state.items() if _CURRENT in name}
        super().load(current, {name: each for name, each in optimizer_state.items() if _CURRENT not in name})
