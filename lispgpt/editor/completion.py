"""Completions and signatures: what may stand at a place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lispgpt.editor import knowledge
from lispgpt.editor.files import Meaning
from lispgpt.editor.view import View
from lispgpt.ir.op_list import listed_ops
from lispgpt.language.forms.modules import LIBRARY
from lispgpt.language.reader.forms import Form, Keyword, List, Symbol, head_name
from lispgpt.reference.entry import Entry

_WORD = re.compile(r"[^\s()\[\]{}'`~\",;]*$")


@dataclass(frozen=True)
class Candidate:
    """A name that may stand at a place.  rank: candidates of lower ranks come first.  library: the one that has it.
    requires: whether that has to be required for it."""

    name: str
    kind: str
    rank: int
    detail: str = ""
    library: str = ""
    requires: bool = False


def completions(view: View, offset: int) -> tuple[list[Candidate], int]:
    """The candidates for the word before a place, best first, and where the word starts."""
    found = _WORD.search(view.file.text, 0, offset)
    word = found.group() if found else ""
    start = offset - len(word)
    if view.in_comment(offset):
        return [], start
    if (string := view.string_at(offset)) is not None:
        path = view.file.text[string.span.start + 1 : offset]
        heads = view.heads_around(offset)
        return (list(_files(view, path)) if heads[:1] == ["require"] else []), string.span.start + 1
    every = _candidates(view, offset, word)
    wanted = word.lower()
    unique: dict[str, Candidate] = {}
    for each in every:
        if each.name.lower().startswith(wanted) or (wanted and wanted in each.name.lower()):
            unique.setdefault(each.name, each)
    return sorted(unique.values(), key=lambda c: (not c.name.lower().startswith(wanted), c.rank, c.name)), start


def _candidates(view: View, offset: int, word: str) -> Iterator[Candidate]:
    heads = view.heads_around(offset)
    head = heads[0] if heads else ""
    if word.startswith(":"):
        yield from _keywords(view, heads)
    elif head == "require":
        yield from (Candidate(name, "module", 0, "library") for name in knowledge.libraries())
    elif head in ("require-dialect", "use-dialect"):
        yield from (Candidate(name, "module", 0, "dialect") for name in knowledge.dialects())
    else:
        yield from _names(view, offset)
        if "." in word:
            yield from _ops(view, word)
        yield from _language(view)


def _keywords(view: View, heads: list[str]) -> Iterator[Candidate]:
    """Those of the forms around, and those that the file has."""
    for head in heads:
        yield from (Candidate(f":{name}", "keyword", 0, head) for name in knowledge.FORM_KEYWORDS.get(head, ()))
    waiting: list[Form] = list(view.file.recovered.forms)
    while waiting:
        form = waiting.pop()
        if isinstance(form, Keyword):
            yield Candidate(f":{form.name}", "keyword", 1)
        waiting += getattr(form, "items", ())


def _names(view: View, offset: int) -> Iterator[Candidate]:
    """What is bound around the place, in the file, in files that it requires, and by macros."""
    top = view.file.index.top
    for definition in top.at(offset).visible():
        if definition.spans:
            noted = view.noted_of(definition)
            detail = (noted.shape if noted else "") or _detail(Meaning(view.file, definition))
            own = 1 if top.names.get(definition.name) is definition else 0
            yield Candidate(definition.name, definition.kind, own, detail)
    for name, meaning in view.files.outside(view.file).items():
        library = meaning.file.path.stem if meaning.file.path.is_relative_to(LIBRARY) else ""
        yield Candidate(name, meaning.definition.kind, 2, _detail(meaning), library)
    for name, (macro, kind) in (view.checked.expansions if view.checked else {}).items():
        yield Candidate(name, "value", 1, kind or f"defined by {macro}")


def _detail(meaning: Meaning) -> str:
    signature = knowledge.signature_of(meaning)
    return signature if signature != meaning.definition.name else meaning.definition.kind


def _ops(view: View, word: str) -> Iterator[Candidate]:
    """Ops of the dialect that a word begins with, under the name that the file has for it."""
    space = word.partition(".")[0]
    used = (use.name for use in view.file.index.uses if use.name.startswith(f"{space}."))
    for name in {*listed_ops(), *used}:
        if name.startswith(f"{space}."):
            yield Candidate(name, "op", 3, "op")


def _language(view: View) -> Iterator[Candidate]:
    for name, entry in knowledge.forms().items():
        yield Candidate(name, "form", 3, entry.signature)
    yield from (Candidate(name, "type", 3, "type") for name in knowledge.TYPES)
    yield from (Candidate(name, "constant", 3) for name in knowledge.CONSTANTS)
    for key, entry in knowledge.library().items():
        file = key.partition("/")[0]
        if file in knowledge.libraries() and file != "core":
            yield Candidate(entry.name, "library", 4, f"{entry.signature}, with (require {file})", file, True)


def explained(name: str, library: str) -> str:
    """The text of a candidate's entry in the reference; empty where there is none."""
    entry = knowledge.library().get(f"{library}/{name}") if library else knowledge.forms().get(name)
    return entry.text if entry is not None else ""


def _files(view: View, begun: str) -> Iterator[Candidate]:
    """Programs beside this one, for `(require "…")`."""
    folder, _, name = begun.rpartition("/")
    where = view.file.path.parent / folder
    try:
        entries = sorted(where.iterdir())[:200]
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(name) and entry != view.file.path and (entry.suffix == ".lisp" or entry.is_dir()):
            path = f"{folder}/{entry.name}" if folder else entry.name
            yield Candidate(path + ("/" if entry.is_dir() else ""), "file", 0)


@dataclass(frozen=True)
class Signature:
    """A call in the making.  active: which of the parameters is being written."""

    label: str
    parameters: list[str]
    active: int
    text: str = ""


def signature(view: View, offset: int) -> Signature | None:
    """The innermost call around a place whose parameters are known."""
    if view.in_comment(offset) or view.string_at(offset) is not None:
        return None
    for form in reversed(view.path_to(offset)):
        whole = form.span.end < offset or (form.span.end == offset and view.file.text[offset - 1 : offset] == ")")
        if not isinstance(form, List) or not form.span.start < offset or whole or head_name(form) is None:
            continue
        head = form.items[0]
        assert isinstance(head, Symbol)
        use = view.file.index.use_at(head.span.start)
        meaning = view.meaning(use) if use is not None else None
        entry = knowledge.entry_of(meaning, head.name)
        known = knowledge.parameters_of(meaning, entry)
        if known is not None and offset > head.span.end:
            label, parameters = known
            return Signature(label, parameters, _active(parameters, form, offset), _text(meaning, entry))
    return None


def _active(parameters: list[str], form: List, offset: int) -> int:
    """Which parameter the place is in: what follows `&` takes all further arguments."""
    written = sum(1 for item in form.items[1:] if item.span.end < offset)
    many = bool(parameters) and (parameters[-1].startswith("& ") or "…" in parameters[-1])
    return min(written, len(parameters) - 1) if many else written


def _text(meaning: Meaning | None, entry: Entry | None) -> str:
    if entry is not None:
        return entry.text
    return knowledge.comment_above(meaning) if meaning is not None else ""
