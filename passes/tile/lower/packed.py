"""Weights in blocks as they lie in memory, on their way to matrix instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_formats import elements
from lispgpt.passes.kernels.block_weights import BlockWeights, joined
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.tensor_map import strided
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.copies import WORD, PackedOperand, flat, packed
from lispgpt.passes.tile.lower.memory import Slot


class Packed:
    """Where rows of blocks lie, from some row and some byte of it on."""

    blocks: BlockWeights
    target: Gpu

    def load(self, row: Index, byte: Index, width: int) -> ir.Value:
        """Bytes of a row, aligned to as many as there are, up to WORD."""
        raise NotImplementedError

    def read(self, tensor: ir.Value, index: Sequence[Index], width: int = 1) -> ir.Value:
        """Bytes of a block, by its row, its number in that, and theirs."""
        row, block, byte = index
        return self.load(row, b.add(b.mul(block, find_dtype(self.blocks.kind).item_bytes), byte), width)

    def _words(self, row: Index, k: Index, count: int) -> ir.Value:
        """The bytes with `count` neighbours along k, as a vector of i32."""
        return joined([self.field(i, row, k, 0, count) for i in range(len(self.blocks.format.bits))])

    def field(self, number: int, row: Index, k: Index, further: int, count: int) -> ir.Value:
        """As a vector of i32, `count` bytes from that on which has the number-th bits of the k-th number, and so many
        further."""
        size, block = find_dtype(self.blocks.kind).item_bytes, self.blocks.block
        byte = b.add(self.blocks.bytes_of(k)[number], further)
        if size % WORD == 0:
            first = self.blocks.format.bits[number].first
            return self.blocks.loaded(self, [row, b.div(k, block)], first, byte, count)
        return elements(self._shifted(row, b.add(b.mul(b.div(k, block), size), byte), count))

    def _shifted(self, row: Index, at: Index, count: int) -> list[ir.Value]:
        """Bytes from one on: of aligned words, neighbours of which are shifted together."""
        low = b.mul(b.div(at, WORD), WORD)
        places = [*(b.add(low, i) for i in range(0, count, WORD)), b.mul(b.div(b.add(at, count - 1), WORD), WORD)]
        word = ir.VectorType.get([1], b.i32())
        loaded = [self.load(row, place, WORD) for place in places]
        words = [b.lane_of(b.emit("vector.bitcast", [v], [word]), 0) for v in loaded]
        bits = b.emit("arith.index_cast", [b.as_value(b.mul(b.mod(at, WORD), 8))], [b.i32()])
        return [b.emit("llvm.intr.fshr", [words[i + 1], words[i], bits], [b.i32()]) for i in range(count // WORD)]

    def run(self, row: Index, k: Index, count: int) -> ir.Value:
        """`count` neighbours along k of a row without their scale, in BF16, which has all of them: the upper halves of
        what they are in F32."""
        whole = self.blocks.whole(self._words(row, k, count), k, self.target)
        halves = b.emit("vector.bitcast", [whole], [ir.VectorType.get([2 * count], b.integer(16))])
        upper = b.shuffled(halves, halves, range(1, 2 * count, 2))
        return b.emit("vector.bitcast", [upper], [b.with_width(ir.BF16Type.get(), count)])

    def scale(self, row: Index, k: Index) -> tuple[ir.Value, ir.Value | None]:
        """That of a row's numbers from k on, and what they have at least, in F32."""
        return self.blocks.scale(self.blocks.head_at(self, row, k), k)


@dataclass(frozen=True)
class PackedMemory(Packed):
    """operand: weights in blocks in memory."""

    operand: PackedOperand
    reader: Reader
    target: Gpu

    @staticmethod
    def operand_of(operand: Operand) -> PackedOperand | None:
        """None where it is not in blocks, or its rows are no whole words."""
        own = packed(operand)
        if not isinstance(own, PackedOperand) or strided(own.tensor) is None or own.along_k % WORD:
            return None
        return own

    @property
    def blocks(self) -> BlockWeights:  # type: ignore[override]
        return BlockWeights(self.operand.tensor, self.operand.blocks)

    def load(self, row: Index, byte: Index, width: int) -> ir.Value:
        memory, of = flat(self.operand)
        return self.reader.from_memory(memory, [of(0, row, byte)], width)

    def words(self, row: Index, k: Index, count: int) -> list[ir.Value]:
        """What is loaded for `count` of a row's numbers from k on, and for what scales them."""
        return [self._words(row, k, count), self.blocks.head_at(self, row, k)]


@dataclass(frozen=True)
class PackedSlot(Packed):
    """slot: one of a shared tile of blocks."""

    slot: Slot
    target: Gpu

    @property
    def blocks(self) -> BlockWeights:  # type: ignore[override]
        return BlockWeights(self.slot.memory, self.slot.tile.blocks)

    def load(self, row: Index, byte: Index, width: int) -> ir.Value:
        return b.load(self.slot.memory, [self.slot.slot, 0, row, byte], width)
