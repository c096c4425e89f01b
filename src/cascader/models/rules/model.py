"""Rules: what usually holds in the graph, as answers and as the reasons for them."""

import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakKeyDictionary

import numpy as np

from cascader.display import emit
from cascader.durations import format_duration
from cascader.errors import DataError
from cascader.graph import Candidates, FloatArray, IntArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.models.files import array_of
from cascader.models.model import ClosedFormModel
from cascader.models.rules.application import AppliedRules
from cascader.models.rules.facts import BANDS, Facts
from cascader.models.rules.miner import SAMPLED, STAGES, Mined, Miner
from cascader.models.rules.tables import Chains, ConstantRules, RulesOptions, RulesSettings
from cascader.models.rules.words import Explainer
from cascader.models.training import TrainingCost
from cascader.scoring.scorer import Reason, Scorer
from cascader.wording import counted

if TYPE_CHECKING:
    from torch import Tensor

#: The most cells (questions × entities) of which the rules are joined at the same time.
_CELLS = 4_000_000
#: The probability of a candidate that no rule proposes: it changes no ranking, and valid likes it high in a softmax.
_FLOOR = 1e-3
#: How often an answer answers the relation decides only between candidates of the same rules.
_FREQUENCY_WEIGHT = 0.001
#: A dry run mines for at most so long.
_DRY_SECONDS = 1.0


class Rules(ClosedFormModel):
    """Scores an entity by the rules that propose it: log of the probability that not all of the best five err.

    A rule is a chain of up to three facts from the anchor to the answer, or says which answer goes with a feature. Its
    confidence is the share of the cases in train in which it was right, with a few wrong ones added. Rules are applied
    to what is known when the question is asked, and `explain` names them with their facts.

    >>> parents = [("Ann", "parent of", "Bob"), ("Cleo", "parent of", "Dan"), ("Eve", "parent of", "Finn")]
    >>> children = [("Bob", "child of", "Ann"), ("Dan", "child of", "Cleo")]
    >>> kg = KnowledgeGraph.from_triples([*parents, *children])
    >>> rules = Rules().fit(kg)
    >>> question = kg.query("Finn", "child of")
    >>> kg.entities[int(rules.score_all(question)[0].argmax())].name
    'Eve'
    >>> rules.explain(question, kg.entity_index("Eve"))[0].text
    "Eve parent of Finn (in 100 % of 2 such cases, 'child of' holds, too)"
    """

    name = "rules"
    tier = "rules"
    settings_class = RulesSettings
    settings: RulesSettings

    chains_: Chains
    constants_: ConstantRules
    sampled_: tuple[str, ...]  #: what was sampled because there was too much of it: "facts", "anchors"
    stopped_: str  #: what was being looked for when the time was up; empty if it was not

    def __init__(self, **settings: Unpack[RulesOptions]) -> None:
        super().__init__(**settings)

    def _fit(self, kg: KnowledgeGraph, seconds: float) -> None:
        """Mine rules from train for so long, or for `max_seconds` if there is no limit; fewer if time is short."""
        started = time.monotonic()
        mined = self._mine(kg, seconds if math.isfinite(seconds) else self.settings.max_seconds)
        emit("rules", _summary(mined, time.monotonic() - started))

    def _mine(self, kg: KnowledgeGraph, seconds: float) -> Mined:
        mined = Miner(Facts(kg.known(("train",))), self.settings, seconds).mine()
        self._take(mined, kg)
        return mined

    def dry_run(self, kg: KnowledgeGraph, earlier: Scorer | None = None) -> TrainingCost:
        """Mine for a moment; where that is not enough, mining takes as long as it may."""
        started = time.perf_counter()
        self._mine(kg, min(_DRY_SECONDS, self.settings.max_seconds))
        seconds = self.settings.max_seconds if self.stopped_ else time.perf_counter() - started
        return TrainingCost(seconds, epoch=0.0, look=0.0, epochs=1, valid_every=1, parameters=self.parameter_count)

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        scores = np.empty((len(queries), len(self._graph().entities)), dtype=np.float32)
        for rows, block in self._blocks(queries):
            scores[rows] = block
        return scores

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        scores = np.empty(len(candidates.ids), dtype=np.float32)
        place = np.empty(len(queries), dtype=np.int64)
        for rows, block in self._blocks(queries):
            place[rows] = np.arange(len(rows))
            wanted = np.flatnonzero(np.isin(candidates.rows, rows))
            scores[wanted] = block[place[candidates.rows[wanted]], candidates.ids[wanted]]
        return scores

    def explain(self, question: Queries, answer: int) -> list[Reason]:
        """The surest rules that propose an answer to one question, with the facts that each rests on."""
        applied = self._applied(question)
        (target,) = question.directed_relations(applied.facts.relation_count).tolist()
        return Explainer(applied, self._graph()).reasons(target, int(question.anchors[0]), int(answer))

    def describe(self) -> dict[str, Any]:
        """What belongs beside a result: the model, its settings, how many rules it has, and what was sampled."""
        self._graph()
        lengths = np.bincount(self.chains_.lengths(), minlength=4).tolist()
        found = {"chains": dict(zip("0123", lengths, strict=True)), "constants": len(self.constants_)}
        return {**super().describe(), "rules": {**found, "sampled": list(self.sampled_), "stopped": self.stopped_}}

    def _blocks(self, queries: Queries) -> Iterator[tuple[IntArray, FloatArray]]:
        """Rows of queries that ask for the same directed relation, and their scores, (rows, entities)."""
        applied = self._applied(queries)
        targets = queries.directed_relations(applied.facts.relation_count)
        size = max(1, _CELLS // applied.facts.entity_count)
        for target in np.unique(targets).tolist():
            asking = np.flatnonzero(targets == target)
            for start in range(0, len(asking), size):
                rows = asking[start : start + size]
                yield rows, self._scores(applied, target, queries[rows])

    def _scores(self, applied: AppliedRules, target: int, queries: Queries) -> FloatArray:
        probabilities = applied.probabilities(target, queries.anchors.astype(np.int64))
        frequencies = _frequencies(self._known(queries), target, queries)
        joined = probabilities + (1 - probabilities) * _FREQUENCY_WEIGHT * frequencies
        scores: FloatArray = np.log(joined + _FLOOR)
        return scores

    def _known(self, queries: Queries) -> KnownAnswers:
        return self._graph().known(("train",)) if queries.known is None else queries.known

    def _applied(self, queries: Queries) -> AppliedRules:
        """The rules, applied to what is known when the queries are asked."""
        known = self._known(queries)
        if known not in self._applied_to:
            self._applied_to[known] = AppliedRules(self.chains_, self.constants_, known, self.settings)
        return self._applied_to[known]

    def _graph(self) -> KnowledgeGraph:
        if not hasattr(self, "chains_"):
            raise self._not_fitted()
        return self._kg

    def _take(self, mined: Mined, kg: KnowledgeGraph) -> None:
        self.chains_, self.constants_ = mined.chains, mined.constants
        self.sampled_, self.stopped_ = mined.sampled, mined.stopped
        self._kg = kg
        self._applied_to: WeakKeyDictionary[KnownAnswers, AppliedRules] = WeakKeyDictionary()

    def _tensors(self) -> "dict[str, Tensor]":
        import torch

        kg = self._graph()
        columns = {
            **self.chains_.arrays("chains."),
            **self.constants_.arrays("constants."),
            "counts": np.array([len(kg.entities), len(kg.relations)]),
            "sampled": np.array([name in self.sampled_ for name in SAMPLED]),
            "stopped": np.array([STAGES.index(self.stopped_)]),
        }
        return {name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in columns.items()}

    def _take_tensors(self, tensors: "Mapping[str, Tensor]", kg: KnowledgeGraph, folder: Path) -> None:
        entity_count, relation_count = array_of(tensors, "counts", (2,), below=2**31).tolist()
        if (entity_count, relation_count) != (len(kg.entities), len(kg.relations)):
            raise DataError(
                f"{folder} has rules for {entity_count:,} entities and {relation_count:,} relations, but {kg.name} has "
                f"{len(kg.entities):,} and {len(kg.relations):,}. It was fitted to another graph."
            )
        sampled = tuple(name for name, is_one in zip(SAMPLED, tensors["sampled"].tolist(), strict=True) if is_one)
        stopped = STAGES[int(array_of(tensors, "stopped", (1,), below=len(STAGES))[0])]
        ends = {"targets": 2 * relation_count, "paths": 2 * relation_count, "relations": 2 * relation_count}
        ends |= {"bands": len(BANDS) + 1, "entities": entity_count, "constants": entity_count}
        chains = Chains.of_tensors(tensors, "chains.", ends)
        constants = ConstantRules.of_tensors(tensors, "constants.", ends)
        self._take(Mined(chains, constants, sampled, stopped), kg)


def _frequencies(known: KnownAnswers, target: int, queries: Queries) -> FloatArray:
    """How often each entity answers a directed relation, leaving the question's own facts out; (queries, entities)."""
    counts = known.counts[[target]].toarray().astype(np.float32)
    frequencies = np.repeat(counts, len(queries), axis=0)
    own = known.of(queries)
    frequencies[own.rows, own.ids] -= 1
    return frequencies / max(counts.sum(), 1)


def _summary(mined: Mined, seconds: float) -> str:
    """One sentence on what was found, and one on what was not looked at."""
    found = (
        f"{counted(len(mined.chains), 'chain')} of facts and {counted(len(mined.constants), 'rule')} with a constant"
    )
    sampled = f" There were too many {' and '.join(mined.sampled)}: a sample was measured." if mined.sampled else ""
    stopped = f" The time was up while looking for {mined.stopped}." if mined.stopped else ""
    return f"Found {found} in {format_duration(seconds)}.{sampled}{stopped}"
