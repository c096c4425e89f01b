"""A batch of cases that one seed draws: each is performed and counted, and the input of a failure is made small."""

import shutil
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from tests.fuzz.case import Case, Outcome, outcome_of
from tests.fuzz.sandbox import Sandbox

#: How long the input of one failure is made smaller.
_SHRINK_SECONDS = 20


#: Gives the strategy that draws the cases of a target.
Cases = Callable[[], st.SearchStrategy[Case]]


@dataclass(frozen=True)
class Batch:
    """The cases of a target that one seed draws; the inputs of failures with the signatures in `known` stay large."""

    target: str
    seed: int
    size: int
    known: Collection[str] = ()


@dataclass(frozen=True)
class Failure:
    """A case that ended as none may."""

    case: Case
    outcome: Outcome


class _FailedError(Exception):
    """Tells Hypothesis that a case failed, so that it looks for a smaller one."""


class _EnoughError(KeyboardInterrupt):
    """Ends a batch: anything less, Hypothesis would take for a failure."""


def fuzz(
    cases: Cases,
    batch: Batch,
    sandbox: Sandbox,
    began: Callable[[Case], None] = lambda case: None,
    ended: Callable[[Outcome], None] = lambda outcome: None,
    failed: Callable[[Failure], None] = lambda failure: None,
) -> list[Failure]:
    """Perform a batch; return the failures that are not known, one of each kind, with inputs that were made small.

    `failed` gets each of them first as it was drawn: making it small may hang.
    """
    found: dict[str, Failure] = {}
    count = 0

    def perform(case: Case) -> None:
        nonlocal count
        if count == batch.size:
            raise _EnoughError
        began(case)
        outcome = outcome_of(case, sandbox)
        count += 1
        ended(outcome)
        if not outcome.is_good and outcome.signature not in {*batch.known, *found}:
            found[outcome.signature] = Failure(case, outcome)
            failed(found[outcome.signature])

    _draw(cases, batch, perform)
    return [_smaller(failure, cases, batch, sandbox, began) for failure in found.values()]


def _smaller(failure: Failure, cases: Cases, batch: Batch, sandbox: Sandbox, began: Callable[[Case], None]) -> Failure:
    """Draw the same cases again, and let Hypothesis make the one that failed smaller, for a while."""
    until = time.monotonic() + _SHRINK_SECONDS
    smallest = failure

    def perform(case: Case) -> None:
        nonlocal smallest
        if time.monotonic() > until:
            raise _EnoughError
        began(case)
        outcome = outcome_of(case, sandbox)
        if outcome.signature == failure.outcome.signature:
            smallest = Failure(case, outcome)
            raise _FailedError

    with suppress(_FailedError, Flaky):
        _draw(cases, batch, perform)
    return smallest


def _draw(cases: Cases, batch: Batch, perform: Callable[[Case], None]) -> None:
    """Let Hypothesis draw the cases of a batch."""
    options = settings(
        max_examples=batch.size,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
    )
    with suppress(_EnoughError):
        seed(batch.seed)(options(given(st.deferred(cases))(perform)))()


def keep(folder: Path, batch: Batch, failure: Failure) -> Path:
    """Write the input of a failure, what happened, and how to repeat it."""
    kept = folder / f"{batch.target}-{batch.seed}-{sha256(failure.outcome.signature.encode()).hexdigest()[:6]}"
    shutil.rmtree(kept, ignore_errors=True)
    (kept / "input").mkdir(parents=True)
    failure.case.prepare(kept / "input")
    text = f"{repeat_command(batch)}\n\n{failure.case}\n\n{failure.outcome.kind}: {failure.outcome.detail}\n"
    (kept / "failure.txt").write_text(text, encoding="utf-8", errors="backslashreplace")
    return kept


def repeat_command(batch: Batch) -> str:
    """The command that performs the same cases again."""
    return f"make fuzz TARGET={batch.target} SEED={batch.seed} CASES={batch.size}"
