"""Pruners as the report names, orders and colors them; a kind it has never heard of is just one more."""

from collections.abc import Iterable
from typing import Any

from cascader.cascade.pruners import Capped, Pruner

#: The order and colors of the kinds we know; others follow by name.
_KNOWN_KINDS = ("top_k", "static", "dynamic", "conformal", "budgeted")
_LABELS = {"top_k": "same for all"}


def uncapped(pruner: Pruner) -> Pruner:
    """The pruner itself, without the limit that tuning puts on it."""
    return pruner.pruner if isinstance(pruner, Capped) else pruner


def kind_of(pruner: Pruner | None) -> str:
    """The kind of a pruner, such as "static" or "conformal"; "everyone" without one. Limits do not count."""
    return "everyone" if pruner is None else uncapped(pruner).kind


def describe_pruner(pruner: Pruner | None) -> str:
    """Describe a pruner in a few words.

    >>> from cascader.cascade.pruners import DynamicTopK, TopK
    >>> describe_pruner(TopK(50)), describe_pruner(Capped(100, DynamicTopK(0.9)))
    ('the best 50', 'dynamic, quantile 0.9, at most 100')
    """
    return "everyone" if pruner is None else str(pruner)


def candidate_limit(pruner: Pruner | None) -> int:
    """How many candidates a pruner keeps at most; 0 if it sets no limit."""
    limit: Any = None if pruner is None else pruner.as_dict().get("k")
    return limit if isinstance(limit, int) else 0


def target_share(pruner: Pruner) -> float | None:
    """The share of gold answers that a pruner is meant to keep; None if it has no such target."""
    settings = pruner.as_dict()
    share: float | None = settings.get("coverage", settings.get("quantile"))
    return share


def kind_label(kind: str) -> str:
    """How a chart's legend names a kind of pruner.

    >>> kind_label("top_k"), kind_label("never_seen")
    ('same for all', 'never seen')
    """
    return _LABELS.get(kind, kind.replace("_", " "))


def colors_by_kind(kinds: Iterable[str]) -> dict[str, int]:
    """A series number for each kind that occurs, in the order of the legend; the kinds we know keep their color.

    >>> colors_by_kind(["never_seen", "dynamic", "top_k"])
    {'top_k': 0, 'dynamic': 2, 'never_seen': 5}
    """
    found = set(kinds) - {"everyone"}
    every_kind = [*_KNOWN_KINDS, *sorted(found.difference(_KNOWN_KINDS))]
    return {kind: color for color, kind in enumerate(every_kind) if kind in found}
