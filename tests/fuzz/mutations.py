"""What a stranger's file may contain: hostile texts, and bytes that were damaged on the way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

HOSTILE = (
    "",
    "\0",
    "\r",
    "\r\n",
    "\ufeff",
    "\u2028",
    "\u202e",
    "\x1b[2J",
    "\x85",
    "\u0130",
    "ß\u0301\u0301",
    "\ufdfa" * 40,
    "\u0663",
    "\u00b2",
    "\U0001f9d1\u200d\U0001f680",
    '"',
    '""',
    "'",
    "\\",
    "\t",
    ",",
    ";",
    ":",
    "-1",
    "0",
    "1e999",
    "NaN",
    "-Infinity",
    "9" * 25,
    "9" * 5000,
    "0x10",
    "1_000",
    "null",
    "true",
    "[" * 3000,
    "{" * 3000,
    "../" * 8 + "evil",
    "/etc/passwd",
    "C:\\evil",
    "file:///etc/passwd",
    "http://127.0.0.1:9/",
    "CON",
    ".",
    "..",
    "~",
    "$HOME",
    "`touch evil`",
    "$(touch evil)",
    "; touch evil",
    "%s%n%n",
    "{0.__class__}",
    "{{7*7}}",
    "{% raise %}",
    "__import__('os').system('touch evil')",
    "<script>wasRun=1</script>",
    "]]><!--",
    "&amp;",
    "[bold]x[/bold]",
    "[/]",
    "=1+1",
    "x" * 300,
    "y" * 140_000,
    "<< <<( ",
    "_:",
    "@prefix",
    '"""',
    "^^",
    "@en",
    "urn:cascader:entity:%00",
    "urn:cascader:entity:",
    "head",
    "relation",
    "tail",
    "id",
    "name",
    "side",
)


def mostly(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What is good three times out of four: with too much wrong, only the first mistake would be found."""
    return st.integers(0, 3).flatmap(lambda draw: bad if draw == 3 else good)


def hostile_texts() -> st.SearchStrategy[str]:
    """One of the hostile texts."""
    # By number: Hypothesis would print them all in its own messages.
    return st.integers(0, len(HOSTILE) - 1).map(HOSTILE.__getitem__)


def texts(max_size: int = 30) -> st.SearchStrategy[str]:
    """A text: hostile, or of any characters at all."""
    pieces = st.lists(st.one_of(hostile_texts(), st.text(max_size=5)), min_size=1, max_size=3).map("".join)
    return st.one_of(hostile_texts(), st.text(max_size=max_size), pieces)


def argument_texts() -> st.SearchStrategy[str]:
    """A text as an argument of a process: no NUL, and bytes that are no UTF-8 as Python has them."""
    undecodable = st.binary(max_size=12).map(lambda raw: raw.decode(errors="surrogateescape"))
    any_text = texts().map(lambda text: text.encode(errors="replace").decode())
    return st.one_of(any_text, undecodable).map(lambda text: text.replace("\0", ""))


def _tokens() -> st.SearchStrategy[bytes]:
    odd = [b"\xff", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"\x80", b"\x1f\x8b", b"PK\x03\x04", b"PAR1", bytes(64)]
    return st.one_of(
        texts().map(lambda text: text.encode(errors="surrogatepass")), st.sampled_from(odd), st.binary(max_size=8)
    )


@dataclass(frozen=True)
class Damage:
    """One change to a file: what, where in it (of 65,536 parts), how far, and with which bytes."""

    kind: str
    place: int
    extent: int
    token: bytes

    def applied(self, content: bytes) -> bytes:
        """The file after the change."""
        start = self.place * len(content) >> 16
        return _KINDS[self.kind](content, start, start + 1 + (self.extent % max(len(content) - start, 1)), self.token)


def _at_a_line(content: bytes, start: int) -> int:
    return content.rfind(b"\n", 0, start) + 1


def _flip(content: bytes, start: int, end: int, token: bytes) -> bytes:
    if not content:
        return token
    return content[:start] + bytes([content[start] ^ (1 << end % 8)]) + content[start + 1 :]


_KINDS: dict[str, Callable[[bytes, int, int, bytes], bytes]] = {
    "flip": _flip,
    "insert": lambda content, start, end, token: content[:start] + token + content[start:],
    "replace": lambda content, start, end, token: content[:start] + token + content[end:],
    "overwrite": lambda content, start, end, token: content[:start] + token + content[start + len(token) :],
    "delete": lambda content, start, end, token: content[:start] + content[end:],
    "double": lambda content, start, end, token: content[:end] + content[start:],
    "cut": lambda content, start, end, token: content[:start],
    "append": lambda content, start, end, token: content + token,
    "new line": lambda content, start, end, token: (
        content[: _at_a_line(content, start)] + token + b"\n" + content[_at_a_line(content, start) :]
    ),
    "other ends": lambda content, start, end, token: content.replace(b"\n", b"\r\n" if end % 2 else b"\r"),
    "other marks": lambda content, start, end, token: content.replace(b"\t", token[:1] or b","),
    "utf-16": lambda content, start, end, token: content.decode("latin-1").encode("utf-16"),
    "empty": lambda content, start, end, token: b"",
    "only": lambda content, start, end, token: token,
}


def damages(max_size: int = 4) -> st.SearchStrategy[list[Damage]]:
    """Some changes to a file, from none to a few."""
    place = st.integers(0, (1 << 16) - 1)
    one = st.builds(Damage, st.sampled_from(sorted(_KINDS)), place, place, _tokens())
    return st.lists(one, max_size=max_size)


def damaged(content: bytes, changes: Sequence[Damage]) -> bytes:
    """A file after all changes."""
    for change in changes:
        content = change.applied(content)
    return content
