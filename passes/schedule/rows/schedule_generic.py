"""schedule-generic: run whatever no other schedule took, over all blocks of a target.

Before:                                            After:
  func.func private @k(%x: memref<…>, %y: …)         func.func private @k(%x: memref<…>, %y: …) {…, grid, block} {
      {kernel = …} {                                   %i = gpu.block_id x, gpu.thread_id x → an element of the result
    %t = bufferization.to_tensor %x …                  … loads of what the element is made of, loops over sums …
    %r = linalg.generic ins(%t) …                      memref.store … %y[%i, …]
    materialize_in_destination %r in %y

A thread computes elements of the results one by one, reading what they are made of lazily.  A long sum of which there
are few is divided among the lanes of a subgroup, or of columns among the threads of a block, whose neighbours have
neighbouring columns.  A part of a state that is replaced is written where it is.

Requires: kernels without a `grid` have a body on tensors in which nothing costly is read at many places, as
divide-kernels leaves them.
Ensures: kernels that can be computed so have only scalar ops, `grid`, `block` and `schedule`; others say why they are
`refused`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import gcd, prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir, passmanager
from lispgpt.ir.named_ops import drop_segments
from lispgpt.ir.structure import (
    constant_number,
    nested_operations,
    operations,
    shape_of,
    unscheduled_kernels,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import coordinates, refusable, reschedule
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.rearranged import vectors_of_part
from lispgpt.passes.kernels.reductions import vector_loop
from lispgpt.passes.kernels.refusal import note_refusal
from lispgpt.passes.kernels.team import tree
from lispgpt.passes.model.kernel_groups import is_inline
from lispgpt.passes.schedule.kernel_parts import ENDS
from lispgpt.passes.schedule.rows.scatters import update_of
from lispgpt.passes.schedule.rows.subgroup_sums import SharedSum, shared_sum
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Gpu, Target

ACROSS, ROWS_EACH, FEWEST_ROWS = 32, 16, 64
"""Neighbouring sums of a block, values that a thread adds up of each at least, and those of a sum in all."""

GENERALIZE = "builtin.module(func.func(linalg-generalize-named-ops))"


@dataclass(frozen=True)
class ScheduleGeneric(Pass):
    """kind: of the kernels to schedule, which have no named ops; all, where it is none.  threads: of a GPU's block.
    points: of loops that one call of a CPU's kernel runs through, as far as there are so many.  long_sum: the fewest
    elements of a sum that a subgroup divides."""

    starts_from = (PLACED,)
    kind: str = ""
    threads: int = 256
    points: int = 16384
    long_sum: int = 64

    def run(self, module: ir.Module, target: Target) -> None:
        left = unscheduled_kernels(module, self.kind or None)
        if not left:
            return
        for kernel in left:
            for op in nested_operations(kernel):
                drop_segments(op)
        if not self.kind:
            passmanager.PassManager.parse(GENERALIZE).run(module.operation)
        for kernel in left:
            with refusable(kernel):
                _AnyKernel(kernel, target, self).run()
            if "grid" in kernel.attributes:
                kernel.attributes["schedule"] = ir.StringAttr.get("generic")


class _AnyKernel:
    """One kernel: a walk over the elements of its results, or of the part of a state that it replaces."""

    def __init__(self, kernel: ir.Operation, target: Target, options: ScheduleGeneric) -> None:
        self.kernel, self.target, self.options = kernel, target, options
        self.outputs = outputs_of(kernel)
        self.update = update_of(*self.outputs[0]) if len(self.outputs) == 1 else None
        shapes = [shape_of(tensor) for tensor, _ in self.outputs]
        self.shape = self.update.shape if self.update else max(shapes, key=prod)
        self.elements = prod(self.shape)
        self.sum = self._shared_sum()
        self.by_element = ir.StringAttr(kernel.attributes["kernel"]).value == "elementwise"

    def _shared_sum(self) -> SharedSum | None:
        """The sum that subgroups divide, where that keeps more of the chip busy than a thread for each element."""
        if not isinstance(self.target, Gpu) or self.update or len(self.outputs) > 1:
            return None
        found = shared_sum(self.outputs[0][0])
        few = self.elements < self.target.cores * self.options.threads
        return found if found and few and found.count >= self.options.long_sum else None

    def run(self) -> None:
        """Emit it; the kernel is left alone where some element is still wanted after it has been overwritten."""
        written = [buffer for _, buffer in self.outputs]
        for op in operations(self.kernel.regions[0].blocks[0]):
            kept = op.name == "bufferization.to_tensor" and op.operands[0] in written and list(op.results[0].uses)
            if kept and not self.update and not self.by_element:
                note_refusal(self.kernel, "it changes memory that it reads")
                return
        target = self.target
        if isinstance(target, Gpu):
            if self.sum and self._has_columns(self.sum):
                lanes = min(target.max_threads // ACROSS, -(-self.sum.count // ROWS_EACH))
                emit = partial(self._by_columns, target, self.sum, lanes)
                reschedule(self.kernel, [self.elements // ACROSS], [lanes * ACROSS], target, emit)
                return
            threads = self.options.threads
            width = self._width() if self.by_element else 1
            per_block = threads // target.subgroup if self.sum else threads * width
            grid = max(1, -(-self.elements // per_block))
            reschedule(self.kernel, [grid], [threads], target, partial(self._by_threads, target, per_block, width))
        else:
            width = self._width()
            each = max(1, self.options.points // (width * self._points_each())) * width
            grid = max(1, -(-self.elements // each))
            reschedule(self.kernel, [grid], [1], target, partial(self._by_calls, each, width))

    def _width(self) -> int:
        """Neighbours that a CPU computes at once: a vector, where every op of the kernel has vectors of them."""
        ops = [op for op in operations(self.kernel.regions[0].blocks[0]) if not is_inline(op) and op.name not in ENDS]
        parts = [op for op in ops if op.name == "tensor.insert_slice"]
        others = [op for op in ops if op not in parts]
        plain = all(op.name == "linalg.generic" and vector_loop(op, 0) is not None for op in others)
        if self.update and self.update.old is not None:
            return b.largest_width(self.shape[-1], 4, self.target.vector_bytes)
        if self.update or (len(self.outputs) > 1 and not self.by_element) or not plain or not self.shape:
            return 1
        common = gcd(self.shape[-1], *(vectors_of_part(op) for op in parts))
        return b.largest_width(common, 4, self.target.vector_bytes)

    def _points_each(self) -> int:
        """Points of loops behind one element, about."""
        if self.update and self.update.old is not None:
            return constant_number(self.update.loops[0].operands[1]) or 1
        found = shared_sum(self.outputs[0][0])
        return found.count if found else 1

    def _by_threads(self, target: Gpu, per_block: int, width: int) -> None:
        thread = b.thread_id()
        number = b.div(thread, target.subgroup) if self.sum else thread
        lane = b.mod(thread, target.subgroup)
        linear = b.add(b.mul(b.block_id(), per_block), b.mul(number, width))
        target.dependency_passed_on()

        def element() -> None:
            self._element(linear, lane, width)

        if self.elements % per_block:
            b.if_then(b.less(linear, self.elements), element)
        else:
            element()

    def _has_columns(self, found: SharedSum) -> bool:
        """Whether neighbours are summed that fill whole lines, each of rows enough for a block's threads."""
        lines = bool(self.shape) and self.shape[-1] % ACROSS == 0 and found.has_neighbours
        return lines and found.count >= FEWEST_ROWS and len(self.outputs) == 1

    def _by_columns(self, target: Gpu, found: SharedSum, lanes: int) -> None:
        """ACROSS neighbours by a block; each of `lanes` rows of threads adds up some of their values."""
        thread = b.thread_id()
        column, lane = b.mod(thread, ACROSS), b.div(thread, ACROSS)
        target.dependency_passed_on()
        reader = Reader(target)
        index = coordinates(b.add(b.mul(b.block_id(), ACROSS), column), self.shape)
        mine = found.share(reader, index, lane, lanes)
        memory = b.shared([lanes, ACROSS], mine.type)
        b.store(mine, memory, [lane, column])
        b.barrier()

        def finish() -> None:
            with reader.scope():
                shares = [b.load(memory, [i, column], 1) for i in range(lanes)]
                total = found.whole(reader, index, tree(found.combiner, shares))
                reader.bind(found.tensor, lambda where, width: total)
                tensor, buffer = self.outputs[0]
                b.store(reader.read(tensor, index), buffer, index)

        b.if_then(b.less(thread, ACROSS), finish)

    def _by_calls(self, each: int, width: int) -> None:
        start = b.mul(b.block_id(), each)
        end = b.add(start, each)
        if self.elements % each:
            end = b.at_most(end, self.elements)

        b.each(start, end, width, lambda linear: self._element(linear, 0, width))

    def _element(self, linear: Index, lane: Index, width: int = 1) -> None:
        reader = Reader(self.target)
        if self.update:
            self.update.write(reader, coordinates(linear, self.shape), width)
            return
        index = coordinates(linear, self.shape)
        if self.sum and isinstance(self.target, Gpu):
            total = self.sum.by_subgroup(reader, index, lane, self.target.subgroup)
            reader.bind(self.sum.tensor, lambda where, width: total)
        with reader.stepping(width > 1 and not isinstance(self.target, Gpu)):
            whole = {t: reader.read(t, index, width) for t, _ in self.outputs if shape_of(t) == self.shape}
        for tensor, buffer in self.outputs:
            if tensor in whole:
                self._store(whole[tensor], buffer, index, lane)
            else:
                self._smaller(reader, tensor, buffer, linear)

    def _store(self, value: ir.Value, buffer: ir.Value, index: list[Index], lane: Index) -> None:
        if self.sum:
            b.if_then(b.equal(lane, 0), lambda: b.store(value, buffer, index))
        else:
            b.store(value, buffer, index, aligned=self.target.aligned_rows)

    @staticmethod
    def _smaller(reader: Reader, tensor: ir.Value, buffer: ir.Value, linear: Index) -> None:
        """Another result of the same op, of which there are fewer elements."""

        def store() -> None:
            with reader.scope():
                index = coordinates(linear, shape_of(tensor))
                b.store(reader.read(tensor, index), buffer, index)

        b.if_then(b.less(linear, prod(shape_of(tensor))), store)
