"""Weights in blocks as they lie in memory, on their way to matrix instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_formats import K_BLOCK, elements, joined
from lispgpt.passes.kernels.block_weights import BlockWeights
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
        fields = range(len(self.blocks.format.bits))
        return joined([self.field(self.field_loads(i, row, k, 0, count), i, k, 0, count) for i in fields])

    def field_loads(self, number: int, row: Index, k: Index, further: int, count: int) -> list[ir.Value]:
        """What is loaded for `count` bytes from that on which has the number-th bits of the k-th number, and so many
        further: a vector of i32, or aligned words of which neighbours are to be shifted together."""
        byte, at = self._place(number, k, further)
        if self._is_even:
            block, first = b.div(k, self.blocks.block), self.blocks.format.bits[number].first
            return [self.blocks.loaded(self, [row, block], first, byte, count)]
        low, word = b.mul(b.div(at, WORD), WORD), ir.VectorType.get([1], b.i32())
        places = [*(b.add(low, i) for i in range(0, count, WORD)), b.mul(b.div(b.add(at, count - 1), WORD), WORD)]
        loaded = [self.load(row, place, WORD) for place in places]
        return [b.lane_of(b.emit("vector.bitcast", [v], [word]), 0) for v in loaded]

    def field(self, loads: Sequence[ir.Value], number: int, k: Index, further: int, count: int) -> ir.Value:
        """These bytes as a vector of i32."""
        if self._is_even:
            return loads[0]
        _, at = self._place(number, k, further)
        bits = b.emit("arith.index_cast", [b.as_value(b.mul(b.mod(at, WORD), 8))], [b.i32()])
        return elements(
            [b.emit("llvm.intr.fshr", [loads[i + 1], loads[i], bits], [b.i32()]) for i in range(count // WORD)]
        )

    def _place(self, number: int, k: Index, further: int) -> tuple[Index, Index]:
        """A byte's number in its block, and in its row."""
        byte, blocks = b.add(self.blocks.bytes_of(k)[number], further), self.blocks
        return byte, b.add(b.mul(b.div(k, blocks.block), find_dtype(blocks.kind).item_bytes), byte)

    @property
    def _is_even(self) -> bool:
        """Whether blocks are of whole words."""
        return find_dtype(self.blocks.kind).item_bytes % WORD == 0

    def run(self, row: Index, k: Index, count: int) -> ir.Value:
        """`count` neighbours along k of a row without their scale, in BF16."""
        return self.blocks.short(self._words(row, k, count), k, self.target)

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

    def loads(self, row: Index, k: Index, runs: Runs) -> list[ir.Value]:
        """What a row's runs are made of, the first of which starts at k: bytes of each field, and what scales them."""
        fields = [
            value
            for number, further in enumerate(runs.further)
            for n in dict.fromkeys(further)
            for value in self.field_loads(number, row, k, n, runs.width)
        ]
        return fields + [value for run in runs.heads for value in self.blocks.head_loads(self, row, b.add(k, run))]

    def made(self, loads: Sequence[ir.Value], k: Index, runs: Runs) -> list[list[ir.Value]]:
        """Of each run the words with its numbers, and what scales them."""
        rest, fields = list(loads), []
        each = 1 if self._is_even else runs.width // WORD + 1
        for number, further in enumerate(runs.further):
            found = {}
            for n in dict.fromkeys(further):
                found[n] = self.field(rest[:each], number, k, n, runs.width)
                rest = rest[each:]
            fields.append([found[n] for n in further])
        size = len(rest) // len(runs.heads)
        heads = [self.blocks.format.scales.head(rest[i : i + size]) for i in range(0, len(rest), size)]
        heads = heads * (len(runs.starts) // len(heads))
        return [[joined(words), head] for *words, head in zip(*fields, heads, strict=True)]


@dataclass(frozen=True)
class Runs:
    """Runs of a row's numbers that a lane makes of the same bytes, as bits of several numbers are in one byte.

    width: neighbours of a run, which share a scale.  most: numbers of all runs.  span: from the first of them to the
    last, at most.
    """

    blocks: BlockWeights
    width: int
    most: int
    span: int = K_BLOCK

    @property
    def starts(self) -> list[int]:
        """Where they start, from the first of them on."""
        reach, shared = self._reach, [bits for bits in self.blocks.format.bits if bits.places > 1]
        whole = max((bits.places * bits.reach for bits in shared), default=reach)
        return [reach * number for number in range(min(whole // reach, self.most // self.width, self.span // reach))]

    @property
    def numbers(self) -> int:
        return self.width * len(self.starts)

    def first(self, number: Index) -> Index:
        """The number of a row with which the number-th of the lanes begins that share the row out."""
        lanes = self._reach // self.width
        period, within = b.div(number, lanes), b.mod(number, lanes)
        return b.add(b.mul(period, len(self.starts) * self._reach), b.mul(within, self.width))

    @property
    def further(self) -> list[list[int]]:
        """For each field of bits, how many bytes behind those of the first run those of each run are."""
        fields = self.blocks.format.bits
        return [[int(bits.byte_of(k)) - bits.first for k in self.starts] for bits in fields]  # type: ignore[arg-type]

    @property
    def heads(self) -> list[int]:
        """The runs of which what scales them is loaded."""
        return self.starts[:1] if self.blocks.format.scales.alike else self.starts

    @property
    def words(self) -> int:
        """That are loaded."""
        form, size = self.blocks.format, find_dtype(self.blocks.kind).item_bytes
        each = self.width // WORD + (size % WORD != 0)
        return sum(len(set(further)) for further in self.further) * each + len(self.heads) * form.scales.words

    @property
    def _reach(self) -> int:
        """Numbers between those that are in one byte of all fields of which it may be, within the span."""
        reaches = [bits.reach for bits in self.blocks.format.bits if bits.places > 1]
        return max((reach for reach in reaches if 2 * reach <= self.span), default=self.width)


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
