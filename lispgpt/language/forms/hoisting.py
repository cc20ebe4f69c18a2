"""Tensors that are made inside the body of another: they are the same in every round, and are made once before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import captured_values, defining_op, operations
from lispgpt.language.core.site import Site
from lispgpt.language.reader.forms import Form, show


def hoist_tensors(site: Site, block: ir.Block, holder: Any, form: Form) -> None:
    """Move the ops that make tensors, and what those are made from, out of a loop's body to where its op stands.

    An error where such a tensor depends on the loop's indices or elements.
    """
    inner = list(_scalar_operations(block))
    makers = [op for op in inner if any(isinstance(result.type, ir.RankedTensorType) for result in op.results)]
    if not makers:
        return
    blocks = [block, *(child for op in inner if op not in makers for region in op.regions for child in region.blocks)]
    waiting = set(inner)

    def move(op: ir.Operation) -> None:
        if op not in waiting:
            return
        waiting.remove(op)
        sources = [*op.operands, *captured_values(op)]
        inside = [value for value in sources if defining_op(value) is None and value.owner in blocks]
        if inside or op.name == "linalg.index":
            site.fail(f"`{show(form)}` makes a tensor inside of another that depends on the other's indices", form)
        for value in sources:
            maker = defining_op(value)
            if maker is not None:
                move(maker)
        op.move_before(holder.operation)

    for op in makers:
        move(op)


def _scalar_operations(block: ir.Block) -> Iterator[ir.Operation]:
    """The ops of a body in their order, with those in the branches of its ifs but not in other tensors' bodies."""
    for op in operations(block):
        yield op
        if not any(isinstance(result.type, ir.RankedTensorType) for result in op.results):
            for region in op.regions:
                for child in region.blocks:
                    yield from _scalar_operations(child)
