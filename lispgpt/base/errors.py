"""The two families of errors: what a user can mend, and what is a bug in this project."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from lispgpt.base.source import Span


def visible(text: str) -> str:
    """A text for terminals: letters in it that command those, or that turn what stands beside them about, are shown by
    their numbers.  Of these, ends of lines and tabs stay."""
    return HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


PACKAGE = Path(__file__).parent.parent

LONGEST = 2000
"""Letters of a line of a message."""

HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)")


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
        """`file:line:col: error: …`, the line, a caret under the form, one line for each expansion, in letters that no
        terminal takes for commands; kind: what else it is than an error."""
        return visible("\n".join(map(_cut, self._rendered(kind).split("\n"))))

    def _rendered(self, kind: str) -> str:
        if self.span is None:
            return f"{kind}: {self.message}"
        lines = [f"{self.span}: {kind}: {self.message}", *_excerpt(self.span)]
        lines += [f"{span}: expanded from {what}" for what, span in self.expanded_from]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback: the line of the user's own code, and the message."""
        own, trace = "", self.__traceback__
        while trace is not None:
            path, number = trace.tb_frame.f_code.co_filename, trace.tb_lineno
            if PACKAGE in Path(path).parents:
                break
            line = "" if "IPython" in Path(path).parts else linecache.getline(path, number).strip()
            if line and not line.startswith("get_ipython().run_"):  # what a magic is to IPython
                cell = "ipython-input" in path or "ipykernel" in path
                own = f"{f'line {number}' if cell else f'{path}:{number}'}: {line}"
            trace = trace.tb_next
        return [*([own] if own else []), *self.render().split("\n")]


class InternalError(Exception):
    """A state that no input should lead to; the command line asks for a report and exits with 3.

    message: the cause in one line, and what to do to see it again.  report: the traceback from where it happened, which
    may be another process.
    """

    def __init__(self, message: str, report: str = "") -> None:
        super().__init__(message)
        self.report = report


def _cut(line: str) -> str:
    """A line of a message, without the middle of what a file has much of."""
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]}…{line[-LONGEST // 2 :]}"


def _excerpt(span: Span) -> list[str]:
    line, column = span.source.line_column(span.start)
    text = span.source.line_text(line)
    width = max(1, min(span.end - span.start, len(text) - column + 1))
    shown = text if len(text) <= 200 else text[max(0, column - 60) : column + 100]
    indent = column - 1 if len(text) <= 200 else column - 1 - max(0, column - 60)
    return [f"  {shown}", "  " + " " * indent + "^" * min(width, max(1, len(shown) - indent))]


P = ParamSpec("P")
R = TypeVar("R")


def at_the_call(function: Callable[P, R]) -> Callable[P, R]:
    """A function of the Python interface whose UserErrors have the caller's lines in their traceback, and none of what
    this package called to find them."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            raise error.with_traceback(None) from None

    return called
