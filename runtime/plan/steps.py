"""The steps of a plan: what each does to which bytes of which buffers.

A kind of step is a frozen dataclass with a `kind`, the `arguments` that say which bytes it reads and writes, and
`to_json` and `from_json`; it is listed in `STEP_KINDS`, and devices that can run it do so in their `prepare`.  Whoever
orders, checks or fuses steps reads their arguments alone and needs to know no kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from lispgpt.base.access import READ, READ_WRITE, WRITE, Region
from lispgpt.base.dtypes import COLLECTIVE_DTYPES
from lispgpt.base.html import table

LARGEST = 1 << 46
"""Bytes of a buffer: no machine has more."""


@dataclass(frozen=True)
class Argument(Region):
    """The address `offset` bytes into a buffer, of which a step touches `nbytes`, as `access` says."""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Argument:
        return Argument(text(data["buffer"]), whole(data["offset"]), whole(data["nbytes"]), text(data["access"]))


class Step(Protocol):
    """One thing that an entry does."""

    kind: ClassVar[str]

    @property
    def arguments(self) -> tuple[Argument, ...]: ...

    @property
    def label(self) -> str:
        """What it does, for people."""


@dataclass(frozen=True)
class Launch:
    """One kernel over a grid of blocks.

    On a CPU a block is one call of the kernel and `block` is (1, 1, 1).  shared_bytes is dynamic shared memory.
    forms: the program's forms that it computes, such as "gpt2.lisp:28:13"; a library's where the program has none.
    """

    kind: ClassVar[str] = "launch"

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Argument, ...]
    forms: tuple[str, ...] = ()

    @staticmethod
    def from_json(data: Mapping[str, Any], forms: Sequence[str] = ()) -> Launch:
        """forms: those of the plan, whose numbers a step says; IndexError where it says another."""
        return Launch(
            text(data["kernel"]),
            _extents(data["grid"]),
            _extents(data["block"]),
            whole(data["shared_bytes"]),
            tuple(map(Argument.from_json, data["arguments"])),
            tuple(text(forms[whole(number)]) for number in data.get("forms", ())),
        )

    @property
    def label(self) -> str:
        """The kernel, and the form of the program that it begins with: such as "attention_1x12@gpt2.lisp:31"."""
        return f"{self.kernel}@{self.forms[0].rpartition(':')[0]}" if self.forms else self.kernel

    def _repr_html_(self) -> str:
        """What notebooks show: the kernel's size, its forms, and what it reads and writes."""
        sizes = f"{'x'.join(map(str, self.grid))} blocks of {'x'.join(map(str, self.block))}"
        about = f"{self.label}: {sizes}, {self.shared_bytes:,} bytes of dynamic shared memory; {', '.join(self.forms)}"
        rows = [(a.access, a.buffer, f"{a.offset:,}", f"{a.nbytes:,}") for a in self.arguments]
        return table(about, ("access", "buffer", "from byte", "bytes"), rows)

    def facts(self) -> dict[str, Any]:
        """What machine code was made for, which every launch of the kernel has to keep to."""
        return {
            "grid": list(self.grid),
            "block": list(self.block),
            "shared_bytes": self.shared_bytes,
            "arguments": [argument.nbytes for argument in self.arguments],
            "access": [argument.access for argument in self.arguments],
        }


ALL_REDUCE, ALL_REDUCE_MAX, ALL_REDUCE_MIN, BROADCAST = "all_reduce", "all_reduce_max", "all_reduce_min", "broadcast"
ALL_GATHER, REDUCE_SCATTER, ALL_SLICE = "all_gather", "reduce_scatter", "all_slice"
PAIRED = (ALL_GATHER, REDUCE_SCATTER, ALL_SLICE)
REDUCING = (ALL_REDUCE, ALL_REDUCE_MAX, ALL_REDUCE_MIN)
OPERATIONS = (*REDUCING, BROADCAST, *PAIRED)


@dataclass(frozen=True)
class Collective:
    """What all devices of a group do together, each with memory of its own, whatever else they do meanwhile.

    "all_reduce": every argument becomes the sum of all devices', by "all_reduce_max" and "all_reduce_min" the largest
    and the least of them (of a NaN, what the engine makes).  "broadcast": every argument becomes that of device 0.
    The others have pairs of a source and a target: "reduce_scatter" makes a target this device's part of the sum of the
    sources, "all_slice" this device's part of its own source, "all_gather" all devices' sources one after another.
    dtypes: of the arguments' elements.  A sum adds in the same order on every device, so that all have the same bits.
    """

    kind: ClassVar[str] = "collective"

    operation: str
    devices: int
    dtypes: tuple[str, ...]
    arguments: tuple[Argument, ...]

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Collective:
        arguments = tuple(map(Argument.from_json, data["arguments"]))
        return Collective(text(data["operation"]), whole(data["devices"]), tuple(map(text, data["dtypes"])), arguments)

    @property
    def label(self) -> str:
        """Such as "all_reduce of 14 buffers, 1.2 MB, by 2 devices"."""
        count = len(self.arguments)
        buffers = f"{count} buffer{'s' * (count != 1)}, {sum(a.nbytes for a in self.arguments) / 1e6:.1f} MB"
        return f"{self.operation} of {buffers}, by {self.devices} devices"

    @property
    def pairs(self) -> tuple[tuple[Argument, Argument, str], ...]:
        """What each of its parts reads and writes, and the elements' type."""
        each = 2 if self.operation in PAIRED else 1
        sources, targets = self.arguments[::each], self.arguments[each - 1 :: each]
        return tuple(zip(sources, targets, self.dtypes[::each], strict=True))

    def problem(self) -> str | None:
        """What is wrong with it beside its bounds, if anything is."""
        each = 2 if self.operation in PAIRED else 1
        wanted = (READ, WRITE) if each == 2 else (READ_WRITE,)
        if self.operation not in OPERATIONS or self.devices < 2 or not self.arguments:
            return f"no devices do {self.operation!r} of {len(self.arguments)} buffers together"
        if (
            len(self.arguments) % each
            or len(self.dtypes) != len(self.arguments)
            or not set(self.dtypes) <= set(COLLECTIVE_DTYPES)
        ):
            return "its buffers are not what its operation takes"
        if tuple(a.access for a in self.arguments) != wanted * (len(self.arguments) // each):
            return "its access is not what its operation does"
        lengths = [sorted((source.nbytes, target.nbytes)) for source, target, _ in self.pairs]
        if each == 2 and any(part * self.devices != whole_ for part, whole_ in lengths):
            return f"its buffers are not parts of each other for {self.devices} devices"
        return None


def text(value: Any) -> str:
    """A name from JSON; TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} should be a name")
    return value


def whole(value: Any) -> int:
    """A number from JSON that is whole, not negative and no more than memory has bytes; TypeError for anything else."""
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise TypeError(f"{value!r} should be a number from 0 to {LARGEST}")
    return value


def _extents(values: Any) -> tuple[int, int, int]:
    x, y, z = map(whole, values)
    return x, y, z
