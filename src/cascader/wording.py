"""Words that depend on a number."""


def counted(count: int, noun: str) -> str:
    """A number of things, with the noun in the singular for one.

    >>> counted(1, "entity"), counted(1200, "entity"), counted(0, "link")
    ('1 entity', '1,200 entities', '0 links')
    """
    return f"{count:,} {noun if count == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    is_changed = noun.endswith("y") and noun[-2] not in "aeiou"
    return f"{noun[:-1]}ies" if is_changed else f"{noun}s"
