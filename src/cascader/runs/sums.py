"""Tiers of a run added up, with weights that valid chooses once and the run's folder keeps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascader.cascade import Alpha, Cascade
from cascader.cascade.blend import best_reranking, tune_alpha
from cascader.cascade.pruners import TopK
from cascader.display import emit
from cascader.graph import KnowledgeGraph, Queries
from cascader.models.model import Model
from cascader.scoring import Scorer
from cascader.scoring.engine import Engine
from cascader.storage import read_json, write_json
from cascader.tuning.result import cascade_from_dict, cascade_to_dict
from cascader.tuning.weights import best_weighted_sum

if TYPE_CHECKING:
    from cascader.runs.run import Run

FORMAT = 1
#: The number of valid triples for choosing the weight of a tier that reads pairs when it is evaluated in a sum.
_RERANKED_TRIPLES = 200


def added_up(
    run: "Run", parts: Mapping[str, Model], weights: str, top: int, engine: Engine | None = None
) -> tuple[Scorer, dict[str, Any]]:
    """Add the tiers up to one scorer, with weights chosen on valid, and describe it."""
    is_alone = all(model.reads_pairs for model in parts.values())
    if is_alone:  # it can only read candidates that another tier proposes
        proposing = next((tier for tier, model in run.tiers.items() if model.tier == "kge"), next(iter(run.tiers)))
        parts = {proposing: run.tiers[proposing], **parts}
    scorers = {**parts, **{tier: scorer for tier, scorer in run.scorers(engine).items() if tier in parts}}
    if len(parts) == 1:
        return next(iter(scorers.values())), next(iter(parts.values())).describe()
    path = None if is_alone or not parts.keys() <= run.tiers.keys() else path_of_sum(run, list(parts), weights)
    found = None if path is None else _load(path, _identity(run, parts, top), scorers)
    if found is None:
        found = _choose(run.kg, parts, scorers, weights == "joint", top, is_alone)
        if path is not None:
            saved = {"identity": _identity(run, parts, top), **cascade_to_dict(found)}
            write_json(path, {"format": FORMAT, **saved})
    return found, _described(found, parts, weights == "joint", top)


def path_of_sum(run: "Run", tiers: Sequence[str], weights: str) -> Path:
    """Return the file for the weights of some tiers, chosen in this way."""
    return run.folder.part([name for name in run.tiers if name in tiers]) / f"{weights}.json"


def _identity(run: "Run", parts: Mapping[str, Model], top: int) -> dict[str, str]:
    """Identify what the weights of a sum depend on."""
    return {**{tier: run.folder.tier_hash(tier) for tier in parts}, "top": str(top)}


def _load(path: Path, identity: Mapping[str, str], scorers: Mapping[str, Scorer]) -> Cascade | None:
    saved = read_json(path) if path.exists() else {}
    if saved.get("format") != FORMAT or saved.get("identity") != identity:
        return None
    return cascade_from_dict(saved, scorers)


def _choose(
    kg: KnowledgeGraph,
    parts: Mapping[str, Model],
    scorers: Mapping[str, Scorer],
    is_joint: bool,
    top: int,
    is_alone: bool,
) -> Cascade:
    """Choose the weights on valid: of all tiers that score every entity at once, or of one tier after the other."""
    dense = {tier: scorers[tier] for tier, model in parts.items() if not model.reads_pairs}
    if is_joint and len(dense) > 1:
        cascade = best_weighted_sum(dense, kg)
        others = [tier for tier in parts if tier not in dense]
    else:
        first, *others = parts
        cascade = Cascade(scorers[first], name=first)
    for tier in others:
        model, scorer = parts[tier], scorers[tier]
        alpha = Alpha(0.0, 0.0) if is_alone else _weight(cascade, scorer, model, kg, top)
        cascade = cascade.then(scorer, alpha=alpha, keep=TopK(top) if model.reads_pairs else None, name=tier)
    return cascade


def _weight(earlier: Scorer, scorer: Scorer, model: Model, kg: KnowledgeGraph, top: int) -> Alpha:
    if not model.reads_pairs:
        return tune_alpha(earlier, scorer, kg)
    seed = int(model.settings.as_dict().get("seed", 0))
    queries = Queries.from_triples(kg.sample("valid", _RERANKED_TRIPLES, seed))
    return best_reranking(earlier, scorer, kg, queries, TopK(top)).alpha


def _described(cascade: Cascade, parts: Mapping[str, Model], is_joint: bool, top: int) -> dict[str, Any]:
    """Describe a sum for a result file, and report its weights."""
    about: dict[str, Any]
    dense = [tier for tier, model in parts.items() if not model.reads_pairs]
    if is_joint and len(dense) > 1:
        later_dense = tuple(tier for tier in cascade.tiers if tier.name in dense)
        weighed = Cascade(cascade.first, later_dense, name=cascade.name)
        emit("weight", f"Weighed on valid, all at once: {weighed!r}.")
        later = [{"tier": tier.name, "alpha": tier.weight.as_dict()} for tier in weighed.tiers]
        about = {"tiers": {tier: parts[tier].describe() for tier in dense}, "first": cascade.name, "later": later}
        before, others = " + ".join(dense), [tier for tier in cascade.tiers if tier.name not in dense]
    else:
        about, before, others = parts[cascade.name].describe(), cascade.name, list(cascade.tiers)
    for tier in others:
        chosen = f"{tier.weight.head:.2f} for heads, {tier.weight.tail:.2f} for tails"
        emit("weight", f"The weight of {before} against {tier.name}: {chosen}.")
        about = {"first": about, "second": parts[tier.name].describe(), "alpha": tier.weight.as_dict()}
        about |= {"top": top} if parts[tier.name].reads_pairs else {}
        before = f"{before} + {tier.name}"
    return about
