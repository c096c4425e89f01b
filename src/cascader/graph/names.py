"""Look up entities and relations by the names that people type."""

import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from heapq import nlargest
from operator import itemgetter

from cascader.errors import UnknownNameError
from cascader.wording import counted

#: Close names that an error suggests.
CLOSEST = 5
_SIMILAR_ENOUGH = 60  # of 100: below this, a suggestion is noise
#: Many things can share a name: an error has the ids of this many.
_MOST_CANDIDATES = 20
#: Folding makes up to eighteen characters of one, and a long name takes seconds to compare with all others.
_LONGEST_COMPARED = 200
_COMPARED_AT_ONCE = 2000  # between two looks at the clock; no other thread gets its turn meanwhile
_SECONDS_TO_COMPARE = 1.0


class NameIndex:
    """Finds an index by exact id, by exact name, or by a name that is unique up to case and spacing.

    >>> names = NameIndex("entity", ids=["Q1", "Q2"], names=["Ludwig van Beethoven", "Paris"])
    >>> names.index("Q2"), names.index("Paris"), names.index("  ludwig  VAN beethoven")
    (1, 1, 0)
    """

    def __init__(self, kind: str, ids: Sequence[str], names: Sequence[str]) -> None:
        self._kind = kind
        self._ids = ids
        self._names = names
        self._by_id = {id_: i for i, id_ in enumerate(ids)}

    # These are made when the first name is asked for that is no id: a graph may have millions.

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, name in enumerate(self._names):
            found.setdefault(name, []).append(i)
        return found

    @cached_property
    def _by_folded(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, (id_, name) in enumerate(zip(self._ids, self._names, strict=True)):
            for folded in {fold(name), fold(id_)} if id_ != name else (fold(name),):
                found.setdefault(folded, []).append(i)
        return found

    @cached_property
    def _longest(self) -> int:
        """What folds to a name is hardly longer: four code points make one at most, and there is some spacing."""
        return 4 * max(map(len, self._by_folded), default=0) + 64

    def index(self, text: str, closest: int = CLOSEST) -> int:
        """The index of the one item with this id or name; if there is none, the error suggests `closest` names."""
        found = self._find(text)
        if len(found) == 1:
            return found[0]
        raise self._ambiguous(text, found) if found else self._unknown(text, closest)

    def closest(self, text: str, limit: int = CLOSEST, clock: Callable[[], float] = time.monotonic) -> list[int]:
        """The indices whose names are most similar to `text`, best first, among those that a second lets us compare."""
        folded = fold(text) if len(text) <= self._longest else ""
        if not 0 < len(folded) <= _LONGEST_COMPARED:
            return []
        end, found = clock() + _SECONDS_TO_COMPARE, list[tuple[str, float]]()
        for names in self._names_at_once():
            found = nlargest(limit, found + _similar(folded, names, limit), key=itemgetter(1))
            if clock() >= end:
                break
        indices = [i for name, _ in found for i in self._by_folded[name]]
        return list(dict.fromkeys(indices))[:limit]

    def _find(self, text: str) -> list[int]:
        if text in self._by_id:
            return [self._by_id[text]]
        found = self._by_name.get(text)
        if found is None and len(text) <= self._longest:
            found = self._by_folded.get(fold(text))
        return found or []

    def _names_at_once(self) -> Iterator[list[str]]:
        names = list(self._by_folded)
        for start in range(0, len(names), _COMPARED_AT_ONCE):
            yield names[start : start + _COMPARED_AT_ONCE]

    def _ambiguous(self, text: str, found: list[int]) -> UnknownNameError:
        more = f" and {len(found) - CLOSEST:,} more" if len(found) > CLOSEST else ""
        return UnknownNameError(
            f"{text!r} names {counted(len(found), self._kind)}: {self._listed(found[:CLOSEST])}{more}. "
            "Use the id of the one you mean.",
            [self._ids[i] for i in found[:_MOST_CANDIDATES]],
        )

    def _unknown(self, text: str, limit: int) -> UnknownNameError:
        fact = f"no {self._kind} is called {text!r} (of {counted(len(self._ids), self._kind)})."
        if limit == 0:
            return UnknownNameError(fact)
        closest = self.closest(text, limit)
        advice = f"Closest: {self._listed(closest)}." if closest else "No name is similar."
        return UnknownNameError(f"{fact} {advice}", [self._ids[i] for i in closest])

    def _listed(self, indices: list[int]) -> str:
        return ", ".join(self._label(i) for i in indices)

    def _label(self, i: int) -> str:
        return self._ids[i] if self._names[i] == self._ids[i] else f"{self._names[i]} ({self._ids[i]})"


def _similar(folded: str, names: list[str], limit: int) -> list[tuple[str, float]]:
    """The most similar of some names, and how similar each is."""
    from rapidfuzz import fuzz, process

    matches = process.extract(folded, names, scorer=fuzz.WRatio, limit=limit, score_cutoff=_SIMILAR_ENOUGH)
    return [(name, similarity) for name, similarity, _ in matches]


def fold(text: str) -> str:
    """Normalize `text` so that case, spacing, underscores and Unicode variants do not matter."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().replace("_", " ").split())
