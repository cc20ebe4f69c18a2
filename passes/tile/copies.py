"""How boxes of a view can be brought to shared memory, by where the view's elements lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, integers, shape_of
from lispgpt.passes.kernels.block_weights import BlockWeights
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.tensor_map import Boxes, find_boxes, strided
from lispgpt.passes.recognise.product_layout import ProductLayout
from lispgpt.passes.targets.tensor_copies import TensorCopies

BULK, ASYNC, REGISTERS = "bulk", "async", "registers"
"""Whole boxes by one thread, which a barrier counts; pieces of PIECE bytes by each thread, in groups that it waits for;
loads into registers, of anything that can be read."""

COPIES = (REGISTERS, ASYNC, BULK)

STORED = 2
"""BF16 numbers as which F32 ones are stored, where they are (see store-parts)."""

PIECE, WORD = 16, 4
"""Bytes that one asynchronous copy of a thread brings, and that a thread loads at once at least."""


def operand_of(view: ir.Value) -> Operand:
    """What a tile.view, limited or not, shows: a tensor by (batch, outer, inner)."""
    op = defining_op(view)
    op = defining_op(op.operands[0]) if op.name == "tile.limit" else op
    kinds = [tuple(integers(op.attributes[name])) for name in ("batch", "outer", "inner")]
    seen = PackedOperand if op.operands[0].type.element_type == b.integer(8) else Operand
    return seen(*seen_as(op.operands[0], kinds))


@dataclass(frozen=True)
class PackedOperand(Operand):
    """The bytes of weights in blocks, [columns blocks bytes], those of a column being its inner dimension.

    blocks: their type, where it is asked for.
    """

    blocks: str = ""

    @property
    def along_k(self) -> int:
        """How many bytes lie side by side and start at a multiple of as many, in each column."""
        view = strided(self.tensor)
        return 1 if view is None else gcd(self.layout.extent(self.layout.sums), view.offset, view.strides[0])

    def read(self, reader: Reader, batch: Index, outer: Index, k: Index, width: int = 1) -> ir.Value:
        memory, of = flat(self)
        return reader.from_memory(memory, [of(batch, outer, k)], width)


def packed(operand: Operand) -> Operand:
    """An operand in blocks along k by its bytes, any other as it is."""
    weights = BlockWeights.of(operand)
    if weights is None:
        return operand
    return replace(PackedOperand(*seen_as(weights.blocks, [(), (0,), (1, 2)])), blocks=weights.kind)


Seen = tuple[ir.Value, ProductLayout, tuple[int, ...], tuple[int, ...]]


def seen_as(tensor: ir.Value, kinds: Sequence[tuple[int, ...]]) -> Seen:
    """What an Operand of a tensor has, by its dimensions of each kind."""
    dims = tuple(range(len(shape_of(tensor))))
    layout = ProductLayout(shape_of(tensor), kinds[0], kinds[1], (), kinds[2], dims, (), ())
    return tensor, layout, dims, kinds[1]


def whole_words(operand: Operand) -> int:
    """The least count of numbers along k that are in whole blocks and whole words; 1 where it is in no blocks."""
    if not isinstance(operand, PackedOperand):
        return 1
    dtype = find_dtype(operand.blocks)
    return dtype.block * (WORD // gcd(dtype.item_bytes, WORD))


def stored_parts(operand: Operand) -> int:
    """BF16 numbers that are stored of an element; 1 where it is what is stored."""
    return 1 if strided(operand.tensor) is not None or strided(operand.tensor, 0) is None else STORED


def boxes_of(operand: Operand, copies: TensorCopies, across: bool = False) -> list[Boxes]:
    """The operand's parts, in most cases one, as bulk copies of boxes with its inner dimension innermost see them,
    or where that is wanted, its outer one; none where they cannot."""
    kinds, count = (operand.layout.batch, operand.outer, operand.layout.sums), stored_parts(operand)
    views = [strided(operand.tensor, part if count > 1 else None) for part in range(count)]
    found = [find_boxes(view, operand.layout, operand.dimensions, kinds, copies) for view in views]
    good = [x for x in found if x is not None and x.is_along(1 if across else 2) and _is_copied(x)]
    return good if len(good) == count else []


def _is_copied(boxes: Boxes) -> bool:
    return str(boxes.argument.type.element_type) in ("bf16", "f32")


def has_whole_pieces(operand: Operand) -> bool:
    """Whether its inner dimension lies in memory in aligned pieces of PIECE bytes."""
    view = strided(operand.tensor)
    if view is None or view.strides[-1] != 1:
        return False
    if isinstance(operand, PackedOperand):
        return operand.along_k % PIECE == 0
    piece = PIECE // b.item_bytes(view.argument.type)
    wide = [n for n, extent in zip(view.strides[:-1], view.extents[:-1], strict=True) if extent > 1]
    return operand.along_k % piece == 0 and all(n % piece == 0 for n in (view.offset, *wide))


def is_direct(operand: Operand) -> bool:
    """Whether lanes can load it as matrix instructions take it: BF16 or F32 in whole pieces, or blocks of which rows
    are whole words."""
    if isinstance(operand, PackedOperand):
        return strided(operand.tensor) is not None and operand.layout.extent(operand.layout.sums) % WORD == 0
    return operand.dtype in ("bf16", "f32") and has_whole_pieces(operand)


def flat(view: Operand) -> tuple[ir.Value, Callable[[Index, Index, Index], Index]]:
    """The memory of a view as one row of elements, and what gives an element's number in it."""
    found = strided(view.tensor)
    assert found is not None
    memory = b.flattened(found.argument)

    def of(batch: Index, outer: Index, inner: Index) -> Index:
        if isinstance(view, PackedOperand):
            return b.add(b.add(found.offset, b.mul(outer, found.strides[0])), inner)
        total: Index = found.offset
        for index, stride in zip(view.index(batch, outer, inner), found.strides, strict=True):
            total = b.add(total, b.mul(index, stride))
        return total

    return memory, of
