"""join-collectives: do several of what all devices do together at once, while the kernels behind them run.

Before:                                              After:
  call @all_reduce_f32_768(%b1)                        call @all_reduce_2(%b1, %w1)
  call @contraction_…(%dy, %x, %w1)                    …
  call @all_reduce_f32_768x768(%w1)
  …

Requires: what destination-passing ensures, and schedules after which no kernel gets more arguments; no arena yet.
Ensures: neighbours of one kind are one call, up to `bytes` of memory: where that is full, or where a kernel needs what
one of them makes.  A call that many kernels follow before any needs its memory runs beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lispgpt.ir import build as b
from lispgpt.ir.collectives import collective_functions, collective_of, declare_collective
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import constant_number, defining_op, entry_functions, operations
from lispgpt.passes.base import Pass
from lispgpt.passes.memory.kernel_buffers import byte_size
from lispgpt.passes.states import NO_ARENA, PLACED


@dataclass(frozen=True)
class JoinCollectives(Pass):
    """bytes: what a joined call may have; several small ones take longer than one of their size."""

    starts_from = (PLACED, NO_ARENA)
    bytes: int = 26214400

    def run(self, module: ir.Module, target: object) -> None:
        known = collective_functions(module)
        if not known:
            return
        for entry in entry_functions(module):
            _join(module, entry, known, self.bytes)
        used = {
            ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            for entry in entry_functions(module)
            for op in operations(entry.regions[0].blocks[0])
            if op.name == "func.call"
        }
        for name, function in collective_functions(module).items():
            if name not in used:
                function.erase()


@dataclass
class _Waiting:
    """Calls of one kind that are to be one."""

    kind: str = ""
    calls: list[ir.Operation] = field(default_factory=list)

    @property
    def arguments(self) -> list[ir.Value]:
        return [value for call in self.calls for value in call.operands]

    @property
    def nbytes(self) -> int:
        return sum(byte_size(value.type) for value in self.arguments)


def _join(module: ir.Module, entry: ir.Operation, known: dict[str, ir.Operation], most: int) -> None:
    waiting = _Waiting()
    for op in operations(entry.regions[0].blocks[0]):
        kind = collective_of(op, known)
        if waiting.calls and (kind not in (None, waiting.kind) or op.name == "func.return" or _overlap(op, waiting)):
            _call(module, waiting, op)
            waiting = _Waiting()
        if kind is not None:
            waiting.kind = kind
            waiting.calls.append(op)
            if waiting.nbytes >= most:
                _call(module, waiting, None)
                waiting = _Waiting()


def _call(module: ir.Module, waiting: _Waiting, before: ir.Operation | None) -> None:
    """Make one call of several; where the last of them is, or before an op."""
    *others, last = waiting.calls
    if others:
        arguments = waiting.arguments
        types = [value.type for value in arguments]
        name = f"{waiting.kind}_{len(collective_functions(module))}"
        name = declare_collective(module, name, waiting.kind, types)
        with ir.InsertionPoint(before or last), last.location:
            b.call(name, arguments)
        for call in waiting.calls:
            call.erase()
    elif before is not None:
        last.move_before(before)


def _overlap(op: ir.Operation, waiting: _Waiting) -> bool:
    """Whether a call touches memory that collectives are to change."""
    if op.name != "func.call":
        return False
    places = [place_of(value) for value in waiting.arguments]
    return any(
        base == other and start < last and first < end
        for base, start, end in map(place_of, op.operands)
        for other, first, last in places
    )


def place_of(value: ir.Value) -> tuple[ir.Value, int, int]:
    """The memory that a value is in, and from which byte to which."""
    view, size = defining_op(value), byte_size(value.type)
    if view is None or view.name != "memref.view":
        return value, 0, size
    start = constant_number(view.operands[1]) or 0
    return view.operands[0], start, start + size
