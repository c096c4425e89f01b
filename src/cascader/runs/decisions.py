"""What people decide of the links that a run proposes, and which of these decisions are in effect."""

import getpass
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cascader.errors import DataError, SettingsError
from cascader.graph import BoolArray, KnowledgeGraph, Triples
from cascader.graph.arrays import is_among, triple_keys
from cascader.records import Name, Sha256, append_records, read_records
from cascader.wording import counted

#: A skipped link is shown to others, and to the same reviewer on request; an undone decision is none.
Outcome = Literal["accepted", "rejected", "skipped", "undone"]
#: Head, relation and tail, by id.
Ids = tuple[str, str, str]
_LONGEST_REVIEWER = 100
_NAMED_AT_MOST = 3


@dataclass(frozen=True)
class Decision:
    """What somebody decided of a link, which is given by its ids.

    >>> made = Decision("d1", "treats", "s1", "accepted", "ann", time="2026-11-18T09:30:00+00:00", run="0" * 64)
    >>> made.triple, made.outcome
    (('d1', 'treats', 's1'), 'accepted')
    """

    head: str
    relation: str
    tail: str
    outcome: Outcome
    reviewer: Name
    time: str  # when, in UTC
    run: Sha256  # the identity of the run as it was then

    @property
    def triple(self) -> Ids:
        """The link by ids."""
        return self.head, self.relation, self.tail

    def as_row(self) -> dict[str, Any]:
        """Return it as one row of a table."""
        made = {"decision": self.outcome, "reviewer": self.reviewer, "time": self.time}
        return {"head": self.head, "relation": self.relation, "tail": self.tail, **made}


class Decisions(Sequence[Decision]):
    """The decisions in effect: the latest that accepts or rejects a link, in the order in which they were made.

    What somebody has undone is as if that person had never decided.

    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "fever")])
    >>> link = "aspirin", "treats", "fever"
    >>> ann = Decision(*link, "accepted", reviewer="ann", time="2026-11-18T09:30:00+00:00", run="0" * 64)
    >>> Decisions([ann, replace(ann, outcome="rejected", reviewer="bob")], kg)
    Decisions(0 accepted, 1 rejected)
    """

    def __init__(self, log: Sequence[Decision], kg: KnowledgeGraph) -> None:
        entities, relations = ({thing.id for thing in things} for things in (kg.entities, kg.relations))
        self._by_link: dict[Ids, dict[str, Decision]] = {}  # the last of each reviewer, in the order of time
        for decision in log:
            own = self._by_link.setdefault(decision.triple, {})
            own.pop(decision.reviewer, None)
            if decision.outcome != "undone":
                own[decision.reviewer] = decision
        decided = {link: found[-1] for link, own in self._by_link.items() if (found := _deciding(own))}
        place = {id(decision): number for number, decision in enumerate(log)}
        ordered = sorted(decided.values(), key=lambda decision: place[id(decision)])
        is_here = [{d.head, d.tail} <= entities and d.relation in relations for d in ordered]
        self._decided = {d.triple: d for d, here in zip(ordered, is_here, strict=True) if here}
        self.gone = tuple(d for d, here in zip(ordered, is_here, strict=True) if not here)  #: of ids the graph lacks
        self._log = log

    def __len__(self) -> int:
        return len(self._decided)

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - a decision, or a slice of them
        return tuple(self._decided.values())[place]

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._decided.values())

    def __repr__(self) -> str:
        return f"Decisions({len(self.accepted):,} accepted, {len(self.rejected):,} rejected)"

    @property
    def accepted(self) -> list[Decision]:
        """The links that count as facts."""
        return [decision for decision in self if decision.outcome == "accepted"]

    @property
    def rejected(self) -> list[Decision]:
        """The links that are never proposed again."""
        return [decision for decision in self if decision.outcome == "rejected"]

    def of(self, link: Ids) -> Decision | None:
        """Return the decision in effect on a link; None if there is none."""
        return self._decided.get(link)

    def is_skipped(self, link: Ids, reviewer: str) -> bool:
        """Return whether a reviewer has skipped a link."""
        own = self._by_link.get(link, {}).get(reviewer)
        return own is not None and own.outcome == "skipped"

    def skipped_by(self, reviewer: str) -> int:
        """Count the links that a reviewer has skipped and nobody has decided."""
        return sum(self.is_skipped(link, reviewer) and link not in self._decided for link in self._by_link)

    def last_of(self, reviewer: str) -> Decision | None:
        """Return what a reviewer did last and has not undone, skipping included; None if there is nothing."""
        still = {id(own[reviewer]) for own in self._by_link.values() if reviewer in own}
        return next((decision for decision in reversed(self._log) if id(decision) in still), None)

    @property
    def disagreements(self) -> list[Ids]:
        """The links that one reviewer accepts and another rejects; the later decision is in effect."""
        return [link for link, own in self._by_link.items() if len({d.outcome for d in _deciding(own)}) > 1]

    @property
    def log(self) -> tuple[Decision, ...]:
        """Everything that was ever decided or undone, in order."""
        return tuple(self._log)

    def with_accepted(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        """Return the graph with the accepted links in train; those that it has in any split stay where they are."""
        accepted = indices_of([decision.triple for decision in self.accepted], kg)
        new = accepted[~among_triples(accepted, kg.triples(), kg)]
        return replace(kg, train=np.concatenate([kg.train, new])) if len(new) else kg

    def as_lesson(self) -> str:
        """Return a sentence on what a fit learns from them."""
        accepted, rejected = (counted(len(each), "link") for each in (self.accepted, self.rejected))
        gone = f" Left out, of ids that the graph lacks: {self._named_gone()}." if self.gone else ""
        return f"Learning from decisions: {accepted} accepted, in train; {rejected} rejected, as negatives.{gone}"

    def _named_gone(self) -> str:
        links = "; ".join(" ".join(decision.triple) for decision in self.gone[:_NAMED_AT_MOST])
        return links + (f"; and {len(self.gone) - _NAMED_AT_MOST:,} more" if len(self.gone) > _NAMED_AT_MOST else "")

    def notes(self, identity: str) -> list[str]:
        """Return sentences on what is odd about them, given the identity of the run as it is now."""
        found = []
        earlier = sum(decision.run != identity for decision in self)
        if earlier:
            found.append(f"{counted(earlier, 'decision')} from before this run was fitted: valid by id, and kept.")
        if self.gone:
            count = counted(len(self.gone), "decision")
            found.append(f"{count} left out, of ids that this graph lacks: {self._named_gone()}.")
        if self.disagreements:
            count = counted(len(self.disagreements), "link")
            found.append(f"{count} accepted by one reviewer and rejected by another: the later decision counts.")
        return found


def indices_of(links: Sequence[Ids], kg: KnowledgeGraph) -> Triples:
    """Return links, by ids that the graph has, as indices; shape (links, 3)."""
    rows = [(kg.entity_index(h), kg.relation_index(r), kg.entity_index(t)) for h, r, t in links]
    return np.array(rows, dtype=np.int32).reshape(-1, 3)


def among_triples(triples: Triples, others: Triples, kg: KnowledgeGraph) -> BoolArray:
    """Return whether each triple is one of the others; shape (triples,)."""
    keys, other_keys = (triple_keys(some, len(kg.entities), len(kg.relations)) for some in (triples, others))
    return is_among(keys, other_keys)


def log_path(folder: Path) -> Path:
    """Return where a run keeps its decisions."""
    return folder / "review" / "decisions.jsonl"


def read_decisions(folder: Path, kg: KnowledgeGraph) -> Decisions:
    """Read the decisions of a run, for a graph that need not be the one they were made with."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder} with decisions. Check the path of the run.")
    return Decisions(read_records(log_path(folder), Decision, "Delete that line: the others stay as they are."), kg)


def append_decisions(folder: Path, decisions: Sequence[Decision]) -> None:
    """Add to the decisions of a run; those that it has are left out."""
    path = log_path(folder)
    there = set(read_records(path, Decision, "")) if path.exists() else set()
    new = [asdict(decision) for decision in decisions if decision not in there]
    if new:
        append_records(path, new)


def _deciding(own: Mapping[str, Decision]) -> list[Decision]:
    """Those that accept or reject."""
    return [decision for decision in own.values() if decision.outcome in ("accepted", "rejected")]


def checked_reviewer(name: str | None) -> str:
    """Return the name of a reviewer: the one given, or that of this machine's user."""
    chosen = _user() if name is None else name.strip()
    if not chosen or not chosen.isprintable() or len(chosen) > _LONGEST_REVIEWER:
        raise SettingsError(
            f"{chosen[:_LONGEST_REVIEWER]!r} cannot name a reviewer: use 1 to {_LONGEST_REVIEWER} printable characters."
        )
    return chosen


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        return "someone"
