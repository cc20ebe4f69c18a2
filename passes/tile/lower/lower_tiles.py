"""lower-tiles: tile programs to what chips execute.

Before: a kernel whose body ends in a tile program, which choose-tiles, or whoever wrote a dump, has put there.
After:  scalar, vector, matrix and copying ops, with barriers where the program has them.

Requires: what choose-tiles ensures.
Ensures: each program has been verified (see verify.py), and kernels that had one have only scalar, vector and matrix
ops.  A kernel whose program reads what cannot be read so goes to the schedules that follow, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import integers, kernel_functions, nested_operations, operations
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import constant_arguments, why_left
from lispgpt.passes.kernels.offers import Offer, note_offers, offers_of
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.targets import Cpu, Gpu
from lispgpt.passes.tile.build_rows import RowsBuilder
from lispgpt.passes.tile.lower.emitter import Emitter
from lispgpt.passes.tile.lower.row_loops import RowLoops
from lispgpt.passes.tile.verify import verify

Constants = Callable[[ir.Operation], set[ir.Value]]
"""Gives the arguments of a kernel that no launch writes."""

PROGRAM = "tile"
"""A kernel's attribute: {grid, threads, residency} of its tile program."""


class LowerTiles(Pass):
    def run(self, module: ir.Module, target: Gpu | Cpu) -> None:
        constants = constant_arguments(module)
        for kernel in kernel_functions(module):
            if PROGRAM in kernel.attributes:
                verify(kernel, target)
                _lower(kernel, constants, target)


def _lower(kernel: ir.Operation, constants: Constants, target: Gpu | Cpu) -> None:
    facts = ir.DictAttr(kernel.attributes[PROGRAM])
    ops = operations(kernel.regions[0].blocks[0])
    lowering = _lowering(kernel, constants, target)
    threads = ir.IntegerAttr(facts["threads"]).value
    left = why_left(kernel, integers(facts["grid"]), [threads], lowering.emit)
    if not left:
        lowering.record()
        if (residency := ir.IntegerAttr(facts["residency"]).value) and isinstance(target, Gpu):
            target.set_residency(kernel, residency)
        if "cluster" in facts and isinstance(target, Gpu):
            target.set_cluster(kernel, ir.IntegerAttr(facts["cluster"]).value)
    else:
        withdraw(ops)
        _leave(kernel, left[0])
        del kernel.attributes["tiles"]
    del kernel.attributes[PROGRAM]


def _lowering(kernel: ir.Operation, constants: Constants, target: Gpu | Cpu) -> Emitter:
    if isinstance(target, Cpu):
        return RowLoops(kernel, target)
    from lispgpt.passes.tile.lower.lowering import Lowering  # of which CPUs take nothing
    from lispgpt.passes.tile.lower.row_teams import RowLowering

    if ir.StringAttr(kernel.attributes["kernel"]).value == RowsBuilder.of:
        return RowLowering(kernel, constants(kernel), target)
    return Lowering(kernel, Product.of_kernel(kernel), constants(kernel), target)


def _leave(kernel: ir.Operation, reason: str) -> None:
    """Have the schedule that has written the program say so, which is not asked again."""
    name = ir.StringAttr(kernel.attributes["tiles"]).value
    own = any(one.own and one.schedule == name for one in offers_of(kernel))
    note_offers(kernel, [Offer(name, refused=reason, own=own)])


def withdraw(ops: list[ir.Operation]) -> None:
    """Take a tile program out of a body whose ops these are."""
    for op in reversed(ops):
        inner = (op, *nested_operations(op))
        program = any(one.name.startswith("tile.") for one in inner) or op.name.startswith("gpu.")
        unused = op.name.startswith(("arith.", "math.")) and not any(True for r in op.results for _ in r.uses)
        if program or unused:
            op.erase()
