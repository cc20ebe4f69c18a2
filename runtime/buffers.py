"""Which of a session's buffers are made together, and which results the host may read where kernels write them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from lispgpt.base.access import WRITE
from lispgpt.runtime.devices.base import READ_LATER_BYTES, Device
from lispgpt.runtime.plan.plan import Buffer, Entry, Plan


def input_buffers(device: Device, plan: Plan, there: Collection[str]) -> dict[str, Any]:
    """Buffers for a plan's inputs that are not there yet: those of an entry are given their values together."""
    sizes = {buffer.name: buffer.nbytes for buffer in plan.buffers}
    made: dict[str, Any] = {}
    for entry in plan.entries:
        own = [*entry.inputs.values(), *([entry.up_to.size] if entry.up_to else [])]
        names = [name for name in dict.fromkeys(own) if name not in there and name not in made]
        made |= zip(names, device.alloc_together([sizes[name] for name in names]), strict=True)
    return made


def shareable(entry: Entry, declared: Mapping[str, Buffer]) -> list[str]:
    """The small results of an entry that its steps write and never read; none where it may run ahead of what is read,
    as it leaves inputs for its next run."""
    if any(map(entry.leaves, entry.inputs)):
        return []
    read = {a.buffer for step in entry.steps for a in step.arguments if a.access != WRITE}
    places = dict.fromkeys(entry.results.values())
    return [place for place in places if place not in read and 0 < declared[place].nbytes <= READ_LATER_BYTES]
