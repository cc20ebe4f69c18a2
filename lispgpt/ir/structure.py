"""Questions that passes ask about functions, linalg ops and values."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from math import prod
from typing import Any

from lispgpt.ir.mlir import ir

RESHAPES = {"tensor.expand_shape", "tensor.collapse_shape"}
VIEWS = RESHAPES | {"tensor.extract_slice", "tensor.cast"}


def operations(block: ir.Block) -> list[ir.Operation]:
    """A block's ops as plain operations (some bindings' op classes give `name` another meaning)."""
    return [op.operation for op in block.operations]


def entry_functions(module: ir.Module) -> list[ir.Operation]:
    """The functions that are entries of a model, in order."""
    return [op for op in operations(module.body) if op.name == "func.func" and "entry" in op.attributes]


def entry_arguments(entry: ir.Operation) -> dict[str, ir.Value]:
    """An entry's arguments, by what they are: "weight:w"."""
    return dict(zip(strings(entry.attributes["arguments"]), entry.regions[0].blocks[0].arguments, strict=True))


def entry_results(entry: ir.Operation) -> dict[str, ir.Value]:
    """What an entry of tensors returns, by what it is: "result:loss", "state:m"."""
    returned = operations(entry.regions[0].blocks[0])[-1].operands
    return dict(zip(strings(entry.attributes["results"]), returned, strict=True))


def kernel_functions(module: ir.Module, kind: str | None = None) -> list[ir.Operation]:
    """The functions that are kernels, of one kind ("contraction", …) or all."""
    functions = [op for op in operations(module.body) if op.name == "func.func" and "kernel" in op.attributes]
    return [f for f in functions if kind is None or ir.StringAttr(f.attributes["kernel"]).value == kind]


def unscheduled_kernels(module: ir.Module, kind: str | None = None) -> list[ir.Operation]:
    """The kernels, of one kind or all, that no schedule has taken yet."""
    return [kernel for kernel in kernel_functions(module, kind) if "grid" not in kernel.attributes]


def symbol_of(op: ir.Operation) -> str:
    """The name of a function, a module or a global."""
    name: str = ir.StringAttr(op.attributes["sym_name"]).value
    return name


def retype(function: ir.Operation, results: Sequence[ir.Type] = ()) -> None:
    """Have a function's type say what its block's arguments are by now."""
    given = [argument.type for argument in function.regions[0].blocks[0].arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(given, list(results)))


def callee_of(call: ir.Operation) -> str:
    """The name of the function that a call calls."""
    name: str = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
    return name


def defining_op(value: ir.Value) -> Any:
    """The operation that a value is a result of; None for a block's argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def viewed(value: ir.Value, views: Container[str] = VIEWS) -> ir.Value:
    """What a value is a view of, or of a view of it: itself where it is none.  views: the ops that count as such."""
    op = defining_op(value)
    while op is not None and op.name in views:
        value = op.operands[0]
        op = defining_op(value)
    return value


def tensor_behind(op: ir.Operation | None, shape: tuple[int, ...]) -> ir.Value | None:
    """The tensor of such a shape that an op's result is computed from: the first that is found."""
    for operand in op.operands if op is not None else ():
        if isinstance(operand.type, ir.RankedTensorType):
            if shape_of(operand) == shape:
                return operand
            found = tensor_behind(defining_op(operand), shape)
            if found is not None:
                return found
    return None


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """A shaped value's extents; () for a scalar."""
    return tuple(value.type.shape) if isinstance(value.type, (ir.RankedTensorType, ir.MemRefType)) else ()


def element_type(value: ir.Value) -> ir.Type:
    return value.type.element_type if isinstance(value.type, (ir.RankedTensorType, ir.MemRefType)) else value.type


def indexing_maps(op: ir.Operation) -> list[ir.AffineMap]:
    """The affine maps of a linalg op's operands, outputs last."""
    return [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]


def dim_positions(map_: ir.AffineMap) -> list[Any]:
    """For each result of a map, the number of the loop it is; None where it is no plain loop."""
    return [e.position if isinstance(e, ir.AffineDimExpr) else None for e in map_.results]


def operand_loops(op: ir.Operation) -> list[list[Any]] | None:
    """For each operand of a linalg op, the loop of each of its dimensions, None where that is none; None for ops that
    say nothing of it."""
    if "indexing_maps" in op.attributes:
        return [dim_positions(map_) for map_ in indexing_maps(op)]
    rank = len(shape_of(op.operands[-1]))
    if op.name == "linalg.softmax":
        return [[*range(rank)]] * 2
    if op.name == "linalg.fill":
        return [[], [*range(rank)]]
    if op.name == "linalg.reduce":
        summed, rank = integers(op.attributes["dimensions"]), len(shape_of(op.operands[0]))
        kept = [d for d in range(rank) if d not in summed]
        return [[*range(rank)]] * (len(op.operands) // 2) + [kept] * (len(op.operands) // 2)
    return None


def kept_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> list[bool]:
    """For each dimension of a slice, whether its rank-reduced shape keeps it (matched from the right)."""
    kept = [False] * len(sizes)
    position = len(sizes) - 1
    for extent in reversed(shape):
        while sizes[position] != extent:
            position -= 1
        kept[position] = True
        position -= 1
    return kept


def loop_extents(op: ir.Operation) -> dict[int, int]:
    """The extents of a linalg op's loops by their numbers; below 0 where one is not known while compiling."""
    if "indexing_maps" not in op.attributes:
        return dict(enumerate(max((shape_of(v) for v in op.operands), key=prod)))
    extents: dict[int, int] = {}
    for value, map_ in zip(op.operands, indexing_maps(op), strict=True):
        for dim, extent in zip(dim_positions(map_), shape_of(value), strict=True):
            if dim is not None:
                extents[dim] = max(extent, extents.get(dim, extent))
    return extents


def trip_count(op: ir.Operation) -> int:
    """How many times the body of an op runs, as far as it is known here."""
    if op.name == "scf.for":
        start, stop, step = (constant_number(v) for v in list(op.operands)[:3])
        return 1 if start is None or stop is None or step is None else max(0, -(-(stop - start) // step))
    return prod(loop_extents(op).values()) if op.name.startswith("linalg.") else 1


def constant_number(value: ir.Value) -> int | None:
    """The number of an arith.constant; None for any other value."""
    op = defining_op(value)
    return ir.IntegerAttr(op.attributes["value"]).value if op is not None and op.name == "arith.constant" else None


def filled_with(tensor: ir.Value) -> float | int | None:
    """The number that a linalg.fill has put everywhere in a tensor; None where nothing has, or it is not known."""
    fill = defining_op(tensor)
    number = defining_op(fill.operands[0]) if fill is not None and fill.name == "linalg.fill" else None
    if number is None or number.name != "arith.constant":
        return None
    kind = ir.FloatAttr if isinstance(number.results[0].type, ir.FloatType) else ir.IntegerAttr
    return kind(number.attributes["value"]).value


def reshape_groups(op: ir.Operation) -> list[list[int]]:
    """Of a tensor.expand_shape or collapse_shape: the finer tensor's dimensions for each of the coarser one's."""
    return [integers(group) for group in op.attributes["reassociation"]]


def is_elementwise(op: ir.Operation) -> bool:
    """Whether an op is a linalg.generic with one result whose loops are all parallel and write it in order."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return False
    kinds, maps = op.attributes["iterator_types"], op.attributes["indexing_maps"]
    if str(kinds).count("<parallel>") != len(kinds):
        return False
    last = ir.AffineMapAttr(maps[len(maps) - 1]).value
    return bool(last == ir.AffineMap.get_identity(last.n_dims))


def captured_values(op: ir.Operation) -> list[ir.Value]:
    """Values that ops inside an op's regions use and that are defined outside it, each once."""
    if not len(op.regions):
        return []
    inside: set = set()
    found: dict[ir.Value, None] = {}

    def look(owner: ir.Operation) -> None:
        for region in owner.regions:
            for block in region.blocks:
                inside.update(block.arguments)
                for child in block.operations:
                    nested = child.operation
                    for operand in nested.operands:
                        if operand not in inside:
                            found[operand] = None
                    inside.update(nested.results)
                    if len(nested.regions):
                        look(nested)

    look(op)
    return list(found)


def replace_captured(op: ir.Operation, mapping: dict[ir.Value, ir.Value]) -> None:
    """Replace operands of the ops inside an op's regions."""
    if not mapping:
        return
    for nested in nested_operations(op):
        for i, operand in enumerate(nested.operands):
            if operand in mapping:
                nested.operands[i] = mapping[operand]


def clone_with(op: ir.Operation, values: dict[ir.Value, ir.Value]) -> ir.Operation:
    """A copy at the insertion point that uses other values, in its regions too, where there are such; its results
    become those of the op's."""
    copy: ir.Operation = op.clone().operation
    for i, operand in enumerate(op.operands):
        if operand in values:
            copy.operands[i] = values[operand]
    if len(op.regions):
        replace_captured(copy, values)
    values.update(zip(op.results, copy.results, strict=True))
    return copy


def nested_operations(op: ir.Operation) -> Iterator[ir.Operation]:
    """The ops in an op's regions, at any depth."""
    for region in op.regions:
        for block in region.blocks:
            for child in operations(block):
                yield child
                if len(child.regions):
                    yield from nested_operations(child)


def everything_in(root: ir.Operation) -> list[ir.Operation]:
    """The op itself and all in its regions, at any depth, inner ones first."""
    found: list[ir.Operation] = []

    def look(op: Any) -> Any:
        found.append(op.operation)
        return ir.WalkResult.ADVANCE

    root.walk(look)
    return found


def strings(attribute: ir.Attribute) -> list[str]:
    """The values of an array of string attributes."""
    return [ir.StringAttr(a).value for a in attribute]


def integers(attribute: ir.Attribute) -> list[int]:
    """The values of an array of integer attributes, or of a dense i64 array."""
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return list(attribute)
    return [ir.IntegerAttr(a).value for a in attribute]
