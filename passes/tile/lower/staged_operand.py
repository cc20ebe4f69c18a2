"""An operand of a product on its way through registers into shared memory, as bf16 numbers with k innermost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, is_elementwise
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.views import VIEWS
from lispgpt.passes.tile.copies import PIECE
from lispgpt.passes.tile.types import SWIZZLE

PATCH = 4
"""Neighbours along k, and along rows or columns where those lie side by side, that a thread brings at once."""


@dataclass(frozen=True)
class Tile:
    """A block's part of an operand: `outer` rows or columns by `inner` elements of k, `padding` elements apart from the
    next row in shared memory; so many of it as there are buffers, for each of the operand's parts.  lines: whether rows
    are in swizzled lines, first all of the first line's length, then those of the next."""

    outer: int
    inner: int
    padding: int
    buffers: int
    lines: bool = False

    def line_address(self, row: Index, k: Index) -> Index:
        """Bytes from a part's start to an element that is in lines, whose pieces change places by the row's number."""
        number, inside = b.div(k, SWIZZLE // 2), b.mul(b.mod(k, SWIZZLE // 2), 2)
        start = b.add(b.mul(number, self.outer * SWIZZLE), b.mul(row, SWIZZLE))
        return b.add(start, b.xor(inside, b.mul(b.mod(row, SWIZZLE // PIECE), PIECE)))


@dataclass(frozen=True)
class Origin:
    """Where a block's tile starts in its operand, and which of how many threads this is.  end, inner_end: where the
    operand ends, instead of where its tensor does (None)."""

    batch: Index
    outer: Index
    thread: Index
    threads: int
    end: ir.Value | None = None
    inner_end: ir.Value | None = None


def is_pointwise(tensor: ir.Value, reader: Reader) -> bool:
    """Whether elements of a tensor are made of elements of memory, and of what a reader knows, without a loop."""
    op = defining_op(tensor)
    if tensor in reader.bound or op is None or op.name in ("bufferization.to_tensor", "linalg.fill", "tensor.empty"):
        return True
    tensors = [operand for operand in op.operands if isinstance(operand.type, ir.RankedTensorType)]
    simple = op.name in VIEWS or is_elementwise(op)
    return simple and all(is_pointwise(one, reader) for one in tensors)


def _patch_shape(operand: Operand, inner: int = 0) -> tuple[int, int]:
    """How many rows or columns, and how many neighbours along k, a thread brings at once of a tile of so many."""
    if operand.dtype == "i8":
        return 1, b.largest_width(gcd(operand.along_k, inner), 1, 4 * PATCH)
    whole = PATCH if operand.dtype == "f32" else 2 * PATCH
    across = b.largest_width(operand.along_outer, 1, PATCH) if operand.along_k == 1 else 1
    return across, whole if across == 1 and operand.along_k % whole == 0 else PATCH


def single_loads(operand: Operand, outer: int, inner: int, threads: int) -> int:
    """How many elements of such a tile each thread loads one by one, since nothing that belongs together is side by
    side in memory."""
    across, along = _patch_shape(operand)
    if across > 1 or operand.layout.extent(operand.layout.sums) % along == 0:
        return 0
    return -(-outer * inner // threads)


class StagedOperand:
    """Loads patches of a tile into a thread's registers, stores them in shared memory, and reads fragments from there.

    An f32 operand is kept as `parts` bf16 numbers that add up to each of its elements, one of bf16 or of bytes as it
    is.
    clears: whether what lies past the last k becomes zero; otherwise it is some element of the tensor.  memory: where
    the tile lies in shared memory; None: in memory of its own.
    """

    def __init__(
        self,
        operand: Operand,
        tile: Tile,
        origin: Origin,
        reader: Reader,
        parts: int,
        clears: bool,
        memory: ir.Value | None = None,
    ) -> None:
        self.operand, self.tile, self.origin, self.reader = operand, tile, origin, reader
        self.parts, self.clears = parts, clears
        self.inner = operand.layout.extent(operand.layout.sums)
        self.across, self.along = _patch_shape(operand, tile.inner)
        shape = [tile.buffers, parts, tile.outer, tile.inner + tile.padding]
        self.memory = b.shared(shape, ir.BF16Type.get()) if memory is None else memory

    def load(self, start: Index) -> list[ir.Value]:
        """This thread's vectors of the tile that starts at k = start: of each patch `across` vectors along k.

        Rows past the last one are the last one's.
        """
        values: list[ir.Value] = []
        for number in range(self._patches()):
            outer, k = self._place(number)
            at = self._within(b.add(self.origin.outer, outer))
            values += self._patch(at, b.add(start, k))
        return values

    @property
    def waits(self) -> bool:
        """Whether what memory has can be loaded by itself, and all that is made of it later: then no place is asked for
        any more, and there is no loop in between."""
        return not (self.clears and self.inner % self.tile.inner) and is_pointwise(self.operand.tensor, self.reader)

    def loads(self, start: Index) -> list[ir.Value]:
        """What `load` reads from memory."""
        found: list[ir.Value] = []

        def keep(buffer: ir.Value, index: Sequence[Index], width: int) -> ir.Value:
            found.append(b.load(buffer, index, width, self.reader.target.aligned_rows))
            return found[-1]

        with self.reader.taking(keep):
            self.load(start)
        return found

    def made_of(self, loads: list[ir.Value]) -> list[ir.Value]:
        """What `load` gives, of what `loads` gave."""
        rest = iter(loads)
        with self.reader.taking(lambda buffer, index, width: next(rest)):
            return self.load(0)

    def store(self, values: list[ir.Value], buffer: Index) -> None:
        """Put what `load` gave into shared memory."""
        for number in range(self._patches()):
            vectors = values[number * self.across : (number + 1) * self.across]
            if self._is_whole(number):
                self._store_patch(number, vectors, buffer)
            else:
                inside = b.less(self._number(number), self._patches_of_tile())
                b.if_then(inside, partial(self._store_patch, number, vectors, buffer))

    def _store_patch(self, number: int, vectors: list[ir.Value], buffer: Index) -> None:
        outer, k = self._place(number)
        for i, value in enumerate(vectors):
            for part in range(self.parts):
                rounded = value
                if self.operand.dtype not in ("bf16", "i8"):
                    type_ = b.with_width(ir.BF16Type.get(), self.along)
                    rounded = b.emit("arith.truncf", [b.extend(value)], [type_])
                self._put(rounded, buffer, part, b.add(outer, i), k)
                if part + 1 < self.parts:
                    value = b.binary("arith.subf", b.extend(value), b.extend(rounded))

    def _put(self, value: ir.Value, buffer: Index, part: int, row: Index, k: Index) -> None:
        if not self.tile.lines:
            b.store(value, self.memory, [buffer, part, row, k])
            return
        whole = 2 * self.tile.outer * self.tile.inner
        start = b.add(self.memory, b.add(b.mul(buffer, self.parts * whole), part * whole))
        b.store_at(value, b.add(start, self.tile.line_address(row, k)))

    def _patches(self) -> int:
        """Of one thread; where there are not as many for all, some load the last one too."""
        return -(-self._patches_of_tile() // self.origin.threads)

    def _patches_of_tile(self) -> int:
        return self.tile.outer * self.tile.inner // (self.across * self.along)

    def _number(self, number: int) -> Index:
        """Of this thread's number-th patch among the tile's."""
        return b.add(self.origin.thread, number * self.origin.threads)

    def _is_whole(self, number: int) -> bool:
        """Whether every thread has a number-th patch of its own."""
        return (number + 1) * self.origin.threads <= self._patches_of_tile()

    def _place(self, number: int) -> tuple[Index, Index]:
        """(row or column, k) in the tile where this thread's number-th patch starts; neighbours go along k."""
        patch = self._number(number)
        if not self._is_whole(number):
            patch = b.at_most(patch, self._patches_of_tile() - 1)
        per_row = self.tile.inner // self.along
        return b.mul(b.div(patch, per_row), self.across), b.mul(b.mod(patch, per_row), self.along)

    def _within(self, outer: Index) -> Index:
        extent = self.operand.extent
        if self.origin.end is not None:
            return b.at_most(outer, b.sub(self.origin.end, 1))
        return outer if extent % self.tile.outer == 0 else b.at_most(outer, extent - self.across)

    def _patch(self, outer: Index, k: Index) -> list[ir.Value]:
        batch = self.origin.batch
        if self.across == 1 and self.inner % self.along == 0:
            inside = self._inside(k)
            value = self.operand.read(self.reader, batch, outer, self._inner_within(k), self.along)
            return [b.masked(inside, value)]
        columns = []
        for i in range(self.along):
            at = b.add(k, i)
            inside = self._inside(at)
            value = self.operand.read_across(self.reader, batch, outer, self._inner_within(at), self.across)
            columns.append(b.masked(inside, value))
        return [b.vector_of([b.lane_of(column, j) for column in columns]) for j in range(self.across)]

    def _inside(self, k: Index) -> ir.Value | None:
        """Whether k is to be kept; None where it is anyway."""
        return b.less(k, self.inner) if self.clears and self.inner % self.tile.inner else None

    def _inner_within(self, k: Index) -> Index:
        if self.origin.inner_end is not None:
            return b.at_most(k, b.sub(self.origin.inner_end, 1))
        return b.or_zero(b.less(k, self.inner), k)
