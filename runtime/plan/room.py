"""Whether a device has room for all that a plan surely takes: what is known before anything is put there."""

from __future__ import annotations

from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.plan import Buffer, Entry, Plan

WRITTEN = ("input", "result", "arena", "made")
"""Kinds of buffers that runs fill, as weights that are only read and states that grow may never be."""

GIB = 1 << 30


def check_room(plan: Plan, room: int | None) -> None:
    """UserError where entries want more memory than there is; it names the one that wants most.

    room: bytes that the device has in all; None where that is not known.
    """
    if room is None or (needed := bytes_taken(plan)) <= room:
        return
    most = max(plan.entries, key=lambda entry: sum(buffer.nbytes for buffer in _filled(plan, entry)), default=None)
    what = "the program" if most is None else most.label
    raise UserError(
        f"{what} needs {_size(needed)} of memory, and this machine has {_size(room)}: make it smaller "
        "(--batch, --length, --shape, --context)"
    )


def bytes_taken(plan: Plan) -> int:
    """Bytes that running all entries takes at least: what steps write, and states that do not grow."""
    found = {buffer.name: buffer.nbytes for entry in plan.every for buffer in _filled(plan, entry)}
    return sum(found.values())


def _filled(plan: Plan, entry: Entry) -> list[Buffer]:
    arguments = [argument for step in entry.steps for argument in step.arguments]
    used = {argument.buffer for argument in arguments} | set(entry.inputs.values()) | set(entry.results.values())
    written = {argument.buffer for argument in arguments if argument.writes}
    growing = {name for each in plan.entries for name in each.grows}
    return [
        buffer
        for buffer in plan.buffers
        if (buffer.kind in WRITTEN and buffer.name in used)
        or (buffer.kind in ("weight", "state") and buffer.name in written - growing)
    ]


def _size(nbytes: int) -> str:
    return f"{nbytes / GIB:,.1f} GiB"
