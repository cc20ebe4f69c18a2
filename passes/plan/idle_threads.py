"""What threads do that a kernel's body has no work for, while the others of their block run it: they meet its barriers.

All threads of a block meet a barrier equally often.  So idle threads reckon conditions and bounds around barriers again
as the block's first thread does.
"""

from __future__ import annotations

from collections.abc import Callable

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import clone_with, defining_op, nested_operations, operations
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.signals import ACQUIRE

BARRIERS = ("gpu.barrier", "nvvm.cluster.arrive", "nvvm.cluster.arrive.relaxed", "nvvm.cluster.wait")
"""Those that count every thread of a block.  Barriers of teams count only theirs."""
UNIFORM = ("arith.", "math.", "memref.load", "memref.view", "vector.", "affine.apply", "llvm.call_intrinsic")
"""How ops are called that give the same from the same."""


def has_barrier(op: ir.Operation) -> bool:
    """Whether it is a barrier or has one in its regions."""
    return op.name in BARRIERS or any(inner.name in BARRIERS for inner in nested_operations(op))


def check_idle(block: ir.Block) -> None:
    """Refused where idle threads cannot keep up with a body."""
    for op in operations(block):
        if op.name in BARRIERS or not has_barrier(op):
            continue
        if op.name not in ("scf.for", "scf.if"):
            raise Refused(f"idle threads cannot meet the barriers in its {op.name}")
        for value in list(op.operands)[:3] if op.name == "scf.for" else op.operands:
            _check_known(value)
        for region in op.regions:
            for inner in region.blocks:
                check_idle(inner)


def _check_known(value: ir.Value) -> None:
    op = defining_op(value)
    if op is None:
        argument = ir.BlockArgument(value)
        if argument.owner.owner.name != "func.func" and argument.arg_number > 0:
            raise Refused("a barrier depends on what a loop carries, which idle threads do not know")
    elif op.name not in ("gpu.block_id", "gpu.thread_id", "memref.alloca"):
        if not op.name.startswith(UNIFORM) or len(op.regions):
            raise Refused(f"a barrier depends on {op.name}, which idle threads cannot follow")
        for operand in op.operands:
            _check_known(operand)


class IdleThreads:
    """Emits what idle threads do while others run `block`, which check_idle has passed.

    thread: the value in it that is a thread's number.  instead: emits something else for an op of the block's own,
    where it returns True.
    """

    def __init__(self, block: ir.Block, thread: ir.Value, instead: Callable[[ir.Operation], bool]) -> None:
        self.block, self.instead = block, instead
        self.inside = {inner for op in operations(block) for inner in (op, *nested_operations(op))}
        for op in self.inside:
            if op.name in BARRIERS:
                with ir.InsertionPoint.after(op):
                    _keep_apart()
        self.values: dict[ir.Value, ir.Value] = {thread: b.as_value(0)}

    def emit(self) -> None:
        self._walk(self.block)

    def _walk(self, block: ir.Block) -> None:
        known = dict(self.values)
        for op in operations(block):
            if op.name in BARRIERS:
                clone_with(op, {})
                _keep_apart()
            elif not self.instead(op) and has_barrier(op):
                self._around(op)
        self.values = known

    def _around(self, op: ir.Operation) -> None:
        if op.name == "scf.if":
            sides = [region.blocks[0] if len(region.blocks) else None for region in op.regions]
            b.either(self._same(op.operands[0]), *(self._side(side) for side in sides))
            return
        body = op.regions[0].blocks[0]

        def round_(number: Index) -> None:
            self.values[body.arguments[0]] = b.as_value(number)
            self._walk(body)

        low, high, step = (self._same(v) for v in list(op.operands)[:3])
        b.each(low, high, step, round_)

    def _side(self, block: ir.Block | None) -> Callable[[], None]:
        return lambda: self._walk(block) if block is not None else None

    def _same(self, value: ir.Value) -> ir.Value:
        """A value of the first thread, reckoned again where the body makes it."""
        op = defining_op(value)
        if value not in self.values and op in self.inside:
            for operand in op.operands:
                self._same(operand)
            clone_with(op, self.values)
        return self.values.get(value, value)


def _keep_apart() -> None:
    """Keep a barrier from being taken for one with the next, which both sides have to meet equally often."""
    create_op("llvm.fence", attributes={"ordering": ACQUIRE, "syncscope": "singlethread"})
