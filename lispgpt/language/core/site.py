"""Where an evaluation stands in the program: locations for ops, and errors at the forms that they are about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source, Span
from lispgpt.ir.mlir import ir
from lispgpt.language.reader import places
from lispgpt.language.reader.forms import Form

DEEPEST_CALLS = 150


@dataclass(eq=False)
class Frame:
    """A macro expansion or an inlined call that is being evaluated."""

    what: str
    form: Form
    location: ir.Location
    number: int


class Site:
    """The calls and expansions around the form that is being evaluated.  Needs an active ir.Context."""

    def __init__(self) -> None:
        self.context = ir.Context.current
        self.frames: list[Frame] = []
        self.warnings: list[UserError] = []
        self._sources: dict[str, Source] = {}
        self._frame_count = 0
        self._locations: dict[tuple[Span, int], ir.Location] = {}

    @contextmanager
    def frame(self, what: str, form: Form) -> Iterator[None]:
        """Remember for locations and messages that a call or an expansion is being evaluated."""
        if len(self.frames) >= DEEPEST_CALLS:
            self.fail(f"calls are {DEEPEST_CALLS} deep here; does `{what}` call itself without an end?", form)
        self._frame_count += 1
        self.frames.append(Frame(what, form, self.location(form), self._frame_count))
        try:
            yield
        finally:
            self.frames.pop()

    def location(self, form: Form) -> ir.Location:
        """file:line:column of a form, inside the calls and expansions around it."""
        span = form.span
        key = (span, self.frames[-1].number if self.frames else 0)
        location = self._locations.get(key)
        if location is None:
            line, column = span.source.line_column(span.start)
            self._sources.setdefault(span.source.name, span.source)
            location = ir.Location.file(span.source.name, line, column, self.context)
            if self.frames:
                location = ir.Location.callsite(location, [self.frames[-1].location], self.context)
            self._locations[key] = location
        return location

    def fail(self, message: str, form: Form | Span) -> NoReturn:
        """Raise the one error: at the form, or at the user's own call where the form stands in the library."""
        raise self.error(message, form)

    def refuse(self, message: str, form: Form | Span) -> NoReturn:
        """Raise the error that a program itself states: where that is the library's, its own lines explain nothing."""
        found = self.error(message, form)
        found.expanded_from = [(what, span) for what, span in found.expanded_from if not places.in_library(span)]
        raise found

    def error(self, message: str, form: Form | Span) -> UserError:
        """What fail raises."""
        span = form if isinstance(form, Span) else form.span
        return places.placed(message, span, [(frame.what, frame.form.span) for frame in reversed(self.frames)])

    def spans_of(self, location: ir.Location) -> list[Span]:
        """The forms that a location of an op stands for, innermost first."""
        return places.spans_of(str(location), self._sources)

    def warn(self, message: str, form: Form | Span) -> None:
        """Keep what a user should know but may mean, once for a place."""
        warning = self.error(message, form)
        if not any(str(known.span) == str(warning.span) for known in self.warnings):
            self.warnings.append(warning)

    def verify(self, operation: Any, form: Form) -> None:
        """MLIR's own verifier, its diagnostics turned into the error at the form they are about."""
        try:
            operation.verify()
        except ir.MLIRError as error:
            raise self.diagnosed(error, form) from None

    def diagnosed(self, error: ir.MLIRError, form: Form) -> UserError:
        """The user's error for MLIR's first diagnostic."""
        for diagnostic in error.error_diagnostics:
            spans = self.spans_of(diagnostic.location)
            message = places.whole_message(diagnostic)
            if not spans:
                return self.error(message, form)
            return places.placed(message, spans[0], [("here", s) for s in spans[1:]])
        return self.error(str(error), form)
