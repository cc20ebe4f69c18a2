"""The definitions of a file as a tree, and the shapes that are shown beside names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lispgpt.editor.files import File
from lispgpt.editor.scopes import Definition
from lispgpt.editor.view import View
from lispgpt.language.reader.forms import Form, head_name, show

GROUPS = ("config", "weight", "state")
SHOWN = ("local", "parameter", "value")
"""Kinds of names beside which shapes are shown."""


@dataclass
class Item:
    """A definition, or the form of several.  start to end: all of it; name_start to name_end: its name."""

    name: str
    kind: str
    start: int
    end: int
    name_start: int
    name_end: int
    detail: str = ""
    children: list[Item] = field(default_factory=list)


def outline(file: File) -> list[Item]:
    """What a file defines, in its order; what `config`, `weights` and `state` declare below them."""
    found: list[Item] = []
    groups: dict[int, Item] = {}
    for definition in sorted(file.index.top.names.values(), key=_start):
        if not definition.spans or definition.kind in ("dialect", "module", "label"):
            continue
        item = _item(definition)
        group = _group_around(file, definition) if definition.kind in GROUPS else None
        if group is None:
            found.append(item)
            continue
        if group.span.start not in groups:
            head = head_name(group) or ""
            start, end = group.span.start, group.span.end
            groups[start] = Item(head, "group", start, end, start + 1, start + 1 + len(head))
            found.append(groups[start])
        groups[group.span.start].children.append(item)
    return sorted(found, key=lambda item: item.start)


def _start(definition: Definition) -> int:
    return definition.spans[0].start if definition.spans else -1


def _item(definition: Definition) -> Item:
    name, whole = definition.spans[0], definition.form.span
    if not whole.start <= name.start <= name.end <= whole.end or definition.kind == "config":
        whole = name
    parameters = definition.parameters
    detail = show(parameters, 80) if parameters is not None else ""
    if definition.kind in ("weight", "state"):
        detail = show(definition.form, 80)
    if definition.written is not None and not detail:
        detail = show(definition.written, 60)
    return Item(definition.name, definition.kind, whole.start, whole.end, name.start, name.end, detail)


def _group_around(file: File, definition: Definition) -> Form | None:
    start = definition.spans[0].start
    return next((form for form in file.recovered.forms if form.span.start <= start < form.span.end), None)


def shapes(view: View, start: int, end: int) -> Iterator[tuple[int, str]]:
    """Behind which places of a part of a file which shapes are shown."""
    for use in view.file.index.uses:
        if use.defines and use.definition is not None and use.definition.kind in SHOWN and start <= use.end <= end:
            noted = view.noted(use.start, use.end)
            if noted is None and len(use.definition.spans) == 1:
                noted = view.noted_of(use.definition)
            if noted is not None and noted.shape:
                yield use.end, noted.shape
