"""What each tier will take on this graph and this machine, measured when it is first asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cascader.cascade import Cascade
from cascader.cascade.pruners import TopK
from cascader.graph import KnowledgeGraph, Queries
from cascader.models.costs import TrainingCost, seconds_for
from cascader.models.registry import model_class
from cascader.scoring import StoredScorer
from cascader.scoring.scorer import Scorer
from cascader.tuning import best_reranking, best_sum, split_valid, trial_count
from cascader.tuning.calibration import calibrate

#: How often tuning adds up two tiers to find how: three scales, then each relation's own alpha and two checks.
_SUMS = 5
#: Each trial of a pruner is replayed, and then looked at twice: what it keeps, and what it keeps of golds.
_REPLAYS = 2
#: What reads pairs is tried behind the first tier, and behind the best sum.
_BASES = 2
_READ_TOP = 100
#: Triples of valid that a calibration learns from at the most.
_CALIBRATED = 2000
#: Triples of valid that pairs are read for, to see how fast it goes.
_FEW = (4, 24)


class MeasuredCosts:
    """Times of trainings on a graph.

    `settings_of(tier, preset)` are a tier's settings, `kinds` says what each tier is, and the first tier is trained
    `repeats` times.
    """

    def __init__(
        self,
        kg: KnowledgeGraph,
        kinds: Mapping[str, str],
        settings_of: Callable[[str, str], Mapping[str, Any]],
        repeats: int = 1,
    ) -> None:
        self._kg, self._kinds, self._settings_of, self._repeats = kg, kinds, settings_of, repeats
        self._costs: dict[tuple[str, str], TrainingCost] = {}
        self._tuning: dict[tuple[str, ...], float] = {}
        self._models: dict[str, Scorer] = {}  # those measured last: no good, but as fast as trained ones

    def of(self, tier: str, preset: str) -> TrainingCost:
        """What training a tier takes; the tiers before it must have been asked for before."""
        if (tier, preset) not in self._costs:
            self._costs[tier, preset] = self._measure(tier, preset)
        return self._costs[tier, preset]

    def take(self, tier: str, model: Scorer) -> None:
        """Take a tier that is trained already: later ones are measured beside it."""
        self._models[tier] = model

    def floor(self, tier: str, preset: str, than: str) -> float:
        """What a preset would take with the steps of another one, whose vectors or texts are no longer."""
        settings = self._settings_of(tier, preset)
        epochs = settings.get("epochs", settings.get("rounds", 1))
        return replace(self.of(tier, than), epochs=epochs).most

    def tuning(self, tiers: Sequence[str]) -> float:
        """What tuning and calibrating takes."""
        if tuple(tiers) not in self._tuning:
            self._tuning[tuple(tiers)] = self._measure_tuning(tiers)
        return self._tuning[tuple(tiers)]

    def _measure(self, tier: str, preset: str) -> TrainingCost:
        settings = dict(self._settings_of(tier, preset))
        model = model_class(self._kinds[tier])(**settings)
        before = [name for name in self._models if name not in ("cross", tier)]
        cost = model.dry_run(self._kg, self._sum(before))
        self._models[tier] = model
        repeats = self._repeats if tier == "kge" else 1
        return replace(cost, preparing=cost.preparing * repeats, epochs=cost.epochs * repeats)

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
        kg = self._kg
        if len(kg.valid) == 0:
            return 0.0
        dense = [tier for tier in tiers if tier != "cross"]
        together = self._sum(dense)
        if together is None:
            return 0.0
        seconds = seconds_for(
            lambda count: calibrate(Cascade(together), kg, kg.valid[:count]), min(len(kg.valid), _CALIBRATED)
        )
        if len(dense) > 1:
            additions = (len(dense) - 1) * 2 ** (len(dense) - 2)  # of one tier, over all subsets of the later ones
            seconds += additions * _SUMS * self._seconds_to_add(dense)
        if "cross" in tiers:
            seconds += _BASES * self._seconds_to_rerank(together)
        return seconds

    def _seconds_to_add(self, dense: Sequence[str]) -> float:
        first, last = self._models[dense[0]], self._models[dense[-1]]
        return seconds_for(lambda count: best_sum(first, last, self._kg, self._asked(count)), self._recorded)

    def _seconds_to_rerank(self, together: Scorer) -> float:
        """Reading what any trial may want, and replaying all trials."""
        cross, kg = self._models["cross"], self._kg
        keep = TopK(min(_READ_TOP, len(kg.entities)))

        def read(count: int) -> None:
            best_reranking(together, cross, kg, self._asked(count), keep)

        stored = StoredScorer(cross, kg)

        def replay(count: int) -> None:
            best_reranking(together, stored, kg, self._asked(count), keep)

        replay(min(max(_FEW), self._recorded))  # now they are stored
        replayed = seconds_for(replay, self._recorded, _FEW)
        return seconds_for(read, self._recorded, _FEW) + _REPLAYS * trial_count(_READ_TOP) * replayed

    @property
    def _recorded(self) -> int:
        """How many triples of valid tuning looks at."""
        return sum(map(len, split_valid(self._kg, seed=0)))

    def _asked(self, count: int) -> Queries:
        return Queries.from_triples(self._kg.valid[:count])
