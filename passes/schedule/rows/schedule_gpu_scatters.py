"""schedule-gpu-scatters: add rows to a tensor at places that numbers say, in the numbers' order, on a GPU.

Before:                                            After:
  func.func private @k(%w: memref<…>, …)             func.func private @k(%w: memref<…>, …) {…, grid, block} {
      {kernel = "scatter"} {                           for a window of the rows:
    %r = scf.for %n … iter_args(%t) {                    gpu.ballot … → numbers of rows that go to the block's places
      … the slice of %t at where[%n], plus row %n          gpu.barrier
    }                                                    for those numbers: … loads of rows ahead, their sums, stores
    materialize_in_destination %r in %w

Each block has a share of the places and of a row's columns.  Its subgroups look for the rows that go there, and write
down their numbers in shared memory; its threads, each at columns of its own, add these rows one after the other.  So
the work is that of the rows, and a few instructions a row for each block; nothing depends on which block comes first.

Requires: what destination-passing ensures.
Ensures: scatters have only scalar and vector ops, `grid` and `block`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import constant_number, defining_op, is_elementwise, kernel_functions, shape_of
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import coordinates, reschedule
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.schedule.rows.scatters import Update, update_of
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class ScheduleGpuScatters(Pass):
    """blocks: of a core, by which the places are divided.  threads: of a block, at most.  each: rows whose places a
    thread looks at in one window.  together: rows that are loaded before the first of them is added."""

    starts_from = (PLACED,)
    blocks: int = 4
    threads: int = 256
    each: int = 16
    together: int = 16

    def run(self, module: ir.Module, target: Gpu) -> None:
        for kernel in kernel_functions(module, "scatter"):
            outputs = outputs_of(kernel)
            update = update_of(*outputs[0]) if len(outputs) == 1 else None
            if update is not None and update.old is not None:
                _Scatter(kernel, update, target, self).emit()


class _Scatter:
    def __init__(self, kernel: ir.Operation, update: Update, target: Gpu, options: ScheduleGpuScatters) -> None:
        self.kernel, self.update, self.target, self.options = kernel, update, target, options
        self.rows = constant_number(update.loops[0].operands[1]) or 0
        self.width = b.largest_width(update.shape[-1], b.item_bytes(update.buffer.type), target.vector_bytes)
        vectors = prod(update.shape) // self.width
        lanes = target.subgroup
        self.threads = min(options.threads, max(4 * lanes, -(-vectors // lanes) * lanes))
        self.columns = -(-vectors // self.threads)
        most = min(shape_of(update.buffer)[update.place], target.cores * options.blocks // self.columns)
        self.shares = 1 << max(0, most.bit_length() - 1)
        self.window = self.threads * options.each

    def emit(self) -> None:
        reschedule(self.kernel, [self.shares * self.columns], [self.threads], self.target, self._body)

    def _body(self) -> None:
        thread, block, lanes = b.thread_id(), b.block_id(), self.target.subgroup
        self.lane, self.group = b.mod(thread, lanes), b.div(thread, lanes)
        self.share = b.div(block, self.columns)
        linear = b.mul(b.add(b.mul(b.mod(block, self.columns), self.threads), thread), self.width)
        groups = self.threads // lanes
        self.found, self.counts = b.shared([self.window], b.i32()), b.shared([groups], b.i32())
        self.target.dependency_passed_on()

        def window(first: Index) -> None:
            count = self._look(Reader(self.target), first)
            b.if_then(b.less(linear, prod(self.update.shape)), lambda: add(count))

        def add(count: Index) -> None:
            b.each(0, count, self.options.together, lambda i: self._add(Reader(self.target), i, count, linear))

        b.each(0, self.rows, self.window, window)

    def _look(self, reader: Reader, first: Index) -> Index:
        """Write down which rows of the window that starts at `first` go to the block's places, and return how many.

        They are in order: each subgroup looks at neighbouring rows, behind those of the subgroups ahead of it.
        """
        start = b.add(b.add(first, b.mul(self.group, self.options.each * self.target.subgroup)), self.lane)
        numbers = [b.add(start, i * self.target.subgroup) for i in range(self.options.each)]
        mine = [self._is_mine(reader, number) for number in numbers]
        mask = ir.IntegerType.get_signless(self.target.subgroup)
        masks = [b.emit("gpu.ballot", [own], [mask]) for own in mine]
        ones = [_ones(each) for each in masks]
        b.if_then(b.equal(self.lane, 0), lambda: self._note(_sum(ones), self.counts, [self.group]))
        b.barrier()
        counts = [self._number(self.counts, [g]) for g in range(self.threads // self.target.subgroup)]
        at = _sum([b.select(b.less(g, self.group), n, b.as_value(0)) for g, n in enumerate(counts)])
        one = b.constant(1, mask)
        here = b.emit("arith.shli", [one, b.emit("arith.index_cast", [self.lane], [mask])], [mask])
        below = b.emit("arith.subi", [here, one], [mask])
        for number, own, each, count in zip(numbers, mine, masks, ones, strict=True):
            place = b.add(at, _ones(b.emit("arith.andi", [each, below], [mask])))
            b.if_then(own, partial(self._note, number, self.found, [place]))
            at = b.add(at, count)
        b.barrier()
        return _sum(counts)

    def _is_mine(self, reader: Reader, number: Index) -> ir.Value:
        """Whether there is a row of that number, and goes to the block's places."""
        there = b.less(number, self.rows)
        where = self._where(reader, b.or_zero(there, number), [0] * len(self.update.shape))
        return b.both(there, b.equal(b.mod(where[self.update.place], self.shares), self.share))

    def _add(self, reader: Reader, first: Index, count: Index, linear: Index) -> None:
        """Add some of the rows that were written down to where they go."""
        update, together = self.update, range(self.options.together)
        index = coordinates(linear, update.shape)
        last = b.add(count, -1)
        numbers = [self._number(self.found, [b.at_most(b.add(first, i), last)]) for i in together]
        assert update.old is not None
        made, old = update.insert.operands[0], update.old.results[0]
        ahead = [t for t in _operands(made) if t != old and shape_of(t) == update.shape]
        places, rows = [], []
        for number in numbers:
            places.append(self._where(reader, number, index))
            with reader.scope():
                rows.append([reader.read(tensor, index, self.width) for tensor in ahead])
        value: ir.Value | None = None
        for i in together:
            before = self._before(places, i, value)
            reader.indices[self.counter] = numbers[i]
            with reader.scope():
                for tensor, row in zip((old, *ahead), (before, *rows[i]), strict=True):
                    reader.hold(tensor, row)
                value = reader.read(made, index, self.width)
            b.if_then(b.less(b.add(first, i), count), partial(b.store, value, self.update.buffer, places[i]))

    def _before(self, places: list[list[Index]], i: int, value: ir.Value | None) -> ir.Value:
        """What the i-th row is added to: the sum ahead of it where that went to the same place."""

        def load() -> ir.Value:
            return b.load(self.update.buffer, places[i], self.width)

        if value is None:
            return load()
        place = self.update.place
        same = b.equal(places[i][place], places[i - 1][place])
        return b.choose(same, [value.type], lambda: [value], lambda: [load()])[0]

    @property
    def counter(self) -> ir.Value:
        return self.update.loops[0].regions[0].blocks[0].arguments[0]

    def _where(self, reader: Reader, number: ir.Value, index: list[Index]) -> list[Index]:
        """Where the elements of a row go."""
        reader.indices[self.counter] = number
        with reader.scope():
            return self.update.where(reader, index)

    @staticmethod
    def _number(memory: ir.Value, where: list[Index]) -> ir.Value:
        return b.emit("arith.index_cast", [b.load(memory, where, 1)], [ir.IndexType.get()])

    @staticmethod
    def _note(number: ir.Value, memory: ir.Value, where: list[Index]) -> None:
        b.store(b.emit("arith.index_cast", [number], [b.i32()]), memory, where)


def _ones(mask: ir.Value) -> ir.Value:
    """How many bits of it are set."""
    return b.emit("arith.index_cast", [b.emit("math.ctpop", [mask], [mask.type])], [ir.IndexType.get()])


def _sum(values: Sequence[Index]) -> Index:
    return reduce(b.add, values)


def _operands(made: ir.Value) -> list[ir.Value]:
    """What an elementwise op reads at the index that it makes; nothing of any other op."""
    op = defining_op(made)
    return list(op.operands)[:-1] if op is not None and is_elementwise(op) else []
