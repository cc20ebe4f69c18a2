"""CPU instructions that multiply pairs of bf16 and add to sums in f32, and how their operands lie in memory.

An operand is packed in tiles of 16 lines by 16 words of 32 bits; a word is two neighbours along k.  A line of the left
operand is a row, its words are pairs; a line of the right one is a pair, its words are columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir

LINES = 16
"""Of a tile, and words in a line."""

TILE_BYTES = 4 * LINES * LINES


@dataclass(frozen=True)
class Pairs:
    """An instruction.  feature: Linux's name of what a CPU has that knows it.

    rows: of the sums that one instruction adds to, 16 columns each.  pairs: of a row that it multiplies.  row_tiles,
    column_tiles: of such sums that registers hold beside operands.  speed: products in a cycle, nearly.
    permission: what a process has to ask its system for, by the name that `runtime/devices/cpu.py` has for it.
    """

    feature: str
    rows: int
    pairs: int
    row_tiles: int
    column_tiles: int
    speed: int
    permission: str = ""

    def zero(self) -> ir.Value:
        """Sums of nothing."""
        raise NotImplementedError

    def sums(self, memory: ir.Value, row: Index, column: Index) -> ir.Value:
        """Sums that start at a place of f32 memory [rows columns]."""
        raise NotImplementedError

    def store(self, sums: ir.Value, memory: ir.Value, row: Index, column: Index) -> None:
        raise NotImplementedError

    def left(self, panel: ir.Value, tile: Sequence[Index], line: Index, pair: Index) -> ir.Value:
        """`rows` lines of one of a panel's tiles, from `line` and `pair` on."""
        raise NotImplementedError

    def right(self, panel: ir.Value, tile: Sequence[Index], pair: Index) -> ir.Value:
        """`pairs` lines of one of a panel's tiles."""
        raise NotImplementedError

    def multiply(self, left: ir.Value, right: ir.Value, sums: ir.Value) -> ir.Value:
        raise NotImplementedError


class Tiles(Pairs):
    """Intel's AMX: tdpbf16ps on registers of 16 lines of 64 bytes.  Numbers below 2^-126 count as 0."""

    def zero(self) -> ir.Value:
        return b.instruction("llvm.x86.tilezero.internal", [_i16(LINES), _i16(64)], _tile_type())

    def sums(self, memory: ir.Value, row: Index, column: Index) -> ir.Value:
        return self._load(*self._place(memory, row, column))

    def store(self, sums: ir.Value, memory: ir.Value, row: Index, column: Index) -> None:
        operands = [_i16(LINES), _i16(64), *self._place(memory, row, column), sums]
        b.instruction("llvm.x86.tilestored64.internal", operands, None)

    def left(self, panel: ir.Value, tile: Sequence[Index], line: Index, pair: Index) -> ir.Value:
        return self.right(panel, tile, pair)

    def right(self, panel: ir.Value, tile: Sequence[Index], pair: Index) -> ir.Value:
        linear: Index = 0
        for index, extent in zip(tile, panel.type.shape, strict=False):
            linear = b.add(b.mul(linear, extent), index)
        return self._load(_address(panel, b.mul(linear, TILE_BYTES)), _i64(64))

    def multiply(self, left: ir.Value, right: ir.Value, sums: ir.Value) -> ir.Value:
        operands = [_i16(LINES), _i16(64), _i16(64), sums, left, right]
        return b.instruction("llvm.x86.tdpbf16ps.internal", operands, _tile_type())

    @staticmethod
    def _load(address: ir.Value, stride: ir.Value) -> ir.Value:
        return b.instruction("llvm.x86.tileloadd64.internal", [_i16(LINES), _i16(64), address, stride], _tile_type())

    @staticmethod
    def _place(memory: ir.Value, row: Index, column: Index) -> tuple[ir.Value, ir.Value]:
        columns = memory.type.shape[1]
        return _address(memory, b.mul(b.add(b.mul(row, columns), column), 4)), _i64(4 * columns)


class Vectors(Pairs):
    """AVX512-BF16: vdpbf16ps.  Numbers below 2^-126 count as 0."""

    def zero(self) -> ir.Value:
        return b.constant(0.0, b.with_width(b.f32(), LINES))

    def sums(self, memory: ir.Value, row: Index, column: Index) -> ir.Value:
        return b.load(memory, [row, column], LINES)

    def store(self, sums: ir.Value, memory: ir.Value, row: Index, column: Index) -> None:
        b.store(sums, memory, [row, column])

    def left(self, panel: ir.Value, tile: Sequence[Index], line: Index, pair: Index) -> ir.Value:
        return self._as_pairs(b.splat(b.load(panel, [*tile, line, pair], 1), LINES))

    def right(self, panel: ir.Value, tile: Sequence[Index], pair: Index) -> ir.Value:
        return self._as_pairs(b.load(panel, [*tile, pair, 0], LINES))

    def multiply(self, left: ir.Value, right: ir.Value, sums: ir.Value) -> ir.Value:
        return b.instruction("llvm.x86.avx512bf16.dpbf16ps.512", [sums, left, right], sums.type)

    @staticmethod
    def _as_pairs(words: ir.Value) -> ir.Value:
        return b.emit("vector.bitcast", [words], [b.with_width(ir.BF16Type.get(), 2 * LINES)])


def _tile_type() -> ir.Type:
    return ir.Type.parse("!llvm.x86_amx")


def _i16(value: int) -> ir.Value:
    return b.constant(value, b.integer(16))


def _i64(value: int) -> ir.Value:
    return b.constant(value, b.i64())


def _address(memory: ir.Value, offset: Index) -> ir.Value:
    """Of a byte in memory."""
    return b.pointer(b.add(b.address_of(memory), offset))


AMX_BF16 = Tiles("amx_bf16", rows=16, pairs=16, row_tiles=2, column_tiles=2, speed=256, permission="amx")
AVX512_BF16 = Vectors("avx512_bf16", rows=1, pairs=1, row_tiles=8, column_tiles=3, speed=32)
