"""The review of a run: a log of decisions in its folder, which several people may write to at once."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cascader.datasets.tables import Table, read_table
from cascader.errors import DataError, StorageError
from cascader.graph import KnownAnswers, Triples
from cascader.records import append_records
from cascader.runs.decisions import (
    Decision,
    Decisions,
    Ids,
    Outcome,
    checked_reviewer,
    indices_of,
    log_path,
    read_decisions,
)
from cascader.runs.predictor import Predictor
from cascader.runs.questions import Rows

if TYPE_CHECKING:
    from cascader.runs.run import Run
    from cascader.runs.work_list import Link

_TRIPLE = ("head", "relation", "tail")
_COLUMNS = (*_TRIPLE, "decision")
#: What the last column may be called: labels for `calibrate` are decisions, too.
_DECISION = ("decision", "label")
#: The columns of a table of decisions with names.
REVIEW_COLUMNS = (*_COLUMNS, "reviewer", "time", "head_name", "relation_name", "tail_name")
_WORDS: Mapping[str, Outcome] = {
    **dict.fromkeys(("accepted", "accept", "a", "yes", "true", "1"), "accepted"),
    **dict.fromkeys(("rejected", "reject", "r", "no", "false", "0"), "rejected"),
    **dict.fromkeys(("skipped", "skip", "s"), "skipped"),
}


class Review:
    """The review of a run: what was decided, and what follows from it.

    Accepted links count as facts from then on: they are left out of answers, and tiers that look facts up use them.
    Rejected ones are never proposed again. Nothing is trained: `fit(graph, update=run)` does that.

    >>> from cascader import KnowledgeGraph, fit
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(4) for j in range(4)]
    >>> run = fit(KnowledgeGraph.from_triples(facts[2:14], valid=facts[14:]), tiers="plausibility,rules")
    >>> run.review.accept("drug 0", "treats", "disease 1", reviewer="ann")
    >>> run.review.reject("drug 0", "treats", "drug 1", reviewer="ann")
    >>> run.review.decisions
    Decisions(1 accepted, 1 rejected)
    >>> "disease 1" in [answer.name for answer in run.predict("drug 0", "treats")]
    False
    >>> len(run.review.links(top=2)) > 0
    True
    """

    def __init__(self, run: "Run") -> None:
        self._run, self._kg = run, run.kg
        self.path = log_path(run.folder.path)  #: the log
        self.identity = run.metadata.identity  #: of the run as it is now
        self._read: tuple[object, Decisions] | None = None
        self._known: tuple[list[Ids], KnownAnswers] = ([], run.kg.known())
        self._rejected: tuple[list[Ids], KnownAnswers | None] = ([], None)

    def __repr__(self) -> str:
        return f"Review({self.decisions!r})"

    # What was decided.

    @property
    def decisions(self) -> Decisions:
        """What is decided now, by whomever: the log is read again whenever it has changed."""
        state, read = _state_of(self.path), self._read
        if read is not None and (read[0] == state or not self._run.folder.path.exists()):
            return read[1]
        self._read = read = state, read_decisions(self._run.folder.path, self._kg)
        return read[1]

    def accept(self, head: str, relation: str, tail: str, *, reviewer: str | None = None) -> None:
        """Accept a link, by ids or names: from now on, it counts as a fact."""
        self.decide([(self.link(head, relation, tail), "accepted")], reviewer)

    def reject(self, head: str, relation: str, tail: str, *, reviewer: str | None = None) -> None:
        """Reject a link, by ids or names: it is never proposed again."""
        self.decide([(self.link(head, relation, tail), "rejected")], reviewer)

    def skip(self, head: str, relation: str, tail: str, *, reviewer: str | None = None) -> None:
        """Skip a link, by ids or names: others are still shown it."""
        self.decide([(self.link(head, relation, tail), "skipped")], reviewer)

    def undo(self, *, reviewer: str | None = None) -> Decision | None:
        """Undo what a reviewer did last, and return it; None if there is nothing left to undo."""
        last = self.decisions.last_of(checked_reviewer(reviewer))
        if last is not None:
            self._append([replace(last, outcome="undone", time=_now(), run=self.identity)])
        return last

    def decide(self, decided: Sequence[tuple[Ids, Outcome]], reviewer: str | None = None) -> None:
        """Decide several links, by ids, at once."""
        name, time = checked_reviewer(reviewer), _now()
        self._append([Decision(*link, outcome, name, time, self.identity) for link, outcome in decided])

    def _append(self, decisions: Sequence[Decision]) -> None:
        if self._run.folder.is_read_only:
            address = self._run.folder.address
            raise StorageError(f"{address} is read-only, so it keeps no decisions. Review a copy of it.")
        append_records(self.path, [asdict(decision) for decision in decisions])

    def link(self, head: str, relation: str, tail: str) -> Ids:
        """Return the ids of a link that can be decided: one that the graph does not have."""
        row = self._kg.entity_index(head), self._kg.relation_index(relation), self._kg.entity_index(tail)
        ids = self._kg.entities[row[0]].id, self._kg.relations[row[1]].id, self._kg.entities[row[2]].id
        if self.is_fact(ids):
            raise DataError(
                f"({', '.join(ids)}) is a fact of the graph already: there is nothing to decide. To take a fact back, "
                "remove it from the graph, and fit again."
            )
        return ids

    def is_fact(self, link: Ids) -> bool:
        """Return whether the graph itself has a link."""
        return link in self._facts

    @cached_property
    def _facts(self) -> set[Ids]:
        entities, relations = self._kg.entities, self._kg.relations
        return {(entities[h].id, relations[r].id, entities[t].id) for h, r, t in self._kg.triples().tolist()}

    # What follows from it.

    def informed(self, predictor: Predictor) -> Predictor:
        """Return the same predictor with accepted links as facts, and without rejected ones."""
        decisions = self.decisions
        return replace(
            predictor,
            known=self._known_with([decision.triple for decision in decisions.accepted]),
            rejected=self._answers_of([decision.triple for decision in decisions.rejected]),
        )

    def _known_with(self, accepted: list[Ids]) -> KnownAnswers:
        """The facts of the graph and the accepted ones; the same object for as long as these are the same.

        What tiers look up is made once for such an object.
        """
        known = self._known
        if accepted != known[0]:
            facts = np.concatenate([self._kg.triples(), self.indices(accepted)])
            self._known = known = accepted, self._answers(facts)
        return known[1]

    def _answers_of(self, rejected: list[Ids]) -> KnownAnswers | None:
        found = self._rejected
        if rejected != found[0]:
            self._rejected = found = rejected, self._answers(self.indices(rejected)) if rejected else None
        return found[1]

    def _answers(self, triples: Triples) -> KnownAnswers:
        return KnownAnswers(triples, len(self._kg.entities), len(self._kg.relations))

    def indices(self, links: Sequence[Ids]) -> Triples:
        """Return links, by ids that the graph has, as indices; shape (links, 3)."""
        return indices_of(links, self._kg)

    def links(
        self,
        *,
        relation: str | None = None,
        min_probability: float = 0.0,
        top: int = 10,
        predictor: Predictor | None = None,
    ) -> "list[Link]":
        """Return the work list: each missing link that the run proposes once, the most probable first.

        `top` is the number of answers to each question that are looked at.
        """
        from cascader.runs.work_list import WorkList

        asked = self._run.for_open_questions(self._run.predictor()) if predictor is None else predictor
        return WorkList(self.informed(asked), relation, min_probability, top).made()

    def waiting(self, links: "Sequence[Link]", reviewer: str, *, skipped: bool = False) -> "list[Link]":
        """Return those links that nobody has decided and this reviewer has not skipped; or only the `skipped` ones."""
        decisions = self.decisions
        return [
            link
            for link in links
            if decisions.of(link.triple) is None and decisions.is_skipped(link.triple, reviewer) == skipped
        ]

    # Files.

    def rows(self) -> list[dict[str, Any]]:
        """Return every decision in effect as one row of a table, with names."""
        decisions, kg = list(self.decisions), self._kg
        return [
            {
                **decision.as_row(),
                "head_name": kg.entities[head].name,
                "relation_name": kg.relations[relation].name,
                "tail_name": kg.entities[tail].name,
            }
            for decision, (head, relation, tail) in zip(
                decisions, self.indices([each.triple for each in decisions]), strict=True
            )
        ]

    def read(self, path: Path) -> Rows[tuple[Ids, Outcome]]:
        """Read decisions from a table with the columns head, relation, tail and decision, by ids or names."""
        table = read_table(path, lambda names: set(_TRIPLE) <= set(names))
        columns = _columns(table)

        def read(fields: list[str]) -> tuple[Ids, Outcome]:
            head, relation, tail, word = (fields[column].strip() for column in columns)
            if word.lower() not in _WORDS:
                raise DataError(f"{word!r} is no decision. Write accepted, rejected or skipped.")
            return self.link(head, relation, tail), _WORDS[word.lower()]

        return Rows.of(read, table.rows, table.where)


def _columns(table: Table) -> list[int]:
    if table.header is not None:
        found = [table.column(names) for names in (*((name,) for name in _TRIPLE), _DECISION)]
        columns = [column for column in found if column is not None]
        if len(columns) == len(_COLUMNS):
            return columns
        raise DataError(
            f"{table.label}: the header {table.shown_header} has no column for decision. Name one of them so."
        )
    if table.width == len(_COLUMNS):
        return list(range(table.width))
    raise DataError(f"{table.where(0)}: found {table.width} columns, expected {', '.join(_COLUMNS)}.")


def _state_of(path: Path) -> object:
    """What changes whenever the file does."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
