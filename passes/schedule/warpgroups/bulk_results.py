"""How a tile's results are stored: in bulk by boxes, or by lanes where columns are no whole lines of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import is_elementwise, operations, shape_of
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.tensor_map import Boxes, find_boxes, whole
from lispgpt.passes.schedule.warpgroups.lane_stores import COLUMNS, area_bytes
from lispgpt.passes.schedule.warpgroups.tile_stores import ROWS
from lispgpt.passes.targets.tensor_copies import TensorCopies

BULK_DTYPES = ("f32", "bf16")


@dataclass(frozen=True)
class BulkResult:
    """How a result is stored in boxes of one line of `width` columns, or without a map by lanes."""

    boxes: Boxes
    map: ir.Value | None
    width: int


def bulk_result(
    kernel: ir.Operation, boxes: Boxes, rows: int, copies: TensorCopies, by_lanes: bool = False
) -> BulkResult:
    """With a map of a kernel's for boxes of so many rows, if not by lanes."""
    width = copies.line // b.item_bytes(boxes.argument.type)
    return BulkResult(boxes, None if by_lanes else boxes.map(kernel, (1, rows, width)), width)


def bulk_boxes(
    product: Product, results: Sequence[tuple[ir.Value, ir.Value]], copies: TensorCopies
) -> list[Boxes] | None:
    """How each result is stored in bulk; None where one cannot be."""
    layout, found = product.layout, []
    for _, buffer in results:
        boxes = find_boxes(whole(buffer), layout, layout.result, (layout.batch, layout.rows, layout.columns), copies)
        if boxes is None or not boxes.is_along(2) or str(buffer.type.element_type) not in BULK_DTYPES:
            return None
        found.append(boxes)
    return None if product.along_columns % 2 or not found else found


def lanes_store(boxes: Boxes, product: Product, columns: int, copies: TensorCopies) -> bool:
    """Whether a warpgroup's columns of a result are better stored by lanes: they are not whole lines of boxes, but
    whole vectors of rows that lie in memory as the product has them."""
    line = copies.line // b.item_bytes(boxes.argument.type)
    plain = len(boxes.argument.type.shape) == 2 and product.along_columns % COLUMNS == 0 and product.batches == 1
    return plain and columns % line != 0 == columns % COLUMNS


def staged_bytes(boxes: Boxes, columns: int, copies: TensorCopies, by_lanes: bool) -> int:
    """What a subgroup's rows of so many columns of a result take on their way to memory: whole lines, or all of them
    where lanes store them."""
    item = b.item_bytes(boxes.argument.type)
    return area_bytes(columns, item) if by_lanes else ROWS * (columns * item // copies.line * copies.line)


def boxes_read(kernel: ir.Operation, product: Product, copies: TensorCopies) -> list[Boxes]:
    """How what results are made of beside the sums is copied: arguments that are read where a result is written."""
    layout, found = product.layout, []
    shape = shape_of(product.result)
    for op in operations(kernel.regions[0].blocks[0]):
        if op.name != "bufferization.to_tensor" or shape_of(op.results[0]) != shape:
            continue
        if all(is_elementwise(use.owner.operation) for use in op.results[0].uses):
            boxes = find_boxes(
                whole(op.operands[0]), layout, layout.result, (layout.batch, layout.rows, layout.columns), copies
            )
            found += [boxes] if boxes is not None and boxes.is_along(2) else []
    return found
