"""Run folders that someone sent: files damaged, missing, exchanged or no files at all, with sums that fit or do not."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from tests.fuzz.case import CommandLine
from tests.fuzz.material import Material
from tests.fuzz.targets.questions import OnRun
from tests.run_mutations import mutate, sign

_COMMANDS = (
    ("describe", "run"),
    ("predict", "run", "e0", "of"),
    ("predict", "run", "red", "is the colour of", "--why", "--known"),
    ("predict", "run", "--new", "crimson: something red", "of"),
    ("predict", "run", "--all", "--format", "tsv"),
    ("predict", "run", "e0", "of", "--no-verify"),
    ("classify", "run", "triples.tsv"),
    ("calibrate", "run", "labels.tsv"),
    ("evaluate", "run"),
    ("evaluate", "run", "--tiers", "kge,cross", "--split", "valid", "--no-verify"),
    ("report", "run"),
    ("review", "run", "--export", "decisions.tsv"),
)
_TRIPLES = {
    "triples.tsv": b"e0\tof\te8\ne1\tlike\te9\n",
    "labels.tsv": b"".join(b"e%d\tof\te%d\t%d\n" % (i, 8 + i % 2, i % 2) for i in range(12)),
}


@dataclass(frozen=True)
class _OnDamagedRun(OnRun):
    """A command on a run that was damaged, once for each seed, and then signed again or not."""

    seeds: tuple[int, ...] = ()
    is_signed: bool = False

    def __str__(self) -> str:
        return f"{super().__str__()} after damages {self.seeds}{', signed' if self.is_signed else ''}"

    def prepare(self, folder: Path) -> None:
        """Copy the run and damage it."""
        super().prepare(folder)
        for seed in self.seeds:
            mutate(folder / "run", Random(seed))
        if self.is_signed:
            sign(folder / "run")


def cases(material: Material) -> st.SearchStrategy[CommandLine]:
    """Draw a command and what was done to the run before."""
    seeds = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=2).map(tuple)
    return st.builds(
        _OnDamagedRun, st.sampled_from(_COMMANDS), st.just(_TRIPLES), st.just(material), seeds, st.booleans()
    )
