"""What GPU threads on a CPU tell each other: shuffles, broadcasts and reductions through slots in memory.

A thread stores its value in its own slot, suspends until every thread that takes part has done so, then reads.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number, where
from lispgpt.ir.diagnostics import span_of
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import constant_number
from lispgpt.passes.lower.gpu_launchers import AT_BARRIER, SLOT_BYTES, Launcher

Read = Callable[[Number], ir.Value]
"""From the number of a lane, or of a thread, to what it offered."""

COMBINE = {
    "add": ("arith.addi", "arith.addf"),
    "mul": ("arith.muli", "arith.mulf"),
    "minui": ("arith.minui", ""),
    "minsi": ("arith.minsi", ""),
    "maxui": ("arith.maxui", ""),
    "maxsi": ("arith.maxsi", ""),
    "minnumf": ("", "arith.minnumf"),
    "maxnumf": ("", "arith.maxnumf"),
    "minimumf": ("", "arith.minimumf"),
    "maximumf": ("", "arith.maximumf"),
    "and": ("arith.andi", ""),
    "or": ("arith.ori", ""),
    "xor": ("arith.xori", ""),
}
"""gpu.all_reduce operations: the op for integers, the op for floats."""


class Exchanges:
    """Rewrites of the ops that exchange values; `values` names the thread function's id, size and waiting arguments.

    A subclass says how a thread suspends.  first: the number of the subgroup's first thread.  padded: the threads of
    whole subgroups.
    """

    thread: Number
    threads: Number
    size: Number
    lane: Number
    first: Number
    padded: Number

    def __init__(self, launcher: Launcher, values: dict[str, ir.Value]) -> None:
        self.launcher, self.values = launcher, values
        self.index = ir.IndexType.get()
        self.i8, self.i32 = (ir.IntegerType.get_signless(n) for n in (8, 32))
        self.pointer = ir.Type.parse("!llvm.ptr")

    def suspend(self, op: ir.Operation, status: int | None = None) -> None:
        """Suspend before op, with a new status if one is given, and go on there in a new block."""
        raise NotImplementedError

    def _slot(self, row: Number, thread: Number) -> ir.Value:
        offset = (row * self.padded + thread) * SLOT_BYTES
        wide = offset.emit("arith.index_cast", element=b.i64())
        attributes = {"rawConstantIndices": ir.DenseI32ArrayAttr.get([-(2**31)]), "elem_type": ir.TypeAttr.get(self.i8)}
        return b.emit("llvm.getelementptr", [self.values["slots"], wide.value], [self.pointer], **attributes)

    def _show(self, op: ir.Operation, value: ir.Value, row: Number, status: int | None = None) -> Read:
        """Put a value into the thread's slot and suspend; what is returned reads the slot of a thread."""
        stored = _stored_type(op, value.type)
        create_op("llvm.store", [_cast(value, stored), self._slot(row, self.thread)])
        self.suspend(op, status)
        return lambda thread: _cast(b.emit("llvm.load", [self._slot(row, thread)], [stored]), value.type)

    def _offer(self, op: ir.Operation, value: ir.Value) -> Read:
        """Show value to the subgroup; what is returned reads the value of the lane that it is given."""
        turn = Number(b.load(self.values["turn"], [0], 1))
        read = self._show(op, value, turn)
        return lambda lane: read(self.first + lane)

    def _check_width(self, op: ir.Operation, width: int | None) -> None:
        """UserError where lanes would be read that no subgroup has."""
        size = self.launcher.subgroup_size
        if width is not None and width > size:
            said = f"{op.name} among {width} lanes: a subgroup has {size} on the cpu target"
            raise UserError(said, span_of(op.location))

    def _shuffle(self, op: ir.Operation) -> list[ir.Value]:
        value, offset, width = op.operands
        self._check_width(op, constant_number(width))
        mode = str(op.attributes["mode"]).split("<shuffle_mode ")[1].rstrip(">")
        read = self._offer(op, value)
        with ir.InsertionPoint(op):
            lane, distance = self.lane.emit("arith.index_cast", element=self.i32), Number(offset)
            segment = lane - lane % Number(width)
            source = {
                "xor": lambda: lane ^ distance,
                "up": lambda: lane - distance,
                "down": lambda: lane + distance,
                "idx": lambda: segment + distance,
            }[mode]()
            inside = (source - segment).is_("u<", Number(width))
            there = source.emit("arith.index_cast", element=self.index)
            valid = inside & (self.first + there).is_("u<", self.threads)
            return [read(where(valid, there, self.lane)), valid.value]

    def _rotate(self, op: ir.Operation) -> list[ir.Value]:
        offset, width = (integer(op, key) for key in ("offset", "width"))
        self._check_width(op, width)
        read = self._offer(op, op.operands[0])
        with ir.InsertionPoint(op):
            segment = self.lane - self.lane % width
            return [read(segment + (self.lane + offset) % width), b.constant(1, b.i1())]

    def _subgroup_broadcast(self, op: ir.Operation) -> list[ir.Value]:
        read = self._offer(op, op.operands[0])
        with ir.InsertionPoint(op):
            lane = op.operands[1] if len(op.operands) > 1 else b.constant(0, self.i32)
            return [read(Number(lane).emit("arith.index_cast", element=self.index))]

    def _subgroup_reduce(self, op: ir.Operation) -> list[ir.Value]:
        cluster = integer(op, "cluster_size") or self.launcher.subgroup_size
        stride = integer(op, "cluster_stride") or 1
        read = self._offer(op, op.operands[0])
        with ir.InsertionPoint(op):
            inside = self.lane % (cluster * stride)
            start = self.lane - inside + inside % stride
            stop = (start + cluster * stride).emit("arith.minui", self.threads - self.first)
            return [self._fold(op, read, start, stop, stride)]

    def _all_reduce(self, op: ir.Operation) -> list[ir.Value]:
        read = self._show(op, op.operands[0], Number(b.as_value(2)), AT_BARRIER)
        with ir.InsertionPoint(op):
            total = self._fold(op, read, Number(b.as_value(0)), self.threads, 1)
            self.suspend(op, AT_BARRIER)
        return [total]

    def _fold(self, op: ir.Operation, read: Read, start: Number, stop: Number, step: int) -> ir.Value:
        """Combine what others offered, from start to stop, with op's operation."""

        def combine(number: ir.Value, total: ir.Value) -> list[ir.Value]:
            return [self._combine(op, total, read(Number(number)))]

        return b.loop((start + step).value, stop.value, step, [read(start)], combine)[0]

    def _combine(self, op: ir.Operation, a: ir.Value, other: ir.Value) -> ir.Value:
        if "op" not in op.attributes:
            raise UserError(f"{op.name} with a body of its own cannot run on the cpu target", span_of(op.location))
        kind = str(op.attributes["op"]).split("<all_reduce_op ")[1].rstrip(">")
        return Number(a).emit(COMBINE[kind][Number(a).is_real], Number(other)).value


def _cast(value: ir.Value, type_: ir.Type) -> ir.Value:
    return value if value.type == type_ else b.emit("arith.index_cast", [value], [type_])


def _stored_type(op: ir.Operation, type_: ir.Type) -> ir.Type:
    """The type that travels through a slot; UserError where it is too large."""
    if isinstance(type_, ir.IndexType):
        return b.i64()
    element, count = b.element_of(type_), prod(type_.shape) if isinstance(type_, ir.VectorType) else 1
    if not isinstance(element, (ir.IntegerType, ir.FloatType)) or element.width * count > 8 * SLOT_BYTES:
        raise UserError(f"{op.name} of {type_} cannot run on the cpu target", span_of(op.location))
    return type_


def integer(op: ir.Operation, key: str) -> int:
    """An integer attribute; 0 where it is missing."""
    return ir.IntegerAttr(op.attributes[key]).value if key in op.attributes else 0
