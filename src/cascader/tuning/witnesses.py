"""Who is heard on a triple before a verdict, and the near misses that they propose: what they like, and no fact is."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from cascader.cascade import Cascade, known_mask
from cascader.graph import BoolArray, FloatArray, IntArray, KnowledgeGraph, KnownAnswers, Queries, Side, Triples
from cascader.scoring import Scorer, reads_pairs
from cascader.tuning.calibration import Calibration
from cascader.tuning.verdicts import Evidence, Examples, Kind, VerdictLearner

SIDES: tuple[Side, ...] = ("tail", "head")
_KINDS: tuple[Kind, ...] = ("score", "lead", "rank")
#: The scores of a cascade are shifted and scaled for each question, so they say nothing by themselves.
_CASCADE_KINDS: tuple[Kind, ...] = ("lead", "rank", "probability")
#: A near miss is one of so many best answers that are no facts.
_NEAR = 10
_QUESTIONS_AT_ONCE, _SCORES_AT_ONCE = 128, 4_000_000
#: No probability is taken to be surer than this.
_LEAST = 1e-6
#: Stands for infinity, which a tier may use for what it rules out.
_MOST = 1e9


@dataclass(frozen=True, eq=False)
class Witnesses:
    """Who is heard on a triple: all tiers that score every entity, and the cascade with its probabilities."""

    kg: KnowledgeGraph
    cascade: Cascade
    calibration: Calibration
    tiers: Mapping[str, Scorer]

    @property
    def learner(self) -> VerdictLearner:
        """What learns from their evidence."""
        return VerdictLearner(self.columns, [relation.id for relation in self.kg.relations])

    @property
    def scorers(self) -> dict[str, Scorer]:
        """The tiers that are heard, by name."""
        return {name: scorer for name, scorer in self.tiers.items() if not reads_pairs(scorer)}

    @property
    def columns(self) -> list[Evidence]:
        """What is looked at, in the order of the columns of `evidence`."""
        of_tiers: list[tuple[str, Kind]] = [(name, kind) for name in self.scorers for kind in _KINDS]
        of_all = [*of_tiers, *(("cascade", kind) for kind in _CASCADE_KINDS)]
        return [Evidence(tier, kind, side) for side in SIDES for tier, kind in of_all]

    @property
    def _at_once(self) -> int:
        """Questions in a block: fewer in a large graph."""
        return max(1, min(_QUESTIONS_AT_ONCE, _SCORES_AT_ONCE // max(len(self.kg.entities), 1)))

    def evidence(self, triples: Triples, known: KnownAnswers) -> FloatArray:
        """Hear everyone on each triple, with what is known when it is judged; shape (triples, columns)."""
        sides = [self._from_one_side(Queries.from_triples(triples, side), known) for side in SIDES]
        return np.column_stack(sides)

    def _from_one_side(self, queries: Queries, known: KnownAnswers) -> FloatArray:
        questions, question_of = queries.with_known(known).unique()
        golds, start = queries.required_golds(), 0
        found = np.empty((len(queries), len(self.columns) // len(SIDES)))
        for block in questions.blocks(self._at_once):
            asking = np.flatnonzero((question_of >= start) & (question_of < start + len(block)))
            found[asking] = self._heard(block, question_of[asking] - start, golds[asking], known)
            start += len(block)
        return found

    def _heard(self, block: Queries, rows: IntArray, golds: IntArray, known: KnownAnswers) -> FloatArray:
        """The evidence for some answers, each to the question in one of the rows of a block."""
        steps = list(self.cascade.steps(block))
        scores, columns = steps[-1].blended, list[FloatArray]()
        is_known = known_mask(block, known, scores.shape)
        scored = {step.tier: step.scores for step in steps if step.candidates is None}
        for name, scorer in self.scorers.items():
            found = scored.get(name)
            own = _finite(scorer.score_all(block) if found is None else found)
            columns += [own[rows, golds], *_standing(own, ~is_known, rows, golds)]
        probabilities = self.calibration.probabilities(block, scores, is_known)[rows, golds]
        columns += [*_standing(_finite(scores), ~is_known, rows, golds), logit(probabilities.clip(_LEAST, 1 - _LEAST))]
        return np.column_stack(columns)

    # Near misses.

    def near_misses(self, triples: Triples, draw: np.random.Generator) -> Triples:
        """Put another tail, then another head, into each triple: one that a tier or the cascade likes, and no fact.

        Everyone proposes in turn, so that nobody's favorites are all of what is called wrong; shape (2 × triples, 3).
        """
        proposing = [*self.scorers.values(), self.cascade]
        missed = np.concatenate([triples, triples])
        for side, column, own in zip(SIDES, (2, 0), np.split(np.arange(len(missed)), 2), strict=True):
            for turn, scorer in enumerate(proposing):
                places = own[turn :: len(proposing)]
                queries = Queries.from_triples(missed[places], side).with_known(self.kg.known_before("valid"))
                missed[places, column] = self._proposed(scorer, queries, draw)
        return missed

    def _proposed(self, scorer: Scorer, queries: Queries, draw: np.random.Generator) -> IntArray:
        facts, proposed = self.kg.known_before("test"), queries.required_golds().copy()
        for start in range(0, len(queries), self._at_once):
            block = queries[start : start + self._at_once]
            scores = scorer.score_all(block)
            is_fact = known_mask(block, facts, scores.shape)
            for row, (relation, is_tail) in enumerate(zip(block.relations, block.predicts_tail, strict=True)):
                best = _best(scores[row], ~is_fact[row], _usual(self.kg, int(relation), bool(is_tail)))
                if len(best):  # otherwise everything is a fact, and nothing can be a near miss
                    proposed[start + row] = draw.choice(best)
        return proposed


def _finite(scores: FloatArray) -> FloatArray:
    """Scores as numbers that can be added up."""
    return np.nan_to_num(scores.astype(np.float64), posinf=_MOST, neginf=-_MOST).clip(-_MOST, _MOST)


def _standing(scores: FloatArray, is_new: BoolArray, rows: IntArray, golds: IntArray) -> list[FloatArray]:
    """How an answer stands among those to its question that are not known: its lead and its rank; (answers,) each."""
    counts = is_new.sum(axis=1).clip(min=1)
    means = (scores * is_new).sum(axis=1) / counts
    spreads = np.sqrt((((scores - means[:, None]) * is_new) ** 2).sum(axis=1) / counts)
    own = scores[rows, golds]
    lead = (own - means[rows]) / np.where(spreads > _LEAST, spreads, 1.0)[rows]
    ranks = [_rank(scores[row][is_new[row]], score) for row, score in zip(rows, own, strict=True)]
    return [lead, -np.log(np.array(ranks, dtype=np.float64))]


def _rank(scores: FloatArray, own: float) -> float:
    """The mean rank of a score among others; ties share it."""
    above, equal = int((scores > own).sum()), max(int((scores == own).sum()), 1)
    return above + (equal + 1) / 2


def _usual(kg: KnowledgeGraph, relation: int, is_tail: bool) -> BoolArray:
    """Mark the entities that train has on this side of the relation; shape (entities,)."""
    usual = np.zeros(len(kg.entities), dtype=bool)
    usual[kg.train[kg.train[:, 1] == relation, 2 if is_tail else 0]] = True
    return usual


def _best(scores: FloatArray, is_possible: BoolArray, is_usual: BoolArray) -> IntArray:
    """The best of the possible answers, if there are any among the usual ones from these."""
    pool = np.flatnonzero(is_possible & is_usual)
    pool = pool if len(pool) else np.flatnonzero(is_possible)
    return pool[np.argsort(-scores[pool], kind="stable")[:_NEAR]]


def examples_of(witnesses: Witnesses, facts: Triples, draw: np.random.Generator) -> Examples:
    """Facts of valid, and two near misses for each, which together count as much as the facts."""
    known = witnesses.kg.known_before("valid")
    missed = witnesses.near_misses(facts, draw)
    triples = np.concatenate([facts, missed])
    return Examples(
        values=witnesses.evidence(triples, known),
        relations=triples[:, 1],
        is_true=np.repeat([True, False], [len(facts), len(missed)]),
        weights=np.repeat([1.0, 0.5], [len(facts), len(missed)]),
        groups=np.tile(np.arange(len(facts)), 3),
    )


@dataclass(frozen=True, eq=False)
class Labels:
    """Triples of which the user says whether they are true."""

    triples: Triples  # (labels, 3)
    is_true: BoolArray  # (labels,)

    def __len__(self) -> int:
        return len(self.triples)

    def without(self, chosen: BoolArray) -> "Labels":
        """Return the labels but those that are `chosen`, (labels,)."""
        return Labels(self.triples[~chosen], self.is_true[~chosen])
