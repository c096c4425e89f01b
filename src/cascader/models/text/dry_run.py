"""What reading texts will take, estimated from a few of them: the helpers of the text models' dry runs.

Texts that were not read get random states: layers are no faster or slower for what a state says.
"""

import time
from functools import lru_cache

import numpy as np
import torch

from cascader.graph import KnowledgeGraph, Queries
from cascader.graph.arrays import offsets_of
from cascader.models.optimization import hard_negatives
from cascader.models.text.base_model import BaseModel, load_base_model
from cascader.models.text.pairs import PairEncoder
from cascader.models.text.reading import TOKENS_AT_ONCE, FrozenLayers
from cascader.models.text.split_encoder import States, token_batches
from cascader.models.text.text_encoder import TextEncoder
from cascader.models.text.text_model import Tokens
from cascader.models.training import seconds_for
from cascader.scoring.scorer import Scorer

#: Texts that are read to see how long it takes, from the shortest to the longest.
_TEXTS = 32


@lru_cache(maxsize=2)
def load_timed(name: str, device: torch.device) -> tuple[BaseModel, float]:
    """A pretrained model and the seconds it took to load; shared by all dry runs, which train it to no purpose."""
    started = time.perf_counter()
    return load_base_model(name).to(device), time.perf_counter() - started


class BlankEncoder(TextEncoder):
    """An encoder that reads only a few texts, and knows how long it would take to read those without a vector."""

    reading_seconds = 0.0

    def _read(self, tokens: Tokens) -> States:
        has_upper = len(self.upper) > 0
        missing = np.arange(len(tokens)) if has_upper else self._store().missing(tokens.keys("mean"))
        self.reading_seconds += seconds_to_read(self._lower, tokens.take(missing))
        lengths = tokens.counts + 2 if has_upper else np.ones(len(tokens), dtype=np.int64)
        offsets = offsets_of(lengths)
        blank = torch.rand(int(offsets[-1]), self.base.width)
        return States(offsets, blank if has_upper else blank.to(self.base.device))


def leave_blank(encoder: PairEncoder, base: BaseModel) -> float:
    """Give a pair encoder random states, and return how long it would take to read all texts, one by one."""
    if encoder.split == 0:
        return 0.0
    lower, texts = FrozenLayers(base, encoder.split), encoder.texts
    blank = {
        name: torch.rand(int((tokens.counts + 2).sum()), base.width).half()
        for name, tokens in (("relations", texts.relations), ("entities", texts.entities))
    }
    encoder.take_states(blank)
    return seconds_to_read(lower, texts.relations, 1) + seconds_to_read(lower, texts.entities, 1)


def seconds_to_read(lower: FrozenLayers, tokens: Tokens, batch_tokens: int = TOKENS_AT_ONCE) -> float:
    """How long it would take to read all texts, from some of every length."""
    if len(tokens) == 0:
        return 0.0
    by_length = np.argsort(tokens.counts, kind="stable")
    some = tokens.take(by_length[np.unique(np.linspace(0, len(tokens) - 1, _TEXTS).astype(np.int64))])
    lower.read(some.take(np.arange(1)))  # warms up
    started = time.perf_counter()
    lower.read(some, batches=token_batches(some.counts + 2, batch_tokens))
    seconds = time.perf_counter() - started
    if batch_tokens == 1:  # one by one, the calls take the time, not the tokens
        return seconds * len(tokens) / len(some)
    return seconds * _padded_count(tokens, batch_tokens) / _padded_count(some, batch_tokens)


def _padded_count(tokens: Tokens, batch_tokens: int) -> int:
    """How many tokens the layers see: all texts of a batch are padded to its longest."""
    counts = tokens.counts + 2
    return sum(len(texts) * int(counts[texts].max()) for texts in token_batches(counts, batch_tokens))


def seconds_for_hard_negatives(
    earlier: Scorer | None, kg: KnowledgeGraph, count: int, most_questions: int | None = None
) -> float:
    """How long the earlier tiers would take to answer every question of train, or at most so many."""
    if earlier is None or count == 0:
        return 0.0
    questions, known = Queries.from_triples(kg.train).unique()[0][:most_questions], kg.known(("train",))

    def ask(some: int) -> None:
        hard_negatives(earlier, questions[:some], known, count)

    return seconds_for(ask, len(questions))
