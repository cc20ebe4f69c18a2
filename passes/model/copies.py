"""A tensor's values as a tensor of its own."""

from __future__ import annotations

from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import shape_of


def elementwise_copy(value: ir.Value) -> ir.Value:
    """Emit an elementwise op that copies a tensor."""
    identity = ir.AffineMap.get_identity(len(shape_of(value)))
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(identity)] * 2),
        "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * identity.n_dims),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
    }
    empty = create_op("tensor.empty", [], [value.type]).results[0]
    copy = create_op("linalg.generic", [value, empty], [value.type], attributes, regions=1)
    block = ir.Block.create_at_start(copy.regions[0], [value.type.element_type] * 2)
    with ir.InsertionPoint(block):
        create_op("linalg.yield", [block.arguments[0]])
    return copy.results[0]
