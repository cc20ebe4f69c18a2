"""round-activations: products with weights of 16 bits or fewer read activations in BF16, where precision is "fast".

Before:                                              After, with precision=fast:
  %y = linalg.generic … { … } -> tensor<4x8xf32>       %y = linalg.generic … { … } -> tensor<4x8xf32>
  %s = linalg.contract ins(%y, %w) …                   %n = linalg.generic ins(%y) { arith.truncf } -> tensor<4x8xbf16>
    tensor<4x8xf32>, tensor<6x8xbf16>                  %s = linalg.contract ins(%n, %w) …
                                                         tensor<4x8xbf16>, tensor<6x8xbf16>

Requires: entries on tensors, and what contract-products ensures.
Ensures: with precision=fast, of each product of a short operand (BF16, F16, or numbers in blocks) and one in F32 that
the entry computes, the latter is rounded to BF16 right behind the op that makes it, whose kernel then stores it so; a
program may write the same as `(cast x bf16)`.  What is rounded for one product is so for others, such as those of
gradients.  Attention whose keys and values are kept in F32 rounds them, and what meets them, in its products' bodies,
which schedules may take for a permission; and what blocks stand for is marked as what products of many rows may
round.  An entry whose products all have fewer than `least` rows stays as it is, since reading weights is what it
takes.  What only such products of `rows` rows and more, and caches that only they read, take is rounded where it is
made, too: its kernel stores half the bytes.  `math.tanh` may be approximated (`afn`).  With precision=exact nothing
changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from lispgpt.base.errors import UserError
from lispgpt.base.precisions import EXACT, PRECISIONS
from lispgpt.ir import build as b
from lispgpt.ir.linalg_ops import contract, elementwise
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    RESHAPES,
    VIEWS,
    defining_op,
    dim_positions,
    element_type,
    entry_functions,
    everything_in,
    indexing_maps,
    is_elementwise,
    loop_extents,
    operations,
    shape_of,
    viewed,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.recognise.bf16_parts import ROUNDED
from lispgpt.passes.recognise.cache_writes import readers_of
from lispgpt.passes.recognise.find_attention import find_attentions
from lispgpt.passes.recognise.find_gradients import is_product
from lispgpt.passes.states import UNPLACED

APPROXIMATED = ("math.tanh",)
"""Functions for which chips have instructions that are less exact than an F32."""


@dataclass(frozen=True)
class RoundActivations(Pass):
    """precision: exact or fast.  least: the fewest rows of an entry's products, of the one with most, that are rounded.
    rows: of a sequence, the fewest whose queries, keys and values are rounded early."""

    starts_from = (UNPLACED,)
    precision: str = EXACT
    least: int = 1
    rows: int = 64

    def run(self, module: ir.Module, target: object) -> None:
        if self.precision not in PRECISIONS:
            raise UserError(f"round-activations: precision is {' or '.join(PRECISIONS)}, not {self.precision!r}")
        if self.precision == EXACT:
            return
        for entry in entry_functions(module):
            block = entry.regions[0].blocks[0]
            rounding = _Rounding(operations(block))
            if rounding.most_rows() >= self.least and rounding.replace():
                _permit_rounding(block)
                _drop_unread_views(block)
                _approximate(entry)
                for attention in find_attentions(operations(block)):
                    _round_attention(attention, self.rows)


def _permit_rounding(block: ir.Block) -> None:
    """Let products of many rows round what blocks stand for."""
    for op in operations(block):
        if "blocks" in op.attributes:
            op.attributes[ROUNDED] = ir.UnitAttr.get()


def _approximate(entry: ir.Operation) -> None:
    """Let functions be what a chip's own instructions make of them, with errors of 2^-11 beside BF16's 2^-9."""
    for op in everything_in(entry):
        if op.name in APPROXIMATED:
            op.attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<afn>")


class _Rounding:
    """What an entry's products read in F32, and the same in BF16."""

    def __init__(self, ops: list[ir.Operation]) -> None:
        self.products = [op for op in ops if is_product(op)]
        self.roots: set[ir.Value] = set()
        self.rounded: dict[ir.Value, ir.Value] = {}
        self.root_of = {value: _root(value) for op in self.products for value in list(op.operands)[:2]}

    def most_rows(self) -> int:
        """Of the products that read what is computed: extents of results that are not the other operand's, too."""
        return max((_rows(product, value) for product in self.products for value in self._wanted(product)), default=0)

    def replace(self) -> bool:
        """Have products read in BF16 what they can; whether any does."""
        growing = True
        while growing:
            more = {self.root_of[value] for product in self.products for value in self._wanted(product)}
            growing = not more <= self.roots
            self.roots |= more
        found = [(product, self._wanted(product)) for product in self.products]
        read = [[self._in_bf16(v) if v in wanted else v for v in list(op.operands)[:2]] for op, wanted in found]
        for (product, wanted), sides in zip(found, read, strict=True):
            if wanted:
                _replace(product, sides)
        for root in list(self.rounded):
            self._round_once(root)
        return bool(self.roots)

    def _round_once(self, root: ir.Value) -> None:
        """Have those who round what is rounded already, such as writes to caches of BF16, take it as it is."""
        for op in readers_of(root):
            if _is_rounding(op) and viewed(op.operands[0]) == root and op.results[0] != self.rounded[root]:
                short = _view_of(op.operands[0], {root: self.rounded[root]})
                op.results[0].replace_all_uses_with(short)
                op.erase()

    def _wanted(self, product: ir.Operation) -> list[ir.Value]:
        """The operands to round: those computed in F32, where the other is short or is rounded too."""
        sides = list(product.operands)[:2]
        short = [self._is_short(value) for value in sides]
        wanted = [value for value, other in zip(sides, reversed(short), strict=True) if other and _is_computed(value)]
        ready = all(is_short or value in wanted for value, is_short in zip(sides, short, strict=True))
        return wanted if ready else []

    def _is_short(self, value: ir.Value) -> bool:
        return b.is_short(value.type) or _is_in_blocks(value) or self.root_of.get(value) in self.roots

    def _in_bf16(self, value: ir.Value) -> ir.Value:
        root = self.root_of.get(value, value)
        if root not in self.rounded:
            self.rounded[root] = _rounded(root)
        return _view_of(value, self.rounded)


def _rows(product: ir.Operation, value: ir.Value) -> int:
    left, right, result = (set(dim_positions(map_)) for map_ in indexing_maps(product))
    extents, others = loop_extents(product), right if value == product.operands[0] else left
    return prod(extents[dim] for dim in result - others)


def _root(value: ir.Value) -> ir.Value:
    """What a value is a reshape of, or a slice of, where all that reads that are products and what rounds it."""
    op = defining_op(value)
    while op is not None and (
        op.name in RESHAPES or (op.name == "tensor.extract_slice" and _is_for_products(op.operands[0]))
    ):
        value = op.operands[0]
        op = defining_op(value)
    return value


def _is_computed(value: ir.Value) -> bool:
    """Whether an entry computes a value in F32, so that it is neither a weight, a state, nor an input."""
    op = defining_op(viewed(value))
    return (
        op is not None and op.name.startswith("linalg.") and element_type(value) == b.f32() and not _is_in_blocks(value)
    )


def _is_in_blocks(value: ir.Value) -> bool:
    """Whether a value is what blocks of numbers stand for."""
    op = defining_op(viewed(value))
    return op is not None and "inline" in op.attributes


def _is_for_products(value: ir.Value) -> bool:
    """Whether products alone, and ops that round it to BF16, read a value, directly or through views."""
    readers = [use.owner.operation for use in value.uses]
    return all(
        _is_for_products(op.results[0]) if op.name in VIEWS else is_product(op) or _is_rounding(op) for op in readers
    )


def _is_rounding(op: ir.Operation) -> bool:
    """Whether an op rounds an F32 tensor to BF16, and nothing else."""
    if not is_elementwise(op) or len(op.operands) != 2 or element_type(op.results[0]) != ir.BF16Type.get():
        return False
    block = op.regions[0].blocks[0]
    *ops, last = operations(block)
    in_place = indexing_maps(op)[0] == indexing_maps(op)[1]
    rounds = [inner.name for inner in ops] == ["arith.truncf"] and last.operands[0] == ops[0].results[0]
    return in_place and rounds and ops[0].operands[0] == block.arguments[0] and element_type(op.operands[0]) == b.f32()


def _drop_unread_views(block: ir.Block) -> None:
    for op in reversed(operations(block)):
        if op.name in VIEWS and not any(True for _ in op.results[0].uses):
            op.erase()


def _round_attention(attention: Attention, rows: int) -> None:
    """Have both products round what they multiply, and round early what they and the cache alone take."""
    many = max((attention.extents[d] for d in attention.query_dims), default=0) >= rows
    queries, inserts = attention.queries.tensor, [write.insert for write in attention.writes]
    made = [_replace(op, list(op.operands)[:2], rounds=True) for op in (attention.scores, attention.weighted)]
    sources = [queries, *(insert.operands[0] for insert in inserts)] if many else []
    for root in dict.fromkeys(map(viewed, sources)):
        if _is_computed(root) and all(reader in (*made, *inserts) for reader in readers_of(root)):
            short = {root: _rounded(root)}
            for insert in inserts:
                if viewed(insert.operands[0]) == root:
                    row = _view_of(insert.operands[0], short)
                    with ir.InsertionPoint(insert):
                        insert.operands[0] = elementwise([row], insert.operands[0].type, b.extend)
            if viewed(queries) == root:
                sides = [_view_of(v, short) if v == queries else v for v in list(made[0].operands)[:2]]
                made[0] = _replace(made[0], sides, rounds=True)
    for write in attention.writes:
        _drop_unread_views(write.loop.regions[0].blocks[0])
    _drop_unread_views(made[0].block)


def _rounded(value: ir.Value) -> ir.Value:
    """An F32 tensor in BF16, right behind the op that makes it."""
    bf16 = ir.BF16Type.get()
    with ir.InsertionPoint.after(defining_op(value)):
        type_ = ir.RankedTensorType.get(list(shape_of(value)), bf16)
        return elementwise([value], type_, lambda number: b.shortened(number, bf16))


def _view_of(value: ir.Value, rounded: dict[ir.Value, ir.Value]) -> ir.Value:
    """The same view of what is rounded."""
    if value not in rounded:
        op = defining_op(value)
        source = _view_of(op.operands[0], rounded)
        type_ = ir.RankedTensorType.get(list(shape_of(value)), ir.BF16Type.get())
        attributes = {name: op.attributes[name] for name in op.attributes}
        with ir.InsertionPoint.after(op):
            rounded[value] = create_op(op.name, [source, *list(op.operands)[1:]], [type_], attributes).results[0]
    return rounded[value]


def _replace(product: ir.Operation, sides: Sequence[ir.Value], rounds: bool = False) -> ir.Operation:
    """Put a product of these operands in another's place.  rounds: whether its body rounds what is F32 of them."""

    def factor(number: ir.Value) -> ir.Value:
        short = b.shortened(number, ir.BF16Type.get()) if rounds and not b.is_short(number.type) else number
        return b.extend(short)

    def body(values: Sequence[ir.Value]) -> ir.Value:
        return b.binary("arith.addf", values[2], b.binary("arith.mulf", factor(values[0]), factor(values[1])))

    with ir.InsertionPoint(product), product.location:
        made = contract(sides[0], sides[1], product.operands[2], indexing_maps(product), body)
    product.results[0].replace_all_uses_with(made)
    product.erase()
    return defining_op(made)
