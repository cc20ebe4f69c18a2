"""The two families of errors: what a user can mend, and what is a bug in this project."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lispgpt.base.source import Span


class UserError(Exception):
    """Something in the user's program, file or data is wrong; the command line shows it and exits with 1.

    message: what is wrong and, where possible, what to write instead; no capital, no full stop.
    span: the form it is about.  expanded_from: (description, span) of the macros and inlined calls around it,
    innermost first.
    """

    def __init__(self, message: str, span: Span | None = None, expanded_from: Iterable[tuple[str, Span]] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.expanded_from = list(expanded_from)

    def render(self, kind: str = "error") -> str:
        """`file:line:col: error: …`, the line, a caret under the form, one line for each expansion; kind: what else it
        is than an error."""
        if self.span is None:
            return f"{kind}: {self.message}"
        lines = [f"{self.span}: {kind}: {self.message}", *_excerpt(self.span)]
        lines += [f"{span}: expanded from {what}" for what, span in self.expanded_from]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


class InternalError(Exception):
    """A state that no input should lead to; the command line asks for a report and exits with 3.

    message: the cause in one line, and what to do to see it again.  report: the traceback from where it happened, which
    may be another process.
    """

    def __init__(self, message: str, report: str = "") -> None:
        super().__init__(message)
        self.report = report


def _excerpt(span: Span) -> list[str]:
    line, column = span.source.line_column(span.start)
    text = span.source.line_text(line)
    width = max(1, min(span.end - span.start, len(text) - column + 1))
    shown = text if len(text) <= 200 else text[max(0, column - 60) : column + 100]
    indent = column - 1 if len(text) <= 200 else column - 1 - max(0, column - 60)
    return [f"  {shown}", "  " + " " * indent + "^" * min(width, max(1, len(shown) - indent))]
