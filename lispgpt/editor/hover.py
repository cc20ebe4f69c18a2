"""Hovers: what a name or a call is, its type and shape, and its work."""

from __future__ import annotations

from lispgpt.editor import knowledge
from lispgpt.editor.files import Meaning
from lispgpt.editor.view import Noted, View
from lispgpt.language.forms.modules import LIBRARY
from lispgpt.language.reader.forms import Form, Keyword, List, Symbol, show
from lispgpt.reference.entry import Entry


def hover(view: View, offset: int) -> tuple[str, int, int] | None:
    """Markdown, and the place that it is about; None where there is nothing to say."""
    if view.in_comment(offset):
        return None
    use = view.file.index.use_at(offset)
    path = view.path_to(offset)
    if use is not None:
        meaning = view.meaning(use)
        entry = knowledge.entry_of(meaning, use.name)
        call = _call_of(path, use.start)
        noted = view.noted(call.span.start, call.span.end) if call is not None else None
        if noted is None:
            noted = view.noted(use.start, use.end)
        if (noted is None or not noted.kinds) and use.definition is not None:
            noted = view.noted_of(use.definition) or noted
        said = [*_headed(meaning, entry, use.name), *_came_to(noted), *_about(view, meaning, entry, use.name)]
        return ("\n\n".join(said), use.start, use.end) if said else None
    form = next(iter(path[-1:]), None)
    if form is None or isinstance(form, Keyword):
        return None
    said = _came_to(view.noted(form.span.start, form.span.end))
    text = "" if isinstance(form, Symbol) else f"```lisp\n{show(form, 100)}\n```"
    return ("\n\n".join([text, *said]), form.span.start, form.span.end) if said else None


def _call_of(path: list[Form], start: int) -> Form | None:
    """The call whose head stands at a place."""
    lists = [form for form in path if isinstance(form, List) and form.items and form.items[0].span.start == start]
    return lists[-1] if lists else None


def _headed(meaning: Meaning | None, entry: Entry | None, name: str) -> list[str]:
    if meaning is not None and not (entry is not None and meaning.file.path.is_relative_to(LIBRARY)):
        return [f"```lisp\n{knowledge.signature_of(meaning)}\n```\n{meaning.definition.kind}"]
    if entry is not None:
        return [f"```lisp\n{entry.signature}\n```\n{entry.kind}"]
    return [f"```lisp\n{name}\n```\nop"] if "." in name.strip(".") else []


def _came_to(noted: Noted | None) -> list[str]:
    """Types and work, each a line."""
    if noted is None or not noted.kinds:
        return []
    lines = [" or ".join(f"`{kind}`" for kind in noted.kinds) + (", …" if noted.times > 1 < len(noted.kinds) else "")]
    if noted.operations:
        each = f", each of {noted.times} times" if noted.times > 1 else ""
        lines.append(
            f"{_counted(noted.operations)} operations, {_counted(noted.moved)}B read and written before ops are "
            f"fused{each}"
        )
    return ["  \n".join(lines)]


def _counted(number: int) -> str:
    for size, letter in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number} "


def _about(view: View, meaning: Meaning | None, entry: Entry | None, name: str) -> list[str]:
    """The docstring and the place."""
    said = []
    if entry is not None and entry.text.strip():
        said.append(entry.text.strip())
        if entry.example:
            said.append(f"```lisp\n{entry.example}\n```")
    elif meaning is not None:
        said += [text for text in (knowledge.comment_above(meaning),) if text]
    if meaning is not None and meaning.file.path != view.file.path:
        line = meaning.file.source.line_column(meaning.definition.spans[0].start)[0]
        said.append(f"*{meaning.file.path.name}:{line}*")
    made = view.checked.expansions.get(name) if view.checked is not None and meaning is None else None
    if made is not None:
        said.append(f"Defined by the macro `{made[0]}`" + (f": `{made[1]}`" if made[1] else ""))
    return said
