"""A graph, a cascade and its calibration: all that it takes to answer people."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cascader.cascade import Answer, Cascade, Deadline, answers_of, known_mask, pairs_of
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
from cascader.graph.arrays import triple_keys
from cascader.runs.prediction import Answered, Prediction, Verdict
from cascader.tuning.calibration import Calibration

#: What one block of dense scores may take, traces and probabilities aside.
_BLOCK_BYTES = 16 << 20
_BLOCK_QUESTIONS = 256


@dataclass(frozen=True)
class Predictor:
    """Answers questions by what a cascade says."""

    kg: KnowledgeGraph
    cascade: Cascade
    calibration: Calibration | None  # None: there was no valid, so there are no probabilities
    new: tuple[Entity, ...] = ()  # where there are any, questions are about these, and the graph knows no answer

    def predict(
        self,
        queries: Queries,
        *,
        top: int = 10,
        with_known: bool = False,
        min_probability: float = 0.0,
        deadline: Deadline | None = None,
    ) -> Iterator[list[Prediction]]:
        """The best answers of each query, those that are less probable left out.

        What the graph knows, in whatever split, is left out; or, `with_known`, takes part and is marked.
        """
        if min_probability > 0 and self.calibration is None:
            raise DataError(
                "there are no probabilities to go by: they need a valid split, and are not known for new entities. "
                "Leave the least probability out."
            )
        for found in self.answered(queries, top=top, with_known=with_known, deadline=deadline):
            yield [e for e in found.predictions if e.probability is None or e.probability >= min_probability]

    def answered(
        self, queries: Queries, *, top: int = 10, with_known: bool = False, deadline: Deadline | None = None
    ) -> Iterator[Answered]:
        """The same as `predict`, all of it, with what each question has cost."""
        if top < 1:
            raise SettingsError(f"the {top} best answers were asked for, expected at least 1.")
        queries = queries.with_known(None if with_known else self._known)
        for block in queries.blocks(self._block_size):
            yield from self._block(block, top, with_known, deadline)

    def known_of(self, queries: Queries) -> Candidates:
        """What the graph knows of each query, in whatever split."""
        return self._known.of(queries)

    @cached_property
    def _known(self) -> KnownAnswers:
        sizes = len(self.kg.entities), len(self.kg.relations)
        return KnownAnswers(np.empty((0, 3), dtype=np.int32), *sizes) if self.new else self.kg.known()

    @property
    def _block_size(self) -> int:
        return max(1, min(_BLOCK_QUESTIONS, _BLOCK_BYTES // (4 * len(self.kg.entities))))

    def _block(self, queries: Queries, top: int, with_known: bool, deadline: Deadline | None) -> Iterator[Answered]:
        steps = list(self.cascade.steps(queries, deadline))
        scores = steps[-1].blended
        is_known = known_mask(queries, self._known, scores.shape)
        hidden = np.zeros_like(is_known) if with_known else is_known
        probabilities = None if self.calibration is None else self.calibration.probabilities(queries, scores, is_known)
        for row, answers in enumerate(answers_of(steps, top, hidden=hidden, is_known=is_known)):
            of_row = None if probabilities is None else probabilities[row]
            predictions = [self._prediction(queries, row, answer, of_row) for answer in answers]
            yield Answered(predictions, pairs_of(steps, row), all(step.complete for step in steps))

    def _prediction(self, queries: Queries, row: int, answer: Answer, probabilities: FloatArray | None) -> Prediction:
        return Prediction(
            anchor=(self.new or self.kg.entities)[queries.anchors[row]],
            relation=self.kg.relations[queries.relations[row]],
            side="tail" if queries.predicts_tail[row] else "head",
            entity=self.kg.entities[answer.entity],
            rank=answer.rank,
            probability=None if probabilities is None else float(probabilities[answer.entity]),
            score=answer.score,
            is_known=answer.is_known,
            trace=answer.trace,
        )

    # Verdicts.

    def classify(self, triples: Triples) -> list[Verdict]:
        """Whether each triple, (triples, 3), is true; one that the graph has is judged as if it had not."""
        calibration = self._required()
        if calibration.threshold is None:
            raise SettingsError("no threshold was chosen yet. Call with_threshold() first.")
        facts = self.kg.triples()
        is_known = _is_among(triples, facts, self.kg)
        probabilities = np.empty(len(triples))
        probabilities[~is_known] = self.probabilities_of(triples[~is_known], self._known)
        for places in _without_shared_questions(triples, np.flatnonzero(is_known)):
            others = facts[~_is_among(facts, triples[places], self.kg)]
            known = KnownAnswers(others, len(self.kg.entities), len(self.kg.relations))
            probabilities[places] = self.probabilities_of(triples[places], known)
        return [
            Verdict(
                self.kg.entities[head],
                self.kg.relations[relation],
                self.kg.entities[tail],
                float(probability),
                bool(probability >= calibration.threshold.probability),
                bool(in_graph),
            )
            for (head, relation, tail), probability, in_graph in zip(triples, probabilities, is_known, strict=True)
        ]

    def probabilities_of(self, triples: Triples, known: KnownAnswers) -> FloatArray:
        """The probability of each triple, the mean of the two questions that it answers; shape (triples,)."""
        sides: Sequence[Side] = ("tail", "head")
        return np.mean([self._one_sided(Queries.from_triples(triples, side), known) for side in sides], axis=0)

    def _one_sided(self, queries: Queries, known: KnownAnswers) -> FloatArray:
        questions, question_of = queries.with_known(known).unique()
        golds, found = queries.required_golds(), np.empty(len(queries))
        start = 0
        for block in questions.blocks(self._block_size):
            scores = self.cascade.score_all(block)
            is_known = known_mask(block, known, scores.shape)
            asking = np.flatnonzero((question_of >= start) & (question_of < start + len(block)))
            probabilities = self._required().probabilities(block, scores, is_known)
            found[asking] = probabilities[question_of[asking] - start, golds[asking]]
            start += len(block)
        return found

    def _required(self) -> Calibration:
        if self.calibration is None:
            raise DataError(
                f"{self.kg.name} has no valid triples, so there are no probabilities to judge by. Fit again with some "
                "held back."
            )
        return self.calibration


def _is_among(triples: Triples, others: Triples, kg: KnowledgeGraph) -> BoolArray:
    """Whether each triple is one of the others; shape (triples,)."""
    keys, of_others = (triple_keys(some, len(kg.entities), len(kg.relations)) for some in (triples, others))
    return np.isin(keys, of_others)


def _without_shared_questions(triples: Triples, places: IntArray) -> list[IntArray]:
    """The places in groups, within which no two triples answer the same question: each forgets only itself."""
    groups: list[list[int]] = []
    asked: list[set[tuple[str, int, int]]] = []
    for place in places.tolist():
        head, relation, tail = triples[place].tolist()
        questions = {("tail", head, relation), ("head", tail, relation)}
        group = next((i for i, others in enumerate(asked) if not others & questions), len(groups))
        if group == len(groups):
            groups.append([])
            asked.append(set())
        groups[group].append(place)
        asked[group] |= questions
    return [np.array(group) for group in groups]
