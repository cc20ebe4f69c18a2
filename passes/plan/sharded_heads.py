"""Heads of a sharded launch: where their queries, keys and values lie in a product's rows and in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import shape_of
from lispgpt.passes.kernels.attention import own_index, read_operand, read_row
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.model.attention import Attention, attention_of
from lispgpt.passes.targets import Gpu


def head_loop(attention: Attention) -> int:
    """The one leading loop of attention that is longer than 1, whose numbers are heads."""
    found = [i for i, extent in enumerate(attention.extents) if extent > 1]
    if len(found) != 1 or found[0] not in attention.shared or attention.own is None or attention.lower is not None:
        raise Refused("its attention is not of heads that each have keys of their own")
    return found[0]


def rows_of_heads(kernel: ir.Operation, argument: int, target: Gpu) -> tuple[int, int, int]:
    """Columns of an argument at which queries, keys and values of the first head start, where all heads' follow.

    Refused where they lie otherwise.  What is emitted to find out is dropped.
    """
    block = kernel.regions[0].blocks[0]
    attention = attention_of(kernel)
    assert attention is not None
    ops = list(block.operations)
    with ir.InsertionPoint(ops[-1]), kernel.location:
        firsts = _columns(kernel, attention, block.arguments[argument], target)
    for op in reversed(list(block.operations)[len(ops) - 1 : -1]):
        op.operation.erase()
    return firsts


def _columns(kernel: ir.Operation, attention: Attention, source: ir.Value, target: Gpu) -> tuple[int, int, int]:
    loop, reader = head_loop(attention), Reader(target)
    seen: list[int] = []

    def note(index: Sequence[Index], width: int) -> ir.Value:
        if not all(isinstance(i, int) for i in index):
            raise Refused("its queries do not lie in rows")
        seen.append(index[-1])
        return b.constant(0.0, b.f32())

    for op in kernel.regions[0].blocks[0].operations:
        op = op.operation
        if op.name == "bufferization.to_tensor" and op.operands[0] == source:
            reader.bind(op.results[0], note)
    results = []
    for head in range(attention.extents[loop]):
        for d in range(attention.depth):
            place = [head if i == loop else 0 for i in range(len(attention.extents))]
            where = zip(attention.out.index(place, 0, d), shape_of(attention.out.tensor), strict=True)
            results.append(reduce(lambda total, pair: total * pair[1] + pair[0], where, 0))
            read_operand(reader, attention.queries, place, 0, d, 1)
            for i, write in enumerate(attention.writes):
                read_row(write, reader, 0, own_index(attention, i, place, d), 1)
    firsts = seen[:3]
    want = [f + n for n in range(len(seen) // 3) for f in firsts]
    if len(seen) != 3 * attention.extents[loop] * attention.depth or seen != want:
        raise Refused("its queries, keys and values do not lie one behind the other")
    if results != list(range(len(results))):
        raise Refused("its attention's results do not lie head by head")
    return firsts[0], firsts[1], firsts[2]
