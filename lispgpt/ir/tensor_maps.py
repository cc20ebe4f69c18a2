"""Tensor maps of kernels, by which bulk copies know tensors: what is listed of them, and what stands for them.

A kernel's function lists them in `tensor_maps`: dictionaries of the number of the argument that holds the tensor, its
offset in bytes there (0 if not said), its dtype, extents and strides, and a copy's box.  The body takes their addresses
from casts of nothing that name one of them; collect-gpu-kernels makes those the kernel's last arguments.  A device
encodes the maps ahead of a launch.
"""

from __future__ import annotations

from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import operations

ATTRIBUTE, PLACE = "tensor_maps", "tensor_map"


def address_of_map(kernel: ir.Operation, fields: ir.Attribute) -> ir.Value:
    """The address of a map in the current body, which is a kernel's outermost block."""
    maps = maps_of(kernel)
    if fields not in maps:
        maps.append(fields)
        kernel.attributes[ATTRIBUTE] = ir.ArrayAttr.get(maps)
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), maps.index(fields))
    type_ = ir.Type.parse("!llvm.ptr")
    return create_op("builtin.unrealized_conversion_cast", [], [type_], {PLACE: number}).results[0]


def maps_of(kernel: ir.Operation) -> list[ir.Attribute]:
    return list(kernel.attributes[ATTRIBUTE]) if ATTRIBUTE in kernel.attributes else []


def map_facts(kernel: ir.Operation) -> list[dict[str, object]]:
    """A kernel's maps as plans have them, from the innermost dimension on; strides in bytes."""
    found = []
    for fields in map(ir.DictAttr, maps_of(kernel)):
        fact: dict[str, object] = {n: list(ir.DenseI64ArrayAttr(fields[n])) for n in ("extents", "strides", "box")}
        fact |= {n: ir.IntegerAttr(fields[n]).value if n in fields else 0 for n in ("argument", "offset")}
        fact["dtype"] = ir.StringAttr(fields["dtype"]).value
        found.append(fact)
    return found


def map_uses(kernel: ir.Operation) -> list[tuple[int, ir.Operation]]:
    """(a map's number, op that stands for its address) in a kernel's body."""
    body = operations(kernel.regions[0].blocks[0])
    return [(ir.IntegerAttr(op.attributes[PLACE]).value, op) for op in body if PLACE in op.attributes]
