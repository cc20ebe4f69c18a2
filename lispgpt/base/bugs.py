"""What went wrong inside lispgpt, in one line: the exception, where it was raised, and the user's form it was about."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from lispgpt.base.errors import InternalError
from lispgpt.base.source import Span

MOST_REPORTS = 100


def cause(error: BaseException) -> str:
    """An exception's kind, message and place in the code; an InternalError's message says enough by itself."""
    if isinstance(error, InternalError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{traceback.format_exception_only(error)[-1].strip()}{place}"


def summary(error: BaseException) -> str:
    """The cause, and where one is known the form that was being worked on."""
    form = next((span for local in held(error) if (span := span_held(local)) is not None), None)
    about = f", for {quoted(form)}" if form is not None and not isinstance(error, InternalError) else ""
    return cause(error) + about


def held(error: BaseException) -> Iterator[Any]:
    """What the functions that an exception ended had in their variables, and in objects there, innermost first."""
    for frame in reversed(list(_frames(error.__traceback__))):
        for value in frame.values():
            yield value
            own = getattr(value, "__dict__", None)
            if isinstance(own, dict) and not isinstance(value, type):
                yield from own.values()


def _frames(trace: TracebackType | None) -> Iterator[dict[str, Any]]:
    while trace is not None:
        yield dict(trace.tb_frame.f_locals)
        trace = trace.tb_next


def span_held(value: Any) -> Span | None:
    """A form's place in its source; None for anything else."""
    span = value if isinstance(value, Span) else getattr(value, "span", None)
    return span if isinstance(span, Span) and span.end > span.start else None


def quoted(span: Span) -> str:
    """A place and the beginning of what stands there."""
    line, column = span.source.line_column(span.start)
    text = span.source.line_text(line)[column - 1 :].strip()
    return f"{span} `{text if len(text) <= 60 else text[:59] + '…'}`"


def write_report(folder: Path, text: str) -> Path | None:
    """Write a report to a file that was not there before; its name, or None where none can be written."""
    for number in range(1, MOST_REPORTS):
        path = folder / ("lispgpt-bug.txt" if number == 1 else f"lispgpt-bug-{number}.txt")
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            continue
        except OSError:
            return None
        try:
            with os.fdopen(file, "w", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)
        except OSError:
            path.unlink(missing_ok=True)
            return None
        return path
    return None
