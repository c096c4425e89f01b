"""Quick on a small graph: seconds until one may ask, of the first answer at that moment, and of the whole fit.

The graph is UMLS, which PyKEEN carries: 135 entities, whose only texts are their names. Each fit is a process of its
own, and so is the first question, which is asked while the fit goes on. All times are from the start of a process.

Usage: python bench/small.py [--repeats N]
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import in_own_process, median, report

THREADS = 2
FIGURES = ("seconds_until_usable", "seconds_of_first_answer", "seconds_of_later_answer", "seconds")


def main() -> None:
    """Measure several fits, or take part in one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--part", choices=["fit", "ask"], help="what this process does in a measurement")
    parser.add_argument("--folder", help="of the run")
    parser.add_argument("--started", type=float, help="when this process was started, by time.time()")
    arguments = parser.parse_args()
    if arguments.part == "fit":
        print(json.dumps(fitted(arguments.folder, arguments.started)))
    elif arguments.part == "ask":
        print(json.dumps(asked(arguments.folder, arguments.started)))
    else:
        measure(arguments.repeats)


def measure(repeats: int) -> None:
    """Fit several times, and report the medians."""
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            run = f"{folder}/run"
            measured = in_own_process(Path(__file__), *part_of(run, "fit"), threads=THREADS)
            later = in_own_process(Path(__file__), *part_of(run, "ask"), threads=THREADS)
            found.append({**measured, "seconds_of_later_answer": later["seconds"]})
    medians = {name: round(median(found, name), 2) for name in FIGURES}
    for name, seconds in medians.items():
        print(f"{name}: {seconds:.1f}")
    report(
        "small",
        {"whole_fit_vs_until_usable": medians["seconds"] / medians["seconds_until_usable"]},
        {"what": found[0]["what"], "threads": THREADS, "repeats": repeats, **medians},
        ["torch", "pykeen"],
    )


def part_of(folder: str, part: str) -> list[str]:
    """Build the arguments of a process that does a part of a measurement."""
    return ["--part", part, "--folder", folder, "--started", str(time.time())]


def fitted(folder: str, started: float) -> dict[str, Any]:
    """Fit, and ask a question in another process as soon as one may."""
    import cascader

    asking: list[tuple[float, subprocess.Popen[str]]] = []

    def heard(event: cascader.Event) -> None:
        if event.kind == "usable":
            command = [sys.executable, __file__, *part_of(folder, "ask")]
            asking.append((time.time() - started, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))

    kg = cascader.load_graph(umls())
    cascader.fit(kg, folder, preset="quick", on_event=heard)
    seconds = time.time() - started
    ((until_usable, process),) = asking
    answer = json.loads(process.communicate()[0].splitlines()[-1])
    return {
        "what": f"fit --preset quick on UMLS: {len(kg.entities)} entities, {len(kg.train):,} triples of train",
        "seconds_until_usable": until_usable,
        "seconds_of_first_answer": answer["seconds"],
        "seconds": seconds,
    }


def asked(folder: str, started: float) -> dict[str, Any]:
    """Load the run as it is, and ask it a question."""
    import cascader

    run = cascader.load_run(folder)
    head, relation, _ = run.kg.train[0]
    answers = run.predict(run.kg.entities[head].id, run.kg.relations[relation].id)
    return {"seconds": time.time() - started, "answers": len(answers)}


def umls() -> Path:
    """Return the folder of the graph in PyKEEN, which is not imported: that takes seconds."""
    found = importlib.util.find_spec("pykeen")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("PyKEEN carries the graph. Install it with: pip install 'cascader[pykeen]'")
    return Path(found.submodule_search_locations[0]) / "datasets" / "umls"


if __name__ == "__main__":
    main()
