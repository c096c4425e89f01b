"""JSON that is still JSON, but not what was written: values of other types, other sizes, or missing."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.mutations import hostile_texts

_NUMBERS = (0, -1, 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"), float("-inf"))
_OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": None}, "1", ["x"] * 3)


def values() -> st.SearchStrategy[Any]:
    """Any value that JSON has, and some that only Python's JSON has."""
    leaves = st.one_of(st.sampled_from(_NUMBERS), st.sampled_from(_OTHERS), hostile_texts(), st.text(max_size=5))
    return st.one_of(leaves, st.lists(leaves, max_size=3), st.dictionaries(st.text(max_size=3), leaves, max_size=2))


@st.composite
def damaged_json(draw: st.DrawFn, content: bytes) -> bytes:
    """A document with one to three of its values changed, missing, doubled or swapped for those of others."""
    document = json.loads(content)
    for _ in range(draw(st.integers(1, 3))):
        places = _places(document)
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["other", "other", "missing", "swapped", "extra"])):
            case "other":
                holder[key] = draw(values())
            case "missing":
                del holder[key]
            case "swapped":
                elsewhere, other = draw(st.sampled_from(places))
                holder[key] = json.loads(json.dumps(elsewhere[other]))
            case "extra":
                _add(holder, draw(st.text(max_size=5)), draw(values()))
    return json.dumps(document).encode()


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every value of a document, by what holds it and its key; of long lists, only the first few."""
    keys = list(document) if isinstance(document, dict) else list(range(min(len(document), 5)))
    found: list[tuple[Any, Any]] = []
    for key in keys if isinstance(document, dict | list) else ():
        found.append((document, key))
        if isinstance(document[key], dict | list):
            found += _places(document[key])
    return found


def _add(holder: Any, key: str, value: Any) -> None:
    if isinstance(holder, dict):
        holder[key] = value
    else:
        holder.append(value)
