"""Small functions that emit one op each at the current insertion point; index arithmetic folds plain integers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir.calls import call as call
from lispgpt.ir.calls import instruction as instruction
from lispgpt.ir.calls import llvm_call as llvm_call
from lispgpt.ir.calls import private_function as private_function
from lispgpt.ir.control import both as both
from lispgpt.ir.control import choose as choose
from lispgpt.ir.control import each as each
from lispgpt.ir.control import either as either
from lispgpt.ir.control import if_live as if_live
from lispgpt.ir.control import if_then as if_then
from lispgpt.ir.control import loop as loop
from lispgpt.ir.control import repeat as repeat
from lispgpt.ir.indices import Index as Index
from lispgpt.ir.indices import add as add
from lispgpt.ir.indices import as_value as as_value
from lispgpt.ir.indices import at_most as at_most
from lispgpt.ir.indices import clamped as clamped
from lispgpt.ir.indices import constant as constant
from lispgpt.ir.indices import div as div
from lispgpt.ir.indices import emit as emit
from lispgpt.ir.indices import equal as equal
from lispgpt.ir.indices import less as less
from lispgpt.ir.indices import mod as mod
from lispgpt.ir.indices import mul as mul
from lispgpt.ir.indices import sub as sub
from lispgpt.ir.indices import xor as xor
from lispgpt.ir.mlir import create_op, ir

INTRINSIC_BINARIES = {"arith.maxnumf": "llvm.maxnum", "arith.minnumf": "llvm.minnum"}
"""Ops that some vendor's lowering would turn into calls of a device library."""

WORKGROUP = "#gpu.address_space<workgroup>"


def f32() -> ir.Type:
    return ir.F32Type.get()


def integer(bits: int) -> ir.Type:
    return ir.IntegerType.get_signless(bits)


def i1() -> ir.Type:
    return integer(1)


def i32() -> ir.Type:
    return integer(32)


def i64() -> ir.Type:
    return integer(64)


def select(condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return emit("arith.select", [condition, a, b], [a.type])


def or_zero(live: ir.Value | None, index: Index) -> Index:
    """An index where there is one, else 0; live: None where there always is."""
    return index if live is None else select(live, as_value(index), as_value(0))


def masked(live: ir.Value | None, value: ir.Value) -> ir.Value:
    """Floats where they are live, else zeros."""
    return value if live is None else select(live, value, constant(0.0, value.type))


def element_of(type_: ir.Type) -> ir.Type:
    return type_.element_type if isinstance(type_, (ir.VectorType, ir.MemRefType, ir.RankedTensorType)) else type_


def with_width(type_: ir.Type, width: int) -> ir.Type:
    """The scalar type for one element, else the vector of that many."""
    element = element_of(type_)
    return element if width == 1 else ir.VectorType.get([width], element)


def width_of(value: ir.Value) -> int:
    return value.type.shape[0] if isinstance(value.type, ir.VectorType) else 1


def splat(value: ir.Value, width: int) -> ir.Value:
    if width == 1 or isinstance(value.type, ir.VectorType):
        return value
    return emit("vector.broadcast", [value], [ir.VectorType.get([width], value.type)])


def lane_of(value: ir.Value, position: int) -> ir.Value:
    """One element of a vector."""
    if not isinstance(value.type, ir.VectorType):
        return value
    where = ir.DenseI64ArrayAttr.get([position])
    return emit("vector.extract", [value], [value.type.element_type], static_position=where)


def vector_of(values: Sequence[ir.Value]) -> ir.Value:
    if len(values) == 1:
        return values[0]
    return emit("vector.from_elements", list(values), [ir.VectorType.get([len(values)], values[0].type)])


def shuffled(first: ir.Value, second: ir.Value, order: Sequence[int]) -> ir.Value:
    """Elements of two vectors, one behind the other, by their numbers."""
    type_ = ir.VectorType.get([len(order)], first.type.element_type)
    return emit("vector.shuffle", [first, second], [type_], mask=ir.DenseI64ArrayAttr.get(list(order)))


def joined(parts: Sequence[ir.Value]) -> ir.Value:
    """Vectors of one type, as many as a power of two, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    first, second = joined(parts[: len(parts) // 2]), joined(parts[len(parts) // 2 :])
    return shuffled(first, second, range(2 * width_of(first)))


def load(memref: ir.Value, index: Sequence[Index], width: int, aligned: bool = True) -> ir.Value:
    """`width` neighbours in the last dimension; aligned: the caller knows them to be, to their size's power of two."""
    operands = [memref, *map(as_value, index)]
    if width == 1:
        return emit("memref.load", operands, [memref.type.element_type])
    if element_of(memref.type) == i1():  # a vector of them would be loaded bit by bit
        return vector_of([load(memref, [*index[:-1], add(index[-1], i)], 1) for i in range(width)])
    return emit("vector.load", operands, [with_width(memref.type, width)], **_alignment(memref, width, aligned))


def store(value: ir.Value, memref: ir.Value, index: Sequence[Index], aligned: bool = True) -> None:
    """One element, or a vector's neighbours in the last dimension; aligned as in `load`."""
    operands = [value, memref, *map(as_value, index)]
    width = width_of(value)
    if width == 1:
        create_op("memref.store", operands)
    elif element_of(value.type) == i1():  # a vector of them would be stored bit by bit
        for i in range(width):
            store(lane_of(value, i), memref, [*index[:-1], add(index[-1], i)])
    else:
        create_op("vector.store", operands, attributes=_alignment(memref, width, aligned))


def _alignment(memref: ir.Value, width: int, aligned: bool) -> dict[str, int]:
    size = width * item_bytes(memref.type)
    return {"alignment": size & -size} if aligned else {}


def flattened(buffer: ir.Value) -> ir.Value:
    """The memory of a buffer [any shape] as one row of its elements."""
    count = prod(buffer.type.shape)
    attributes = {
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
        "static_offsets": [0],
        "static_sizes": [count],
        "static_strides": [1],
    }
    type_ = ir.MemRefType.get([count], buffer.type.element_type)
    return create_op("memref.reinterpret_cast", [buffer], [type_], attributes).results[0]


def allocated(type_: ir.Type, op: str = "memref.alloc") -> ir.Value:
    """Memory of a static type: in an entry what plan-arena places; in a kernel, with memref.alloca, its own."""
    return emit(op, [], [type_], operandSegmentSizes=ir.DenseI32ArrayAttr.get([0, 0]))


def address_of(memory: ir.Value) -> ir.Value:
    """Of a memref's first byte, as an index."""
    return emit("memref.extract_aligned_pointer_as_index", [memory], [ir.IndexType.get()])


def pointer(address: Index, space: int = 0) -> ir.Value:
    """LLVM's pointer to such an address, in an address space."""
    number = emit("arith.index_cast", [as_value(address)], [i64()])
    return emit("llvm.inttoptr", [number], [ir.Type.parse(f"!llvm.ptr<{space}>" if space else "!llvm.ptr")])


def store_at(value: ir.Value, address: Index) -> None:
    """A vector to an address in shared memory, which is a multiple of its bytes."""
    nbytes = item_bytes(value.type) * width_of(value)
    word = emit("arith.index_cast", [as_value(address)], [i32()])
    create_op(
        "llvm.store", [value, emit("llvm.inttoptr", [word], [ir.Type.parse("!llvm.ptr<3>")])], [], {"alignment": nbytes}
    )


def intrinsic(name: str, operands: Sequence[ir.Value], result: ir.Type) -> ir.Value:
    """A call of an LLVM intrinsic that works on scalars, done per element for vectors."""
    width = width_of(operands[0])
    if width > 1:
        lanes = [intrinsic(name, [lane_of(o, i) for o in operands], element_of(result)) for i in range(width)]
        return vector_of(lanes)
    return instruction(name, operands, result)


def fma(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    if isinstance(a.type, ir.VectorType):
        return emit("vector.fma", [a, b, c], [c.type])
    return intrinsic(f"llvm.fma.{c.type}", [a, b, c], c.type)


def extend(value: ir.Value) -> ir.Value:
    """To f32, from f32, bf16 or f16."""
    element = element_of(value.type)
    if isinstance(element, ir.F32Type):
        return value
    return emit("arith.extf", [value], [with_width(f32(), width_of(value))])


def is_short(type_: ir.Type) -> bool:
    """Whether its elements are floats of 16 bits, whose arithmetic is done in f32."""
    return isinstance(element_of(type_), (ir.BF16Type, ir.F16Type))


def unshortened(value: ir.Value) -> ir.Value:
    """16-bit floats as f32; anything else as it is."""
    return extend(value) if is_short(value.type) else value


def shortened(value: ir.Value, element: ir.Type) -> ir.Value:
    """The reverse: rounded to an element type of 16 bits."""
    if element_of(value.type) == element:
        return value
    return emit("arith.truncf", [value], [with_width(element, width_of(value))])


def upper_half(value: ir.Value) -> ir.Value:
    """f32 without the lower half of its bits: as bf16 it is the same number."""
    type_ = with_width(i32(), width_of(value))
    bits = emit("arith.andi", [emit("arith.bitcast", [value], [type_]), constant(-65536, type_)], [type_])
    return emit("arith.bitcast", [bits], [value.type])


def binary(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    if name in INTRINSIC_BINARIES:
        return intrinsic(f"{INTRINSIC_BINARIES[name]}.{element_of(a.type)}", [a, b], a.type)
    return emit(name, [a, b], [a.type])


def horizontal(name: str, value: ir.Value) -> ir.Value:
    """All elements of a vector combined, as a balanced tree."""
    parts = [lane_of(value, i) for i in range(width_of(value))]
    while len(parts) > 1:
        parts = [binary(name, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def reduce_vector(kind: str, vector: ir.Value) -> ir.Value:
    """A vector's elements combined in any order; kind as in vector.reduction ("add", "maximumf", …)."""
    if not isinstance(vector.type, ir.VectorType):
        return vector
    attributes = {"kind": ir.Attribute.parse(f"#vector.kind<{kind}>")}
    if kind in ("add", "mul") and isinstance(element_of(vector.type), ir.FloatType):
        attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<reassoc>")
    return emit("vector.reduction", [vector], [element_of(vector.type)], **attributes)


def shuffle_xor(value: ir.Value, distance: int, subgroup: int) -> ir.Value:
    """The value of the lane whose number differs by `distance` in exclusive or."""
    mode = ir.Attribute.parse("#gpu<shuffle_mode xor>")
    operands = [value, constant(distance, i32()), constant(subgroup, i32())]
    return create_op("gpu.shuffle", operands, [value.type, i1()], {"mode": mode}).results[0]


def shuffle_from(value: ir.Value, lane: int | ir.Value, subgroup: int) -> ir.Value:
    """The value of the lane of that number, one for all or of each lane its own."""
    mode = ir.Attribute.parse("#gpu<shuffle_mode idx>")
    operands = [value, constant(lane, i32()) if isinstance(lane, int) else lane, constant(subgroup, i32())]
    return create_op("gpu.shuffle", operands, [value.type, i1()], {"mode": mode}).results[0]


def thread_id() -> ir.Value:
    return _dimension("gpu.thread_id", "x")


def block_id(axis: str = "x") -> ir.Value:
    return _dimension("gpu.block_id", axis)


def _dimension(name: str, axis: str) -> ir.Value:
    return emit(name, [], [ir.IndexType.get()], dimension=ir.Attribute.parse(f"#gpu<dim {axis}>"))


def barrier() -> None:
    create_op("gpu.barrier")


def shared(shape: Sequence[int], type_: ir.Type) -> ir.Value:
    """Memory of the block; becomes an attribution when kernels are collected into a gpu.module."""
    return allocated(shared_type(shape, type_), "memref.alloca")


def shared_type(shape: Sequence[int], type_: ir.Type) -> ir.Type:
    return ir.MemRefType.get(list(shape), type_, memory_space=ir.Attribute.parse(WORKGROUP))


def largest_width(extent: int, item_bytes: int, vector_bytes: int) -> int:
    """The most neighbours one lane can load at once from rows of `extent` items: a power of two that divides it."""
    width = vector_bytes // item_bytes
    while extent % width:
        width //= 2
    return width


def item_bytes(type_: ir.Type) -> int:
    """Of one element in memory."""
    return find_dtype(str(element_of(type_))).item_bytes
