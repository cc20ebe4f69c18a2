"""Where chains of ops that would all be one kernel's, or all views of each other, are cut.

What a kernel computes is read lazily, from its results back: its code, and the time to make it, grow with a chain.
"""

from __future__ import annotations

from lispgpt.ir.linalg_ops import elementwise_copy
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import VIEWS, defining_op, is_elementwise, operations
from lispgpt.passes.model.kernel_group import KernelGroup

MOST_OPS, MOST_SUMS, MOST_VIEWS = 96, 16, 48
"""Of a kernel that ops join one by one, of those that go through rows in it, and of views of views."""


def is_long(*groups: KernelGroup) -> bool:
    """Whether groups have so many ops together that no other is to join them."""
    ops = [op for group in groups for op in group.ops]
    return len(ops) >= MOST_OPS or sum(not is_elementwise(op) for op in ops) >= MOST_SUMS


def cut_views(entry: ir.Operation) -> None:
    """Give what is behind so many views a copy of its own."""
    depths: dict[ir.Operation, int] = {}
    for op in operations(entry.regions[0].blocks[0]):
        if op.name in VIEWS:
            depths[op] = 1 + depths.get(defining_op(op.operands[0]), 0)
            if depths[op] > MOST_VIEWS:
                with ir.InsertionPoint(op), op.location:
                    op.operands[0] = elementwise_copy(op.operands[0])
                depths[op] = 1
