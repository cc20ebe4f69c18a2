"""What pipelines may not ask of MLIR's passes: pipelines are data, and a few passes write files, read others or start
programs that an option, or the module, names."""

from __future__ import annotations

import re
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.source import Span
from lispgpt.ir.mlir import ir
from lispgpt.passes.targets.binary import linker_toolkit

TO_BINARY = "gpu-module-to-binary"
REFUSED = {
    "snapshot-op-locations": "writes a file",
    "transform-interpreter": "runs what a module or a file tells it to, such as passes that write files",
    "transform-preload-library": "reads programs of transformations",
}
"""Passes, and what they do."""

ALLOWED = {TO_BINARY: ("format", "section", "toolkit")}
"""Of a pass, the only options that are known to be harmless."""

LINKS = ("l", "cmd-options")
"""Options of passes that attach a target: files of code to link, and words for the vendor's assembler."""

TOLD = re.compile(r"\blink\s*=|cmd-options")
"""The same in the attribute of a module's target."""


def refuse_effects(name: str, options: tuple[tuple[str, Any], ...], span: Span | None = None) -> None:
    """UserError for a pass call of a pipeline that reaches beyond the module, or holds such a call in an option."""
    text = " ".join((name, *(str(value) for _, value in options)))
    for refused, does in REFUSED.items():
        if re.search(rf"(?<![\w-]){refused}(?![\w-])", text):
            raise UserError(f"{refused} {does}, and pipelines are data: it may not be in one", span)
    for option, value in options:
        harmless = option in ALLOWED.get(name, (option,)) and not (name.endswith("-attach-target") and option in LINKS)
        own = option != "toolkit" or str(value) == str(linker_toolkit())
        if not harmless or not own or TO_BINARY in str(value):
            raise UserError(
                f"{name}'s {option} may name files and programs, and pipelines are data: leave it out", span
            )


def refuse_linked(module: ir.Module) -> None:
    """UserError for a GPU's module whose target names files to link, or words for the vendor's assembler."""
    found: list[Any] = []

    def look(op: Any) -> ir.WalkResult:
        if TOLD.search(str(op.operation.attributes.get("targets", ""))):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    if found:
        raise UserError("the target of a gpu.module names files to link or words for an assembler: remove these")
