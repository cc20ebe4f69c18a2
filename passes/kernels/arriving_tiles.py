"""Tiles of bf16 keys and values that a team's threads copy to shared memory while it multiplies by earlier ones.

A tile lies there as warpgroup instructions take it: rows of 128 bytes, whose 16-byte columns are exchanged by the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op
from lispgpt.passes.kernels.attention import Place, cache_of
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.views import VIEWS, is_in_step, keeps_step
from lispgpt.passes.model.attention import Attention
from lispgpt.passes.model.score_operands import Operand
from lispgpt.passes.targets.vector_copies import VectorCopies
from lispgpt.passes.targets.warpgroup import WarpgroupUnit


@dataclass(frozen=True)
class Source:
    """The buffer that an operand is a view of, through views from the operand's own on."""

    operand: Operand
    buffer: ir.Value
    views: Sequence[ir.Operation]

    @classmethod
    def of(cls, operand: Operand, attention: Attention, width: int) -> Source | None:
        """None where it is no view, or one in which `width` aligned neighbours of its rows are no aligned ones."""
        tensor = operand.tensor
        views: list[ir.Operation] = []
        while tensor not in attention.updated:
            op = defining_op(tensor)
            if op is None:
                return None
            if op.name == "bufferization.to_tensor":
                return cls(operand, op.operands[0], views)
            if op.name not in VIEWS or not _keeps(op, width):
                return None
            views.append(op)
            tensor = op.operands[0]
        return cls(operand, cache_of(attention), views)

    def index(self, reader: Reader, place: Place, t: Index, d: Index) -> list[Index]:
        """Where in the buffer the operand's number at a place is."""
        index = self.operand.index(place, t, d)
        for op in self.views:
            index = VIEWS[op.name](op, index, reader)
        return index


def _keeps(op: ir.Operation, width: int) -> bool:
    return is_in_step(op, width, True) if op.name == "tensor.extract_slice" else keeps_step(op, width)


@dataclass(frozen=True)
class ArrivingTiles:
    """A team's `stages` tiles, each of `keys` keys and as many values of 64 numbers.  Keys come a tile ahead of values.

    memory: [stages of all teams, keys or values, position, number], of which the team's are those from `first` on.
    thread: of the team, which has so many.  last: the largest position that may be read; those past it are it.
    """

    sources: tuple[Source, Source]
    copies: VectorCopies
    unit: WarpgroupUnit
    reader: Reader
    memory: ir.Value
    first: Index
    keys: int
    stages: int
    thread: Index
    threads: int
    place: Place
    last: Index

    def start(self, number: int, position: Index, end: Index, stage: Index) -> None:
        """Start to bring keys (0) or values (1) of the positions from one on, if that is before the end."""
        whole = b.less(b.add(position, self.keys - 1), self.last, predicate=7)
        plain, clamped = (partial(self._copy, number, position, stage, clamped) for clamped in (False, True))
        b.if_then(b.less(position, end), lambda: b.either(whole, plain, clamped))

    def _copy(self, number: int, position: Index, stage: Index, clamped: bool) -> None:
        width = self.copies.nbytes // 2
        each = self.unit.inner // width
        rows = self.threads // each
        row, column = b.div(self.thread, each), b.mul(b.mod(self.thread, each), width)
        inside = b.xor(column, b.mul(b.mod(row, SWIZZLED_ROWS), width))
        slot = b.add(self.first, stage)
        with self.reader.scope():
            for skipped in range(0, self.keys, rows):
                t = b.add(row, skipped)
                wanted = b.add(b.add(position, row), skipped)
                position_read = b.at_most(wanted, self.last) if clamped else wanted
                source = self.sources[number]
                index = source.index(self.reader, self.place, position_read, column)
                self.copies.start(self.memory, [slot, number, t, inside], source.buffer, index)

    def begin(self, position: Index, end: Index, step: int) -> None:
        """Start to bring the first keys as a batch, then with each further ones the values of those before."""
        for stage in range(self.stages):
            self.start(0, b.add(position, stage * step), end, stage)
            if stage:
                self.start(1, b.add(position, (stage - 1) * step), end, stage - 1)
            self.copies.close()

    def arrived(self, newest: int, barrier: Callable[[], None]) -> None:
        """Wait until all batches but the newest are there for all of the team, which is done with what it read."""
        self.copies.wait(newest)
        self.unit.publish()
        barrier()

    def lines(self) -> ir.Value:
        """Descriptors' lower word for the team's first stage, whose values come after its keys."""
        return self.unit.lower_word(b.add(b.address_of(self.memory), b.mul(self.first, self.stage_bytes)))

    def at(self, lines: ir.Value, stage: Index) -> ir.Value:
        """The same for a stage."""
        number = b.emit("arith.index_cast", [b.as_value(stage)], [b.i32()])
        skipped = b.binary("arith.muli", number, b.constant(self.stage_bytes // 16, b.i32()))
        return b.binary("arith.addi", lines, skipped)

    @property
    def stage_bytes(self) -> int:
        return stage_bytes(self.unit, self.keys)


SWIZZLED_ROWS = 8
"""After as many rows columns are exchanged as before."""


def stage_bytes(unit: WarpgroupUnit, keys: int) -> int:
    """What a tile of keys and values takes of shared memory."""
    return 2 * keys * unit.inner * 2
