"""What kernels do to their memory arguments: the attribute that says it, and a look at the ops that do it.

A kernel's function has `access = ["read", "write", …]`, a word for each argument.  "read": launches leave it as it is.
"write": all of it is written, whatever was there.  "read_write": what is there is changed.  "accumulate": something is
added to what is there, in an order that does not matter.  "scratch": it is room to work in, whose contents mean nothing
before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lispgpt.base.access import READ, READ_WRITE, WRITE
from lispgpt.base.errors import InternalError, UserError
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import nested_operations, strings

ALIASES = (
    *("memref.subview", "memref.expand_shape", "memref.collapse_shape", "memref.cast", "memref.reinterpret_cast"),
    *("memref.view", "memref.assume_alignment", "memref.memory_space_cast", "memref.reshape"),
)
"""Ops whose first result is the memory of their first operand."""

STORES = {
    **{"memref.store": 1, "affine.store": 1, "vector.store": 1, "affine.vector_store": 1, "vector.transfer_write": 1},
    **{"vector.maskedstore": 0, "vector.scatter": 0, "vector.compressstore": 0, "memref.copy": 1},
    **{"memref.atomic_rmw": 1, "memref.generic_atomic_rmw": 0, "bufferization.materialize_in_destination": 1},
    **{"gpu.subgroup_mma_store_matrix": 1, "nvgpu.device_async_copy": 0},
}
"""The operand that an op writes to."""


def set_access(kernel: ir.Operation, access: Sequence[str]) -> None:
    """Record what a kernel does to each of its arguments."""
    kernel.attributes["access"] = ir.ArrayAttr.get([ir.StringAttr.get(word) for word in access])


def access_of(kernel: ir.Operation) -> list[str]:
    """What a kernel does to each of its arguments; UserError where a pipeline has left out the pass that says it."""
    if "access" not in kernel.attributes:
        name = ir.StringAttr(kernel.attributes["sym_name"]).value
        raise UserError(f"kernel {name} has no memory yet: run destination-passing before it")
    return strings(kernel.attributes["access"])


def tensor_access(kernel: ir.Operation) -> list[str]:
    """What a kernel on tensors does to each argument: takes tensors out of it, puts tensors into it, or both."""
    found = []
    for argument in kernel.regions[0].blocks[0].arguments:
        users = {use.owner.operation.name for use in argument.uses}
        written = "bufferization.materialize_in_destination" in users
        found.append((READ_WRITE if "bufferization.to_tensor" in users else WRITE) if written else READ)
    return found


def check_access(kernel: ir.Operation) -> None:
    """InternalError where a kernel on memrefs writes an argument that it says it only reads."""
    for number, op in unsaid_writes(kernel):
        name = kernel.attributes["sym_name"]
        raise InternalError(f"{name} says it only reads argument {number}, and writes it: {op.name}")


def unsaid_writes(kernel: ir.Operation) -> Iterator[tuple[int, ir.Operation]]:
    """The arguments that a kernel on memrefs says it only reads, with ops that write them."""
    stated = access_of(kernel)
    arguments = list(kernel.regions[0].blocks[0].arguments)
    if len(stated) != len(arguments):
        raise InternalError(
            f"{kernel.attributes['sym_name']} has {len(arguments)} arguments and {len(stated)} accesses"
        )
    roots = {argument: number for number, argument in enumerate(arguments)}
    for op in nested_operations(kernel):
        if op.name in ALIASES and op.operands[0] in roots:
            roots[op.results[0]] = roots[op.operands[0]]
        yield from ((roots[memory], op) for memory in _written(op) if memory in roots and stated[roots[memory]] == READ)


def _written(op: ir.Operation) -> list[Any]:
    """The memrefs that an op writes to, as far as its kind is known."""
    if op.name in STORES:
        return [op.operands[STORES[op.name]]]
    if op.name.startswith("linalg.") and "operandSegmentSizes" in op.attributes:
        outputs = list(op.operands)[ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])[0] :]
        return [v for v in outputs if isinstance(v.type, ir.MemRefType)]
    return []
