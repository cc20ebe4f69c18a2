"""What a compiled entry is: buffers and a flat list of launches, and the checks that a plan passes before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lispgpt.errors import UserError

ITEM_BYTES = {"f32": 4, "bf16": 2, "i32": 4, "i8": 1}
KINDS = ("weight", "state", "input", "result", "arena")
SETTINGS = 7
"""Words of i32 that say how the tokens of one sequence are drawn; see `samplers.weighted.Weighted.settings`."""
LARGEST = 1 << 46
"""Bytes of a buffer: no machine has more."""


@dataclass(frozen=True)
class Buffer:
    """One allocation of a session.

    kind: "weight", "state" and "arena" are shared by the entries that name them; "input" and "result" belong to the
    host's side of a step.  shape and dtype ("f32", "bf16", "i32", "i8") say how the bytes are read, row-major.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        size = ITEM_BYTES[self.dtype]
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True)
class Argument:
    """A kernel argument: the address `offset` bytes into a buffer, of which the kernel touches `nbytes`."""

    buffer: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Launch:
    """One kernel over a grid of blocks; launches of an entry run one after another.

    On a CPU a block is one call of the kernel and `block` is (1, 1, 1).  shared_bytes is dynamic shared memory.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Entry:
    """An entry compiled for `batch` sequences of `positions` positions each.

    advance: whether a run leaves its `next` tokens and the positions after them in its own first two inputs.
    drawn: whether it draws `next` by a third input, i32 [batch, SETTINGS], instead of taking the most probable tokens.
    """

    name: str
    batch: int
    positions: int
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    launches: tuple[Launch, ...]
    advance: bool = False
    drawn: bool = False


@dataclass(frozen=True)
class Plan:
    """All entries of an artifact and the buffers they use."""

    buffers: tuple[Buffer, ...]
    entries: tuple[Entry, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Plan:
        """Rebuild a plan; a missing or misshapen field is a UserError that names the plan."""
        try:
            buffers = tuple(
                Buffer(_text(b["name"]), _text(b["kind"]), tuple(b["shape"]), _text(b["dtype"]))
                for b in data["buffers"]
            )
            entries = tuple(_entry_from_json(e) for e in data["entries"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"the artifact's plan is damaged: {type(error).__name__} {error}") from error
        return Plan(buffers, entries)

    def validate(self, kernels: Mapping[str, Mapping[str, Any]]) -> None:
        """Check names, kinds, bounds and alignment; UserError names the first launch that breaks them.

        kernels: what the artifact's machine code has: name → `launch_facts`.  Arguments start at whole elements, those
        in untyped memory at multiples of 4 bytes.
        """
        buffers: dict[str, Buffer] = {}
        for buffer in self.buffers:
            if buffer.name in buffers or buffer.kind not in KINDS or buffer.dtype not in ITEM_BYTES:
                raise UserError(f"the artifact's plan is damaged: buffer {buffer.name!r}")
            if any(type(n) is not int or n < 0 for n in buffer.shape) or buffer.nbytes > LARGEST:
                raise UserError(f"the artifact's plan is damaged: shape of buffer {buffer.name!r}")
            buffers[buffer.name] = buffer
        for entry in self.entries:
            for kind, names in (("input", entry.inputs), ("result", entry.results)):
                for name in names:
                    if name not in buffers or buffers[name].kind != kind:
                        raise UserError(f"the artifact's plan is damaged: entry {entry.name!r} has no {kind} {name!r}")
            rows = Buffer("", "input", (entry.batch, entry.positions), "i32").nbytes
            settings = Buffer("", "input", (entry.batch, SETTINGS), "i32").nbytes
            sizes = [rows, rows, settings][: 3 if entry.drawn else 2]
            if [buffers[name].nbytes for name in entry.inputs] != sizes:
                raise UserError(f"the artifact's plan is damaged: inputs of entry {entry.name!r}")
            for index, launch in enumerate(entry.launches):
                problem = _launch_problem(launch, buffers, kernels)
                if problem:
                    where = f"launch {index} of entry {entry.name!r} ({launch.kernel})"
                    raise UserError(f"the artifact's plan is damaged: {where}: {problem}")


def _entry_from_json(data: Mapping[str, Any]) -> Entry:
    launches = tuple(
        Launch(
            _text(launch["kernel"]),
            _extents(launch["grid"]),
            _extents(launch["block"]),
            int(launch["shared_bytes"]),
            tuple(Argument(_text(a["buffer"]), int(a["offset"]), int(a["nbytes"])) for a in launch["arguments"]),
        )
        for launch in data["launches"]
    )
    inputs, results = tuple(map(_text, data["inputs"])), tuple(map(_text, data["results"]))
    advance, drawn = bool(data.get("advance", False)), bool(data.get("drawn", False))
    batch, positions = int(data["batch"]), int(data["positions"])
    return Entry(_text(data["name"]), batch, positions, inputs, results, launches, advance, drawn)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} should be a name")
    return value


def _extents(values: Any) -> tuple[int, int, int]:
    x, y, z = (int(v) for v in values)
    return x, y, z


def launch_facts(launch: Launch) -> dict[str, Any]:
    """What machine code was made for, which every launch of the kernel has to keep to."""
    return {
        "grid": list(launch.grid),
        "shared_bytes": launch.shared_bytes,
        "arguments": [argument.nbytes for argument in launch.arguments],
    }


def _launch_problem(
    launch: Launch, buffers: Mapping[str, Buffer], kernels: Mapping[str, Mapping[str, Any]]
) -> str | None:
    if launch.kernel not in kernels:
        return "no such kernel in the machine code"
    if min(*launch.grid, *launch.block) < 1 or launch.shared_bytes < 0:
        return "empty grid or block"
    facts = launch_facts(launch)
    for name, made_for in kernels[launch.kernel].items():
        if name in facts and facts[name] != made_for:
            return f"its {name} {facts[name]} should be {made_for}"
    for argument in launch.arguments:
        buffer = buffers.get(argument.buffer)
        if buffer is None:
            return f"no buffer {argument.buffer!r}"
        if argument.offset < 0 or argument.nbytes < 0 or argument.offset + argument.nbytes > buffer.nbytes:
            return f"bytes {argument.offset}…{argument.offset + argument.nbytes} of {buffer.name!r} ({buffer.nbytes})"
        alignment = ITEM_BYTES[buffer.dtype] if buffer.dtype != "i8" else 4
        if argument.offset % alignment:
            return f"offset {argument.offset} of {buffer.name!r} is not a multiple of {alignment}"
    return None
