"""Packed rows of a state read a vector of numbers at a time, as `block_formats` has them.

What an op's attribute `packed` names computes bf16 numbers [rows, row] of bytes [rows, blocks, bytes]; lib/packed.lisp
says how, one number at a time.  What `packs` names makes such bytes, [blocks, bytes], of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from lispgpt.base.dtypes import OWN_BLOCKS, find_dtype, row_bytes
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, shape_of, tensor_behind, viewed
from lispgpt.passes.kernels.block_formats import EXCESS, FORMATS, as_floats, raised, words_of
from lispgpt.passes.kernels.elementwise import Values
from lispgpt.passes.targets import Gpu, Target


def packed_kind(tensor: ir.Value) -> str:
    """The type of the packed rows whose numbers a tensor is; "" where it is something else."""
    op = defining_op(viewed(tensor))
    return ir.StringAttr(op.attributes["packed"]).value if op is not None and "packed" in op.attributes else ""


def packed_numbers(op: ir.Operation, reader: Values, index: Sequence[Index], width: int) -> ir.Value | None:
    """`width` neighbours of what a `packed` op computes, in bf16; None where they are to be read one by one."""
    loads = packed_loads(op, reader, index, width)
    if loads is None:
        return None
    return unpacked_numbers(ir.StringAttr(op.attributes["packed"]).value, *loads, width, reader.target)


def packed_loads(
    op: ir.Operation, reader: Values, index: Sequence[Index], width: int
) -> tuple[ir.Value, ir.Value] | None:
    """The words with the bytes of `width` neighbours of what a `packed` op computes, and with those that scale them.

    None where they are to be read one by one.
    """
    kind, (rows, row) = ir.StringAttr(op.attributes["packed"]).value, shape_of(op.results[0])
    block = row if kind in OWN_BLOCKS else find_dtype(kind).block
    nbytes, first = row_bytes(kind, block), FORMATS[kind].bits[0].first
    stored = tensor_behind(op, (rows, row // block, nbytes))
    within = block == row or (block % width == 0 and (reader.in_step or reader.target.aligned_rows))
    if stored is None or (width % 4 and width != 2) or not within:
        return None
    where, number = index
    place = [where, b.div(number, block) if block < row else 0]
    number = b.mod(number, block) if block < row else number

    def load(start: Index, count: int) -> ir.Value:
        """Bytes of the block, in loads as wide as its alignment allows, or as divide rows evenly."""
        with reader.stepping(reader.target.aligned_rows):
            size = gcd(first, nbytes, count) if reader.target.aligned_rows else gcd(row_bytes(kind, row), count)
            return words_of(lambda at, wide: reader.read(stored, [*place, at], wide), start, count, size)

    return load(b.add(first, number), width), load(0, first)


def unpacked_numbers(kind: str, words: ir.Value, head: ir.Value, width: int, target: Target) -> ir.Value:
    """In bf16, `width` neighbours of words with their bytes, and with what is ahead of their block's."""
    scale = b.splat(FORMATS[kind].scales.scale(head, 0)[0], width)
    floats = find_dtype(kind).floats
    if floats and width == 2:
        words = b.emit("arith.extui", [words], [ir.VectorType.get([1], b.i32())])
    if floats:
        found = as_floats(words) if target.aligned_rows else _by_integers(words)
        found = found if width > 2 else b.shuffled(found, found, range(2))
        value = b.binary("arith.mulf", found, scale)
        return _upper(value) if target.aligned_rows else b.shortened(value, ir.BF16Type.get())
    found = b.emit("vector.bitcast", [words], [ir.VectorType.get([width], b.integer(8))])
    real = b.emit("arith.sitofp", [found], [b.with_width(b.f32(), width)])
    return b.shortened(b.binary("arith.mulf", real, scale), ir.BF16Type.get())


def unscaled_numbers(
    kind: str, words: ir.Value, head: ir.Value, width: int, target: Gpu
) -> tuple[ir.Value, ir.Value | None]:
    """The same in f32, a multiple of four, and what all of a row are yet to be multiplied by, if anything."""
    scale = FORMATS[kind].scales.scale(head, 0)[0]
    if not find_dtype(kind).floats:
        raw = raised(b.binary("arith.xori", words, b.constant(0x80808080, words.type)), 23)
        whole = b.binary("arith.subf", raw, b.constant(float(2**23 + 128), raw.type))
        rounded = b.shortened(b.binary("arith.mulf", whole, b.splat(scale, width)), ir.BF16Type.get())
        return b.extend(rounded), None
    if target.widens_e4m3:
        excess = b.constant(1 / EXCESS, b.f32())
        return b.extend(target.widened_e4m3(words)), b.binary("arith.mulf", scale, excess)
    return as_floats(words), scale


def _by_integers(words: ir.Value) -> ir.Value:
    """As `as_floats`, for chips that convert an f16 by itself: an f32 with these bits is 2^120 times as small."""
    count = 4 * b.width_of(words)
    own = b.emit("vector.bitcast", [words], [ir.VectorType.get([count], b.integer(8))])
    wide = b.emit("arith.extui", [own], [ir.VectorType.get([count], b.i32())])
    parts = [
        b.binary("arith.shli", b.binary("arith.andi", wide, b.constant(mask, wide.type)), b.constant(up, wide.type))
        for mask, up in ((127, 20), (128, 24))
    ]
    found = b.emit("arith.bitcast", [b.binary("arith.ori", *parts)], [b.with_width(b.f32(), count)])
    return b.binary("arith.mulf", found, b.constant(2.0**120 / EXCESS, found.type))


def _upper(value: ir.Value) -> ir.Value:
    """A vector of f32 that bf16 has all of, in bf16."""
    count = b.width_of(value)
    halves = b.emit("vector.bitcast", [value], [ir.VectorType.get([2 * count], b.integer(16))])
    upper = b.shuffled(halves, halves, range(1, 2 * count, 2))
    return b.emit("vector.bitcast", [upper], [b.with_width(ir.BF16Type.get(), count)])
