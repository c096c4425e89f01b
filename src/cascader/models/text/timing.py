"""What training a language model tier will take: a few texts read, a few steps, a few questions of valid, timed.

Texts that were not read are blank: layers work no faster or slower for what a state says.
"""

import time
from dataclasses import dataclass, field

import numpy as np
import torch

from cascader.cascade.alphas import best_reranking, best_sum
from cascader.cascade.pruners import TopK
from cascader.graph import KnowledgeGraph, Queries
from cascader.graph.ragged import offsets_of
from cascader.models.costs import Cost, seconds_for, seconds_per_step
from cascader.models.text.base_model import BaseModel, load_base_model
from cascader.models.text.batches import token_batches
from cascader.models.text.cross_encoder import CrossEncoder
from cascader.models.text.cross_training import CrossTraining
from cascader.models.text.dual_encoder import VALID_TRIPLES, DualEncoder
from cascader.models.text.dual_training import DualTraining, hard_negatives
from cascader.models.text.heads import MatchingHead
from cascader.models.text.int8 import UpperLayers
from cascader.models.text.match_pretraining import Matching
from cascader.models.text.pairs import PairEncoder
from cascader.models.text.sampling import sampled
from cascader.models.text.settings import CrossSettings, DualSettings
from cascader.models.text.split_encoder import TOKENS_AT_ONCE, FrozenLayers, States
from cascader.models.text.text_encoder import TextEncoder
from cascader.models.text.text_model import check_trainable
from cascader.models.text.texts import GraphTexts, Tokens
from cascader.scoring.scorer import Scorer

#: Texts that are read to see how fast it goes, from the shortest to the longest.
_TEXTS = 32


@dataclass
class BaseModelCache:
    """Language models that are loaded once for several measurements, and how long each took to load."""

    loaded: dict[str, tuple[BaseModel, float]] = field(default_factory=dict)

    def load(self, name: str) -> tuple[BaseModel, float]:
        """A model by name, and the seconds it takes to load."""
        if name not in self.loaded:
            started = time.perf_counter()
            base = load_base_model(name)
            self.loaded[name] = base, time.perf_counter() - started
        return self.loaded[name]


class _BlankReader(TextEncoder):
    """Reads a few texts only, and knows what all would take; texts whose vectors are kept take nothing."""

    reading_seconds = 0.0

    def _read(self, tokens: Tokens) -> States:
        has_upper = len(self.upper) > 0
        missing = np.arange(len(tokens)) if has_upper else self._store().missing(tokens.keys("mean"))
        self.reading_seconds += _seconds_to_read(self._lower, tokens.take(missing))
        lengths = tokens.counts + 2 if has_upper else np.ones(len(tokens), dtype=np.int64)
        offsets = offsets_of(lengths)
        return States(offsets, torch.rand(int(offsets[-1]), self.base.width))


class DryRunDual(DualEncoder):
    """A dual encoder of blank texts: as fast as a real one."""

    reading_seconds = 0.0  #: for all texts whose vectors are not kept

    def measure(self, kg: KnowledgeGraph, earlier: Scorer | None, bases: BaseModelCache) -> Cost:
        """Train for a moment, and foretell the rest; afterwards it can score."""
        check_trainable(kg)
        settings: DualSettings = self.settings
        base, loading = bases.load(settings.base)
        started = time.perf_counter()
        texts = GraphTexts.of(kg, base, settings.max_tokens)
        cutting = time.perf_counter() - started
        reader = _BlankReader(base, texts, settings.trainable_layers)
        self.reading_seconds = reader.reading_seconds
        self._build(base.width, kg)
        training = DualTraining(self._towers, reader, settings, kg, None, lambda: None)
        step = seconds_per_step(training.steps(1))
        self._towers.eval()
        started = time.perf_counter()
        self._take(reader)
        taking = time.perf_counter() - started
        valid = sampled(kg.valid, VALID_TRIPLES, settings.seed)

        def look(count: int) -> None:
            best_sum(earlier or self, self, kg, Queries.from_triples(valid[:count]))

        hard = _seconds_for_hard_negatives(earlier, kg, settings.hard_negatives)
        return Cost(
            preparing=loading + cutting + reader.reading_seconds + hard,
            epoch=step * training.step_count,
            look=taking + seconds_for(look, len(valid)),
            epochs=settings.epochs,
            valid_every=settings.valid_every,
            parameters=_parameters(base.encoder, self._towers),
        )


class DryRunCross(CrossEncoder):
    """A cross encoder of blank texts, likewise."""

    def measure(self, kg: KnowledgeGraph, earlier: Scorer | None, bases: BaseModelCache) -> Cost:
        """Train for a moment, and foretell the rest; afterwards it can score."""
        check_trainable(kg)
        settings: CrossSettings = self.settings
        base, loading = bases.load(settings.base)
        started = time.perf_counter()
        self._build(base, kg)
        cutting = time.perf_counter() - started
        reading = _leave_blank(self._reader, base, settings.split_layer)
        self._layers = UpperLayers(self._reader.upper, self._head)
        matching = self._seconds_to_match(kg)
        training = CrossTraining(self._reader, self._head, settings, kg, None, lambda: None)
        step = seconds_per_step(training.steps(1))
        self._ready()
        valid = sampled(kg.valid, settings.valid_triples, settings.seed)

        def look(count: int) -> None:
            if earlier is not None:
                best_reranking(earlier, self, kg, Queries.from_triples(valid[:count]), TopK(settings.valid_top_k))

        pool = settings.hard_negative_pool if settings.objective == "listwise" else 0
        return Cost(
            preparing=loading + cutting + reading + matching + _seconds_for_hard_negatives(earlier, kg, pool),
            epoch=step * training.step_count,
            look=seconds_for(look, len(valid)),
            epochs=settings.rounds,
            valid_every=settings.valid_every,
            parameters=_parameters(base.encoder, self._head),
        )

    def _seconds_to_match(self, kg: KnowledgeGraph) -> float:
        if not isinstance(self._head, MatchingHead):
            return 0.0
        matching = Matching(self._head.match, self._reader, kg, self.settings.seed)
        step = seconds_per_step(matching.steps(1))
        return step * matching.step_count * self.settings.pretraining_epochs


def _leave_blank(reader: PairEncoder, base: BaseModel, split: int) -> float:
    """Give the reader blank states, and say what reading all texts, each by itself, would take."""
    if split == 0:
        return 0.0
    lower, texts = FrozenLayers(base, split), reader.texts
    blank = {
        name: torch.rand(int((tokens.counts + 2).sum()), base.width).half()
        for name, tokens in (("relations", texts.relations), ("entities", texts.entities))
    }
    reader.take_states(blank)
    return _seconds_to_read(lower, texts.relations, 1) + _seconds_to_read(lower, texts.entities, 1)


def _seconds_to_read(lower: FrozenLayers, tokens: Tokens, batch_tokens: int = TOKENS_AT_ONCE) -> float:
    """What it takes to read all texts, from some of every length."""
    if len(tokens) == 0:
        return 0.0
    by_length = np.argsort(tokens.counts, kind="stable")
    some = tokens.take(by_length[np.unique(np.linspace(0, len(tokens) - 1, _TEXTS).astype(np.int64))])
    lower.read(some.take(np.arange(1)), batch_tokens=batch_tokens)  # warms up
    started = time.perf_counter()
    lower.read(some, batch_tokens=batch_tokens)
    seconds = time.perf_counter() - started
    if batch_tokens == 1:  # each by itself: it is the calls that take the time
        return seconds * len(tokens) / len(some)
    return seconds * _padded(tokens, batch_tokens) / _padded(some, batch_tokens)


def _padded(tokens: Tokens, batch_tokens: int) -> int:
    """How many tokens the layers see: all texts of a batch are as long as its longest."""
    counts = tokens.counts + 2
    return sum(len(texts) * int(counts[texts].max()) for texts in token_batches(counts, batch_tokens))


def _seconds_for_hard_negatives(earlier: Scorer | None, kg: KnowledgeGraph, count: int) -> float:
    """What it takes to ask the earlier tiers every question of train."""
    if earlier is None or count == 0:
        return 0.0
    questions, known = Queries.from_triples(kg.train).unique()[0], kg.known(("train",))

    def ask(some: int) -> None:
        hard_negatives(earlier, questions[:some], known, count)

    return seconds_for(ask, len(questions))


def _parameters(*modules: torch.nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
