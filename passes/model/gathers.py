"""Ops that only move elements, and whose results are larger than what they read, as patches of images are."""

from __future__ import annotations

from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import RESHAPES, captured_values, is_elementwise, operations, shape_of, viewed
from lispgpt.passes.model.kernel_group import KernelGroup, users
from lispgpt.passes.recognise.product_layout import ProductLayout

MOVING = frozenset(("arith.select", "linalg.yield", "tensor.extract"))
"""What may be done with elements that only move."""

FEWEST_TIMES = 4
"""As large as what it reads a result is that is not kept."""

FEWEST_ROWS = 64
"""Of a product that puts its rows side by side before it multiplies them."""


def absorb_gathers(groups: list[KernelGroup], lanes: int) -> list[KernelGroup]:
    """Copy gathers into the products that sum along their rows, or over them: these put rows, or what they have at a
    place, side by side, and do so from where the elements are.  Where nothing else reads a gather, the memory of its
    result is neither written nor read.

    lanes: neighbours that a target reads at once.
    """
    owner = {op: group for group in groups for op in group.ops}
    kept = []
    for group in groups:
        op = group.ops[0]
        if len(group.ops) > 1 or not _is_gather(op, lanes):
            kept.append(group)
            continue
        readers = users(op.results[0], op)
        takers = {owner[reader] for reader in readers if _packs(reader, op, lanes)}
        for taker in takers:
            taker.ops[:0] = group.ops
            taker.needs |= group.needs
            taker.copied |= set(group.ops)
        if {owner.get(reader) for reader in readers} - takers:
            kept.append(group)
            continue
        for other in groups:
            other.needs &= ~group.bit
    return kept


def _is_gather(op: ir.Operation, lanes: int) -> bool:
    """Whether an op's result is elements of one smaller tensor, in rows of vectors or of halves of them, or
    constants."""
    if not is_elementwise(op) or not shape_of(op.results[0]) or shape_of(op.results[0])[-1] % (lanes // 2):
        return False
    body = operations(op.regions[0].blocks[0])
    sources = {v for v in captured_values(op) if isinstance(v.type, ir.RankedTensorType)}
    if len(sources) != 1 or len(op.operands) != 1:
        return False
    numbers = [inner for inner in body if inner.name not in MOVING and not _is_of_places(inner)]
    (source,) = sources
    larger = prod(shape_of(op.results[0])) >= FEWEST_TIMES * prod(shape_of(source))
    return larger and all(inner.name == "arith.constant" for inner in numbers)


def _is_of_places(op: ir.Operation) -> bool:
    """Whether an op says where elements are."""
    return isinstance(op.results[0].type, (ir.IndexType, ir.IntegerType))


def _packs(reader: ir.Operation, gather: ir.Operation, lanes: int) -> bool:
    """Whether a product reads a gather once for each of many rows, or for each of many sums' parts, and takes along
    what lies side by side in it."""
    if reader.name != "linalg.contract":
        return False
    layout = ProductLayout.of_contraction(reader)
    sides = [(layout.left, layout.rows, layout.columns), (layout.right, layout.columns, layout.rows)]
    for number, (loops, own, others) in zip(layout.operands, sides, strict=True):
        if viewed(reader.operands[number], RESHAPES) == gather.results[0] and layout.extent(others) >= 2 * lanes:
            along, many = (layout.sums, own) if layout.neighbours(loops, layout.sums) > 1 else (own, layout.sums)
            return layout.extent(many) >= FEWEST_ROWS and layout.neighbours(loops, along) % (lanes // 2) == 0
    return False
