"""What all benchmarks share: medians, printed ratios, and a record of the machine."""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cascader.storage import versions_of, write_json

RESULTS = Path(__file__).parent / "results"


def in_own_process(script: Path, *arguments: str, threads: int) -> dict[str, Any]:
    """Run a part of a benchmark in its own process, so that its peak memory is its own; its last line is JSON."""
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**os.environ, **{name: str(threads) for name in variables}}
    command = [sys.executable, str(script), *arguments]
    finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return answer


def median(runs: Sequence[Mapping[str, Any]], key: str) -> float:
    """Compute the median of one figure over repeated runs, because machines are noisy."""
    return statistics.median(run[key] for run in runs)


def report(name: str, ratios: Mapping[str, float], details: Mapping[str, Any], packages: Sequence[str]) -> None:
    """Print each ratio on its own line, and save everything in bench/results."""
    for ratio, value in ratios.items():
        print(f"ratio: {ratio} {value:.1f}")
    write_json(
        RESULTS / f"{name}.json",
        {
            "ratios": {ratio: round(value, 2) for ratio, value in ratios.items()},
            **details,
            "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()},
            "versions": {"python": platform.python_version(), **versions_of(["cascader", *packages])},
        },
    )
    print(f"written to {RESULTS / name}.json")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
