"""What flows between the steps of an entry: which have to wait for which, and whether memory is shared rightly.

All of it follows from the steps' arguments: the bytes that each reads, writes, changes or adds to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lispgpt.base import access
from lispgpt.base.access import READ_WRITE, SCRATCH, WRITE
from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.plan import Buffer, Entry
from lispgpt.runtime.plan.steps import Argument, Step

GIVEN = ("weight", "made", "state", "input", "signals", "control", "kept", "device")
"""Kinds of buffers that hold something before an entry runs."""


def dependencies(steps: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    """For each step the earlier steps that it has to wait for, in order: the smallest graph of that meaning."""
    return access.dependencies([step.arguments for step in steps])


class _Contents:
    """What a buffer holds: values as (start, end, which), none over another; a value may have lost some bytes.

    which: the step that wrote it, and from where to where.
    """

    def __init__(self) -> None:
        self.parts: list[tuple[int, int, tuple[int, int, int]]] = []

    def put(self, start: int, end: int, number: int) -> None:
        """A new value takes these bytes."""
        self.spoil(start, end)
        self.parts.append((start, end, (number, start, end)))

    def spoil(self, start: int, end: int) -> None:
        """Values lose these bytes."""
        kept = []
        for first, last, value in self.parts:
            kept += [(a, b, value) for a, b in ((first, min(last, start)), (max(first, end), last)) if a < b]
        self.parts = kept

    def at(self, start: int, end: int) -> list[tuple[int, int, tuple[int, int, int]]]:
        return [(max(a, start), min(b, end), value) for a, b, value in self.parts if a < end and start < b]


def check(entry: Entry, buffers: Mapping[str, Buffer]) -> None:
    """UserError where a step reads bytes that nothing wrote, or a value that another has overwritten in part.

    Weights, what is made of them, states and inputs hold something from the start.  Elsewhere every argument that is
    read has to be one value (or a part of one) that a step wrote as a whole, or to be put together of whole ones;
    changing or adding to a value leaves it one.  So two values that are alive at once never share bytes, and no result
    is left unwritten.
    """
    contents: dict[str, _Contents] = {}
    for number, step in enumerate(entry.steps):
        where = f"step {number} of entry {entry.label} ({step.label})"
        for argument in step.arguments:
            if argument.reads and buffers[argument.buffer].kind not in GIVEN:
                _read(contents.get(argument.buffer), argument, where)
        written = [argument for argument in step.arguments if argument.writes]
        for i, argument in enumerate(written):
            if any(argument.overlaps(other) for other in written[:i]):
                raise UserError(f"{where} writes bytes {_range(argument)} twice")
            if any(argument.overlaps(other) and not other.writes for other in step.arguments):
                raise UserError(f"{where} reads bytes {_range(argument)} by one argument and writes them by another")
            if argument.access == WRITE:
                contents.setdefault(argument.buffer, _Contents()).put(argument.offset, argument.end, number)
            elif argument.access == SCRATCH:
                contents.setdefault(argument.buffer, _Contents()).spoil(argument.offset, argument.end)
    shown = {f"{report.kind} {report.form}": place for report in entry.reports for place in report.values}
    for name, place in (*entry.results.items(), *shown.items()):
        whole = Argument(place, 0, buffers[place].nbytes, READ_WRITE)
        _read(contents.get(place), whole, f"result {name!r} of entry {entry.label}")


def _read(contents: _Contents | None, argument: Argument, where: str) -> None:
    found = contents.at(argument.offset, argument.end) if contents else []
    if sum(end - start for start, end, _ in found) < argument.nbytes:
        raise UserError(f"{where} reads bytes {_range(argument)}, some of which nothing has written")
    if len({which for _, _, which in found}) > 1 and any((a, b) != which[1:] for a, b, which in found):
        writers = ", ".join(map(str, dict.fromkeys(number for _, _, (number, _, _) in found)))
        raise UserError(f"{where} reads bytes {_range(argument)}, which steps {writers} wrote over each other")


def _range(argument: Argument) -> str:
    return f"{argument.offset} to {argument.end} of {argument.buffer!r}"
