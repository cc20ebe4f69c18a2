"""MLIR's diagnostics as values: what was said and at which place of the program."""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source, Span
from lispgpt.ir.mlir import ir, passmanager

PLACE = re.compile(r'loc\((?:callsite\()?(?:"[^"]*"\()?"(?P<file>[^"]+)":(?P<line>\d+):(?P<column>\d+)')
FORM_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[()\[\]{}]|;[^\n]*|[^\s()\[\]{}";]+')
ANY_PLACE = re.compile(r'"(?P<file>[^"]+)":(?P<line>\d+):(?P<column>\d+)')


class Diagnostics:
    """Collects the diagnostics of a context while it is open, instead of letting MLIR print them."""

    def __init__(self, context: ir.Context) -> None:
        self.context = context
        self.errors: list[tuple[str, str]] = []
        self._handler: Any = None

    def __enter__(self) -> Diagnostics:
        def collect(diagnostic: ir.Diagnostic) -> bool:
            if diagnostic.severity == ir.DiagnosticSeverity.ERROR:
                self.errors.append((diagnostic.message, str(diagnostic.location)))
            return True

        self._handler = self.context.attach_diagnostic_handler(collect)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._handler.detach()
        self._handler = None  # it knows this object, which Python does not see: they would keep each other for ever

    def check(self) -> None:
        """Fail where a pass reported an error and nevertheless succeeded."""
        if self.errors:
            raise UserError(self.text(), self.span())

    def text(self) -> str:
        return "; ".join(message.splitlines()[0] for message, _ in self.errors[:3])

    def span(self) -> Span | None:
        """The first place in a file that an error named."""
        spans = (span_of(location) for _, location in self.errors)
        return next((span for span in spans if span is not None), None)


def run_passes(pipeline: str, module: ir.Module) -> None:
    """Run MLIR's passes while Diagnostics are open, which then have what they report; MLIRError where one fails.

    Of a pass that reports an error and succeeds all the same, MLIR's bindings would end the process, as nobody asks
    them for what it said.
    """
    manager, context = passmanager.PassManager.parse(pipeline), module.context
    before, context.emit_error_diagnostics = context.emit_error_diagnostics, True
    try:
        manager.run(module.operation)
    finally:
        context.emit_error_diagnostics = before


def mlir_message(error: Any) -> str:
    """What MLIR said when it raised an error, which it may have kept to the error alone."""
    said = [diagnostic.message.splitlines()[0] for diagnostic in error.error_diagnostics if diagnostic.message]
    return "; ".join(said[:3]) or " ".join(str(error).split())


def span_of(location: object) -> Span | None:
    """The innermost place in a file that an MLIR location names, as one character; None where there is none."""
    found = PLACE.search(str(location))
    return _span(found) if found is not None else None


def form_of(location: object) -> Span | None:
    """The whole form at the innermost place that an MLIR location names; None where it names none."""
    span = span_of(location)
    if span is None:
        return None
    depth = 0
    for token in FORM_TOKENS.finditer(span.source.text, span.start):
        depth += (token[0] in "([{") - (token[0] in ")]}")
        if depth == 0:
            return Span(span.source, span.start, token.end())
    return span


def users_span(location: object) -> Span | None:
    """The outermost place in a file that an MLIR location names: of the user's form, not of a library's."""
    found = [match for match in ANY_PLACE.finditer(str(location)) if Path(match["file"]).is_file()]
    return _span(found[-1]) if found else None


def _span(found: re.Match[str]) -> Span | None:
    path = Path(found["file"])
    text = path.read_text(errors="replace") if path.is_file() else "\n" * int(found["line"])
    source = Source(found["file"], text)
    if int(found["line"]) > text.count("\n") + 1:
        return None
    start = source.offset(int(found["line"]), int(found["column"]))
    return Span(source, start, start + 1)
