"""`cascader review` and `cascader calibrate`: what people say of the links and triples that a run has to judge."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cascader.cli.console import chosen_format, echo, echo_error, shortened, write_rows_as
from cascader.cli.options import PairsOption, RunArgument, TimeLimitOption, VerifyOption, budget_of
from cascader.cli.predict import KeepGoingOption, readable
from cascader.errors import DataError, SettingsError
from cascader.wording import counted

if TYPE_CHECKING:
    from cascader.runs import Link, Outcome, Review, Run, WorkList

_KEYS: "dict[str, Outcome]" = {"a": "accepted", "r": "rejected", "s": "skipped"}
_PROMPT = "a accept, r reject, s skip, u undo, q quit, ? help"
_HELP = (
    "a  accept: the link counts as a fact from now on, and the next answers use it.",
    "r  reject: it is never proposed again.",
    "s  skip: decide later, with --skipped, or leave it to others.",
    "u  undo: take back what you did last, in this session or an earlier one.",
    "q  quit: everything is kept, and the same command goes on from here.",
)
#: Longer reasons and texts are cut: whoever needs all of one reads it on the page.
_LONGEST_REASON, _LONGEST_TEXT = 300, 200


def review(
    run: RunArgument,
    relation: Annotated[str, typer.Option("--relation", help="Only links of this relation, by id or name.")] = "",
    min_probability: Annotated[
        float, typer.Option("--min-probability", min=0, max=1, help="Leave out less probable links.")
    ] = 0.0,
    top: Annotated[int, typer.Option("--top", min=1, help="The number of answers to each question to look at.")] = 10,
    reviewer: Annotated[
        str | None, typer.Option("--reviewer", help="Who decides. [default: the user of this machine]")
    ] = None,
    skipped: Annotated[bool, typer.Option("--skipped", help="Go through the links that you have skipped.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export", help="Write all decisions to a file, and stop: .tsv, .csv, .jsonl, .parquet; .nt has the facts."
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--import", help="Take decisions from a table of head, relation, tail and decision, and stop."),
    ] = None,
    time_limit: TimeLimitOption = None,
    pairs: PairsOption = None,
    keep_going: KeepGoingOption = False,
    verify: VerifyOption = True,
) -> None:
    """Go through the links that a run proposes, the most probable first: accept, reject or skip, with a key each.

    Every decision is kept in the run at once, with who made it and when; several people can review the same run.

    Example: cascader review runs/demo --export runs/demo/decisions.tsv

    `cascader demo` makes that run.
    """
    from cascader.runs import REVIEW_COLUMNS, checked_reviewer, load_run

    if export is not None and from_file is not None:
        raise SettingsError("--export and --import cannot be combined. Give one after the other.")
    name = checked_reviewer(reviewer)
    form = chosen_format(None, export, option="--export", advice="Name it after the format")
    loaded = load_run(run, verify=verify)
    for note in loaded.review.decisions.notes(loaded.review.identity):
        echo_error(f"note: {note}")
    if export is not None:
        rows = loaded.review.rows()
        write_rows_as(rows, [each.triple for each in loaded.review.decisions.accepted], form, export, REVIEW_COLUMNS)
        echo(f"Written to {export}: {_in_words(loaded.review)}.")
    elif from_file is not None:
        _import(loaded.review, from_file, name, keep_going)
    else:
        work = _work_list(loaded, relation, min_probability, top, time_limit, pairs)
        _Session(loaded.review, work, work.made(), name, skipped, run).hold(_keys())


def _in_words(review: "Review") -> str:
    decisions = review.decisions
    return f"{len(decisions.accepted):,} accepted and {len(decisions.rejected):,} rejected"


def _import(review: "Review", file: Path, reviewer: str, keep_going: bool) -> None:
    decided = readable(review.read(file), file, keep_going)
    review.decide(decided, reviewer)
    echo(f"Took {counted(len(decided), 'decision')} from {file}. Now: {_in_words(review)}.")


def _work_list(
    run: "Run", relation: str, least: float, top: int, time_limit: str | None, pairs: int | None
) -> "WorkList":
    from cascader.cascade import Deadline
    from cascader.runs import WorkList, questions_about

    budget, wanted = budget_of(time_limit, pairs), relation or None
    count = len(questions_about(run.kg, wanted))
    deadline = None if budget.seconds is None else Deadline(budget.seconds)
    predictor = run.for_open_questions(run.predictor(budget, 2 * count))
    return WorkList(predictor, wanted, least, top, deadline)


def _keys() -> Iterator[str]:
    """What the reviewer types: single keys at a terminal, otherwise the first letter of each line."""
    import click

    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        try:
            typed = click.getchar() if is_terminal else sys.stdin.readline()
        except (KeyboardInterrupt, EOFError):
            return
        if not typed or typed in ("\x03", "\x04"):
            return
        yield typed.strip()[:1].lower()


@dataclass
class _Session:
    """One reviewer at work. The log is looked at before every link, so what others decide meanwhile is not asked."""

    review: "Review"
    work: "WorkList"
    links: "list[Link]"
    reviewer: str
    skipped: bool  # goes through what was skipped
    address: str
    made: list["Outcome"] = field(default_factory=list)
    passed: set[tuple[str, str, str]] = field(default_factory=set)  # skipped again
    next: tuple[str, str, str] | None = None  # what was undone comes first

    def hold(self, keys: Iterator[str]) -> None:
        """Show a link, take a key, and so on, until there are no more of either."""
        self._begin()
        shown = None
        while waiting := self._waiting():
            link = next((each for each in waiting if each.triple == self.next), waiting[0])
            if link is not shown:
                self._show(link, len(waiting))
                shown = link
            key = next(keys, "q")
            if key == "q":
                break
            self._act(key, link)
        self._end(len(waiting))

    def _waiting(self) -> "list[Link]":
        waiting = self.review.waiting(self.links, self.reviewer, skipped=self.skipped)
        return [link for link in waiting if link.triple not in self.passed]

    def _act(self, key: str, link: "Link") -> None:
        if key in _KEYS:
            self._decide(link, _KEYS[key])
        elif key == "u":
            self._undo()
        else:
            for line in _HELP:
                echo(line)

    def _decide(self, link: "Link", outcome: "Outcome") -> None:
        self.review.decide([(link.triple, outcome)], self.reviewer)
        self.made.append(outcome)
        self.next = None
        if outcome == "skipped":
            self.passed.add(link.triple)
        echo(f"   {outcome}")

    def _undo(self) -> None:
        from cascader.runs import link_of

        undone = self.review.undo(reviewer=self.reviewer)
        if undone is None:
            echo("   nothing to undo")
            return
        if self.made:
            self.made.pop()
        self.passed.discard(undone.triple)
        self.next = undone.triple
        if not any(link.triple == undone.triple for link in self.links):  # decided before the list was made
            with suppress(DataError):  # another reviewer has decided it, or the graph lacks its ids
                self.links.insert(0, link_of(self.review.informed(self.work.predictor), undone.triple))
        echo(f"   undone: {' '.join(undone.triple)} is no longer {undone.outcome}")

    # What is printed.

    def _begin(self) -> None:
        decisions = self.review.decisions
        there = (
            f"{counted(len(self._waiting()), 'link')} to review, as {self.reviewer}. {_in_words(self.review)} so far"
        )
        more = decisions.skipped_by(self.reviewer)
        echo(f"{there}{f', {more:,} skipped' if more else ''}. {_PROMPT}.")

    def _show(self, link: "Link", left: int) -> None:
        from cascader.runs import percent

        echo("")
        about = "" if link.probability is None else f", {percent(link.probability)}"
        echo(f"{shortened(str(link), _LONGEST_TEXT)}   ({left:,} left{about})")
        for entity in (link.head, link.tail):
            if entity.description:
                echo(f"   {shortened(f'{entity.name}: {entity.description}', _LONGEST_TEXT)}")
        for reason in link.reasons:
            echo(f"   {shortened(reason.in_words(), _LONGEST_REASON)}")
            for fact in reason.untold():
                echo(f"      {shortened(fact, _LONGEST_TEXT)}")

    def _end(self, left: int) -> None:
        counts = ", ".join(f"{self.made.count(each):,} {each}" for each in _KEYS.values())
        echo("")
        echo(f"This time: {counts}. {left:,} left. In all: {_in_words(self.review)}.")
        if left == 0:
            more = f"cascader review {self.address}"
            echo(f"Nothing is left of this list. Ask again, now that more is known: {more}")
        echo(f"All decisions as a table: cascader review {self.address} --export decisions.tsv (or .nt)")


def calibrate(
    run: RunArgument,
    file: Annotated[
        Path, typer.Argument(help="A table of triples by id or name: head, relation, tail, label (1 or 0, yes or no).")
    ],
    keep_going: KeepGoingOption = False,
    verify: VerifyOption = True,
) -> None:
    """Improve verdicts with triples you know to be true or false.

    New labels replace earlier ones.

    Example: cascader calibrate runs/demo labels.tsv
    """
    from cascader.runs import joined_labels, load_run, read_labels

    loaded = load_run(run, verify=verify)
    labels = joined_labels(readable(read_labels(file, loaded.kg), file, keep_going))
    echo(loaded.learn(labels).in_words())
