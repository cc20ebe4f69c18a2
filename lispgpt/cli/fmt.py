"""`lispgpt fmt`: one way to indent programs; line breaks stay where the author put them.

A line of a list that has a body starts two columns after its bracket, of another call under the first argument, of a
vector or map behind the bracket.  Strings, comments, single blank lines and spaces inside a line, which may align it,
are kept.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from lispgpt.base.files import replacing
from lispgpt.base.reading import read_text
from lispgpt.base.source import Source
from lispgpt.language.reader.forms import Form, List, Sequence, Symbol, Vector
from lispgpt.language.reader.reader import read

WITH_BODY = {
    *("let", "if", "fn", "region", "block", "module", "when", "while", "for", "loop", "entry", "kernel", "launch"),
    *(
        "weights",
        "state",
        "per",
        "some",
        "generate",
        "require",
        "compilation",
        "compilation-gpu",
        "compilation-cpu",
        "target",
    ),
    *("passes", "func-passes", "gpu-passes", "stage", "pipeline", "extern-fn"),
}
"""Forms whose lines are indented by two; so are `def…`, what binds a vector of names, and ops, which have a dot."""

PREFIXES = {"quote": "'", "quasiquote": "`", "unquote": "~", "splice": "~@"}


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


def format_source(source: Source) -> str:
    """The source's text, indented; UserError where it does not read."""
    forms = read(source)
    printer = _Printer()
    place = 0
    for text, start, end, form in _tokens(source.text, forms):
        _gap(printer, source.text[place:start], text)
        _token(printer, text, form)
        place = end
    _gap(printer, source.text[place:], "")
    return "\n".join(printer.lines).rstrip() + "\n" if any(printer.lines) else ""


def _tokens(text: str, forms: tuple[Form, ...]) -> Iterator[tuple[str, int, int, Form | None]]:
    """(text, start, end, form) of every bracket, prefix and atom in order; form is given with an opening bracket."""
    for form in forms:
        span = form.span
        prefix = _prefix(text, form)
        if prefix and isinstance(form, List):
            yield prefix, span.start, span.start + len(prefix), None
            yield from _tokens(text, form.items[1:])
        elif isinstance(form, Sequence):
            yield text[span.start], span.start, span.start + 1, form
            yield from _tokens(text, form.items)
            yield text[span.end - 1], span.end - 1, span.end, None
        else:
            yield text[span.start : span.end], span.start, span.end, form


def _prefix(text: str, form: Form) -> str:
    """The quote mark that a form was written with, or nothing."""
    if not isinstance(form, List) or text[form.span.start] not in "'`~":
        return ""
    head = form.items[0]
    return PREFIXES[head.name] if isinstance(head, Symbol) else ""


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
    if len(pieces) == 1 and printer.column and following and not _touches(printer, following):
        printer.write(gap.replace("\t", " ") or " ")


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


def _token(printer: _Printer, text: str, form: Form | None) -> None:
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


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Change nothing; show what would change and exit with 1 if anything would.")
def fmt(files: tuple[Path, ...], check: bool) -> None:
    """Indent programs the one way."""
    changed = False
    for path in files:
        before = read_text(path)
        after = format_source(Source(str(path), before))
        if after == before:
            continue
        changed = True
        if check:
            shown = difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), "formatted", lineterm="")
            click.echo("\n".join(shown))
        else:
            with replacing(path) as file:
                file.write(after.encode())
            click.echo(f"formatted {path}")
    if check and changed:
        raise SystemExit(1)
