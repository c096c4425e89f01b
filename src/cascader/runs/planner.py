"""Choose the tiers and presets that fit a budget, from what each takes on this graph and machine."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cascader.cascade import Cascade
from cascader.cascade.alphas import best_reranking
from cascader.cascade.pruners import TopK
from cascader.graph import Candidates, KnowledgeGraph, Queries
from cascader.models.model import Model
from cascader.models.training import TrainingCost, seconds_for
from cascader.scoring import Scorer, StoredScorer, reads_pairs
from cascader.tuning import read_top_of, split_valid, trial_count
from cascader.tuning.calibration import calibrate, calibration_triples
from cascader.tuning.sample import WEIGHED_TRIPLES, Sample
from cascader.tuning.search import REPLAYS_PER_TRIAL
from cascader.tuning.weights import add_in_order


class CostEstimator(Protocol):
    """Estimates how long training and tuning take."""

    def of(self, tier: str, preset: str) -> TrainingCost:
        """Estimate the cost of training a tier."""
        ...

    def lower_bound(self, tier: str, preset: str, than: str) -> float:
        """Return the least seconds a preset can take, derived from another preset without measuring."""
        ...

    def tuning(self, tiers: Sequence[str]) -> float:
        """Estimate the seconds for tuning and calibrating these tiers."""
        ...


@dataclass(frozen=True)
class Choice:
    """The preset of each tier to train, and the first tier that is skipped with the seconds it would have needed."""

    presets: Mapping[str, str]
    skipped: Mapping[str, float]


def choose(
    tiers: Sequence[str], presets: Sequence[str], costs: CostEstimator, seconds: float, trained: Sequence[str] = ()
) -> Choice:
    """Choose as many tiers as can be validated once within `seconds`, then better presets, tier by tier.

    A better preset is chosen if all epochs of all tiers still fit. The first tier is always trained; those that are
    already `trained` only have to be tuned with the others.
    """
    kept, skipped = list[str](), dict[str, float]()
    for tier in tiers:  # in order: tiers after a skipped one need not be measured
        tried = [*kept, tier]
        needed = sum(costs.of(each, presets[0]).least for each in tried)
        if len(tried) + len(trained) > 1 and seconds < math.inf:
            needed += costs.tuning([*trained, *tried])
            if needed > seconds:
                skipped[tier] = needed
                break
        kept = tried
    chosen = {tier: presets[0] for tier in kept}
    for_training = seconds - (costs.tuning([*trained, *kept]) if len(presets) > 1 else 0.0)
    for better in presets[1:]:
        for tier in kept:
            if _follows(better, chosen[tier], presets) and _fits(tier, better, chosen, costs, for_training):
                chosen[tier] = better
    return Choice(chosen, skipped)


def _follows(better: str, present: str, presets: Sequence[str]) -> bool:
    return presets.index(better) == presets.index(present) + 1


def _fits(tier: str, better: str, chosen: Mapping[str, str], costs: CostEstimator, seconds: float) -> bool:
    """Return whether all epochs of all tiers fit if one tier gets a better preset."""
    others = sum(costs.of(other, preset).most for other, preset in chosen.items() if other != tier)
    left = seconds - others
    return costs.lower_bound(tier, better, chosen[tier]) <= left and costs.of(tier, better).most <= left


def split_budget(costs: Mapping[str, TrainingCost], seconds: float) -> dict[str, float]:
    """Give each tier the seconds for one validation, and share the rest in proportion to the remaining epochs."""
    least = sum(cost.least for cost in costs.values())
    if least > seconds:  # the first tier alone, for as long as there is time
        return {tier: seconds * cost.least / least for tier, cost in costs.items()}
    rest = sum(cost.most - cost.least for cost in costs.values())
    return {
        tier: cost.least + (seconds - least) * ((cost.most - cost.least) / rest if rest else 1 / len(costs))
        for tier, cost in costs.items()
    }


#: The numbers of valid triples for which pairs are read to measure the speed.
_FEW = (4, 24)
#: The numbers of questions that are answered to measure the speed, and of candidates that are read for each.
_SIZES = (32, 128)
_CANDIDATES = 20


class MeasuredCosts:
    """Training times on a graph, measured by dry runs.

    `model(tier, preset)` makes a tier's untrained model; the first embedding is trained `repeats` times. Tiers that are
    already `trained` serve as the earlier tiers of those that are measured.
    """

    def __init__(
        self,
        kg: KnowledgeGraph,
        model: Callable[[str, str], Model],
        repeats: int = 1,
        trained: Mapping[str, Model] | None = None,
    ) -> None:
        self._kg, self._model, self._repeats = kg, model, repeats
        self._costs: dict[tuple[str, str], TrainingCost] = {}
        self._tuning: dict[tuple[str, ...], float] = {}
        self._adding: dict[tuple[str, ...], float] = {}
        self._answering: dict[tuple[str, int], float] = {}
        #: Trained models, and those from the last dry runs: these have learned nothing, but are just as fast.
        self._models: dict[str, Model] = dict(trained or {})

    def of(self, tier: str, preset: str) -> TrainingCost:
        """Measure the cost of training a tier; earlier tiers must be measured first."""
        if (tier, preset) not in self._costs:
            self._costs[tier, preset] = self._measure(tier, preset)
        return self._costs[tier, preset]

    def lower_bound(self, tier: str, preset: str, than: str) -> float:
        """Return the seconds for a preset at the speed of another, whose vectors and texts are at most as long."""
        settings = self._model(tier, preset).settings.as_dict()
        epochs = settings.get("epochs", settings.get("rounds", 1))
        return replace(self.of(tier, than), epochs=epochs).most

    def tuning(self, tiers: Sequence[str]) -> float:
        """Measure the seconds for tuning and calibrating these tiers."""
        if tuple(tiers) not in self._tuning:
            self._tuning[tuple(tiers)] = self._measure_tuning(tiers)
        return self._tuning[tuple(tiers)]

    def model(self, tier: str) -> Model:
        """Return the model of a tier that was measured: trained, or just as fast as if it were."""
        return self._models[tier]

    def adding(self, tiers: Sequence[str]) -> float:
        """Measure the seconds for weighing those of these tiers that score every entity, all at once."""
        dense = tuple(self._dense(tiers))
        if dense not in self._adding:
            self._adding[dense] = self._seconds_to_add(dense) if len(dense) > 1 else 0.0
        return self._adding[dense]

    def answering(self, tier: str, questions: int, top: int) -> float:
        """Measure the seconds for a tier to answer so many questions; one that reads pairs reads `top` candidates."""
        if (tier, questions) not in self._answering:
            self._answering[tier, questions] = self._measure_answering(tier, questions)
        return self._answering[tier, questions] * (top if reads_pairs(self._models[tier]) else 1)

    def _measure_answering(self, tier: str, questions: int) -> float:
        """Measure the seconds for scoring all entities of so many questions, or one candidate of each."""
        model, asked = self._models[tier], Queries.from_triples(self._kg.train[: max(_SIZES)])
        if not reads_pairs(model):
            return seconds_for(lambda count: model.score_all(asked[:count]), questions, _SIZES)
        few = min(_CANDIDATES, len(self._kg.entities))

        def read(count: int) -> None:
            model.score(asked[:count], Candidates.from_lists([list(range(few))] * len(asked[:count])))

        return seconds_for(read, questions, _FEW) / few

    def _measure(self, tier: str, preset: str) -> TrainingCost:
        model = self._model(tier, preset)
        cost = model.dry_run(self._kg, self._sum(self._dense([name for name in self._models if name != tier])))
        self._models[tier] = model
        repeats = self._repeats if tier == "kge" else 1
        return replace(cost, preparing=cost.preparing * repeats, epochs=cost.epochs * repeats)

    def _dense(self, tiers: Sequence[str]) -> list[str]:
        return [tier for tier in tiers if not reads_pairs(self._models[tier])]

    def _sum(self, tiers: Sequence[str]) -> Scorer | None:
        """Add up tiers with equal weights."""
        scorers = [self._models[tier] for tier in tiers]
        if len(scorers) < 2:
            return scorers[0] if scorers else None
        together = Cascade(scorers[0])
        for number, scorer in enumerate(scorers[1:]):
            together = together.then(scorer, alpha=0.5, name=f"{number}")
        return together

    def _measure_tuning(self, tiers: Sequence[str]) -> float:
        kg, dense = self._kg, self._dense(tiers)
        together = self._sum(dense)
        if len(kg.valid) == 0 or together is None:
            return 0.0
        seconds = seconds_for(
            lambda count: calibrate(Cascade(together), kg, kg.valid[:count]),
            min(len(kg.valid), calibration_triples(len(kg.entities))),
        )
        reading = [tier for tier in tiers if tier not in dense]
        return seconds + self.adding(dense) + sum(self._seconds_to_rerank(together, tier) for tier in reading)

    def _seconds_to_add(self, dense: Sequence[str]) -> float:
        scorers, kg = [self._models[tier] for tier in dense], self._kg

        def add(count: int) -> None:
            list(add_in_order(Sample.collect(scorers, kg, kg.valid[:count])))

        return seconds_for(add, min(len(kg.valid), WEIGHED_TRIPLES))

    def _seconds_to_rerank(self, together: Scorer, tier: str) -> float:
        """Estimate the seconds for reading every pair that a trial may need, and for replaying all trials."""
        reader, kg = self._models[tier], self._kg
        top = read_top_of(kg)
        keep = TopK(min(top, len(kg.entities)))

        def read(count: int) -> None:
            best_reranking(together, reader, kg, self._queries(count), keep)

        stored = StoredScorer(reader, kg)

        def replay(count: int) -> None:
            best_reranking(together, stored, kg, self._queries(count), keep)

        replay(min(max(_FEW), self._recorded))  # now they are stored
        replayed = seconds_for(replay, self._recorded, _FEW)
        return seconds_for(read, self._recorded, _FEW) + REPLAYS_PER_TRIAL * trial_count(top) * replayed

    @property
    def _recorded(self) -> int:
        """The number of valid triples that tuning uses."""
        return sum(map(len, split_valid(self._kg, seed=0)))

    def _queries(self, count: int) -> Queries:
        return Queries.from_triples(self._kg.valid[:count])
