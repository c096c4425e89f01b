"""The predictor: a graph, a cascade and its calibration, which together answer questions and judge triples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cascader.cascade import Answer, Cascade, Deadline, answers_of, known_mask, pairs_of
from cascader.datasets import Frame, triples_of
from cascader.errors import DataError, SettingsError
from cascader.graph import (
    BoolArray,
    Candidates,
    Entity,
    FloatArray,
    IntArray,
    KnowledgeGraph,
    KnownAnswers,
    Queries,
    Side,
    Triples,
)
from cascader.runs.decisions import among_triples
from cascader.runs.prediction import Prediction, Predictions, Verdict
from cascader.runs.reasons import Explainer
from cascader.scoring import Scorer
from cascader.tuning.calibration import Calibration, calibrate, calibration_triples
from cascader.tuning.verdicts import Examples
from cascader.tuning.witnesses import Labels, Witnesses, examples_of

#: The most memory for one block of dense scores, not counting traces and probabilities.
_BLOCK_BYTES = 16 << 20
_BLOCK_QUESTIONS = 256
#: How many facts of valid verdicts are learned from.
_MOST_TRIPLES = 2000
#: Each near miss asks a question that is not in valid: if pairs must be read for it, fewer have to do.
_MOST_TRIPLES_READ = 50


@dataclass(frozen=True)
class Predictor:
    """Answers questions by name, entirely in memory.

    >>> from cascader import ComplEx, KnowledgeGraph, Predictor
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(4) for j in range(4)]
    >>> kg = KnowledgeGraph.from_triples(facts[1:14], valid=facts[14:])
    >>> predictor = Predictor(kg, ComplEx(dim=4, epochs=2).fit(kg)).calibrated()
    >>> answers = predictor.predict("drug 0", "treats", top=2)
    >>> len(answers), answers[0].rank
    (2, 1)
    """

    kg: KnowledgeGraph
    cascade: Cascade
    calibration: Calibration | None = None  # None: answers have no probabilities
    new: tuple[Entity, ...] = ()  # if given, questions are about these, and there are no known answers
    evidence: Mapping[str, Scorer] = field(default_factory=dict, compare=False)  # whom to ask why, by name
    known: KnownAnswers | None = field(default=None, compare=False)  # facts to answer with; None: those of the graph
    rejected: KnownAnswers | None = field(default=None, compare=False)  # never given as answers

    def __init__(
        self,
        kg: KnowledgeGraph,
        cascade: Scorer,
        calibration: Calibration | None = None,
        new: tuple[Entity, ...] = (),
        evidence: Mapping[str, Scorer] | None = None,
        known: KnownAnswers | None = None,
        rejected: KnownAnswers | None = None,
    ) -> None:
        """Answer with a cascade or any other scorer; its tiers are asked why, unless `evidence` names others."""
        tiers = cascade if isinstance(cascade, Cascade) else Cascade(cascade)
        object.__setattr__(self, "kg", kg)
        object.__setattr__(self, "cascade", tiers)
        object.__setattr__(self, "calibration", calibration)
        object.__setattr__(self, "new", new)
        object.__setattr__(self, "evidence", tiers.scorers if evidence is None else evidence)
        object.__setattr__(self, "known", known)
        object.__setattr__(self, "rejected", rejected)

    def __repr__(self) -> str:
        return f"Predictor({self.kg!r}, {self.cascade!r}{'' if self.calibration is None else ', calibrated'})"

    def calibrated(self) -> "Predictor":
        """Return the same predictor with probabilities calibrated on valid."""
        return replace(self, calibration=calibrate(self.cascade, self.kg))

    # Answers.

    def predict(
        self, entity: str, relation: str, side: Side = "tail", *, top: int = 10, with_known: bool = False
    ) -> Predictions:
        """Return the best answers to (entity, relation, ?), or to (?, relation, entity) with `side="head"`.

        Known answers are left out, or ranked and marked if `with_known`. Entity and relation are given by id or name.
        """
        return next(self.answer(self.kg.query(entity, relation, side), top=top, with_known=with_known))

    def answer(
        self,
        queries: Queries,
        *,
        top: int = 10,
        with_known: bool = False,
        min_probability: float = 0.0,
        deadline: Deadline | None = None,
    ) -> Iterator[Predictions]:
        """Yield the best answers to each query, leaving out those less probable than `min_probability`."""
        if top < 1:
            raise SettingsError(f"top is {top}, expected at least 1 answer.")
        if min_probability > 0 and self.calibration is None:
            raise DataError(
                "there are no probabilities: they need a valid split, and new entities have none. "
                "Leave the minimum probability out."
            )
        for block in self.blocks(queries, with_known):
            for found in self._block(block, min(top, len(self.kg.entities)), with_known, deadline):
                probable = [e for e in found if e.probability is None or e.probability >= min_probability]
                yield replace(found, predictions=tuple(probable))

    def blocks(self, queries: Queries, with_known: bool = False) -> Iterator[Queries]:
        """Yield the queries as they are answered, as many at a time as memory allows."""
        return queries.with_known(None if with_known or self.new else self.facts).blocks(self._block_size)

    def known_of(self, queries: Queries) -> Candidates:
        """Return the known answers of each query, from all splits."""
        return self.facts.of(queries)

    @property
    def facts(self) -> KnownAnswers:
        """What is known when a question is asked: the facts of all splits, or those it was given."""
        if self.new:
            return self.kg.known(())
        return self.kg.known() if self.known is None else self.known

    @property
    def _block_size(self) -> int:
        return max(1, min(_BLOCK_QUESTIONS, _BLOCK_BYTES // (4 * len(self.kg.entities))))

    def _block(self, queries: Queries, top: int, with_known: bool, deadline: Deadline | None) -> Iterator[Predictions]:
        steps = list(self.cascade.steps(queries, deadline))
        scores = steps[-1].blended
        self._check_shape(scores, len(queries))
        is_known = known_mask(queries, self.facts, scores.shape)
        hidden = self._never_answers(queries, scores.shape)
        hidden = hidden & ~is_known if with_known else hidden | is_known
        for row, answers in enumerate(answers_of(steps, top, hidden=hidden, is_known=is_known)):
            probabilities = self._probabilities(queries, row, answers, scores, is_known)
            predictions = tuple(
                self._prediction(queries, row, answer, probability)
                for answer, probability in zip(answers, probabilities, strict=True)
            )
            yield Predictions(predictions, pairs_of(steps, row), all(step.complete for step in steps))

    def _probabilities(
        self, queries: Queries, row: int, answers: list[Answer], scores: FloatArray, is_known: BoolArray
    ) -> Sequence[float | None]:
        """Return the probability of each answer to a query, if there is a calibration."""
        if self.calibration is None:
            return [None] * len(answers)
        places = np.array([answer.entity for answer in answers], dtype=np.int64)
        predicts_tail = bool(queries.predicts_tail[row])
        found: list[float] = self.calibration.probabilities_at(
            places, predicts_tail, scores[row], is_known[row]
        ).tolist()
        return found

    def _never_answers(self, queries: Queries, shape: tuple[int, ...]) -> BoolArray:
        """Mark rejected answers, and the anchor where no fact links anything to itself; shape (queries, entities)."""
        if self.new:
            return np.zeros(shape, dtype=bool)
        never = known_mask(queries, self.rejected, shape)
        rows = np.flatnonzero(~np.isin(queries.relations, self._loops))
        never[rows, queries.anchors[rows]] = True
        return never

    @cached_property
    def _loops(self) -> IntArray:
        """The relations that have a fact which links an entity to itself."""
        facts = self.facts.triples
        return np.unique(facts[facts[:, 0] == facts[:, 2], 1])

    def _check_shape(self, scores: FloatArray, count: int) -> None:
        expected = count, len(self.kg.entities)
        if scores.shape != expected:
            raise DataError(
                f"the tier {self.cascade.name} returned scores of shape {scores.shape}, expected {expected}: one for "
                "each query and entity."
            )

    def _prediction(self, queries: Queries, row: int, answer: Answer, probability: float | None) -> Prediction:
        anchor, question = (self.new or self.kg.entities)[queries.anchors[row]], queries[row : row + 1]
        return Prediction(
            anchor=anchor,
            relation=self.kg.relations[queries.relations[row]],
            side="tail" if queries.predicts_tail[row] else "head",
            entity=self.kg.entities[answer.entity],
            rank=answer.rank,
            probability=probability,
            score=answer.score,
            is_known=answer.is_known,
            trace=answer.trace,
            explain=Explainer(self.kg, self.evidence, question, anchor, answer).reasons,
        )

    # Verdicts.

    def classify(self, triples: Sequence[tuple[str, str, str]] | Frame) -> list[Verdict]:
        """Judge whether triples, by id or name, are true; a data frame needs the columns head, relation and tail."""
        kg = self.kg
        rows = triples_of(triples) if hasattr(triples, "columns") else triples
        indices = [(kg.entity_index(h), kg.relation_index(r), kg.entity_index(t)) for h, r, t in rows]
        return self.judge(np.array(indices, dtype=np.int32).reshape(-1, 3))

    def judge(self, triples: Triples) -> list[Verdict]:
        """Judge whether each triple, (triples, 3), is true; a known one is judged as if the graph did not have it."""
        model = self._required().verdicts
        if model is None:
            raise SettingsError("no threshold has been chosen yet. Call with_threshold(predictor) first.")
        kg, facts = self.kg, self.facts.triples
        names = [kg.relations[relation].id for relation in triples[:, 1]]
        probabilities = model.probabilities(self.evidence_for(triples), names)
        is_known = among_triples(triples, facts, kg)
        return [
            Verdict(
                kg.entities[h], kg.relations[r], kg.entities[t], float(probability), model.threshold, bool(in_graph)
            )
            for (h, r, t), probability, in_graph in zip(triples, probabilities, is_known, strict=True)
        ]

    def evidence_for(self, triples: Triples) -> FloatArray:
        """Hear every tier on each triple; a known one as if the graph did not have it; shape (triples, evidence)."""
        witnesses, facts = self.witnesses(), self.facts.triples
        found = np.empty((len(triples), len(witnesses.columns)))
        is_known = among_triples(triples, facts, self.kg)
        found[~is_known] = witnesses.evidence(triples[~is_known], self.facts)
        for places in _without_shared_questions(triples, np.flatnonzero(is_known)):
            others = facts[~among_triples(facts, triples[places], self.kg)]
            known = KnownAnswers(others, len(self.kg.entities), len(self.kg.relations))
            found[places] = witnesses.evidence(triples[places], known)
        return found

    def witnesses(self) -> Witnesses:
        """Return who is heard on a triple: its tiers, those it can ask why, and the cascade."""
        return Witnesses(self.kg, self.cascade, self._required(), {**self.cascade.scorers, **self.evidence})

    def probabilities_of(self, triples: Triples, known: KnownAnswers) -> FloatArray:
        """Compute the probability of each triple, the mean over the two questions that it answers; shape (triples,)."""
        sides: Sequence[Side] = ("tail", "head")
        return np.mean([self.one_sided(Queries.from_triples(triples, side), known) for side in sides], axis=0)

    def one_sided(self, queries: Queries, known: KnownAnswers) -> FloatArray:
        """Compute the probability of the gold answer of each query; shape (queries,)."""
        questions, question_of = queries.with_known(known).unique()
        golds, found, start = queries.required_golds(), np.empty(len(queries)), 0
        for block in questions.blocks(self._block_size):
            scores = self.cascade.score_all(block)
            is_known = known_mask(block, known, scores.shape)
            asking = np.flatnonzero((question_of >= start) & (question_of < start + len(block)))
            for row in range(len(block)):
                own = asking[question_of[asking] == start + row]
                predicts_tail = bool(block.predicts_tail[row])
                found[own] = self._required().probabilities_at(golds[own], predicts_tail, scores[row], is_known[row])
            start += len(block)
        return found

    def _required(self) -> Calibration:
        if self.calibration is None:
            raise DataError(
                f"{self.kg.name} has no valid triples, so there are no probabilities to judge by. Fit again with some "
                "held out."
            )
        return self.calibration


def _without_shared_questions(triples: Triples, places: IntArray) -> list[IntArray]:
    """Group the places so that no two triples of a group answer the same question: each is unknown only to itself."""
    groups: list[list[int]] = []
    group_questions: list[set[tuple[str, int, int]]] = []
    for place in places.tolist():
        head, relation, tail = triples[place].tolist()
        questions = {("tail", head, relation), ("head", tail, relation)}
        group = next((i for i, others in enumerate(group_questions) if not others & questions), len(groups))
        if group == len(groups):
            groups.append([])
            group_questions.append(set())
        groups[group].append(place)
        group_questions[group] |= questions
    return [np.array(group) for group in groups]


def with_threshold(
    predictor: Predictor, facts: Triples | None = None, labels: Labels | None = None, *, seed: int = 0
) -> Predictor:
    """Return the same predictor with verdicts, learned from valid, or from some `facts` of it, and from labels."""
    kg, calibration = predictor.kg, predictor.calibration
    if calibration is None:
        raise DataError(f"{kg.name} has no valid triples to choose a threshold on. Fit again with some held out.")
    examples = valid_examples(predictor, facts, labels, seed=seed)
    given = None if labels is None else label_examples(predictor, labels)
    model = predictor.witnesses().learner.learned(examples, given)
    return replace(predictor, calibration=replace(calibration, verdicts=model))


def valid_examples(
    predictor: Predictor, facts: Triples | None = None, labels: Labels | None = None, *, seed: int = 0
) -> Examples:
    """Draw facts of valid that have no label, and near misses, for a predictor to learn verdicts from."""
    draw = np.random.default_rng(seed)
    reads = any(tier.reads_pairs for tier in predictor.cascade.tiers)
    drawn = draw.permutation(predictor.kg.valid if facts is None else facts)
    if labels is not None:
        is_labelled = among_triples(drawn, labels.triples, predictor.kg)
        drawn = drawn if is_labelled.all() else drawn[~is_labelled]
    most = _MOST_TRIPLES_READ if reads else min(_MOST_TRIPLES, calibration_triples(len(predictor.kg.entities)))
    return examples_of(predictor.witnesses(), drawn[:most], draw)


def label_examples(predictor: Predictor, labels: Labels) -> Examples:
    """Turn labels into examples, each judged as `judge` would."""
    return Examples(
        values=predictor.evidence_for(labels.triples),
        relations=labels.triples[:, 1],
        is_true=labels.is_true,
        weights=np.ones(len(labels.triples)),
        groups=np.arange(len(labels.triples)),
    )
