"""What GPU threads on a CPU tell each other: shuffles, broadcasts and reductions through slots in memory.

A thread stores its value in its own slot, suspends until every thread that takes part has done so, then reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.ir.diagnostics import span_of
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.lower.gpu_launchers import AT_BARRIER, SLOT_BYTES, Launcher

Read = Callable[[ir.Value], ir.Value]

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

    A subclass says how a thread suspends.
    """

    thread: ir.Value
    threads: ir.Value
    size: ir.Value
    lane: ir.Value
    first: ir.Value
    padded: ir.Value

    def __init__(self, launcher: Launcher, values: dict[str, ir.Value]) -> None:
        self.launcher, self.values = launcher, values
        self.index = ir.IndexType.get()
        self.i8, self.i32 = (ir.IntegerType.get_signless(n) for n in (8, 32))
        self.pointer = ir.Type.parse("!llvm.ptr")

    def suspend(self, op: ir.Operation, status: int | None = None) -> None:
        """Suspend before op, with a new status if one is given, and go on there in a new block."""
        raise NotImplementedError

    def _op(self, name: str, operands: Sequence[Any], type_: ir.Type, **attributes: Any) -> ir.Value:
        return create_op(name, operands, [type_], attributes).results[0]

    def _constant(self, value: int, type_: ir.Type | None = None) -> ir.Value:
        type_ = type_ or self.index
        return self._op("arith.constant", [], type_, value=ir.IntegerAttr.get(type_, value))

    def _math(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._op(f"arith.{name}", [a, b], a.type)

    def _compare(self, predicate: int, a: ir.Value, b: ir.Value) -> ir.Value:
        i1 = ir.IntegerType.get_signless(1)
        return self._op(
            "arith.cmpi", [a, b], i1, predicate=ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
        )

    def _select(self, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._op("arith.select", [condition, a, b], a.type)

    def _slot(self, row: ir.Value, thread: ir.Value) -> ir.Value:
        number = self._math("addi", self._math("muli", row, self.padded), thread)
        offset = self._math("muli", number, self._constant(SLOT_BYTES))
        offset64 = self._op("arith.index_cast", [offset], ir.IntegerType.get_signless(64))
        attributes = {"rawConstantIndices": ir.DenseI32ArrayAttr.get([-(2**31)]), "elem_type": ir.TypeAttr.get(self.i8)}
        return self._op("llvm.getelementptr", [self.values["slots"], offset64], self.pointer, **attributes)

    def _offer(self, op: ir.Operation, value: ir.Value) -> Read:
        """Show value to the subgroup; what is returned reads the value of the lane that it is given."""
        stored = _stored_type(op, value.type)
        row = self._op("memref.load", [self.values["turn"], self._constant(0)], self.index)
        create_op("llvm.store", [self._cast(value, stored), self._slot(row, self.thread)])
        self.suspend(op)

        def read(lane: ir.Value) -> ir.Value:
            slot = self._slot(row, self._math("addi", self.first, lane))
            return self._cast(self._op("llvm.load", [slot], stored), value.type)

        return read

    def _cast(self, value: ir.Value, type_: ir.Type) -> ir.Value:
        return value if value.type == type_ else self._op("arith.index_cast", [value], type_)

    def _shuffle(self, op: ir.Operation) -> list[ir.Value]:
        value, offset, width = op.operands
        mode = str(op.attributes["mode"]).split("<shuffle_mode ")[1].rstrip(">")
        read = self._offer(op, value)
        with ir.InsertionPoint(op):
            lane = self._op("arith.index_cast", [self.lane], self.i32)
            segment = self._math("subi", lane, self._math("remui", lane, width))
            source = {
                "xor": lambda: self._math("xori", lane, offset),
                "up": lambda: self._math("subi", lane, offset),
                "down": lambda: self._math("addi", lane, offset),
                "idx": lambda: self._math("addi", segment, offset),
            }[mode]()
            inside = self._compare(6, self._math("subi", source, segment), width)  # unsigned less
            there = self._op("arith.index_cast", [source], self.index)
            exists = self._compare(6, self._math("addi", self.first, there), self.threads)
            valid = self._math("andi", inside, exists)
            return [read(self._select(valid, there, self.lane)), valid]

    def _rotate(self, op: ir.Operation) -> list[ir.Value]:
        offset, width = (integer(op, key) for key in ("offset", "width"))
        read = self._offer(op, op.operands[0])
        with ir.InsertionPoint(op):
            wide = self._constant(width)
            segment = self._math("subi", self.lane, self._math("remui", self.lane, wide))
            inside = self._math("remui", self._math("addi", self.lane, self._constant(offset)), wide)
            source = self._math("addi", segment, inside)
            return [read(source), self._constant(1, ir.IntegerType.get_signless(1))]

    def _subgroup_broadcast(self, op: ir.Operation) -> list[ir.Value]:
        read = self._offer(op, op.operands[0])
        with ir.InsertionPoint(op):
            lane = op.operands[1] if len(op.operands) > 1 else self._constant(0, self.i32)
            return [read(self._op("arith.index_cast", [lane], self.index))]

    def _subgroup_reduce(self, op: ir.Operation) -> list[ir.Value]:
        cluster = integer(op, "cluster_size") or self.launcher.subgroup_size
        stride = integer(op, "cluster_stride") or 1
        read = self._offer(op, op.operands[0])
        with ir.InsertionPoint(op):
            step, span = self._constant(stride), self._constant(cluster * stride)
            inside = self._math("remui", self.lane, span)
            start = self._math("addi", self._math("subi", self.lane, inside), self._math("remui", inside, step))
            stop = self._math("minui", self._math("addi", start, span), self._math("subi", self.threads, self.first))
            return [self._fold(op, read, start, stop, step)]

    def _all_reduce(self, op: ir.Operation) -> list[ir.Value]:
        value = op.operands[0]
        stored = _stored_type(op, value.type)
        row = self._constant(2)
        create_op("llvm.store", [self._cast(value, stored), self._slot(row, self.thread)])
        self.suspend(op, AT_BARRIER)
        with ir.InsertionPoint(op):

            def read(thread: ir.Value) -> ir.Value:
                return self._cast(self._op("llvm.load", [self._slot(row, thread)], stored), value.type)

            total = self._fold(op, read, self._constant(0), self.threads, self._constant(1))
            self.suspend(op, AT_BARRIER)
        return [total]

    def _fold(
        self,
        op: ir.Operation,
        read: Read,
        start: ir.Value,
        stop: ir.Value,
        step: ir.Value,
    ) -> ir.Value:
        """Combine what others offered, from start to stop, with op's operation."""
        first = read(start)
        loop = create_op("scf.for", [self._math("addi", start, step), stop, step, first], [first.type], regions=1)
        body = ir.Block.create_at_start(loop.regions[0], [self.index, first.type])
        with ir.InsertionPoint(body):
            number, total = body.arguments
            create_op("scf.yield", [self._combine(op, total, read(number))])
        return loop.results[0]

    def _combine(self, op: ir.Operation, a: ir.Value, b: ir.Value) -> ir.Value:
        if "op" not in op.attributes:
            raise UserError(f"{op.name} with a body of its own cannot run on the cpu target", span_of(op.location))
        kind = str(op.attributes["op"]).split("<all_reduce_op ")[1].rstrip(">")
        element = a.type.element_type if isinstance(a.type, ir.VectorType) else a.type
        name = COMBINE[kind][0 if isinstance(element, (ir.IntegerType, ir.IndexType)) else 1]
        return self._op(name, [a, b], a.type)


def _stored_type(op: ir.Operation, type_: ir.Type) -> ir.Type:
    """The type that travels through a slot; UserError where it is too large."""
    if isinstance(type_, ir.IndexType):
        return ir.IntegerType.get_signless(64)
    element, count = type_, 1
    if isinstance(type_, ir.VectorType):
        element, count = type_.element_type, 1
        for extent in type_.shape:
            count *= extent
    if not isinstance(element, (ir.IntegerType, ir.FloatType)) or element.width * count > 8 * SLOT_BYTES:
        raise UserError(f"{op.name} of {type_} cannot run on the cpu target", span_of(op.location))
    return type_


def integer(op: ir.Operation, key: str) -> int:
    """An integer attribute; 0 where it is missing."""
    return ir.IntegerAttr(op.attributes[key]).value if key in op.attributes else 0
