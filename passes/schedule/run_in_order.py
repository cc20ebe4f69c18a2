"""run-in-order: what no schedule can divide is run by one thread, op after op.

Before:                                            After:
  func.func private @k(%x: memref<…>, %y: …)         func.func private @k(%x: memref<…>, %y: …, %a: memref<…>)
      {kernel = …} {                                     {kernel = …, grid = [1, 1, 1]} {
    %t = bufferization.to_tensor %x …                  scf.while … memref.load … memref.store …
    %r = scf.while (%t) …

Such are loops whose number of rounds is known only when they run, and which need the whole of what they made before.
A loop over tensors goes on in the memory that it started in.  What the body needs beside its arguments is the entry's
memory, one more argument of every call.

Requires: kernels without a `grid` hold linalg and tensor ops that MLIR's bufferization knows; no arena yet.
Ensures: every kernel has a `grid`, and no tensors are left in any.
"""

from __future__ import annotations

from lispgpt.base.access import SCRATCH
from lispgpt.base.errors import InternalError
from lispgpt.ir import build as b
from lispgpt.ir.access import access_of, set_access
from lispgpt.ir.diagnostics import run_passes
from lispgpt.ir.linalg_ops import copy
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import callee_of, nested_operations, operations, retype, unscheduled_kernels
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import calls_of, set_launch
from lispgpt.passes.schedule.softmax_parts import take_apart_softmax
from lispgpt.passes.targets import Gpu, Target

TO_MEMORY = (
    "builtin.module(func.func(eliminate-empty-tensors),one-shot-bufferize{allow-return-allocs-from-loops},"
    "func.func(canonicalize,cse))"
)
TO_LOOPS = "builtin.module(func.func(convert-linalg-to-loops))"


class RunInOrder(Pass):
    def run(self, module: ir.Module, target: Target) -> None:
        left = unscheduled_kernels(module)
        if not left:
            return
        for kernel in left:
            take_apart_softmax(kernel, everywhere=True)
            _keep_loops_in_place(kernel)
        run_passes(TO_MEMORY, module)
        for kernel in left:
            for op in list(nested_operations(kernel)):
                if op.name == "memref.copy":  # a call into a runtime library where layouts differ
                    with ir.InsertionPoint(op), op.location:
                        copy(*op.operands)
                    op.erase()
                elif op.name == "memref.alloc":
                    _borrow(module, kernel, op)
        run_passes(TO_LOOPS, module)
        for kernel in left:
            if isinstance(target, Gpu):
                _by_first_thread(kernel, target)
            kernel.attributes["schedule"] = ir.StringAttr.get("in order")
            set_launch(kernel, [1], [target.subgroup if isinstance(target, Gpu) else 1])


def _keep_loops_in_place(kernel: ir.Operation) -> None:
    """Copy what a loop hands to its next round to where it came from, so that rounds do not take turns with memory."""
    for op in nested_operations(kernel):
        if op.name not in ("scf.for", "scf.while"):
            continue
        block = op.regions[len(op.regions) - 1].blocks[0]
        carried = list(block.arguments)[1 if op.name == "scf.for" else 0 :]
        terminator = operations(block)[-1]
        for i, (value, argument) in enumerate(zip(terminator.operands, carried, strict=True)):
            if isinstance(value.type, ir.RankedTensorType) and value.type == argument.type and value != argument:
                with ir.InsertionPoint(terminator), op.location:
                    kept = create_op("bufferization.materialize_in_destination", [value, argument], [value.type])
                terminator.operands[i] = kept.results[0]


def _borrow(module: ir.Module, kernel: ir.Operation, op: ir.Operation) -> None:
    """Make an allocation of a kernel an argument, which every call gets from its entry's memory."""
    type_ = op.results[0].type
    if not type_.has_static_shape:
        raise InternalError("a kernel needs memory whose size is not known while compiling")
    body = kernel.regions[0].blocks[0]
    op.results[0].replace_all_uses_with(body.add_argument(type_, ir.Location.unknown()))
    retype(kernel)
    set_access(kernel, [*access_of(kernel), SCRATCH])
    for call in calls_of(module, kernel):
        with ir.InsertionPoint(call), call.location:
            b.call(callee_of(call), [*call.operands, b.allocated(type_)])
        call.erase()
    op.erase()


def _by_first_thread(kernel: ir.Operation, target: Gpu) -> None:
    """Put a kernel's body behind the question whether this is the block's first thread."""
    *ops, terminator = operations(kernel.regions[0].blocks[0])
    with ir.InsertionPoint(terminator), kernel.location:
        target.dependency_passed_on()
        branch = create_op("scf.if", [b.equal(b.thread_id(), 0)], regions=2)
        with ir.InsertionPoint(branch.regions[0].blocks.append()):
            end = create_op("scf.yield")
        for op in ops:
            op.move_before(end)
