"""The commands that meet with faults, on a tiny graph and a tiny language model."""

import shutil
from pathlib import Path

from tests.faults.processes import Command

_EMBEDDINGS = ("kge", "kge2", "kge3", "kge4")
_TUNED = ("--tiers", "plausibility,kge,dual,cross", "--weights", "tuned")


def all_commands(into: Path, base: str) -> dict[str, Command]:
    """The commands by name; a run is fitted for those that need one."""
    graph = into / "likes.tsv"
    graph.write_text("".join(f"abc {a}\tlikes\txyz {b}\n" for a in "abcdefgh" for b in "uvwxyz"))
    whole = into / "whole"
    whole.mkdir()
    fit = Command("fit", lambda folder: _fit(graph, base, folder), whole / "fit")
    fit.undisturbed()
    untuned = _without_tuning(fit.whole, into / "untuned")
    serve = ["--port", "0"]
    commands = (
        fit,
        Command("tune", lambda folder: ["evaluate", str(folder), *_TUNED], whole / "tune", untuned),
        Command("evaluate", lambda folder: ["evaluate", str(folder)], whole / "evaluate", untuned),
        Command("predict", _predict, whole / "predict", untuned),
        Command("reproduce", lambda folder: _reproduce(graph, base, folder), whole / "reproduce"),
        Command("serve", lambda folder: ["serve", str(folder), *serve], whole / "serve", fit.whole, is_server=True),
    )
    return {command.name: command for command in commands}


def _without_tuning(fitted: Path, folder: Path) -> Path:
    """A run that has its tiers, but must tune, calibrate and read pairs again."""
    shutil.copytree(fitted, folder)
    for path in (folder / "tuning.json", folder / "calibration.json"):
        path.unlink(missing_ok=True)
    for name in ("scores", "parts"):
        shutil.rmtree(folder / name, ignore_errors=True)
    return folder


def _fit(graph: Path, base: str, folder: Path) -> list[str]:
    """All default tiers, trained in a moment, with several steps in an epoch."""
    settings = ["epochs=8", "dim=4", "batch_size=16", f"dual.base={base}", "dual.epochs=6", f"late.base={base}"]
    settings += ["late.epochs=4", "late.layer=1", "late.dim=4", *_pairs("cross", base, rounds=5)]
    return ["fit", str(graph), *_set(settings), "--out", str(folder)]


def _predict(folder: Path) -> list[str]:
    """Every question, with the answers in a file beside the run."""
    return ["predict", str(folder), "--all", "--format", "jsonl", "--out", str(folder / "answers.jsonl")]


def _reproduce(graph: Path, base: str, folder: Path) -> list[str]:
    """All rows of the tables, on models trained in a moment."""
    settings = [f"{tier}.{each}" for tier in _EMBEDDINGS for each in ("dim=4", "epochs=2")]
    text = (f"base={base}", "epochs=2", "dim=4")
    settings += [f"{tier}.{each}" for tier in ("dual", "dual2", "dual3", "late") for each in text]
    settings += ["late.layer=1", *_pairs("cross", base, rounds=2), *_pairs("cross2", base, rounds=2)]
    return ["reproduce", str(graph), "--preset", "quick", *_set(settings), "--out", str(folder)]


def _pairs(tier: str, base: str, rounds: int) -> list[str]:
    settings = [f"base={base}", "split_layer=0", "precision=float32", f"rounds={rounds}"]
    return [f"{tier}.{each}" for each in (*settings, "queries_per_round=8", "batch_size=4", "valid_top_k=3")]


def _set(settings: list[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]
