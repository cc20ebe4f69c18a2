"""Files as the editor sees them: text, forms and names, and what the files that they require add."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.project import project_root
from lispgpt.base.reading import read_text
from lispgpt.base.source import Source
from lispgpt.editor.binders import index_of, required_in
from lispgpt.editor.recovery import Recovered, recover
from lispgpt.editor.scopes import Definition, Index, Required, Scope
from lispgpt.language.forms.modules import LIBRARY
from lispgpt.language.reader.forms import Literal, Symbol, head_name

CORE = LIBRARY / "core.lisp"


@dataclass(frozen=True)
class File:
    """One version of a file's text.  typed: whether it comes from an editor, and more will follow.  files: where those
    that it requires are found, for their macros."""

    path: Path
    text: str
    typed: bool = False
    files: Files | None = field(default=None, repr=False, compare=False)

    @cached_property
    def source(self) -> Source:
        return Source(str(self.path), self.text)

    @cached_property
    def recovered(self) -> Recovered:
        return recover(self.source, self.typed)

    @cached_property
    def index(self) -> Index:
        macros = self.files.macros_for(self) if self.files is not None else {}
        return index_of(self.recovered.forms, len(self.text), macros)


@dataclass(frozen=True)
class Meaning:
    """A definition, and the file that has it."""

    file: File
    definition: Definition


FRESH = 1.0
"""Seconds for which nobody looks whether a file on the disk has changed."""


@dataclass
class _OnDisk:
    file: File | None
    changed: int
    looked: float


@dataclass
class _Outside:
    """The names that a file has from others, and the versions of those that they were found in."""

    names: dict[str, Meaning]
    sources: dict[Path, File | None]


@dataclass
class Files:
    """opened: the files that an editor has open, as they are typed.  Others are taken from the disk."""

    opened: dict[Path, File] = field(default_factory=dict)
    _disk: dict[Path, _OnDisk] = field(default_factory=dict)
    _indexing: set[Path] = field(default_factory=set)
    _outside: dict[Path, tuple[File, _Outside]] = field(default_factory=dict)

    def get(self, path: Path) -> File | None:
        """A file's newest version; None where there is none to read."""
        if path in self.opened:
            return self.opened[path]
        known, now = self._disk.get(path), time.monotonic()
        if known is not None and (now - known.looked < FRESH or path.parent == LIBRARY):
            return known.file
        try:
            changed = path.stat().st_mtime_ns
            file = known.file if known is not None and known.changed == changed else self._read(path)
        except (OSError, UserError):
            changed, file = 0, None
        self._disk[path] = _OnDisk(file, changed, now)
        return file

    def _read(self, path: Path) -> File:
        return File(path, read_text(path), files=self)

    def macros_for(self, file: File) -> dict[str, Definition]:
        """The macros that bind names, of the files that a file requires itself, by the names that it has for them."""
        found: dict[str, Definition] = {}
        if file.path in self._indexing:  # files that require each other in a circle
            return found
        self._indexing.add(file.path)
        requiring = (form for form in file.recovered.forms if head_name(form) == "require")
        for required in (each for form in requiring for each in required_in(form)):
            path = path_of(file.path, required)
            other = self.get(path) if path is not None else None
            prefix = f"{required.alias}/" if required.alias else ""
            names = other.index.top.names.values() if other is not None else ()
            found.update((prefix + d.name, d) for d in names if any(inner.binds for inner in d.inner.values()))
        self._indexing.discard(file.path)
        return found

    def outside(self, file: File) -> dict[str, Meaning]:
        """The names that a file has from others: of those that it requires, of what they require, and the core's."""
        known = self._outside.get(file.path)
        if known is None or known[0] is not file or any(self.get(p) is not f for p, f in known[1].sources.items()):
            made = _Outside({}, {})
            self._add_required(file, "", made, ())
            known = self._outside[file.path] = file, made
        return known[1].names

    def _add_required(self, file: File, prefix: str, made: _Outside, around: tuple[Path, ...]) -> None:
        """Add the names of what a file requires, of which later ones win.  around: the files that require it."""
        for path, alias in [(CORE, None), *((path_of(file.path, each), each.alias) for each in file.index.required)]:
            found = self.get(path) if path is not None and path != file.path else None
            inner = f"{prefix}{alias}/" if alias else prefix
            if path is None or path in around or (path in made.sources and not inner):
                continue
            made.sources[path] = found
            if found is not None:
                if path != CORE:
                    self._add_required(found, inner, made, (*around, file.path))
                for name, definition in found.index.top.names.items():
                    made.names[inner + name] = Meaning(found, definition)

    def meaning(self, file: File, name: str, scope: Scope | None = None) -> Meaning | None:
        """What a name means at a place of a file: of this file, of one that it requires, or of the core library."""
        found = (scope or file.index.top).find(name)
        if found is not None and found.spans:
            return Meaning(file, found)
        if (known := self.outside(file).get(name)) is not None:
            return known
        owner, _, member = name.partition("/")
        struct = file.index.top.find(owner) if member else None
        return Meaning(file, struct) if struct is not None and struct.kind == "struct" else None


def path_of(file: Path, required: Required) -> Path | None:
    """The file that a library's name, `"file"` or `"@path"` stands for."""
    named = required.form
    if isinstance(named, Symbol):
        return (LIBRARY / f"{named.name}.lisp").resolve()
    if not isinstance(named, Literal) or not isinstance(named.value, str) or "\0" in named.value or not named.value:
        return None
    if named.value.startswith("@"):
        return (project_root(file) / named.value[1:].lstrip("/")).resolve()
    return (file.parent / named.value).resolve()
