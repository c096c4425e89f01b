"""Rules with a constant: which answers go with the features of an anchor, in one sparse product per relation."""

from typing import TYPE_CHECKING

import numpy as np

from cascader.graph import FloatArray, IntArray
from cascader.models.rules.facts import Facts, rows_of
from cascader.models.rules.tables import NONE, ConstantRules, RulesSettings

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: The most multiplications for the product of one relation: beyond that, fewer anchors are looked at.
_WORK = 20_000_000


class ConstantMiner:
    """Counts, for one graph, how often features and answers go together."""

    def __init__(self, facts: Facts, settings: RulesSettings) -> None:
        self.facts, self.settings = facts, settings
        self.keys = _shared_keys(facts, settings.min_support)
        self.features = facts.features(self.keys)  # (entities, features)
        self.reaches = self.features.sum(axis=0)  # (features,)
        self.has_sampled = False

    def mine(self, target: int) -> ConstantRules:
        """The rules for one directed relation, the most confident of them."""
        anchors = self._anchors(target)
        links, features = self.facts.links(target)[anchors], self.features[anchors]
        least = self.settings.min_support
        links, features = _frequent(links, least), _frequent(features, least)
        together = (features.T.tocsr() @ links).tocoo()  # (features, entities)
        is_often = together.data >= least
        places, constants = together.row[is_often], together.col[is_often]
        supports, bodies = together.data[is_often], features.sum(axis=0)[places]
        rules = self._rules(target, places, constants, supports, bodies, len(anchors))
        return self._best(self._leaving_out(target, links, rules))

    def _anchors(self, target: int) -> IntArray:
        """All anchors of a relation, or a sample of them where there are too many features and answers."""
        anchors = self.facts.anchors(target)
        work = (np.diff(self.facts.links(target).indptr) * np.diff(self.features.indptr))[anchors]
        if work.sum() <= _WORK:
            return anchors
        self.has_sampled = True
        order = np.random.default_rng([self.settings.seed, target]).permutation(len(anchors))
        return np.sort(anchors[order[work[order].cumsum() <= _WORK]])

    def _rules(
        self,
        target: int,
        places: IntArray,
        constants: IntArray,
        supports: FloatArray,
        bodies: FloatArray,
        anchor_count: int,
    ) -> ConstantRules:
        relations, entities = np.divmod(self.keys[places], self.facts.entity_count + 1)
        share = anchor_count / max(len(self.facts.anchors(target)), 1)
        return ConstantRules(
            np.full(len(places), target, dtype=np.int32),
            relations.astype(np.int32),
            entities.astype(np.int32) - 1,
            constants.astype(np.int32),
            supports.astype(np.float32),
            bodies.astype(np.float32),
            (self.reaches[places] * share).astype(np.float32),
        )

    def _leaving_out(self, target: int, links: "csr_array", rules: ConstantRules) -> ConstantRules:
        """Leave each fact out of its own evidence: it says neither that the anchor has this answer nor that it has any.

        Where the feature is any other answer of the asked relation, only anchors with two or more can support it.
        """
        own = rules.relations == target
        answers = np.diff(links.indptr)[rows_of(links)]
        several = np.bincount(links.indices[answers > 1], minlength=links.shape[1])[rules.constants]
        alone = np.bincount(links.indices[answers == 1], minlength=links.shape[1])[rules.constants]
        is_any = own & (rules.entities == NONE)
        rules.supports[is_any] = several[is_any]
        rules.bodies[is_any] -= alone[is_any]
        rules.reaches[is_any] -= alone[is_any]
        return rules[~(own & (rules.entities == rules.constants)) & (rules.supports >= self.settings.min_support)]

    def _best(self, rules: ConstantRules) -> ConstantRules:
        confidences = rules.supports / (np.minimum(rules.bodies, rules.reaches) + self.settings.prior_count)
        return rules[np.sort(np.argsort(-confidences, kind="stable")[: self.settings.max_constants])]


def _shared_keys(facts: Facts, least: int) -> IntArray:
    """The features that at least so many entities have, ascending; shape (features,)."""
    keys, counts = np.unique(facts.feature_keys(facts.relations, facts.targets), return_counts=True)
    anything = facts.feature_keys(np.arange(facts.direction_count), np.full(facts.direction_count, NONE))
    return np.union1d(keys[counts >= least], anything)


def _frequent(matrix: "csr_array", least: int) -> "csr_array":
    """The same matrix without the columns that have too few entries to support a rule."""
    kept = matrix.copy()
    kept.data = kept.data * (matrix.sum(axis=0) >= least)[matrix.indices]
    kept.eliminate_zeros()
    return kept
