"""Tuned cascades as files: what was tried is JSON, what pruners have learnt is safetensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cascader.cascade import Alpha, Cascade, Fusion, Tier
from cascader.cascade.pruners import load_pruner
from cascader.errors import DataError
from cascader.scoring.scorer import Scorer
from cascader.storage import read_arrays, read_json, write_arrays, write_json
from cascader.tuning.result import Trial, TuningResult

FORMAT = 2


def save_tuned(tuned: TuningResult, folder: Path, identity: Mapping[str, str]) -> None:
    """Write `tuning.safetensors`, then `tuning.json`: who finds the second finds both.

    `identity` says of which models this holds: a hash for each tier.
    """
    arrays = {
        f"{i}/{tier.name}/{name}": array
        for i, trial in enumerate(tuned.trials)
        for tier in trial.cascade.tiers
        if tier.keep is not None
        for name, array in tier.keep.tensors().items()
    }
    write_arrays(folder / "tuning.safetensors", arrays)
    write_json(
        folder / "tuning.json",
        {"format": FORMAT, "identity": dict(identity), "trials": [trial.as_dict() for trial in tuned.trials]},
    )


def load_tuned(folder: Path, identity: Mapping[str, str], scorers: Mapping[str, Scorer]) -> TuningResult | None:
    """Read back what `save_tuned` has written; None if there is nothing, or nothing of these models.

    `scorers` are the tiers by name, the first tier first.
    """
    if not (folder / "tuning.json").exists():
        return None
    saved = read_json(folder / "tuning.json")
    if saved.get("format", 0) > FORMAT:
        raise DataError(
            f"{folder / 'tuning.json'} is of format {saved['format']}, and this version of cascader knows {FORMAT} at "
            "most. Update cascader, or remove the file to tune again."
        )
    if saved.get("format") != FORMAT or saved["identity"] != dict(identity):
        return None
    tensors = read_arrays(folder / "tuning.safetensors")
    name, first = next(iter(scorers.items()))
    return TuningResult(
        tuple(
            Trial(
                Cascade(first, tuple(_tier(later, scorers, tensors, i) for later in trial["later"]), name=name),
                trial["valid_mrr"],
                trial["pairs_per_query"],
                trial["seconds_per_query"],
                trial["coverage"],
            )
            for i, trial in enumerate(saved["trials"])
        )
    )


def _tier(saved: Mapping[str, Any], scorers: Mapping[str, Scorer], tensors: Mapping[str, Any], trial: int) -> Tier:
    name, prefix = saved["tier"], f"{trial}/{saved['tier']}/"
    if name not in scorers:
        raise DataError(f"this cascade was tuned with a tier {name!r}, which is not there. Tune again.")
    learnt = {key.removeprefix(prefix): array for key, array in tensors.items() if key.startswith(prefix)}
    return Tier(
        name=name,
        scorer=scorers[name],
        alpha=Alpha.from_dict(saved["alpha"]),
        keep=None if saved["keep"] is None else load_pruner(saved["keep"], learnt),
        fusion=Fusion(saved["scale"], saved["pruned"]),
    )
