"""Train a dual encoder: which questions a batch asks, what their answers are compared with, and a look at valid.

The loop is our own thin one and not sentence-transformers' trainer: that one cuts texts into tokens again at every
step, cannot read the lower layers' kept states, and leaves the heads out of its checkpoints.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from cascader.graph import IntArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.models.embeddings.embedding import directed
from cascader.models.text.settings import DualSettings
from cascader.models.text.text_encoder import TextEncoder
from cascader.models.text.towers import Batch, Towers
from cascader.models.training.negatives import sample_entities
from cascader.models.training.optimizers import memory_of, restore_memory
from cascader.scoring.scorer import Scorer

_QUESTIONS_AT_ONCE = 256


class DualTraining:
    """What the loop trains: towers on the texts of a graph."""

    def __init__(
        self,
        towers: Towers,
        reader: TextEncoder,
        settings: DualSettings,
        kg: KnowledgeGraph,
        earlier: Scorer | None,
        judge: Callable[[], float | None],
    ) -> None:
        self._towers, self._reader, self._recipe, self._kg, self._judge = towers, reader, settings, kg, judge
        self._modules = nn.ModuleDict({"towers": towers, "upper": reader.upper})
        self._optimizer = torch.optim.AdamW(
            [
                {"params": list(towers.parameters()), "lr": settings.learning_rate},
                {"params": list(reader.upper.parameters()), "lr": settings.encoder_learning_rate},
            ],
            weight_decay=settings.weight_decay,
        )
        self._known = KnownAnswers(kg.train, len(kg.entities), len(kg.relations))
        queries = Queries.from_triples(kg.train)
        self._questions = queries.unique()[0]
        self._answers_per_question = len(queries) / len(self._questions)
        self._hard = hard_negatives(earlier, self._questions, self._known, settings.hard_negatives)

    def train_epoch(self, epoch: int) -> float:
        """Ask every question once, and return the mean loss."""
        total = 0.0
        for loss, questions in self.steps(epoch):
            total += loss * questions
            if not np.isfinite(total):
                break  # no use to go on: the loop says so
        return total / len(self._questions)

    def steps(self, epoch: int) -> Iterator[tuple[float, int]]:
        """Train an epoch batch by batch, each with its loss and how many questions it had."""
        generator = torch.Generator().manual_seed(self._recipe.seed * 1_000_003 + epoch)
        self._modules.train()
        with torch.random.fork_rng(devices=[]):  # dropout draws from torch's own generator
            torch.manual_seed(self._recipe.seed * 1_000_003 + epoch)
            for asked in self._batches(epoch, generator):
                self._optimizer.zero_grad()
                loss = self._towers.loss(self._reader, asked)
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
                yield loss.item(), len(asked.anchors)

    @property
    def step_count(self) -> int:
        """How many batches an epoch has."""
        return -(-len(self._questions) // self._recipe.batch_size)

    def _batches(self, epoch: int, generator: torch.Generator) -> Iterator[Batch]:
        order = np.random.default_rng([self._recipe.seed, epoch]).permutation(len(self._questions))
        for start in range(0, len(order), self._recipe.batch_size):
            yield self._asked(order[start : start + self._recipe.batch_size], generator)

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
            relations=torch.from_numpy(directed(questions, len(self._kg.relations))),
            rows=rows,
            answers=answers,
            weights=torch.full(rows.shape, 1 / (len(questions) * self._answers_per_question)),
            compared=compared,
            is_known=is_known,
        )

    def _compared(self, needed: Tensor, generator: torch.Generator) -> Tensor:
        """The answers and anchors of the batch, hard negatives, and a sample of the others; ascending."""
        entity_count = len(self._kg.entities)
        if entity_count <= self._recipe.negatives:
            return torch.arange(entity_count)
        sampled = sample_entities(self._recipe.negatives, entity_count, generator)
        compared: Tensor = torch.unique(torch.cat([needed, sampled]))
        return compared

    def validate(self) -> float | None:
        """What the judge says of the towers as they are."""
        self._modules.eval()
        return self._judge()

    def weights(self) -> dict[str, Tensor]:
        """What is learnt: the towers and the tuned layers."""
        return {name: parameter.detach() for name, parameter in self._modules.named_parameters()}

    def optimizer_state(self) -> dict[str, Tensor]:
        """What the optimizer remembers of each weight."""
        return memory_of(self._optimizer)

    def load(self, weights: Mapping[str, Tensor], optimizer_state: Mapping[str, Tensor] | None) -> None:
        """Take weights, and the optimizer's memory if it is to go on."""
        with torch.no_grad():
            for name, parameter in self._modules.named_parameters():
                parameter.copy_(weights[name])
        if optimizer_state:
            restore_memory(self._optimizer, optimizer_state)


def hard_negatives(earlier: Scorer | None, questions: Queries, known: KnownAnswers, count: int) -> Tensor:
    """The entities that an earlier tier likes best and that are no known answers; shape (questions, count)."""
    if earlier is None or count == 0:
        return torch.empty(len(questions), 0, dtype=torch.long)
    found = []
    for block in questions.blocks(_QUESTIONS_AT_ONCE):
        scores = torch.from_numpy(earlier.score_all(block).copy())
        answers = known.of(block)
        scores[torch.from_numpy(answers.rows), torch.from_numpy(answers.ids).long()] = -torch.inf
        found.append(scores.topk(min(count, scores.shape[1])).indices)
    return torch.cat(found)
