"""What is known of one version of a file: names, the check of it or of an earlier one, and what a place is in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from lispgpt.editor.checker import Checked
from lispgpt.editor.files import File, Files, Meaning
from lispgpt.editor.scopes import Definition, Use
from lispgpt.language.reader.forms import Form, List, Literal, Sequence, head_name


@dataclass(frozen=True)
class Noted:
    """What a form came to when it was checked.  operations and moved: of one evaluation."""

    kinds: list[str]
    times: int = 0
    operations: int = 0
    moved: int = 0

    @property
    def shape(self) -> str:
        """The one tensor type, as `[8 768] f32`; empty where there is none or more than one."""
        return self.kinds[0] if len(self.kinds) == 1 and self.kinds[0].startswith("[") and "]" in self.kinds[0] else ""


@dataclass(frozen=True)
class View:
    """checked: the newest check of any version of the file; None before the first."""

    files: Files
    file: File
    checked: Checked | None = None

    @cached_property
    def _place(self) -> Callable[[int], int | None]:
        return self.checked.as_in(self.file.text) if self.checked is not None else lambda _: None

    def then(self, offset: int) -> int | None:
        """Where a place was when the file was checked; None for what is new since."""
        return self._place(offset)

    def noted(self, start: int, end: int) -> Noted | None:
        """What the form from start to end came to."""
        if self.checked is None:
            return None
        first, last = self.then(start), self.then(end)
        found = self.checked.seen.get((first, last)) if first is not None and last is not None else None
        return Noted(*found) if found is not None else None

    def noted_of(self, definition: Definition) -> Noted | None:
        """What a name of this file stands for: itself, its value, or any of its uses."""
        for span in definition.spans:
            if (found := self.noted(span.start, span.end)) is not None and found.kinds:
                return found
        written = definition.written
        if written is not None and (found := self.noted(written.span.start, written.span.end)) is not None:
            return found
        uses = (self.noted(use.start, use.end) for use in self.file.index.uses_of(definition))
        return next((found for found in uses if found is not None and found.kinds), None)

    def meaning(self, use: Use) -> Meaning | None:
        """What a name of this file means, in this file or another."""
        if use.definition is not None and use.definition.spans:
            return Meaning(self.file, use.definition)
        return self.files.meaning(self.file, use.name, use.scope)

    def path_to(self, offset: int) -> list[Form]:
        """The forms around a place, outermost first."""
        found: list[Form] = []
        inside: tuple[Form, ...] = self.file.recovered.forms
        while inside:
            form = next((each for each in inside if each.span.start <= offset <= each.span.end), None)
            if form is None:
                break
            found.append(form)
            inside = form.items if isinstance(form, Sequence) else ()
        return found

    def heads_around(self, offset: int) -> list[str]:
        """The names that the lists around a place begin with, innermost first."""
        around = [form for form in self.path_to(offset) if isinstance(form, List) and form.span.start < offset]
        return [name for form in reversed(around) if (name := head_name(form))]

    def string_at(self, offset: int) -> Literal | None:
        """The string that a place is in."""
        last = next(iter(self.path_to(offset)[-1:]), None)
        inside = isinstance(last, Literal) and isinstance(last.value, str) and last.span.start < offset < last.span.end
        return last if inside else None  # type: ignore[return-value]

    def in_comment(self, offset: int) -> bool:
        """Whether a place is behind a semicolon that begins a comment."""
        line = self.file.text[self.file.text.rfind("\n", 0, offset) + 1 : offset]
        quiet = line.split(";", 1)[0]
        return ";" in line and quiet.count('"') % 2 == 0
