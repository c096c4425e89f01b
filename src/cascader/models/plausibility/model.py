"""The model: what the graph itself says of who can be an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from cascader.errors import DataError
from cascader.graph import Candidates, Entity, FloatArray, IntArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.models.files import array_of
from cascader.models.model import ClosedFormModel
from cascader.models.plausibility.evidence import BINS, Evidence, Judgment, Wording, bins_of, values_at
from cascader.models.plausibility.log_odds import (
    Facts,
    FeatureChanges,
    SignatureFit,
    anchor_log_odds,
    completeness_log_odds,
    left_out,
    link_log_odds,
    own_features,
    own_weights,
    shares_of,
    typical_sums,
)
from cascader.models.settings import Settings
from cascader.scoring.scorer import Reason, Scorer

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch import Tensor

#: An entity is implausible by its signature if it is less like the answers than this share of them.
_UNTYPICAL = 0.05
#: Which of the plausible are more so, other tiers know as well: with less weight it did better in sums, on valid.
_TYPICAL_WEIGHT = 0.25
#: Rows, entities and what is added to their scores.
Corrections = tuple[IntArray, IntArray, FloatArray]


@dataclass(frozen=True)
class PlausibilitySettings(Settings):
    """The parts of plausibility, each of which can be switched off."""

    completeness: bool = True  #: how many facts of the asked relation a candidate already has on the asked side
    anchor: bool = True  #: whether the candidate is the entity that the question is about
    signature: bool = True  #: which other relations the candidate takes part in, on which side, and how often
    linked: bool = True  #: by which relations the candidate is already linked to the anchor


class PlausibilityOptions(TypedDict, total=False):
    """The same settings as keywords, for type checkers and editors."""

    completeness: bool
    anchor: bool
    signature: bool
    linked: bool


class Plausibility(ClosedFormModel):
    """Log-odds of an entity being an answer at all, from the facts that are known when the question is asked.

    Nothing is trained in epochs: it compares what the answers of train have in common, each fact left out of its own
    evidence, with all entities. A capital that has its country is no answer, nor is the entity that is asked about.

    >>> facts = [("Rome", "capital of", "Italy"), ("Paris", "capital of", "France"), ("Lyon", "city in", "France")]
    >>> kg = KnowledgeGraph.from_triples(facts, valid=[("Oslo", "capital of", "Norway")])
    >>> scores = Plausibility().fit(kg).score_all(kg.query("Norway", "capital of", side="head"))[0]
    >>> bool(scores[kg.entity_index("Oslo")] > scores[kg.entity_index("Rome")])
    True
    """

    name = "plausibility"
    tier = "plausibility"
    settings_class = PlausibilitySettings
    settings: PlausibilitySettings

    completeness_: FloatArray  # (2 × relations, 1 + bins): of having that many facts of the asked relation
    signature_: "csr_array"  # (2 × relations, features): of the counts of all other relations
    typical_: FloatArray  # (2 × relations,) the sum of these from which an entity is plausible
    anchor_: FloatArray  # (2 × relations,)
    linked_: FloatArray  # (2 × relations, 2 × relations): asked, then linking
    kg_: KnowledgeGraph

    def __init__(self, **settings: Unpack[PlausibilityOptions]) -> None:
        super().__init__(**settings)

    def _fit(self, kg: KnowledgeGraph, seconds: float) -> None:
        """Learn the log-odds of each part from train."""
        from scipy.sparse import vstack

        if not kg.relations:
            raise DataError(f"{kg.name} has no relations, so nothing can be asked or learned. Add triples.")
        facts = Facts.of(kg.known(("train",)))
        size = facts.directed_count
        self.kg_ = kg
        self.completeness_ = np.zeros((size, 1 + len(BINS)), dtype=np.float32)
        self.typical_ = np.zeros(size, dtype=np.float32)
        self.anchor_ = (anchor_log_odds(facts) * self.settings.anchor).astype(np.float32)
        self.linked_ = np.zeros((size, size), dtype=np.float32)
        completeness = completeness_log_odds(facts) if self.settings.completeness else None
        fitted = SignatureFit(facts, completeness) if self.settings.signature else None
        signature = [
            self._learn(facts, group, fitted.weights(group) if fitted else own_weights(facts, group, completeness))
            for group in facts.groups()
        ]
        self.signature_ = vstack(signature, format="csr")

    def _learn(self, facts: Facts, directed: IntArray, weights: FloatArray) -> "csr_array":
        """Take the weights of features, (relations, features), learn the other parts, and return the signature's."""
        from scipy.sparse import csr_array

        shares = shares_of(facts.evidence, weights)
        rows, own = np.arange(len(directed))[:, None], own_features(directed)
        self.completeness_[directed, 1:] = weights[rows, own]
        weights[rows, own] = 0.0
        self.typical_[directed] = typical_sums(facts, directed, weights, _UNTYPICAL)
        if self.settings.linked:
            for row, asked in enumerate(directed):
                self.linked_[asked] = link_log_odds(facts, int(asked), shares[:, row])
        return csr_array(weights, dtype=np.float32)

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        evidence = self._evidence(queries)
        scores = self.score_without_anchor(queries, evidence)
        corrections = self._corrections(queries, evidence)
        rows = np.repeat(np.arange(len(queries)), np.diff(corrections.indptr))
        scores[rows, corrections.indices] += corrections.data
        return scores

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        evidence = self._evidence(queries)
        directed = np.repeat(self._directed(queries), candidates.counts)
        scores = values_at(self._corrections(queries, evidence), candidates.rows, candidates.ids)
        for asked in np.unique(directed):
            wanted = directed == asked
            scores[wanted] += self._priors(np.array([asked]), evidence)[0, candidates.ids[wanted]]
        return scores

    def score_without_anchor(self, queries: Queries, evidence: Evidence) -> FloatArray:
        """Score every entity by what it is, whatever the anchor; shape (queries, entities)."""
        asked, row_of = np.unique(self._directed(queries), return_inverse=True)
        scores: FloatArray = self._priors(asked, evidence)[row_of]
        return scores

    def explain(self, question: Queries, answer: int) -> list[Reason]:
        """Say which facts make an entity plausible as the answer to one question, and which implausible."""
        wording = Wording(self._graph(), self._known(question), question, answer)
        return wording.reasons(self._judgment(question, answer))

    def for_new_entities(self, entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray | None) -> Scorer:
        """A scorer for anchors that are none of the graph's entities and have no links."""
        self._graph()  # an error if it was not fitted
        return NewAnchors(self, Evidence.of(kg.known()))

    def _priors(self, asked: IntArray, evidence: Evidence) -> FloatArray:
        """Completeness and signature of every entity; shape (directed relations, entities)."""
        sums = (evidence.features @ self.signature_[asked].toarray().T).T
        scores = self._signature_scores(asked[:, None], sums)
        counts = evidence.counts[asked].tocoo()
        scores[counts.row, counts.col] += self.completeness_[asked[counts.row], bins_of(counts.data)]
        return scores

    def _signature_scores(self, asked: IntArray, sums: FloatArray) -> FloatArray:
        """Log-odds from sums of weights; shape of `sums`."""
        excess = sums - self.typical_[asked]
        return np.where(excess < 0, excess, np.float32(_TYPICAL_WEIGHT) * excess)

    def _corrections(self, queries: Queries, evidence: Evidence) -> "csr_array":
        """What depends on the anchor; shape (queries, entities), sparse."""
        from scipy.sparse import csr_array

        directed = self._directed(queries)
        parts = [
            self._known_answers(queries, directed, evidence),
            (np.arange(len(queries)), queries.anchors, self.anchor_[directed]),
            self._links(queries, directed, evidence),
        ]
        rows, entities, values = (np.concatenate(column) for column in zip(*parts, strict=True))
        corrections = csr_array((values, (rows, entities)), shape=(len(queries), len(self.kg_.entities)))
        corrections.sum_duplicates()
        return corrections

    def _known_answers(self, queries: Queries, directed: IntArray, evidence: Evidence) -> Corrections:
        """Leave each known answer's own fact out of its counts."""
        known = self._known(queries).of(queries)
        asked = directed[known.rows]
        changes = left_out(evidence, asked, queries.anchors[known.rows], known.ids)
        is_own = changes.features // len(BINS) == asked[changes.rows]
        rows, features = changes.rows[is_own], changes.features[is_own]
        own = changes.values[is_own] * self.completeness_[asked[rows], 1 + features % len(BINS)]
        loops = changes.where(~is_own)
        rows = np.concatenate([rows, loops.rows])
        values = np.concatenate([own, self._loop_changes(asked, known.ids, loops, evidence)])
        return known.rows[rows], known.ids[rows], values.astype(np.float32)

    def _loop_changes(
        self, asked: IntArray, answers: IntArray, loops: FeatureChanges, evidence: Evidence
    ) -> FloatArray:
        """What leaving out a fact that links an entity to itself changes in its signature; shape (changes,)."""
        weights = loops.values * values_at(self.signature_, asked[loops.rows], loops.features)
        changes = np.bincount(loops.rows, weights, minlength=len(asked))
        own = self.signature_[asked[loops.rows]] * evidence.features[answers[loops.rows]]
        sums = own.sum(axis=1)
        difference = self._signature_scores(asked[loops.rows], sums + changes[loops.rows])
        difference -= self._signature_scores(asked[loops.rows], sums)
        # A row may have two changes, of the old bin and of the new one, which share the difference.
        return difference / np.bincount(loops.rows, minlength=len(asked))[loops.rows]

    def _links(self, queries: Queries, directed: IntArray, evidence: Evidence) -> Corrections:
        """The strongest link of each entity that is linked to the anchor."""
        links = evidence.links_of(queries.anchors)
        values = self.linked_[directed[links.rows], links.directed]
        order = np.lexsort((-np.abs(values), links.answers, links.rows))
        rows, answers, values = links.rows[order], links.answers[order], values[order]
        is_first = np.ones(len(rows), dtype=bool)
        is_first[1:] = (np.diff(rows) != 0) | (np.diff(answers) != 0)
        return rows[is_first], answers[is_first], values[is_first]

    def _judgment(self, question: Queries, answer: int) -> Judgment:
        """What each part says of an entity as the answer to a block of one query."""
        evidence, directed = self._evidence(question), self._directed(question)
        answers, anchors = np.array([answer]), question.anchors
        is_known = answer in self._known(question).of(question).ids
        count = evidence.count(directed, answers) - is_known
        contributions = self.signature_[directed] * evidence.features[answers]  # (1, features), sparse
        order = np.argsort(-contributions.data)
        told, values = contributions.indices[order] // len(BINS), contributions.data[order]
        links = evidence.links_of(anchors)
        linking = links.directed[links.answers == answer]
        linked = self.linked_[directed[0], linking]
        strongest = int(np.argmax(np.abs(linked))) if len(linked) else -1
        return Judgment(
            completeness=float(self.completeness_[directed, bins_of(count)][0]),
            anchor=float(self.anchor_[directed[0]]) if answer == anchors[0] else 0.0,
            signature=float(self._signature_scores(directed, contributions.sum(axis=1))[0]),
            typical=told[values > 0],
            untypical=told[values < 0][::-1],
            linked=float(linked[strongest]) if len(linked) else 0.0,
            link=int(linking[strongest]) if len(linked) else -1,
        )

    def _directed(self, queries: Queries) -> IntArray:
        return queries.directed_relations(len(self._graph().relations))

    def _known(self, queries: Queries) -> KnownAnswers:
        return self._graph().known(("train",)) if queries.known is None else queries.known

    def _graph(self) -> KnowledgeGraph:
        if not hasattr(self, "kg_"):
            raise self._not_fitted()
        return self.kg_

    def _evidence(self, queries: Queries) -> Evidence:
        return Evidence.of(self._known(queries))

    def _tensors(self) -> "dict[str, Tensor]":
        import torch

        self._graph()  # an error if it was not fitted
        signature = self.signature_.tocoo()
        arrays = {
            "completeness": self.completeness_,
            "typical": self.typical_,
            "anchor": self.anchor_,
            "linked": self.linked_,
            "signature_rows": signature.row,
            "signature_features": signature.col,
            "signature": signature.data,
        }
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}

    def _take_tensors(self, tensors: "Mapping[str, Tensor]", kg: KnowledgeGraph, folder: Path) -> None:
        from scipy.sparse import csr_array

        size = 2 * len(kg.relations)
        self.anchor_ = array_of(tensors, "anchor", (None,))
        if len(self.anchor_) != size:
            raise DataError(
                f"{folder} has log-odds for {len(self.anchor_) // 2:,} relations, but {kg.name} has "
                f"{len(kg.relations):,}. It was fitted to another graph."
            )
        self.kg_ = kg
        self.completeness_ = array_of(tensors, "completeness", (size, 1 + len(BINS)))
        self.typical_ = array_of(tensors, "typical", (size,))
        self.linked_ = array_of(tensors, "linked", (size, size))
        signature, shape = array_of(tensors, "signature", (None,)), (size, size * len(BINS))
        rows = array_of(tensors, "signature_rows", signature.shape, below=shape[0])
        features = array_of(tensors, "signature_features", signature.shape, below=shape[1])
        self.signature_ = csr_array((signature, (rows, features)), shape=shape)


class NewAnchors:
    """Plausibility for questions about new entities: their answers are judged by what they are, not by links."""

    def __init__(self, model: Plausibility, evidence: Evidence) -> None:
        self._model = model
        self._evidence = evidence

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity of the graph; shape (queries, entities)."""
        return self._model.score_without_anchor(queries, self._evidence)

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        scores: FloatArray = self.score_all(queries)[candidates.rows, candidates.ids]
        return scores
