"""Read an evaluation back, and believe none of it that does not follow from its ranks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascader.errors import DataError
from cascader.evaluation.metrics import METRICS, Metrics
from cascader.evaluation.ranks import GoldRanks, Ranks
from cascader.evaluation.record import FORMAT, Evaluation, by_label
from cascader.graph import SPLITS
from cascader.storage import read_json, read_parquet

_TEXTS = ("head", "relation", "tail", "side")
_RANKS = ("rank", "optimistic_rank", "pessimistic_rank", "raw_optimistic_rank", "raw_pessimistic_rank")
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "dataset": str,
    "split": str,
    "seed": int,
    "data_hash": str,
    "seconds": (int, float),
    "peak_memory_bytes": (int, type(None)),
    "versions": dict,
    "machine": dict,
    "slices": dict,
}
_AGAIN = "Evaluate again to write both files anew."


def load_evaluation(path: Path) -> Evaluation:
    """Read `<name>.json` and `<name>.ranks.parquet`; either one's path will do."""
    if path.suffix != ".json":
        path = path.with_name(path.name.removesuffix(".ranks.parquet") + ".json")
    saved = read_json(path)
    _check_fields(path, saved)
    ranks_path = path.with_name(path.name.removesuffix(".json") + ".ranks.parquet")
    columns = read_parquet(ranks_path)
    texts = {name: _texts(ranks_path, columns, name) for name in _TEXTS}
    ranks = {name: _ranks(ranks_path, columns, name) for name in _RANKS}
    evaluation = Evaluation(
        name=saved["name"],
        dataset=saved["dataset"],
        split=saved["split"],
        triples=list(zip(texts["head"], texts["relation"], texts["tail"], strict=True)),
        sides=["tail" if side == "tail" else "head" for side in texts["side"]],
        ranks=GoldRanks(
            filtered=Ranks(ranks["optimistic_rank"], ranks["pessimistic_rank"]),
            raw=Ranks(ranks["raw_optimistic_rank"], ranks["raw_pessimistic_rank"]),
        ),
        slices={way: _slices(path, way, labels) for way, labels in saved["slices"].items()},
        seed=saved["seed"],
        data_hash=saved["data_hash"],
        seconds=saved["seconds"],
        peak_memory_bytes=saved["peak_memory_bytes"],
        versions=saved["versions"],
        machine=saved["machine"],
        about=saved.get("about", {}),
    )
    if not np.array_equal(ranks["rank"], evaluation.ranks.filtered.mean):
        raise DataError(f"{ranks_path}: rank is not the mean of optimistic_rank and pessimistic_rank. {_AGAIN}")
    _check_figures(path, saved, evaluation)
    return evaluation


def _check_fields(path: Path, saved: Mapping[str, Any]) -> None:
    if saved.get("format") != FORMAT:
        raise DataError(
            f"{path} has format {saved.get('format')!r}, expected {FORMAT}. It is no evaluation, or one written by a "
            "newer cascader: update, or evaluate again."
        )
    for name, kind in _FIELDS.items():
        if name not in saved or not isinstance(saved[name], kind):
            raise DataError(f"{path} has {name} {saved.get(name)!r}, which no evaluation writes. {_AGAIN}")
    if saved["split"] not in SPLITS or saved["seed"] < 0:
        raise DataError(f"{path} has split {saved['split']!r} and seed {saved['seed']}. {_AGAIN}")


def _texts(path: Path, columns: Mapping[str, list[Any]], name: str) -> list[str]:
    values = columns.get(name)
    if values is None or not all(isinstance(value, str) for value in values):
        raise DataError(f"{path} has no column {name} of texts. {_AGAIN}")
    return values


def _ranks(path: Path, columns: Mapping[str, list[Any]], name: str) -> NDArray[np.float64]:
    values = columns.get(name)
    if not values or not all(isinstance(value, int | float) and value >= 1 for value in values):
        raise DataError(f"{path} has no column {name} of numbers from 1 up. {_AGAIN}")
    return np.array(values, dtype=np.float64)


def _slices(path: Path, way: str, saved: Any) -> dict[str, Metrics]:  # noqa: ANN401 - what JSON may hold
    if not isinstance(saved, dict):
        raise DataError(f"{path} has slices by {way} that are no table. {_AGAIN}")
    return {label: _metrics(path, f"{way} {label}", values) for label, values in saved.items()}


def _metrics(path: Path, what: str, saved: Any) -> Metrics:  # noqa: ANN401 - what JSON may hold
    names = ("queries", *METRICS)
    if not isinstance(saved, dict) or not all(isinstance(saved.get(name), int | float) for name in names):
        raise DataError(f"{path} lacks figures for {what}. {_AGAIN}")
    return Metrics(saved["queries"], {name: saved[name] for name in METRICS})


def _check_figures(path: Path, saved: Mapping[str, Any], evaluation: Evaluation) -> None:
    """Recompute all that follows from the ranks alone: all but the slices that need the graph."""
    filtered, raw = evaluation.ranks.filtered, evaluation.ranks.raw
    _check_equal(path, "", _metrics(path, "the whole", saved), evaluation.metrics)
    for what, ranks in (("optimistic", filtered.optimistic), ("pessimistic", filtered.pessimistic), ("raw", raw.mean)):
        _check_equal(path, f"{what} ", _metrics(path, what, saved.get(what)), Metrics.of(ranks))
    labels = {"side": evaluation.sides, "relation": [relation for _, relation, _ in evaluation.triples]}
    for way, of_queries in labels.items():
        recomputed = by_label(filtered.mean, np.array(of_queries, dtype=object))
        found = evaluation.slices.get(way, {})
        if found.keys() != recomputed.keys():
            raise DataError(f"{path} has other slices by {way} than its ranks give. {_AGAIN}")
        for label, metrics in recomputed.items():
            _check_equal(path, f"{way} {label} ", found[label], metrics)


def _check_equal(path: Path, what: str, found: Metrics, recomputed: Metrics) -> None:
    for metric, value in recomputed.as_dict().items():
        if not np.isclose(found.as_dict()[metric], value, rtol=1e-9):
            raise DataError(
                f"{path} says {what}{metric} {found.as_dict()[metric]}, but its ranks give {value}. {_AGAIN}"
            )
