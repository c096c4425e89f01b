"""Tables for notebooks: what every `_repr_html_` of the package returns."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(columns: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """An HTML table in which every text is escaped, since graphs hold texts that others wrote.

    >>> html_table(["name"], [["<b>"]])
    '<table><thead><tr><th>name</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = _row("th", columns)
    body = "".join(_row("td", row) for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead>{head}</thead><tbody>{body}</tbody></table>"


def _row(tag: str, cells: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
