"""A schedule's way to say that a kernel is not for it: another schedule then takes the kernel as it was."""

from __future__ import annotations

from lispgpt.ir.mlir import attribute, ir


class Refused(Exception):
    """Raised while a schedule emits a kernel's new body.  Its text says why, for `--report`."""


def note_refusal(kernel: ir.Operation, reason: str) -> None:
    """Keep on a kernel's function, as the attribute `refused`, why a schedule left it, beside earlier reasons."""
    reasons = refusals(kernel)
    if reason not in reasons:
        kernel.attributes["refused"] = attribute([*reasons, reason])


def refusals(kernel: ir.Operation) -> list[str]:
    """Why schedules left a kernel, in their order."""
    return [ir.StringAttr(r).value for r in kernel.attributes["refused"]] if "refused" in kernel.attributes else []
