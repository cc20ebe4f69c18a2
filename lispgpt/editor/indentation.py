"""Indentation: where each line of a program begins; line breaks stay where the author put them.

A line of a list that has a body starts two columns after its bracket, of another call under the first argument, of a
vector or map behind the bracket.  Strings, comments and single blank lines are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lispgpt.base.source import Source
from lispgpt.editor.tokens import Token, tokens_of
from lispgpt.language.reader.forms import Sequence, Symbol, Vector

WITH_BODY = {
    *("let", "if", "fn", "region", "block", "module", "when", "while", "for", "loop", "entry", "kernel", "launch"),
    *("weights", "state", "per", "some", "generate", "require", "compilation", "compilation-gpu", "compilation-cpu"),
    *("target", "passes", "func-passes", "gpu-passes", "stage", "pipeline", "extern-fn", "schedule"),
}
"""Forms whose lines are indented by two; so are `def…`, what binds a vector of names, and ops, which have a dot."""


@dataclass
class _Open:
    """A bracket that is open: its column in the output, its form's name, and where its first argument began."""

    column: int
    bracket: str
    head: str = ""
    items: int = 0
    binds: bool = False
    first_argument: int | None = None

    def indent(self) -> int:
        if self.bracket != "(" or not self.head:
            return self.column + 1
        op = "." in self.head.strip(".") and not self.head.endswith((".yield", ".return"))
        if self.binds or op or self.head in WITH_BODY or self.head.startswith("def"):
            return self.column + 2
        return self.first_argument if self.first_argument is not None else self.column + 2


@dataclass
class _Printer:
    """The text so far, and the brackets that are open."""

    lines: list[str] = field(default_factory=lambda: [""])
    open: list[_Open] = field(default_factory=list)

    @property
    def column(self) -> int:
        return len(self.lines[-1])

    def new_line(self, blank: bool) -> None:
        self.lines[-1] = self.lines[-1].rstrip()
        if blank and any(self.lines):
            self.lines.append("")
        if self.lines != [""]:
            self.lines.append("")

    def indent(self) -> None:
        if self.column == 0 and self.open:
            self.lines[-1] = " " * self.open[-1].indent()

    def write(self, text: str) -> None:
        """Text that may hold line breaks of its own (a string)."""
        first, *rest = text.split("\n")
        self.lines[-1] += first
        self.lines += rest


def indented(source: Source) -> str:
    """The source's text, indented; UserError where it does not read."""
    printer = _Printer()
    place = 0
    for token in tokens_of(source):
        _gap(printer, source.text[place : token.start], token.text)
        _token(printer, token)
        place = token.end
    _gap(printer, source.text[place:], "")
    return "\n".join(printer.lines).rstrip() + "\n" if any(printer.lines) else ""


def _gap(printer: _Printer, gap: str, following: str) -> None:
    """What stands between two tokens: line breaks, comments, or one space where one is wanted."""
    pieces = gap.split("\n")
    for number, piece in enumerate(pieces):
        comment = piece.strip()
        if number > 0:
            blank = not comment and number < len(pieces) - 1
            if not blank:
                printer.new_line(blank=number > 1 and not pieces[number - 1].strip() and following not in ")]}")
        if comment:
            _comment(printer, piece, own_line=number > 0 or not any(printer.lines))
    if len(pieces) == 1 and printer.column and following:
        printer.write(gap.replace("\t", " ") or ("" if _touches(printer, following) else " "))


def _comment(printer: _Printer, piece: str, own_line: bool) -> None:
    if own_line:
        printer.indent()
        printer.write(piece.strip())
    else:
        text = piece.replace("\t", " ").rstrip()
        printer.write(text if text.startswith(" ") else " " + text)


def _touches(printer: _Printer, following: str) -> bool:
    line = printer.lines[-1]
    return following in (")", "]", "}") or line.endswith(("(", "[", "{", "'", "`", "~", "~@"))


def _token(printer: _Printer, token: Token) -> None:
    text, form = token.text, token.form
    if text in (")", "]", "}") and form is None:
        if printer.column == 0:
            printer.indent()
        printer.open.pop()
        printer.write(text)
        return
    printer.indent()
    if printer.open:
        parent = printer.open[-1]
        parent.items += 1
        if parent.items == 2 and parent.head and printer.lines[-1].strip():
            parent.first_argument = printer.column
    if isinstance(form, Sequence):
        head = form.items[0] if form.items else None
        name = head.name if isinstance(head, Symbol) and text == "(" else ""
        binds = len(form.items) > 2 and isinstance(form.items[1], Vector)
        printer.open.append(_Open(printer.column, text, name, binds=binds))
    printer.write(text)
