"""Tables of HTML, which notebooks show in place of an object's `repr`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST = 30
"""Rows of a table; how many more there are is said."""


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table under a title; heads and cells are text."""
    listed = list(rows)
    lines = [_row("td", cells) for cells in listed[:MOST]]
    if len(listed) > MOST:
        lines.append(_row("td", [f"and {len(listed) - MOST} more", *[""] * (len(heads) - 1)]))
    head = f"<thead>{_row('th', heads)}</thead>" if any(heads) else ""
    return f"<div><b>{escape(title)}</b><table>{head}<tbody>{''.join(lines)}</tbody></table></div>"


def _row(tag: str, cells: Sequence[object]) -> str:
    cell = f'<{tag} style="text-align:left">'
    return f"<tr>{''.join(f'{cell}{escape(str(each))}</{tag}>' for each in cells)}</tr>"
