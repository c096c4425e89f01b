"""What weights are fitted to: the queries of valid, each with a sample of its candidates.

Each query is represented by the best candidates of every scorer, and by random ones that stand for the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cascader.cascade import mask_known
from cascader.evaluation.protocol import Block, iter_blocks
from cascader.graph import BoolArray, FloatArray, IntArray, KnowledgeGraph, Queries, Triples
from cascader.scoring import Scorer

#: How many of the best candidates of each scorer are sampled, and how many random ones.
_BEST, _RANDOM = 40, 160
#: The most valid triples that weights are fitted to.
WEIGHED_TRIPLES = 4000
#: A sum is tested on a part of valid that its weights were not fitted to.
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Sample:
    """The queries of valid, each with the scores of its gold answer and of a sample of wrong ones."""

    queries: Queries
    scores: FloatArray  # (queries, candidates, scorers) the gold comes first; centered on it
    stands_for: FloatArray  # (queries, candidates) how many entities a candidate represents; 0: not to be counted

    @classmethod
    def collect(cls, scorers: Sequence[Scorer], kg: KnowledgeGraph, triples: Triples | None = None) -> "Sample":
        """Let every scorer answer the questions of valid, of a random part of it, or of these valid triples."""
        triples = kg.sample("valid", WEIGHED_TRIPLES, seed=0) if triples is None else triples
        queries = Queries.from_triples(triples).with_known(kg.known_before("valid"))
        draw, parts = np.random.default_rng(0), []
        for block in iter_blocks(queries, kg.known(), "comparing tiers"):
            parts.append((block.places, *_sampled(block, scorers, draw)))
        places, scores, stands_for = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        back = np.argsort(places)
        return cls(queries, scores[back], stands_for[back])

    def of(self, scorers: Sequence[int]) -> "Sample":
        """The same sample with some of its scorers only."""
        return replace(self, scores=self.scores[:, :, list(scorers)])

    def where(self, chosen: BoolArray) -> "Sample":
        """The queries for which `chosen`, (queries,), is True."""
        return Sample(self.queries[chosen], self.scores[chosen], self.stands_for[chosen])

    @cached_property
    def log_counts(self) -> FloatArray:
        """The logarithm of `stands_for`; -inf where a candidate does not count."""
        with np.errstate(divide="ignore"):
            return np.log(self.stands_for)

    @cached_property
    def triple_of(self) -> IntArray:
        """The triple that each query was made from; shape (queries,)."""
        return np.unique(self.queries.triples(), axis=0, return_inverse=True)[1]

    def reciprocal_ranks(self, weights: FloatArray) -> FloatArray:
        """Estimate the reciprocal rank of each gold answer with weights (queries, scorers); shape (queries,)."""
        sums = (self.scores @ weights[:, :, None].astype(np.float32))[:, 1:, 0]
        return estimated_ranks(sums, self.stands_for[:, 1:])


def estimated_ranks(sums: FloatArray, counts: FloatArray) -> FloatArray:
    """From how far each candidate is above the gold, and how many it stands for, (..., queries, candidates).

    Those that tie with the gold count half. Small integers are counted, as products with truths take twice as long.
    """
    halves = (sums > 0).view(np.int8) + (sums >= 0).view(np.int8)
    above: FloatArray = np.einsum("qc,...qc->...q", counts, halves.astype(np.float32))
    return 1 / (1 + above / 2)


def _sampled(block: Block, scorers: Sequence[Scorer], draw: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Sample the candidates of each query of a block; (queries, candidates, scorers) and (queries, candidates)."""
    dense = [scorer.score_all(block.questions) for scorer in scorers]  # each (questions, entities)
    ids, drawn = _candidates([mask_known(scores, block.questions) for scores in dense], draw)
    ids = np.concatenate([block.golds[:, None], ids[block.rows]], axis=1)  # (queries, candidates)
    counts = np.ones(ids.shape, dtype=np.float32)
    left_out = _is_repeated(ids) | _is_known(ids, block)
    left_out[:, 0] = False
    if drawn:
        others = block.entity_count - (~left_out[:, :-drawn]).sum(axis=1) - block.known.counts
        counts[:, -drawn:] = (others.clip(min=0) / (~left_out[:, -drawn:]).sum(axis=1).clip(min=1))[:, None]
    counts[left_out] = 0
    scores = np.stack([of[block.rows[:, None], ids] for of in dense], axis=2)
    return scores - scores[:, :1], counts


def _candidates(masked: Sequence[FloatArray], draw: np.random.Generator) -> tuple[IntArray, int]:
    """Choose the candidates of each question, (questions, candidates), and say how many of them were drawn."""
    question_count, entity_count = masked[0].shape
    if entity_count <= len(masked) * _BEST + _RANDOM:
        return np.tile(np.arange(entity_count), (question_count, 1)), 0
    best = [np.argpartition(-scores, _BEST, axis=1)[:, :_BEST] for scores in masked]
    drawn = draw.integers(entity_count, size=(question_count, _RANDOM))
    return np.concatenate([*best, drawn], axis=1), _RANDOM


def _is_repeated(ids: IntArray) -> BoolArray:
    """Whether a candidate stands further left in its row already; shape (queries, candidates)."""
    order = np.argsort(ids, axis=1, kind="stable")
    ascending = np.take_along_axis(ids, order, axis=1)
    repeated = np.zeros(ids.shape, dtype=bool)
    np.put_along_axis(repeated, order[:, 1:], ascending[:, 1:] == ascending[:, :-1], axis=1)
    return repeated


def _is_known(ids: IntArray, block: Block) -> BoolArray:
    rows = np.arange(len(ids))[:, None] * block.entity_count
    return np.isin(rows + ids, block.known.rows * block.entity_count + block.known.ids)


def folds_of(triple_of: IntArray) -> IntArray:
    """The fold of each query, given its triple: both queries of a triple are held out together; shape (queries,)."""
    return np.random.default_rng(0).permutation(int(triple_of.max()) + 1)[triple_of] % FOLDS
