"""Tile programs of rows kernels: a team of threads has a row, and reduces it together.

What a row is made of is read where it is wanted (kernels/read.py), so that what is read twice is read once.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import constant_number, defining_op, integers, is_elementwise, nested_operations, shape_of
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.elementwise import only_chooses
from lispgpt.passes.kernels.kernel import coordinates
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.team import Chunk, Team
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.lower.block_numbers import block_numbers
from lispgpt.passes.tile.lower.lowering import Lowering
from lispgpt.passes.tile.lower.register_rows import RowVector
from lispgpt.passes.tile.row_kernels import RowsKernel
from lispgpt.passes.tile.types import register_tile
from lispgpt.passes.tile.walk import program_ops


class RowLowering(Lowering):
    """Emits a rows kernel's tile program."""

    loop_annotation = ""

    def __init__(self, kernel: ir.Operation, constants: set[ir.Value], target: Gpu) -> None:
        super().__init__(kernel, None, constants, target)
        self.facts, self.asked, self.released = RowsKernel(kernel), False, False
        self.single: set[ir.Value] = set()
        self.program = program_ops(kernel.regions[0].blocks[0])

    def emit(self) -> None:
        self.thread, self.reader = b.thread_id(), Reader(self.target)
        for matrix in self.facts.widened:
            if (numbers := block_numbers(matrix, self.reader, self.target)) is not None:
                self.reader.bind(matrix, numbers)
        for op in self.program[:-1]:
            self._op(op)
        self._know_everything()
        stored = {op.operands[1] for inner in self.program for op in (inner, *nested_operations(inner))
                  if op.name == "tile.store"}  # fmt: skip
        if missing := [tensor for tensor, _ in self.results if tensor not in stored]:
            raise Refused(f"it stores {len(self.results) - len(missing)} of {len(self.results)} results")

    def _start(self) -> None:
        """Let the launches behind start, before anything is read."""
        if not self.released:
            self.released = True
            self.target.dependency_release()

    def _know_everything(self) -> None:
        self._start()
        super()._know_everything()

    # ---- who has which row

    def _team(self, op: ir.Operation) -> Index:
        self.size, teams, self.bytes, self.together = (
            _number(op, x) for x in ("threads", "teams", "bytes", "together")
        )
        self.number = None if teams == 1 else b.as_value(b.div(self.thread, self.size))
        return 0 if self.number is None else self.number

    @cached_property
    def team(self) -> Team:
        rank = self.thread if self.number is None else b.mod(self.thread, self.size)
        self.reader.team = Team(rank, self.size, self.target.subgroup, self.number, self.bytes, self.together)
        return self.reader.team

    def _row(self, tensor: ir.Value, batch: Index, outer: Index) -> list[Index]:
        """The leading indices of a tensor's row; none where it has one row for all."""
        rows = self.facts.rows
        if tensor in self.single:
            return []
        if not self.facts.sums:
            return coordinates(outer, rows)
        return [batch, *coordinates(outer, rows[1:])]

    def _chunk(self, number: Index, columns: int, extent: int) -> Chunk:
        """The thread's part of a row's number-th so many columns."""
        return self.team.chunk(number, extent, columns // self.size)

    def _for(self, op: ir.Operation) -> list[Any]:
        """Ahead of the loop, where its threads' vectors are; what is known within it is not known behind it."""
        for inner in nested_operations(op):
            extent = inner.operands[0].type.shape[2] if inner.name in ("tile.load", "tile.ask") else 1
            if extent > 1 and (number := constant_number(inner.operands[3])) is not None:
                columns = _number(inner, "columns") if inner.name == "tile.ask" else inner.results[0].type.shape[0]
                self._chunk(number, columns, extent)
        with self.team.scope():
            return super()._for(op)

    # ---- rows

    def _view(self, op: ir.Operation) -> Any:
        if not any(integers(op.attributes[name]) for name in ("batch", "outer")):
            self.single.add(op.operands[0])
        return op.operands[0]

    def _ask(self, op: ir.Operation) -> None:
        tensor, batch, outer, number = self._of(op)
        columns, early, team = _number(op, "columns"), "early" in op.attributes, self.team
        if early:
            self._start()
        at = [*self._row(tensor, batch, outer), self._chunk(number, columns, shape_of(tensor)[-1]).start]
        made, width = defining_op(tensor), columns // team.size
        if early and self.facts.widened and self._is_of_constants:
            self.reader.read(tensor, at, width)
            return
        if early:
            self.reader.preload(tensor, at, width, self.constants.__contains__)
            return
        self._know_everything()
        self.asked = True
        if is_elementwise(made) and only_chooses(made):
            self.reader.read(tensor, at, width)
        else:
            self.reader.preload(tensor, at, width, lambda _: True)

    @property
    def _is_of_constants(self) -> bool:
        """Whether no launch writes what the kernel reads."""
        return all(op.operands[0] in self.constants for op in self.facts.ops if op.name == "bufferization.to_tensor")

    def _keep(self, op: ir.Operation) -> None:
        """The row in shared memory, from where it is read from here on."""
        self._know_everything()
        tensor, batch, outer = self._of(op)
        team, extent, row = self.team, shape_of(tensor)[-1], self._row(tensor, batch, outer)
        memory = BlockMemory(self.target, b.item_bytes(tensor.type) * extent, True)
        kept, width = (
            memory.view(0, [extent], b.element_of(tensor.type)),
            b.largest_width(extent, team.item_bytes, self.target.vector_bytes),
        )

        def bring(numbers: list[Index]) -> list[ir.Value]:
            chunks = [team.chunk(number, extent, width) for number in numbers]
            values = [self.reader.read(tensor, [*row, chunk.start], width) for chunk in chunks]
            for chunk, value in zip(chunks, values, strict=True):
                b.if_live(chunk.live, partial(b.store, value, kept, [chunk.start]))
            return []

        with self.reader.scope():
            team.each_chunk(team.chunk_count(extent, width), [], bring)
        b.barrier()
        self.reader.bind(tensor, lambda index, width: b.load(kept, [index[-1]], width))
        self.tiles.block = memory

    def _reduce_rows(self, op: ir.Operation) -> None:
        self._know_everything()
        tensor, batch, outer = self._of(op)
        row, self.reader.team = self._row(tensor, batch, outer), self.team
        self.reader.prepare(tensor, row)

    def _load(self, op: ir.Operation) -> Any:
        self._know_everything()
        if self.asked:
            self.asked = False
            self.target.loads_started()
        tensor, batch, outer, number = self._of(op)
        team, tile, row = self.team, register_tile(op.results[0]), self._row(tensor, batch, outer)
        if len(row) == len(shape_of(tensor)):
            value = self.reader.read(tensor, row)
        else:
            start = self._chunk(number, tile.shape[0], shape_of(tensor)[-1]).start
            value = self.reader.read(tensor, [*row, start], tile.shape[0] // team.size)
        return RowVector(self.target, [value if tile.dtype == b.element_of(value.type) else b.extend(value)])

    def _filled(self, op: ir.Operation) -> Any:
        tile = register_tile(op.results[0])
        type_ = b.with_width(tile.dtype, tile.shape[0] // self.size)
        number = ir.FloatAttr(ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()).value
        return RowVector(self.target, [b.constant(number, type_)])

    def _store(self, op: ir.Operation) -> None:
        numbers, tensor, batch, outer, number = self._of(op)
        (value,), buffer, shape = numbers.values, dict(self.results)[tensor], shape_of(tensor)
        sums = next((one for one in self.facts.sums if one.result == tensor), None)
        row = self._row(tensor, batch, outer)
        if sums is None and len(row) == len(shape):
            b.if_then(b.equal(self.team.rank, 0), lambda: b.store(value, buffer, row))
            return
        columns = register_tile(op.operands[0]).shape[0]
        chunk = self._chunk(number, columns, shape[-1] if sums is None else sums.columns)
        at = [*row, chunk.start]
        if sums is not None and len(shape) == len(self.facts.rows):
            at = [batch, b.add(b.mul(outer, sums.columns), chunk.start)]
        b.if_live(chunk.live, partial(b.store, value, buffer, at))


def _number(op: ir.Operation, name: str) -> int:
    return ir.IntegerAttr(op.attributes[name]).value
