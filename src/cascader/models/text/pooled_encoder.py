"""A cheap relative of the cross encoder: question and candidate meet as pooled vectors, and never token by token."""

from collections.abc import Iterator
from typing import ClassVar, Unpack

import numpy as np

from cascader.errors import SettingsError
from cascader.graph import Candidates, IntArray, KnowledgeGraph, Queries
from cascader.models.settings import Settings
from cascader.models.text.base_model import BaseModel
from cascader.models.text.pair_model import PairModel
from cascader.models.text.pairs import PairHead, Pairs
from cascader.models.text.pooled_layers import MatchingHead, MatchTraining, PoolingEncoder, pretrain_matching
from cascader.models.text.settings import PooledOptions, PooledSettings
from cascader.models.text.text_model import GraphTexts
from cascader.models.training import seconds_per_step

#: Enough pairs to share many texts.
_PAIRS_AT_ONCE = 8192


class PooledEncoder(PairModel):
    """Scores an answer by what a relation gathers from the texts of question and candidate, each pooled into a vector.

    Its settings are those of `PooledSettings`. No token of the question meets a token of the candidate, which makes it
    many times cheaper than a `CrossEncoder`, and blind to the words that the two share.

    >>> from cascader import Candidates, Entity, KnowledgeGraph, Relation
    >>> entities = Entity("d", "aspirin", "a drug against pain"), Entity("s", "pain", "a feeling that hurts")
    >>> kg = KnowledgeGraph("drugs", entities, (Relation("r", "treats"),), [[0, 0, 1]], [], [])
    >>> pooled = PooledEncoder(rounds=1).fit(kg)
    >>> pooled.score(kg.query("aspirin", "treats"), Candidates.from_lists([[1]])).shape
    (1,)
    """

    name = "pooled"
    tier = "pooled"
    settings_class: ClassVar[type[Settings]] = PooledSettings
    settings: PooledSettings

    _encoder: PoolingEncoder

    def __init__(self, **settings: Unpack[PooledOptions]) -> None:
        super().__init__(**settings)

    def _make(self, base: BaseModel, texts: GraphTexts, relation_count: int) -> tuple[PoolingEncoder, PairHead]:
        if base.layer_count < 2:
            raise SettingsError(
                f"{base.name} has {base.layer_count} layer, but a pooled encoder needs one to read texts and one more "
                "to pool them. Choose a base of at least two layers."
            )
        head = MatchingHead if self.settings.pretraining_epochs else PairHead
        return PoolingEncoder(base, texts), head(base.width, relation_count)

    def _pretrain(self, kg: KnowledgeGraph) -> None:
        if isinstance(self._head, MatchingHead):
            pretrain_matching(self._head.match, self._encoder, kg, self.settings.pretraining_epochs, self.settings.seed)

    def _seconds_to_pretrain(self, kg: KnowledgeGraph) -> float:
        if not isinstance(self._head, MatchingHead):
            return 0.0
        matching = MatchTraining(self._head.match, self._encoder, kg, self.settings.seed)
        step = seconds_per_step(matching.steps(1))
        return step * matching.step_count * self.settings.pretraining_epochs

    def _blocks(self, pairs: Pairs) -> Iterator[IntArray]:
        for start in range(0, len(pairs), _PAIRS_AT_ONCE):
            yield np.arange(start, min(start + _PAIRS_AT_ONCE, len(pairs)))

    def token_counts(self, queries: Queries, candidates: Candidates) -> IntArray:
        """How many tokens are read for each pair, (candidates,); the first pair pays for a text that it shares."""
        pairs = self._pairs(queries, candidates)
        tokens = np.zeros(len(pairs), dtype=np.int64)
        for places in self._blocks(pairs):
            tokens[places] = self._encoder.new_lengths(pairs[places])
        return tokens

    @property
    def pairs_to_measure(self) -> int:
        """How many pairs it takes to measure the speed: enough to share as many texts as usual."""
        return _PAIRS_AT_ONCE
