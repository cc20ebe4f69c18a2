"""Tile programs of rows on CPUs: a block is one thread, which does what its teams do one after another.

A vector of a row is one of the chip's, whatever the row's length: what is left at its end is taken in narrower ones.
There is no shared memory and nobody to wait for, so that `tile.ask` and `tile.keep` are nothing.
"""

from __future__ import annotations

from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import integers, shape_of, trip_count
from lispgpt.passes.kernels.expand import expand
from lispgpt.passes.kernels.kernel import coordinates
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.team import Alone
from lispgpt.passes.targets import Cpu
from lispgpt.passes.tile.lower.emitter import Emitter
from lispgpt.passes.tile.row_kernels import RowsKernel, reductions_behind
from lispgpt.passes.tile.types import register_tile
from lispgpt.passes.tile.walk import program_ops

Piece = tuple[Index, int]
"""Where in a row a vector starts, and its width."""


class RowLoops(Emitter):
    """Emits a rows kernel's tile program.

    stored: of each result, how many columns of the row are in memory by now; 0 of what has one number for each row.
    turns: how often the op that is emitted runs for a row.  ends: what loops' numbers are below.
    """

    target: Cpu

    def __init__(self, kernel: ir.Operation, target: Cpu) -> None:
        super().__init__(kernel, target)
        self.facts, self.results = RowsKernel(kernel), dict(outputs_of(kernel))
        self.single: set[ir.Value] = set()
        self.stored: dict[ir.Value, int] = {}
        self.turns, self.ends = 1, dict[ir.Value, int]()

    def emit(self) -> None:
        self.reader = Reader(self.target)
        *program, _ = program_ops(self.kernel.regions[0].blocks[0])
        self._from(program)
        if missing := [tensor for tensor in self.results if tensor not in self.stored]:
            raise Refused(f"it stores {len(self.results) - len(missing)} of {len(self.results)} results")

    def _from(self, program: list[ir.Operation]) -> None:
        """All that is behind the op that says who has which row is done for each of the block's rows."""
        for place, op in enumerate(program):
            if op.name == "tile.team":
                teams, together = (ir.IntegerAttr(op.attributes[name]).value for name in ("teams", "together"))
                self.reader.team = Alone(1 if self.facts.is_costly else together)
                b.each(0, teams, 1, partial(self._row_of_team, op, program[place + 1 :]))
                return
            self._op(op)

    def _row_of_team(self, op: ir.Operation, program: list[ir.Operation], number: Index) -> None:
        self.values[op.results[0]] = number
        with self.reader.scope():
            for inner in program:
                self._op(inner)

    # ---- where

    def _block_id(self, op: ir.Operation) -> Index:
        return b.block_id()

    def _view(self, op: ir.Operation) -> ir.Value:
        if not any(integers(op.attributes[name]) for name in ("batch", "outer")):
            self.single.add(op.operands[0])
        return op.operands[0]

    def _row(self, tensor: ir.Value, outer: Index) -> list[Index]:
        """The leading indices of a tensor's row; none where it has one row for all."""
        return [] if tensor in self.single else coordinates(outer, self.facts.rows)

    def _pieces(self, number: Index, width: int, extent: int) -> list[Piece]:
        """The vectors that the number-th so many columns of a row are."""
        if not isinstance(number, int):
            if extent % width and self.ends.get(number, extent) * width > extent:
                raise Refused("which vectors of a loop reach past a row's end is not known")
            return [(b.mul(number, width), width)]
        start, end, found = number * width, min((number + 1) * width, extent), list[Piece]()
        while start < end:
            while start + width > end:
                width //= 2
            found.append((start, width))
            start += width
        return found

    def _for(self, op: ir.Operation) -> None:
        if op.results:
            raise Refused("a loop over rows carries nothing on a CPU")
        low, high, step = self._of(op)
        block, before = op.regions[0].blocks[0], self.turns

        def body(number: Index) -> None:
            self.values[block.arguments[0]] = number
            if isinstance(number, ir.Value) and step == 1:
                self.ends[number] = high
            self._block(block)

        self.turns *= trip_count(op)
        b.each(low, high, step, body)
        self.turns = before

    def _ask(self, op: ir.Operation) -> None:
        """What a row is made of is read where it is wanted."""

    _keep = _ask

    # ---- rows

    def _reduce_rows(self, op: ir.Operation) -> None:
        """What reductions make of the row, ahead of a loop over it."""
        tensor, _, outer = self._of(op)
        if self.turns > 1:
            raise Refused("what is reduced is computed ahead of a loop")
        row, behind = self._row(tensor, outer), reductions_behind(tensor)
        self._settle(tensor)
        for reduction in (one for one in self.facts.ops if one in behind):
            result = reduction.results[0]
            if reduction.name == "linalg.softmax":
                self.reader.prepare(result, row)
            elif shape_of(result) == self.facts.rows:
                self.reader.bind(result, partial(_everywhere, self.reader.read(result, row)))
        self.reader.prepare(tensor, row)

    def _settle(self, tensor: ir.Value) -> None:
        """From here on results whose rows are in memory are read there, by which another is made."""
        for result, columns in self.stored.items():
            if columns and result != tensor and columns == shape_of(result)[-1]:
                self.reader.bind(result, partial(b.load, self.results[result], aligned=False))

    def _load(self, op: ir.Operation) -> list[list[ir.Value]]:
        tensor, _, outer, number = self._of(op)
        tile, row = register_tile(op.results[0]), self._row(tensor, outer)
        if self.turns == 1:
            self._settle(tensor)
        if len(row) == len(shape_of(tensor)):
            found = [self.reader.read(tensor, row)]
        else:
            pieces = self._pieces(number, tile.shape[0], shape_of(tensor)[-1])
            found = [self.reader.read(tensor, [*row, start], width) for start, width in pieces]
        return [[v if tile.dtype == b.element_of(v.type) else b.extend(v) for v in found]]

    def _mapped(self, op: ir.Operation) -> list[list[ir.Value]]:
        """A function of numbers, vector by vector."""
        groups = list(zip(*self._of(op), strict=True))
        if op.name.startswith("math."):
            return [[expand(op.name, list(group), self.target, group[0].type) for group in groups]]
        return [[b.emit(op.name, list(group), [group[0].type]) for group in groups]]

    def _store(self, op: ir.Operation) -> None:
        values, tensor, _, outer, number = self._of(op)
        buffer, row = self.results[tensor], self._row(tensor, outer)
        if len(row) == len(shape_of(tensor)):
            self.stored[tensor] = 0
            b.store(values[0], buffer, row)
            return
        pieces = self._pieces(number, register_tile(op.operands[0]).shape[0], shape_of(tensor)[-1])
        for value, (start, width) in zip(values, pieces, strict=True):
            b.store(value, buffer, [*row, start], aligned=False)
            self.stored[tensor] = self.stored.get(tensor, 0) + width * self.turns


def _everywhere(value: ir.Value, index: list[Index], width: int) -> ir.Value:
    return b.splat(value, width)
