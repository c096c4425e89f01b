"""How a cross encoder starts: it learns which texts match before it reads a pair.

What the first token gathers from a text, with the layer as it was pretrained, depends on the relation and the text
alone. So a question can be compared with all entities at once, where reading pairs affords a handful of negatives.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from cascader.graph import IntArray, KnowledgeGraph, Queries
from cascader.models.embeddings.embedding import directed
from cascader.models.text.heads import Match
from cascader.models.text.pairs import PairEncoder
from cascader.models.training.losses import softmax_loss
from cascader.progress import progress

_BATCH = 128
_LEARNING_RATE, _WEIGHT_DECAY = 1e-3, 1e-4
#: What is gathered is kept for all relations and entities where it takes no more than this.
_KEPT_BYTES = 512 << 20
#: Where it takes more, questions are compared with so many entities, and their answers.
_COMPARED = 1024


def pretrain_matching(match: Match, reader: PairEncoder, kg: KnowledgeGraph, epochs: int, seed: int) -> None:
    """Train the two networks on all questions of train; the reader stays as it is."""
    matching = Matching(match, reader, kg, seed)
    with progress("learning to match", total=epochs, unit="epochs") as advance:
        for epoch in range(1, epochs + 1):
            losses = list(matching.steps(epoch))
            advance(1, f"loss {np.mean(losses):.4f}")


class Matching:
    """What is trained: a match, on what a reader gathers."""

    def __init__(self, match: Match, reader: PairEncoder, kg: KnowledgeGraph, seed: int) -> None:
        self._match, self._kg, self._seed = match, kg, seed
        self._gathering = _Gathering(reader, len(kg.entities), len(kg.relations))
        self._optimizer = torch.optim.AdamW(match.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
        self._known = kg.known(("train",))
        queries = Queries.from_triples(kg.train)
        self._questions = queries.unique()[0]
        self._answers_per_question = len(queries) / max(len(self._questions), 1)
        self._relations = directed(self._questions, len(kg.relations))

    def steps(self, epoch: int) -> Iterator[float]:
        """Ask every question once, batch by batch, each with its loss."""
        rng = np.random.default_rng([self._seed, epoch])
        self._match.train()
        with torch.random.fork_rng(devices=[]):  # dropout draws from torch's own generator
            torch.manual_seed(self._seed * 1_000_003 + epoch)
            for places in self._batches(rng):
                self._optimizer.zero_grad()
                loss = self._loss(places, rng)
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
                yield loss.item()

    @property
    def step_count(self) -> int:
        """How many batches an epoch has."""
        return sum(1 for _ in self._batches(np.random.default_rng(0)))

    def _batches(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """Questions of one relation and side at a time: all of them look at a text alike."""
        shuffled = rng.permutation(len(self._questions))
        order = shuffled[np.argsort(self._relations[shuffled], kind="stable")]
        groups = np.split(order, np.flatnonzero(np.diff(self._relations[order])) + 1)
        batches = [group[i : i + _BATCH] for group in groups for i in range(0, len(group), _BATCH)]
        yield from (batches[place] for place in rng.permutation(len(batches)))

    def _loss(self, places: IntArray, rng: np.random.Generator) -> Tensor:
        """Cross-entropy of the answers against all that is compared."""
        questions, relation = self._questions[places], int(self._relations[places[0]])
        known = self._known.of(questions)
        compared = self._compared(known.ids, rng)
        first, of_anchors = self._gathering.of(relation, questions.anchors)
        _, of_compared = self._gathering.of(relation, compared)
        scores = (
            self._match.questions(first.expand(len(places), -1), of_anchors) @ self._match.candidates(of_compared).T
        )
        rows, answers = torch.from_numpy(known.rows), torch.from_numpy(np.searchsorted(compared, known.ids))
        weights = torch.full(rows.shape, 1 / (len(places) * self._answers_per_question))
        return softmax_loss(scores, rows, answers, weights, label_smoothing=0.0)

    def _compared(self, answers: IntArray, rng: np.random.Generator) -> IntArray:
        everyone = np.arange(len(self._kg.entities), dtype=np.int32)
        if self._gathering.is_kept or len(everyone) <= _COMPARED:
            return everyone
        return np.unique(np.concatenate([answers, rng.choice(everyone, _COMPARED, replace=False)]))


class _Gathering:
    """What a reader gathers from entities, kept where it fits."""

    def __init__(self, reader: PairEncoder, entity_count: int, relation_count: int) -> None:
        self._reader, self._everyone = reader, np.arange(entity_count)
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        self.is_kept = 2 * relation_count * entity_count * reader.width * 4 <= _KEPT_BYTES

    def of(self, relation: int, entities: IntArray) -> tuple[Tensor, Tensor]:
        """The relation's first token, (width,), and what it gathers from each entity, (entities, width)."""
        if not self.is_kept:
            return self._reader.gathered(relation, entities)
        if relation not in self._kept:
            self._kept[relation] = self._reader.gathered(relation, self._everyone)
        first, gathered = self._kept[relation]
        return first, gathered[torch.from_numpy(entities).long()]
