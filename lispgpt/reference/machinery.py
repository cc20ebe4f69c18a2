"""Entries of what stands behind the language: passes with their options, targets, devices."""

from __future__ import annotations

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
from lispgpt.runtime.devices import device_kinds, device_module


def passes() -> Iterator[Entry]:
    """One for each pass that this package has in Python."""
    used = _used()
    for module in sorted(path.stem for path in base.FOLDER.rglob("*.py")):
        found = base.find_pass(module.replace("_", "-"))
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


def targets() -> Iterator[Entry]:
    """One for each kind of target and each chip."""
    for kind, chips in CHIPS.items():
        first = next(iter(chips.values()))
        about = inspect.getdoc(sys.modules[type(first).__module__]) or kind
        yield Entry(kind, "target", f"--target {kind}", about, f"lispgpt compile tiny.lisp --target {kind}")
        for chip in chips.values():
            if str(chip) != kind:
                command = f"lispgpt compile tiny.lisp --target {chip}"
                yield Entry(str(chip), "target", f"--target {chip}", f"{chip.describe()}.", command)


def devices() -> Iterator[Entry]:
    """One for each file of `runtime/devices` that opens a device."""
    for kind in device_kinds():
        module = device_module(kind)
        text = inspect.getdoc(module) or ""
        example = f'lispgpt.load("tiny.lisp", target="{kind}")'
        yield Entry(f"device {kind}", "device", f'target="{kind}"', text, example, f"runtime/devices/{kind}.py")
