"""Look up entities and relations by the names that people type."""

import unicodedata
from collections.abc import Sequence

from cascader.errors import UnknownNameError

_SHOWN = 5
_SIMILAR_ENOUGH = 60  # of 100: below this, a suggestion is noise


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
        self._by_name: dict[str, list[int]] = {}
        self._by_folded: dict[str, list[int]] = {}
        for i, (id_, name) in enumerate(zip(ids, names, strict=True)):
            self._by_name.setdefault(name, []).append(i)
            for folded in {fold(name), fold(id_)}:
                self._by_folded.setdefault(folded, []).append(i)

    def index(self, text: str) -> int:
        """The index of the one item with this id or name."""
        if text in self._by_id:
            return self._by_id[text]
        found = self._by_name.get(text) or self._by_folded.get(fold(text), [])
        if len(found) == 1:
            return found[0]
        raise self._ambiguous(text, found) if found else self._unknown(text)

    def closest(self, text: str, limit: int = _SHOWN) -> list[int]:
        """The indices whose names are most similar to `text`, best first."""
        from rapidfuzz import fuzz, process

        matches = process.extract(
            fold(text), self._by_folded.keys(), scorer=fuzz.WRatio, limit=limit, score_cutoff=_SIMILAR_ENOUGH
        )
        found = [i for folded, _, _ in matches for i in self._by_folded[folded]]
        return list(dict.fromkeys(found))[:limit]

    def _ambiguous(self, text: str, found: list[int]) -> UnknownNameError:
        more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        return UnknownNameError(
            f"{text!r} names {len(found):,} {_plural(self._kind)}: {self._listed(found[:_SHOWN])}{more}. "
            "Use the id of the one you mean.",
            [self._ids[i] for i in found],
        )

    def _unknown(self, text: str) -> UnknownNameError:
        closest = self.closest(text)
        advice = f"Closest: {self._listed(closest)}." if closest else "No name is similar."
        return UnknownNameError(
            f"no {self._kind} is called {text!r} (of {len(self._ids):,} {_plural(self._kind)}). {advice}",
            [self._ids[i] for i in closest],
        )

    def _listed(self, indices: list[int]) -> str:
        return ", ".join(self._label(i) for i in indices)

    def _label(self, i: int) -> str:
        return self._ids[i] if self._names[i] == self._ids[i] else f"{self._names[i]} ({self._ids[i]})"


def fold(text: str) -> str:
    """Normalize `text` so that case, spacing, underscores and Unicode variants do not matter."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().replace("_", " ").split())


def _plural(kind: str) -> str:
    return kind[:-1] + "ies" if kind.endswith("y") else kind + "s"
