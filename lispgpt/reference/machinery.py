"""Entries of what stands behind the language: passes with their options, targets, devices."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

from lispgpt.passes import base
from lispgpt.passes.targets import CHIPS
from lispgpt.pipelines.pipeline_file import PIPELINES
from lispgpt.reference.entry import Entry
from lispgpt.runtime import devices as devices_of_package
from lispgpt.runtime.devices import device_kinds

COMPILE = "lispgpt compile examples/recurrence.lisp --target {} -o recurrence.lgpt"
LOAD = 'lispgpt.load("examples/recurrence.lisp", target="{}")'
OPEN = 'lispgpt.runtime.devices.open_device("null")'
DEVICES = Path(devices_of_package.__file__ or "").parent
EMULATED = "emulated"
"""A device that runs another kind's artifacts."""


def passes(only: str | None = None) -> Iterator[Entry]:
    """One for each pass that this package has in Python; or for one alone."""
    used = _used()
    for name in sorted(path.stem.replace("_", "-") for path in base.FOLDER.rglob("*.py")):
        found = base.find_pass(name) if only in (None, name) else None
        if found is None:
            continue
        source = sys.modules[found.__module__]
        options = " ".join(f":{f.name.replace('_', '-')} {_default(f.default)}" for f in fields(found))
        signature = f"(pass {found.name}{f' {{{options}}}' if options else ''})"
        text = "\n\n".join(part for part in (inspect.getdoc(source), inspect.getdoc(found) if options else "") if part)
        place = Path(source.__file__ or "").resolve().relative_to(base.FOLDER.resolve()).as_posix()
        yield Entry(
            found.name, "pass", signature, text, used.get(found.name, f"(pass {found.name})"), f"passes/{place}"
        )


def _default(value: object) -> str:
    return "…" if value is MISSING else f'"{value}"' if isinstance(value, str) else str(value).lower()


def _used() -> dict[str, str]:
    """By each pass's name how a pipeline of this package asks for it."""
    found: dict[str, str] = {}
    for path in sorted(PIPELINES.glob("*.lisp")):
        for call in re.finditer(r"\(pass ([\w-]+)(?: \{[^}]*\})?\)", path.read_text(encoding="utf-8")):
            found.setdefault(call.group(1), call.group(0))
    return found


def targets(only: str | None = None) -> Iterator[Entry]:
    """One for each kind of target and each chip; or for one alone."""
    yield from (entry for entry in _targets() if only in (None, entry.name))


def _targets() -> Iterator[Entry]:
    for kind, chips in CHIPS.items():
        first = next(iter(chips.values()))
        about = inspect.getdoc(sys.modules[type(first).__module__]) or kind
        yield Entry(kind, "target", f"--target {kind}", about, COMPILE.format(kind))
        for chip in chips.values():
            if str(chip) != kind:
                yield Entry(str(chip), "target", f"--target {chip}", f"{chip.describe()}.", COMPILE.format(chip))


def devices(only: str | None = None) -> Iterator[Entry]:
    """One for each file of `runtime/devices` that opens a device; or for one alone."""
    for kind in [*device_kinds(), EMULATED]:
        if only not in (None, f"device {kind}"):
            continue
        text = ast.get_docstring(ast.parse((DEVICES / f"{kind}.py").read_text(encoding="utf-8"))) or ""
        target = f"{kind}:gfx1151" if kind == EMULATED else kind
        example = OPEN if kind == "null" else LOAD.format(target)
        yield Entry(f"device {kind}", "device", f'target="{target}"', text, example, f"runtime/devices/{kind}.py")
