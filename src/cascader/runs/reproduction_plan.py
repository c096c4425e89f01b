"""The plan of a reproduction: what is trained and measured, how long each will take, and what there is no time for."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cascader.display import emit
from cascader.durations import format_duration
from cascader.graph import KnowledgeGraph
from cascader.records import Seconds, TierName
from cascader.runs.plan import HANDED_OUT, FitPlan, PlannedTier, likely_seconds
from cascader.runs.planner import MeasuredCosts, split_budget
from cascader.runs.request import FitRequest
from cascader.runs.rows import BEST, EMBEDDINGS, ROWS, SECOND, Row, missing
from cascader.scoring import reads_pairs
from cascader.wording import counted

#: The share of the candidates that a tuned cascade likely reads: those in results/ read 0 to 13 of 100.
_LIKELY_READ = 0.15
#: A row that takes no larger share of the time is measured even if trainings took longer than planned.
_SMALL = 0.05
#: No row may take longer, as in the paper (Section 4.4).
ROW_SECONDS = 24 * 3600.0

#: Why something is missing: there is no time for it, as the paper calls it, or it cannot be made of this graph.
Missing = Literal["OOT", "left out"]


@dataclass(frozen=True)
class Estimate:
    """How long something will take: most probably, and at most, in seconds."""

    likely: Seconds
    latest: Seconds


@dataclass(frozen=True)
class LeftOut:
    """Why a tier or a row is missing."""

    status: Missing
    reason: str


@dataclass(frozen=True)
class ReproductionPlan:
    """What is trained and which rows are measured, with their times; rows go by their kind."""

    tiers: Mapping[TierName, Estimate]
    rows: Mapping[str, Estimate]
    tiers_left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    rows_left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    planning_seconds: Seconds = 0.0

    @property
    def total(self) -> Estimate:
        """The time for everything."""
        parts = [*self.tiers.values(), *self.rows.values()]
        return Estimate(sum(part.likely for part in parts), sum(part.latest for part in parts))

    def has_time(self, row: str, spent: float, budget: float) -> bool:
        """Whether there is still time for a row, or it takes hardly any."""
        return self.rows[row].likely <= max(budget - spent, _SMALL * budget)


def plan_reproduction(request: FitRequest, absent: Mapping[str, str]) -> tuple[ReproductionPlan, FitPlan]:
    """Measure a moment of each training and of answering, and leave out what the time does not suffice for.

    `absent` says why tiers that rows need are not requested at all.
    """
    started = time.monotonic()
    planner = _Planner(request, absent)
    planner.choose_tiers()
    planner.choose_rows()
    return planner.plan(time.monotonic() - started), planner.fit_plan()


class _Planner:
    """What was measured, and what was decided so far."""

    def __init__(self, request: FitRequest, absent: Mapping[str, str]) -> None:
        self._request, self._kg = request, request.kg
        self._preset = request.preset or "quick"
        self._costs = MeasuredCosts(request.kg, request.model)
        self._measured = {tier: self._costs.of(tier, self._preset) for tier in request.kinds}
        self._allowed = request.seconds_left()  # after measuring, which takes time, too
        self._tiers_left_out = {tier: LeftOut("left out", why) for tier, why in absent.items()}
        self._rows_left_out: dict[str, LeftOut] = {}
        self._tiers: list[str] = []
        self._rows: dict[str, Estimate] = {}
        self._estimates: dict[str, Estimate] = {}

    def choose_tiers(self) -> None:
        """Keep the tiers that can be trained and measured in time, in order."""
        for tier in self._request.kinds:
            tried = [*self._tiers, tier]
            rows = [row for row in ROWS if not row.reads_everything and not missing(row, tried)]
            needed = sum(self._training(each).likely for each in tried)
            if self._is_limited and needed <= self._allowed:
                needed += sum(self._estimate(row).likely for row in rows)
            if needed > self._allowed:
                self._tiers_left_out[tier] = self._out_of_time("with it, training and measuring", needed)
            else:
                self._tiers = tried

    def choose_rows(self) -> None:
        """Keep the rows whose tiers are there and that fit into the time left; the longest are decided on last."""
        for row in sorted(ROWS, key=lambda row: row.reads_everything):
            lacking = missing(row, self._tiers)
            if lacking:
                self._rows_left_out[row.kind] = self._because_of(lacking[0])
                continue
            estimate = self._estimate(row)
            needed = self.likely_seconds + estimate.likely
            if estimate.likely > ROW_SECONDS:
                self._rows_left_out[row.kind] = _too_long(estimate.likely)
            elif needed > self._allowed:
                self._rows_left_out[row.kind] = self._out_of_time("with it, everything", needed)
            else:
                self._rows[row.kind] = estimate

    @property
    def likely_seconds(self) -> float:
        """The likely time for the tiers and rows that were kept."""
        trainings = sum(self._training(tier).likely for tier in self._tiers)
        return trainings + sum(row.likely for row in self._rows.values())

    def plan(self, planning_seconds: float) -> ReproductionPlan:
        """Return the plan with what was decided."""
        tiers = {tier: self._training(tier) for tier in self._tiers}
        rows = {row.kind: self._rows[row.kind] for row in ROWS if row.kind in self._rows}
        without = {row.kind: self._rows_left_out[row.kind] for row in ROWS if row.kind in self._rows_left_out}
        return ReproductionPlan(tiers, rows, self._tiers_left_out, without, round(planning_seconds, 3))

    def fit_plan(self) -> FitPlan:
        """Plan the trainings; in limited time, each has its share, so that the rows can still be measured."""
        costs = {tier: self._measured[tier] for tier in self._tiers}
        rows = sum(row.likely for row in self._rows.values())
        for_training = HANDED_OUT * max(self._request.seconds_left() - rows, 0.0)
        shares = split_budget(costs, for_training) if self._is_limited and costs else {}
        planned = {
            tier: PlannedTier(
                self._preset,
                cost.parameters,
                cost.most,
                cost.epoch,
                shares.get(tier),
                least_seconds=cost.least,
                likely_seconds=self._training(tier).likely,
            )
            for tier, cost in costs.items()
        }
        budget = self._request.budget if self._is_limited else None
        return FitPlan(self._request.as_dict(), planned, tuning_seconds=rows, budget=budget)

    @property
    def _is_limited(self) -> bool:
        return self._request.has_budget

    def _training(self, tier: str) -> Estimate:
        cost = self._measured[tier]
        return Estimate(likely_seconds(cost, self._preset, self._request.kinds[tier]), cost.most)

    def _estimate(self, row: Row) -> Estimate:
        """Estimate the time for a row with all of its tiers, once: with fewer of them it takes less."""
        if row.kind not in self._estimates:
            self._estimates[row.kind] = self._measure(row)
        return self._estimates[row.kind]

    def _measure(self, row: Row) -> Estimate:
        """Measure the time for choosing a row's weights on valid and for reading test."""
        parts, kg, costs = _parts(row, list(self._request.kinds)), self._kg, self._costs
        top = row.top(len(kg.entities))
        reading = [tier for tier in parts if reads_pairs(costs.model(tier))]
        dense = [tier for tier in parts if tier not in reading]
        choosing = _choosing(row, parts, costs, kg)
        choosing += sum(costs.answering(tier, 2 * len(kg.test), top) for tier in dense)
        measuring = sum(costs.answering(tier, 2 * len(kg.test), top) for tier in reading)
        share = _LIKELY_READ if row.weights in ("tuned", "paper") else 1.0
        return Estimate(choosing + share * measuring, choosing + measuring)

    def _because_of(self, tier: str) -> LeftOut:
        """Say why a row is missing: because of a tier that is."""
        why = self._tiers_left_out.get(tier)
        if why is None:  # it needs the best or the second best embedding
            status: Missing = "OOT" if any(each in self._tiers_left_out for each in EMBEDDINGS) else "left out"
            needed = "two embeddings" if tier == SECOND else "an embedding"
            return LeftOut(status, f"it needs {needed}, and there is no time to train that")
        return LeftOut(why.status, f"it needs the tier {tier}: {why.reason}")

    def _out_of_time(self, what: str, seconds: float) -> LeftOut:
        left = f"{format_duration(max(self._allowed, 0.0))} of {format_duration(self._request.budget)} are left"
        return LeftOut("OOT", f"{what} would take {format_duration(seconds)}, and {left}")


def out_of_time(needed: float, left: float) -> LeftOut:
    """Say that there is no time left for a row that was planned."""
    took = "what came before took longer than planned"
    return LeftOut("OOT", f"{took}: {format_duration(max(left, 0.0))} are left, and it takes {format_duration(needed)}")


def _parts(row: Row, tiers: Sequence[str]) -> list[str]:
    """The tiers of a row before valid has chosen: the first embeddings stand for the best ones."""
    embeddings = [tier for tier in tiers if tier in EMBEDDINGS]
    stand_ins = dict(zip((BEST, SECOND), embeddings, strict=False))
    wanted = {stand_ins.get(tier, tier) for tier in row.tiers}
    return [tier for tier in tiers if tier in wanted]


def _choosing(row: Row, parts: Sequence[str], costs: MeasuredCosts, kg: KnowledgeGraph) -> float:
    """The seconds for what valid chooses."""
    if len(parts) == 1:
        return 0.0
    if row.weights == "joint":
        return costs.adding(parts)
    if row.weights == "alpha":
        return sum(costs.answering(tier, 2 * len(kg.valid), row.top(len(kg.entities))) for tier in parts)
    return costs.tuning(parts)


def _too_long(seconds: float) -> LeftOut:
    limit = format_duration(ROW_SECONDS)
    return LeftOut("OOT", f"it would take {format_duration(seconds)}, and no row may take more than {limit}")


def emit_reproduction_plan(plan: ReproductionPlan, request: FitRequest) -> None:
    """Report what will be trained and measured, the times, and what is left out."""
    kg = request.kg
    within = f", within {format_duration(request.budget)}" if request.has_budget else ""
    rows = [[f"train {tier}", _kind(request, tier), *_times(estimate)] for tier, estimate in plan.tiers.items()]
    rows += [[f"measure {name}", "", *_times(estimate)] for name, estimate in plan.rows.items()]
    rows.append(["total", "", *_times(plan.total)])
    train, test, entities = counted(len(kg.train), "triple"), counted(len(kg.test), "triple"), len(kg.entities)
    size = f"{train} to train on, {counted(entities, 'entity')}, {test} of test"
    columns = ["step", "model", "likely", "at the latest"]
    emit("plan", f"To reproduce on {kg.name}, preset {request.preset}{within}: {size}.", columns, rows)
    emit_left_out({f"training {tier}": why for tier, why in plan.tiers_left_out.items()})
    emit_left_out(plan.rows_left_out)


def emit_left_out(left_out: Mapping[str, LeftOut]) -> None:
    """Report what is missing, in one line for each reason."""
    for why in dict.fromkeys(left_out.values()):
        names = ", ".join(name for name, reason in left_out.items() if reason == why)
        emit("skipped", f"{why.status}: {names}; {why.reason}.")


def _kind(request: FitRequest, tier: str) -> str:
    objective = request.settings(tier, request.preset or "quick").get("objective")
    return f"{request.kinds[tier]} ({objective})" if objective else request.kinds[tier]


def _times(estimate: Estimate) -> list[str]:
    return [format_duration(estimate.likely), format_duration(estimate.latest)]
