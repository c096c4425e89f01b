"""`make fuzz`: perform thousands of cases, keep the input of every failure, and print a table of the outcomes."""

import argparse
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.case import Kind
from tests.fuzz.engine import Batch, repeat_command
from tests.fuzz.material import make_material
from tests.fuzz.targets import SHARES
from tests.fuzz.workers import HANG_SECONDS, Ended, Found, Job, News, perform

FAILURES = Path("runs/fuzz")
_BATCH = 100
#: How often it says how far it is.
_TELL_SECONDS = 60
_COLUMNS: dict[Kind, str] = {
    "ok": "answered",
    "sentence": "refused",
    "traceback": "tracebacks",
    "hang": f"hangs over {HANG_SECONDS:.0f} s",
    "outside": "files outside",
    "code": "code run",
    "packet": "packets",
}


@dataclass
class Tally:
    """How the cases of one target ended."""

    wanted: int
    waiting: int = 0  # cases of batches that are being performed
    kinds: Counter[Kind] = field(default_factory=Counter)
    sentences: set[str] = field(default_factory=set)
    failures: set[str] = field(default_factory=set)  # by signature

    @property
    def lacking(self) -> int:
        """How many cases no batch was made for."""
        return self.wanted - self.kinds.total() - self.waiting


class Schedule:
    """Which batch is next: one of the target that lacks most of its share of the cases."""

    def __init__(self, shares: Mapping[str, int], cases: int, seed: int, material: Path, failures: Path) -> None:
        whole = sum(shares.values())
        self.tallies = {target: Tally(-(-cases * share // whole)) for target, share in shares.items()}
        self._waiting: dict[int, int] = {}  # cases by the seed of their batch
        self._seed, self._material, self._failures = seed, material, failures.resolve()

    @property
    def count(self) -> int:
        """How many cases have ended."""
        return sum(tally.kinds.total() for tally in self.tallies.values())

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
        """Return a batch of the target that is furthest behind."""
        target = max(self.tallies, key=lambda each: self.tallies[each].lacking / self.tallies[each].wanted)
        tally = self.tallies[target]
        if tally.lacking <= 0:
            raise StopIteration
        batch = Batch(target, self._seed, min(_BATCH, tally.lacking), frozenset(tally.failures))
        tally.waiting += batch.size
        self._waiting[batch.seed] = batch.size
        self._seed += 1
        return Job(batch, self._material, self._failures)

    def take(self, news: News) -> None:
        """Count a case, close a batch, or print a failure when it is the first of its kind."""
        tally = self.tallies[news.batch.target]
        match news:
            case Ended(batch, outcome):
                tally.kinds[outcome.kind] += 1
                tally.waiting -= 1
                self._waiting[batch.seed] -= 1
                if outcome.kind == "sentence":
                    tally.sentences.add(outcome.signature)
            case Job(batch):
                tally.waiting -= self._waiting.pop(batch.seed)
            case Found(batch, outcome, kept) if outcome.signature not in tally.failures:
                tally.failures.add(outcome.signature)
                _print(f"\n{batch.target}: {outcome.kind}: {outcome.signature}")
                _print(f"  to repeat it: {repeat_command(batch)}\n  its input: {kept}")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _table(schedule: Schedule) -> Iterator[str]:
    yield "| target | cases | " + " | ".join(_COLUMNS.values()) + " | different sentences |"
    yield "|---|" + "--:|" * (len(_COLUMNS) + 2)
    total: Counter[Kind] = Counter()
    for target, tally in schedule.tallies.items():
        yield _row(target, tally.kinds, len(tally.sentences))
        total += tally.kinds
    yield _row("all", total, sum(len(tally.sentences) for tally in schedule.tallies.values()))


def _row(name: str, kinds: Counter[Kind], sentences: int) -> str:
    numbers = [kinds.total(), *(kinds[kind] for kind in _COLUMNS), sentences]
    return f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--target", choices=["all", *SHARES], default="all")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None, help="that of the first batch; the next has the next seed")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


def main() -> int:
    """Fuzz, print the table, and return 1 if anything failed."""
    options = _options()
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    shares = SHARES if options.target == "all" else {options.target: 1}
    started = time.monotonic()
    _print(
        f"{options.cases:,} cases for {', '.join(shares)}, from seed {seed}, in {options.minutes:g} minutes at most."
    )
    with tempfile.TemporaryDirectory(prefix="cascader-fuzz-") as folder:
        make_material(Path(folder) / "material")
        schedule = Schedule(shares, options.cases, seed, Path(folder) / "material", FAILURES)
        until, told = started + 60 * options.minutes, started
        for news in perform(schedule, Path(folder), options.processes, until):
            schedule.take(news)
            if time.monotonic() - told > _TELL_SECONDS:
                told = time.monotonic()
                _print(f"{schedule.count:,} cases in {told - started:,.0f} seconds")
    _print(f"\nSeed {seed}, {time.monotonic() - started:,.0f} seconds.\n")
    for line in _table(schedule):
        _print(line)
    return _verdict(schedule, options.cases)


def _verdict(schedule: Schedule, cases: int) -> int:
    """Return 1 if anything failed, or was never tried."""
    is_short = schedule.count < cases
    if is_short:
        _print(f"\nFAILED: the time was up after {schedule.count:,} of {cases:,} cases. Give it more --minutes.")
    return int(is_short or any(tally.failures for tally in schedule.tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
