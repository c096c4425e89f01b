"""Train a cross encoder: golds against what the earlier tiers like best, and a look at valid by reranking it."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid, relu

from cascader.graph import IntArray, KnowledgeGraph, Queries
from cascader.models.embeddings.embedding import directed
from cascader.models.text.dual_training import hard_negatives
from cascader.models.text.heads import PairHead
from cascader.models.text.pairs import PairEncoder, Pairs
from cascader.models.text.settings import CrossSettings
from cascader.models.training.optimizers import memory_of, restore_memory
from cascader.scoring.scorer import Scorer

_KG_BERT_MARGIN = 1.0
_KG_BERT_RELATION_WEIGHT = 0.25


class CrossTraining:
    """What the loop trains: a pair encoder and its head. The loop's epoch is a round of `queries_per_round`."""

    def __init__(
        self,
        reader: PairEncoder,
        head: PairHead,
        settings: CrossSettings,
        kg: KnowledgeGraph,
        earlier: Scorer | None,
        judge: Callable[[], float | None],
    ) -> None:
        self._reader, self._head, self._recipe, self._kg, self._judge = reader, head, settings, kg, judge
        self._modules = nn.ModuleDict({"reader": reader, "head": head})
        parameters = [parameter for parameter in self._modules.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
        self._queries = Queries.from_triples(kg.train)
        self._known = kg.known(("train",))
        questions, self._question_of = self._queries.unique()
        pool = settings.hard_negative_pool if settings.objective == "listwise" else 0
        self._hard = hard_negatives(earlier, questions, self._known, pool).numpy()

    def train_epoch(self, epoch: int) -> float:
        """Train one round, and return the mean loss."""
        losses = []
        for loss in self.steps(epoch):
            losses.append(loss)
            if not np.isfinite(loss):
                break  # no use to go on: the loop says so
        return float(np.mean(losses))

    def steps(self, epoch: int) -> Iterator[float]:
        """Train a round batch by batch, each with its loss."""
        rng = np.random.default_rng([self._recipe.seed, epoch])
        self._modules.train()
        with torch.random.fork_rng(devices=[]):  # dropout draws from torch's own generator
            torch.manual_seed(self._recipe.seed * 1_000_003 + epoch)
            for places in self._batches(epoch):
                self._optimizer.zero_grad()
                loss = self._loss(places, rng)
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(self._modules.parameters(), 1.0)
                self._optimizer.step()
                yield loss.item()

    @property
    def step_count(self) -> int:
        """How many batches a round has."""
        return -(-self._round_size // self._recipe.batch_size)

    @property
    def _round_size(self) -> int:
        return min(self._recipe.queries_per_round, len(self._queries))  # on a small graph, one pass

    def _batches(self, epoch: int) -> Iterator[IntArray]:
        """The queries of a round: the passes over train lie one after the other, each in an order of its own."""
        size = self._round_size
        start = (epoch - 1) * size
        stream = np.arange(start, start + size)
        number, place = np.divmod(stream, len(self._queries))
        orders = {p: np.random.default_rng([self._recipe.seed, p]).permutation(len(self._queries)) for p in set(number)}
        places = np.array([orders[p][i] for p, i in zip(number, place, strict=True)])
        for first in range(0, size, self._recipe.batch_size):
            yield places[first : first + self._recipe.batch_size]

    def _loss(self, places: IntArray, rng: np.random.Generator) -> Tensor:
        queries = self._queries[places]
        lists = np.concatenate([queries.required_golds()[:, None], self._negatives(places, rng)], axis=1)
        repeats = lists.shape[1]
        pairs = Pairs(
            np.repeat(directed(queries, len(self._kg.relations)), repeats),
            np.repeat(queries.anchors, repeats),
            lists.reshape(-1),
        )
        first = self._reader(pairs)
        scores = self._head(first).view(-1, repeats)  # (queries, 1 + negatives), the gold first
        if self._recipe.objective == "listwise":
            return cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
        golds, others = scores[:, :1], scores[:, 1:]
        is_true = -(logsigmoid(golds).mean() + logsigmoid(-others).mean()) / 2
        is_above = relu(_KG_BERT_MARGIN - golds + others).mean()
        relation_scores = self._head.relation_classifier(self._head.pooled(first[::repeats]))
        which = cross_entropy(relation_scores, torch.from_numpy(pairs.relations[::repeats]).long())
        return is_true + is_above + _KG_BERT_RELATION_WEIGHT * which

    def _negatives(self, places: IntArray, rng: np.random.Generator) -> IntArray:
        """Entities that are no known answers, hard ones first; shape (queries, negatives)."""
        count, hard_count = self._recipe.negatives, 0
        parts = []
        if self._hard.shape[1]:
            hard_count = max(1, count - self._recipe.random_negatives)
            pool = self._hard[self._question_of[places]]
            drawn = rng.random(pool.shape).argsort(axis=1)[:, :hard_count]
            parts.append(np.take_along_axis(pool, drawn, axis=1))
        if count > hard_count:
            parts.append(self._random(places, count - hard_count, rng))
        return np.concatenate(parts, axis=1)

    def _random(self, places: IntArray, count: int, rng: np.random.Generator) -> IntArray:
        """Any entities; a known answer is drawn again a few times, which on all but tiny graphs is enough."""
        known = self._known.of(self._queries[places])
        drawn = rng.integers(len(self._kg.entities), size=(len(places), count))
        for _ in range(10):
            wrong = np.stack([np.isin(row, known[i]) for i, row in enumerate(drawn)])
            if not wrong.any():
                break
            drawn[wrong] = rng.integers(len(self._kg.entities), size=int(wrong.sum()))
        return drawn

    def validate(self) -> float | None:
        """What the judge says of the weights as they are."""
        self._modules.eval()
        return self._judge()

    def weights(self) -> dict[str, Tensor]:
        """What is learnt: the upper layers, the marks of the parts, and the head."""
        return {name: p.detach() for name, p in self._modules.named_parameters() if p.requires_grad}

    def optimizer_state(self) -> dict[str, Tensor]:
        """What the optimizer remembers of each weight."""
        return memory_of(self._optimizer)

    def load(self, weights: Mapping[str, Tensor], optimizer_state: Mapping[str, Tensor] | None) -> None:
        """Take weights, and the optimizer's memory if it is to go on."""
        with torch.no_grad():
            for name, parameter in self._modules.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(weights[name])
        if optimizer_state:
            restore_memory(self._optimizer, optimizer_state)
