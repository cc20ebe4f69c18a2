"""Rows that a kernel packs by itself: each of some neighbouring lanes makes the bytes of its own numbers.

What an op's attribute `packs` names makes bytes [blocks, bytes] of numbers; lib/packed.lisp says how, byte by byte:
those of a scale, which the largest of a block's numbers gives, are ahead of a byte for each number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any

from lispgpt.base.dtypes import OWN_BLOCKS
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import operations, shape_of
from lispgpt.passes.kernels.block_formats import FORMATS
from lispgpt.passes.kernels.elementwise import Body, Iota
from lispgpt.passes.kernels.packed_rows import unpacked_numbers
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.team import Neighbours
from lispgpt.passes.kernels.views import behind_views
from lispgpt.passes.targets import Gpu

WORD = 4


@dataclass(frozen=True)
class PackedShare:
    """`width` neighbours of a row from the start-th on, all of one block.

    op: what packs.  first: the row's first block in its result.
    """

    op: ir.Operation
    first: Index
    start: Index
    width: int

    @classmethod
    def of(cls, row: ir.Value, index: list[Index], start: Index, width: int, reader: Reader) -> PackedShare:
        """row: made of packed blocks by views alone.  index: of its first byte."""
        op, index = behind_views(row, index, reader)
        if op is None or "packs" not in op.attributes:
            raise Refused("its rows are kept packed, and it does not pack them")
        found = cls(op, index[0], start, width)
        if found.block % width:
            raise Refused("a lane's numbers would be of several blocks")
        return found

    @cached_property
    def kind(self) -> str:
        return ir.StringAttr(self.op.attributes["packs"]).value

    @cached_property
    def nbytes(self) -> int:
        """Of a block."""
        return shape_of(self.op.results[0])[-1]

    @property
    def head(self) -> int:
        """Bytes of a block ahead of those of its numbers."""
        return FORMATS[self.kind].bits[0].first

    @property
    def block(self) -> int:
        """Numbers of a block."""
        return self.nbytes - self.head

    @property
    def within(self) -> tuple[Index, Index]:
        """The block of the row that the first number is in, and its number there."""
        if self.kind in OWN_BLOCKS:
            return 0, self.start
        return b.div(self.start, self.block), b.mod(self.start, self.block)

    def bytes(self, reader: Reader, lane: Index, lanes: int, target: Gpu) -> tuple[ir.Value, ir.Value]:
        """Those of the numbers, and those of their block's scale.  lane, lanes: of how many that have a row."""
        number, within = self.within
        place = b.add(self.first, number)
        together = lanes if self.kind in OWN_BLOCKS else self.block // self.width
        behind = operations(self.op.regions[0].blocks[0])[-3].operands[0]
        alone, reader.team = reader.team, Neighbours(lane, together, target.subgroup)
        with reader.scope():
            with reader.assuming(frozenset([behind])), reader.stepping():
                (numbers,) = _Behind(reader, self.op, [place, b.add(self.head, within)], self.width).results({})
            (head,) = Body(reader, self.op, [place, 0], self.head).results({})
        reader.team = alone
        return numbers, head

    def numbers(self, numbers: ir.Value, head: ir.Value, target: Gpu) -> ir.Value:
        """What such bytes stand for, in bf16."""
        nothing = b.constant(0, b.integer(8))
        lanes = [b.lane_of(numbers, i) if self.width > 1 else numbers for i in range(self.width)]
        whole = b.vector_of([*lanes, *[nothing] * (-self.width % WORD)])
        words = b.emit("vector.bitcast", [whole], [ir.VectorType.get([b.width_of(whole) // WORD], b.i32())])
        scale = b.emit("vector.bitcast", [head], [ir.VectorType.get([1], b.integer(8 * self.head))])
        found = unpacked_numbers(self.kind, words, scale, b.width_of(whole), target)
        if self.width == b.width_of(whole):
            return found
        return b.vector_of([b.lane_of(found, i) for i in range(self.width)])

    def store(self, numbers: ir.Value, head: ir.Value, put: Callable[[ir.Value, Index], None]) -> None:
        """put: stores neighbouring bytes, of a row from one on."""
        number, within = self.within
        first = b.mul(number, self.nbytes)
        size = gcd(self.head, self.nbytes, self.width)
        for at in range(0, self.width, size):
            piece = b.shuffled(numbers, numbers, range(at, at + size)) if self.width > size else numbers
            put(
                piece if size > 1 or self.width == 1 else b.lane_of(piece, 0),
                b.add(first, b.add(b.add(self.head, within), at)),
            )
        b.if_then(b.equal(within, 0), lambda: put(head, first))


class _Behind(Body):
    """Bytes behind a block's head, made of numbers that are as far from the block's first as they are from the head."""

    def _result(self, op: ir.Operation) -> Any:
        first = self.values.get(op.operands[0]) if len(op.operands) else None
        if op.name == "arith.subi" and isinstance(first, Iota):
            return Iota(b.sub(first.base, self.reader.index_of(op.operands[1])))
        return super()._result(op)
