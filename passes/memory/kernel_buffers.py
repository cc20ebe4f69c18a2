"""A kernel's tensors as buffers that its callers name, and kernels that copy from one buffer to another."""

from __future__ import annotations

import math

from lispgpt.base.access import READ, READ_WRITE, WRITE
from lispgpt.base.dtypes import find_dtype
from lispgpt.ir.access import set_access
from lispgpt.ir.linalg_ops import elementwise_copy
from lispgpt.ir.mlir import attribute, create_op, ir
from lispgpt.ir.structure import integers, kernel_functions, operations, retype, strings, symbol_of


def byte_size(type_: ir.Type) -> int:
    """Bytes of a static shaped type, row-major without padding."""
    return find_dtype(str(type_.element_type)).nbytes(math.prod(type_.shape))


def byte_array(nbytes: int) -> ir.Type:
    """The type of so many bytes of memory."""
    return ir.MemRefType.get([nbytes], ir.IntegerType.get_signless(8))


def add_argument(entry: ir.Operation, name: str, type_: ir.RankedTensorType) -> ir.Value:
    """An entry's argument of a name, as bytes, which it gets where it has none."""
    block, names = entry.regions[0].blocks[0], strings(entry.attributes["arguments"])
    if name in names:
        return block.arguments[names.index(name)]
    memory = block.add_argument(byte_array(byte_size(type_)), ir.Location.unknown())
    entry.attributes["arguments"] = attribute([*names, name])
    entry.attributes["types"] = attribute([*entry.attributes["types"], type_])
    retype(entry)
    return memory


def memref_of(type_: ir.Type) -> ir.Type:
    """The buffer of a tensor; any other type as it is."""
    return ir.MemRefType.get(type_.shape, type_.element_type) if isinstance(type_, ir.RankedTensorType) else type_


def rewrite_kernel(kernel: ir.Operation) -> None:
    """Give a kernel buffers for its tensor arguments and for each result that is not tied to one."""
    block = kernel.regions[0].blocks[0]
    tied = integers(kernel.attributes["tied"])
    ops = operations(block)
    terminator = ops[-1]
    inputs = [memref_of(a.type) for a in block.arguments]
    outputs = [memref_of(r.type) for r, t in zip(terminator.operands, tied, strict=True) if t < 0]
    old = list(block.arguments)
    new = [block.add_argument(t, ir.Location.unknown()) for t in (*inputs, *outputs)]
    with ir.InsertionPoint(ops[0]):
        for i, argument in enumerate(old):
            value = new[i]
            if isinstance(argument.type, ir.RankedTensorType):
                flags = {"restrict": ir.UnitAttr.get()} | ({"writable": ir.UnitAttr.get()} if i in tied else {})
                value = create_op("bufferization.to_tensor", [value], [argument.type], flags).results[0]
            argument.replace_all_uses_with(value)
    free = len(inputs)
    with ir.InsertionPoint(terminator):
        for result, argument in zip(list(terminator.operands), tied, strict=True):
            destination = new[argument if argument >= 0 else free]
            free += argument < 0
            flags = {"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()}
            create_op("bufferization.materialize_in_destination", [result, destination], [], flags)
        create_op("func.return")
    terminator.erase()
    for _ in old:
        block.erase_argument(0)
    set_access(kernel, [READ_WRITE if i in tied else READ for i in range(len(inputs))] + [WRITE] * len(outputs))
    retype(kernel)


def copy_kernel(module: ir.Module, type_: ir.Type) -> str:
    """The name of the kernel that copies a tensor of that type, made where the module has none."""
    name = "_".join(["copy", str(type_.element_type), "x".join(map(str, type_.shape))])
    if all(symbol_of(f) != name for f in kernel_functions(module)):
        memref = memref_of(type_)
        kernel = ir.Operation.parse(
            f"""func.func private @{name}(%from: {memref}, %to: {memref})
                attributes {{kernel = "rows", tied = [-1], access = ["read", "write"]}} {{
              %x = bufferization.to_tensor %from restrict : {memref} to {type_}
              bufferization.materialize_in_destination %x in restrict writable %to : ({type_}, {memref}) -> ()
              return
            }}"""
        )
        ir.InsertionPoint.at_block_begin(module.body).insert(kernel)
        source, write, _ = operations(kernel.regions[0].blocks[0])
        with ir.InsertionPoint(write):
            write.operands[0] = elementwise_copy(source.results[0])
    return name
