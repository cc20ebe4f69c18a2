"""Blocks of whole numbers with scales, packed for a clustered launch: in chunks as bulk copies bring them, and in these
in the order in which lanes read them for matrix instructions.

In a chunk a step of a tile is 256 bytes, 8 of each lane: a word for each of its two rows, whose bytes 0 and 2 are the
first two of the row's numbers, as BF16 one of an instruction's words, and bytes 1 and 3 the two that are 8 further.
Behind all numbers lie the scales, those of a grain of the depth for all rows together.  Behind all chunks lies one of
zeros, for those that are past a weight's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import strings
from lispgpt.passes.decode_step.chain import Product
from lispgpt.passes.kernels.block_formats import FORMATS
from lispgpt.passes.memory.kernel_buffers import add_argument
from lispgpt.passes.plan.packings import Place, Run, add_packing, pieces_of, runs_of
from lispgpt.passes.targets import ptx

STEP, DEEP, LANE = 256, 16, 8
"""Of a step: bytes of a tile's numbers, the depth, and bytes of a lane's."""
COLUMNS = 64


@dataclass(frozen=True)
class PackedWeights:
    """A product's.  rows: of a chunk, filled up to tiles.  grain: numbers of the depth that share a scale of a row.
    chunks: of a part, the one of zeros behind them included.  parts: one, or of columns each rank's own.  span: columns
    from whose multiples on chunks start anew; 0: they are of rows."""

    product: Product
    rows: int
    depth: int
    grain: int
    chunks: int
    parts: int
    span: int

    @staticmethod
    def of_rows(product: Product) -> PackedWeights:
        """In chunks of 8 rows, whose two halves of the depth are the upper and the lower rows of a tile."""
        grain = find_dtype(product.kind).block
        return PackedWeights(product, 8, product.depth, grain, -(-product.rows // 8) + 1, 1, 0)

    @staticmethod
    def of_columns(product: Product, span: int, ranks: int) -> PackedWeights:
        """In chunks of 64 columns of a rank's rows, anew from each multiple of `span` on."""
        grain = gcd(find_dtype(product.kind).block, COLUMNS, span)
        each, rows = -(-span // COLUMNS), product.rows // ranks
        chunks = -(-product.depth // span) * each + 1
        return PackedWeights(product, -(-rows // 16) * 16, COLUMNS, grain, chunks, ranks, span)

    @property
    def scale_bytes(self) -> int:
        return FORMATS[self.product.kind].bits[0].first

    @property
    def chunk(self) -> int:
        """Bytes."""
        return self.rows * self.depth + self.depth // self.grain * self.rows * self.scale_bytes

    @property
    def part(self) -> int:
        return self.chunks * self.chunk

    def add_to(self, entry: ir.Operation, layers: int) -> ir.Value:
        """The entry's argument that has them, [layers parts bytes]."""
        names, types = strings(entry.attributes["arguments"]), list(entry.attributes["types"])
        weights = self.product.weights
        weight = names[weights.buffer].partition(":")[2]
        label = f"columns of {self.span}" if self.span else "rows"
        name = f"{weight}, {label}" + (f" from byte {weights.first}" if weights.first else "")
        shape = list(ir.TypeAttr(types[weights.buffer]).value.shape)
        type_ = ir.RankedTensorType.get([layers, self.parts, self.part], b.integer(8))
        place = add_argument(entry, f"weight:{name}", type_)
        add_packing(entry, name, weight, shape, self.pieces(layers))
        return place

    def pieces(self, layers: int) -> list[dict[str, Any]]:
        product, scale, dtype = self.product, self.scale_bytes, find_dtype(self.product.kind)
        blocks = [(i * dtype.item_bytes, i * dtype.block) for i in range(product.depth // dtype.block)]
        numbers = [(at + scale + i, first + i) for at, first in blocks for i in range(0, dtype.block, DEEP)]
        steps = [(at, self._chunk(k) + self._step(self._within(k))) for at, k in numbers]
        scales = [
            (at, self._chunk(k) + self._within(k) // self.grain * self.rows * scale)
            for at, first in blocks
            for k in range(first, first + dtype.block, self.grain)
        ]
        lanes, ends = self._rows(len(blocks) * dtype.item_bytes)
        layer: list[Run] = [((product.weights.first, 0), ((layers, (product.weights.stride, self.parts * self.part)),))]
        lane: list[Run] = [((0, 0), ((4, (2, LANE)), (2, (8, 1)), (2, (1, 2))))]
        whole: list[Run] = [((0, 0), ((scale, (1, 1)),))]
        found = pieces_of(layer, runs_of(lanes), runs_of(steps), lane)
        return found + pieces_of(layer, runs_of(ends), runs_of(scales), whole)

    def _rows(self, pitch: int) -> tuple[list[Place], list[Place]]:
        """Each row's numbers and scales, pitch bytes from one to the next."""
        each, size = (self.product.rows // self.parts, self.part) if self.span else (8, self.chunk)
        lanes, ends = list[Place](), list[Place]()
        for row in range(self.product.rows):
            start, own = row // each * size, row % each
            tile = own // 16 * (COLUMNS // DEEP * STEP) + own % 8 * 4 * LANE + own % 16 // 8 * 4
            lanes.append((row * pitch, start + tile))
            ends.append((row * pitch, start + self._scales + own * self.scale_bytes))
        return lanes, ends

    def _chunk(self, k: int) -> int:
        """Where the chunk of a number of the depth starts, among those of its row."""
        return (k // self.span * -(-self.span // COLUMNS) + k % self.span // COLUMNS) * self.chunk if self.span else 0

    def _within(self, k: int) -> int:
        """Its number in the chunk."""
        return k % self.span % COLUMNS if self.span else k

    def _step(self, k: int) -> int:
        """Where its step lies in the chunk."""
        half = self.depth if self.span else self.depth // 2
        return k % half // DEEP * STEP + k // half * 4

    @property
    def _scales(self) -> int:
        """Where in a chunk they start."""
        return self.rows * self.depth

    # ---- by lanes

    def steps_of(self, *counts: int) -> int:
        """How many steps whose first one's number is a multiple of these have one scale."""
        return gcd(self.grain // DEEP, *counts)

    def scale(self, base: Number, grain: Number, row: Number) -> Number:
        """A row's scale of a grain in a chunk."""
        at = base + self._scales + (grain * self.rows + row) * self.scale_bytes
        if self.scale_bytes == 4:
            return ptx.load_reals(at, 1)[0]
        return ptx.load_half(at)

    @staticmethod
    def load_numbers(address: Number) -> list[Number]:
        """A word for each of a lane's two rows."""
        return ptx.load_words(address, 2)

    @staticmethod
    def widened(numbers: Sequence[Number]) -> list[Number]:
        """These as a lane's four words of BF16 for an instruction."""
        rows = list(map(ptx.bytes_as_bf16, numbers))
        return [row[late] for late in (0, 1) for row in rows]
