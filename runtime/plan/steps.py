"""The steps of a plan: what each does to which bytes of which buffers.

A kind of step is a frozen dataclass with a `kind`, the `arguments` that say which bytes it reads and writes, and
`to_json` and `from_json`; it is listed in `STEP_KINDS`, and devices that can run it do so in their `prepare`.  Whoever
orders, checks or fuses steps reads their arguments alone and needs to know no kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from lispgpt.base.access import Region

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


@dataclass(frozen=True)
class Launch:
    """One kernel over a grid of blocks.

    On a CPU a block is one call of the kernel and `block` is (1, 1, 1).  shared_bytes is dynamic shared memory.
    """

    kind: ClassVar[str] = "launch"

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Argument, ...]

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Launch:
        return Launch(
            text(data["kernel"]),
            _extents(data["grid"]),
            _extents(data["block"]),
            whole(data["shared_bytes"]),
            tuple(map(Argument.from_json, data["arguments"])),
        )

    def facts(self) -> dict[str, Any]:
        """What machine code was made for, which every launch of the kernel has to keep to."""
        return {
            "grid": list(self.grid),
            "block": list(self.block),
            "shared_bytes": self.shared_bytes,
            "arguments": [argument.nbytes for argument in self.arguments],
            "access": [argument.access for argument in self.arguments],
        }


STEP_KINDS: dict[str, type[Launch]] = {Launch.kind: Launch}


def step_from_json(data: Mapping[str, Any]) -> Launch:
    """A step of any kind; ValueError for a kind that is none."""
    kind = text(data["kind"])
    if kind not in STEP_KINDS:
        raise ValueError(f"no step is a {kind!r} here")
    return STEP_KINDS[kind].from_json(data)


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
