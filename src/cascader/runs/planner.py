"""Which tiers and presets fit a budget, and what each will take on this graph and this machine."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cascader.cascade import Cascade
from cascader.cascade.alphas import best_reranking, best_sum
from cascader.cascade.pruners import TopK
from cascader.graph import KnowledgeGraph, Queries
from cascader.models.costs import TrainingCost, seconds_for
from cascader.models.model import Model
from cascader.scoring import Scorer, StoredScorer, reads_pairs
from cascader.tuning import READ_TOP, split_valid, trial_count
from cascader.tuning.calibration import CALIBRATION_TRIPLES, calibrate
from cascader.tuning.search import BASES, REPLAYS_PER_TRIAL, SUMS_PER_TIER


class CostEstimator(Protocol):
    """Estimates what trainings take, and the tuning after them."""

    def of(self, tier: str, preset: str) -> TrainingCost:
        """What training a tier takes."""
        ...

    def lower_bound(self, tier: str, preset: str, than: str) -> float:
        """The least a preset can take, known without a measurement from what another one takes."""
        ...

    def tuning(self, tiers: Sequence[str]) -> float:
        """What tuning and calibrating these tiers takes."""
        ...


@dataclass(frozen=True)
class Choice:
    """The presets of the tiers to train; and the first that is skipped, with what everything up to it would need."""

    presets: Mapping[str, str]
    skipped: Mapping[str, float]


def choose(
    tiers: Sequence[str], presets: Sequence[str], costs: CostEstimator, seconds: float, trained: Sequence[str] = ()
) -> Choice:
    """As many tiers as can be validated once in so many seconds; then, tier by tier, better presets.

    A better preset is taken if all epochs of all tiers still fit. The first tier is always trained; those that are
    `trained` already only have to be tuned with the others.
    """
    kept, skipped = list[str](), dict[str, float]()
    for tier in tiers:  # in order: nothing after a tier that is skipped need be measured
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
    """Whether all epochs of all tiers fit if one of them gets a better preset."""
    others = sum(costs.of(other, preset).most for other, preset in chosen.items() if other != tier)
    left = seconds - others
    return costs.lower_bound(tier, better, chosen[tier]) <= left and costs.of(tier, better).most <= left


def split_budget(costs: Mapping[str, TrainingCost], seconds: float) -> dict[str, float]:
    """The seconds of each tier: what it needs to be validated once, and a share of the rest by its epochs."""
    least = sum(cost.least for cost in costs.values())
    if least > seconds:  # the first tier alone, for as long as there is
        return {tier: seconds * cost.least / least for tier, cost in costs.items()}
    rest = sum(cost.most - cost.least for cost in costs.values())
    return {
        tier: cost.least + (seconds - least) * ((cost.most - cost.least) / rest if rest else 1 / len(costs))
        for tier, cost in costs.items()
    }


#: Triples of valid that pairs are read for, to see how fast that is.
_FEW = (4, 24)


class MeasuredCosts:
    """Times of trainings on a graph, from dry runs.

    `model(tier, preset)` makes a tier's untrained model; the first tier is trained `repeats` times. Tiers that are
    `trained` already serve as the earlier ones of those that are measured.
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
        #: Trained ones, and those measured last: they have learned nothing, but are as fast as if they had.
        self._models: dict[str, Model] = dict(trained or {})

    def of(self, tier: str, preset: str) -> TrainingCost:
        """What training a tier takes; the tiers before it must have been asked for before."""
        if (tier, preset) not in self._costs:
            self._costs[tier, preset] = self._measure(tier, preset)
        return self._costs[tier, preset]

    def lower_bound(self, tier: str, preset: str, than: str) -> float:
        """What a preset would take with the steps of another one, whose vectors or texts are no longer."""
        settings = self._model(tier, preset).settings.as_dict()
        epochs = settings.get("epochs", settings.get("rounds", 1))
        return replace(self.of(tier, than), epochs=epochs).most

    def tuning(self, tiers: Sequence[str]) -> float:
        """What tuning and calibrating takes."""
        if tuple(tiers) not in self._tuning:
            self._tuning[tuple(tiers)] = self._measure_tuning(tiers)
        return self._tuning[tuple(tiers)]

    def _measure(self, tier: str, preset: str) -> TrainingCost:
        model = self._model(tier, preset)
        cost = model.dry_run(self._kg, self._sum(self._dense([name for name in self._models if name != tier])))
        is_first = not self._models or tier == next(iter(self._models))
        self._models[tier] = model
        repeats = self._repeats if is_first else 1
        return replace(cost, preparing=cost.preparing * repeats, epochs=cost.epochs * repeats)

    def _dense(self, tiers: Sequence[str]) -> list[str]:
        return [tier for tier in tiers if not reads_pairs(self._models[tier])]

    def _sum(self, tiers: Sequence[str]) -> Scorer | None:
        """Tiers added up."""
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
            lambda count: calibrate(Cascade(together), kg, kg.valid[:count]), min(len(kg.valid), CALIBRATION_TRIPLES)
        )
        if len(dense) > 1:
            additions = (len(dense) - 1) * 2 ** (len(dense) - 2)  # of one tier, over all subsets of the later ones
            seconds += additions * SUMS_PER_TIER * self._seconds_to_add(dense)
        reading = [tier for tier in tiers if tier not in dense]
        return seconds + sum(BASES * self._seconds_to_rerank(together, tier) for tier in reading)

    def _seconds_to_add(self, dense: Sequence[str]) -> float:
        first, last = self._models[dense[0]], self._models[dense[-1]]
        return seconds_for(lambda count: best_sum(first, last, self._kg, self._queries(count)), self._recorded)

    def _seconds_to_rerank(self, together: Scorer, tier: str) -> float:
        """Reading what any trial may want, and replaying all trials."""
        reader, kg = self._models[tier], self._kg
        keep = TopK(min(READ_TOP, len(kg.entities)))

        def read(count: int) -> None:
            best_reranking(together, reader, kg, self._queries(count), keep)

        stored = StoredScorer(reader, kg)

        def replay(count: int) -> None:
            best_reranking(together, stored, kg, self._queries(count), keep)

        replay(min(max(_FEW), self._recorded))  # now they are stored
        replayed = seconds_for(replay, self._recorded, _FEW)
        return seconds_for(read, self._recorded, _FEW) + REPLAYS_PER_TRIAL * trial_count(READ_TOP) * replayed

    @property
    def _recorded(self) -> int:
        """How many triples of valid tuning looks at."""
        return sum(map(len, split_valid(self._kg, seed=0)))

    def _queries(self, count: int) -> Queries:
        return Queries.from_triples(self._kg.valid[:count])
