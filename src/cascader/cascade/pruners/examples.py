"""What is kept of the queries a pruner has seen: little enough to hold all of them at once."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cascader.cascade.pruners.features import FeatureName, asked, describe
from cascader.cascade.pruners.scored_queries import ScoredQueries
from cascader.errors import DataError
from cascader.graph import BoolArray, FloatArray, IntArray, Triples


@dataclass(frozen=True, eq=False)
class Examples:
    """Features and gold ranks, a row a query, in an order that does not depend on the blocks they came in."""

    features: FloatArray  # (queries, features)
    asked: IntArray  # (queries,) the relation and side as one number
    ranks: FloatArray  # (queries,) the mean rank where the gold ties
    worst_ranks: FloatArray  # (queries,) behind all that it ties with
    triples: Triples  # (queries, 3) that the golds complete
    predicts_tail: BoolArray  # (queries,)

    @classmethod
    def collect(cls, blocks: Iterable[ScoredQueries], features: FeatureName) -> "Examples":
        """Go through the blocks once."""
        parts = [
            (
                describe(block.queries, block.scores, features),
                asked(block.queries),
                block.ranks,
                block.worst_ranks,
                block.queries.triples(),
                block.queries.predicts_tail,
            )
            for block in blocks
            if len(block.queries)
        ]
        if not parts:
            raise DataError("there are no queries to learn k from. Hold some valid triples back, or take TopK(k).")
        if len({part[0].shape[1] for part in parts}) > 1:
            raise DataError("the blocks have scores for different numbers of entities, expected one graph.")
        together = cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        return together[np.lexsort((together.predicts_tail, *together.triples.T))]

    def __len__(self) -> int:
        return len(self.ranks)

    def __getitem__(self, rows: IntArray | BoolArray) -> "Examples":
        return Examples(
            features=self.features[rows],
            asked=self.asked[rows],
            ranks=self.ranks[rows],
            worst_ranks=self.worst_ranks[rows],
            triples=self.triples[rows],
            predicts_tail=self.predicts_tail[rows],
        )

    def split(self, share: float, seed: int) -> tuple["Examples", "Examples"]:
        """Two random parts, the second with about `share` of the triples and possibly empty, the first never.

        Both sides of a triple stay together: what is learnt from one part has then seen nothing of the other.
        """
        triples, triple_of = np.unique(self.triples, axis=0, return_inverse=True)
        order = np.random.default_rng(seed).permutation(len(triples))
        is_second = np.zeros(len(triples), dtype=np.bool_)
        is_second[order[: int(share * len(triples))]] = True
        goes_second = is_second[triple_of.reshape(-1)]
        return self[~goes_second], self[goes_second]
