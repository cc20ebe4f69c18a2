"""One step of a persistent kernel, or the steps at one position of each round of its loop: their tasks and waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lispgpt.base.access import Region
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import everything_in, integers, operations
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.kernel import coordinates
from lispgpt.passes.kernels.signals import Signals, Wanted
from lispgpt.passes.plan.idle_threads import IdleThreads
from lispgpt.passes.plan.rounds import by_round
from lispgpt.passes.plan.tasks import Tasks, aligned_bytes
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.base import DEPENDENCY, waits_for_launches

Wait = Callable[[bool], None]
"""Emits a wait: all of it, or with False the part of threads that have nothing to do."""


@dataclass
class Walk:
    """What the steps of a persistent kernel have in common.

    run: the steps; waits: the earlier ones that each waits for.  buffers, memories: the parts of the entry's buffers
    that they touch, and the kernel's arguments that are these.  threads: of a block.  thread, worker, workers:
    which thread and block this is, and of how many blocks.  memory: the block's.  repeat: how often the whole run was
    done before in this launch.
    """

    run: Sequence[Tasks]
    waits: Sequence[tuple[int, ...]]
    buffers: Sequence[Region]
    memories: Sequence[ir.Value]
    threads: int
    thread: ir.Value
    worker: ir.Value
    workers: ir.Value
    signals: Signals
    memory: BlockMemory
    target: Gpu
    repeat: Index = 0


class WalkedStep:
    """The steps of a kernel's run at one position of each round.  number: of the round at hand."""

    def __init__(self, walk: Walk, items: list[int], number: Index) -> None:
        self.walk, self.items, self.number = walk, items, number
        self.step = walk.run[items[0]]

    def emit(self) -> None:
        walk, zero = self.walk, b.constant(0, b.i32())
        self.worker, self.thread = (walk.target.fresh(v, u) for v, u in ((walk.worker, True), (walk.thread, False)))
        self.zero = walk.target.fresh(b.as_value(0), True)
        walk.signals.thread = self.thread
        places = [self._argument(i) for i in range(len(self.step.kernel.regions[0].blocks[0].arguments))]

        def task(number: ir.Value, done: ir.Value) -> list[ir.Value]:
            self._task(number, places)
            b.barrier()
            return [b.emit("arith.addi", [done, b.constant(1, b.i32())], [b.i32()])]

        done = b.loop(self.worker, self.step.count, walk.workers, [zero], task)[0]
        if not any(item in earlier for earlier in walk.waits for item in self.items):
            return
        mine = b.less(self.worker, self.step.count)
        b.if_live(
            b.both(mine, b.equal(self.thread, 0)), lambda: walk.signals.add(by_round(self.items, self.number), done)
        )

    def _argument(self, i: int) -> ir.Value:
        """The memory that the kernel's i-th argument is in this round."""
        walk, regions = self.walk, [self.walk.run[item].regions[i] for item in self.items]
        number = [buffer.buffer for buffer in walk.buffers].index(regions[0].buffer)
        low = walk.buffers[number].offset
        offset = b.add(by_round([region.offset - low for region in regions], self.number), self.zero)
        type_ = self.step.kernel.regions[0].blocks[0].arguments[i].type
        return b.emit("memref.view", [walk.memories[number], b.as_value(offset)], [type_])

    def _wanted(self) -> list[Wanted]:
        """The signals that this step waits for.  A step that is so far back in some rounds only is waited for in
        these."""
        run, waits, repeat = self.walk.run, self.walk.waits, self.walk.repeat
        distances = sorted({item - earlier for item in self.items for earlier in waits[item]})
        wanted = []
        for distance in distances:
            earlier = [item - distance if item - distance in waits[item] else None for item in self.items]
            counts = by_round([0 if n is None else run[n].count for n in earlier], self.number)
            counts = b.mul(counts, b.add(repeat, 1))
            wanted.append(Wanted(by_round([n or 0 for n in earlier], self.number), counts))
        return wanted

    def _task(self, number: ir.Value, places: Sequence[ir.Value]) -> None:
        """Emit one task: the kernel's body, for a block of that number."""
        walk, kernel = self.walk, self.step.kernel
        first = b.equal(number, self.worker)
        task = [b.as_value(x) for x in coordinates(number, self.step.grid[::-1])][::-1]
        wait = self._waiting(first)
        if wait is not None and not any(map(waits_for_launches, operations(kernel.regions[0].blocks[0]))):
            wait(True)
            wait = None
        copy = kernel.clone().operation
        body = copy.regions[0].blocks[0]
        for argument, place in zip(list(body.arguments), places, strict=True):
            argument.replace_all_uses_with(place)
        self._place(copy, task)
        *ops, terminator = operations(body)
        terminator.erase()
        marker = next(filter(waits_for_launches, ops), None)
        if self.step.threads == walk.threads:
            for op in ops:
                op.move_before(copy)
            _instead(marker, wait)
        else:
            self._guarded(ops, marker, wait)
        copy.erase()

    def _waiting(self, first: ir.Value) -> Wait | None:
        """The wait of a worker's first task; None where the step waits for none."""
        wanted = self._wanted()
        if not wanted:
            return None
        return lambda works: b.if_then(first, (lambda: self.walk.signals.wait(wanted)) if works else b.barrier)

    def _guarded(self, ops: list[ir.Operation], marker: ir.Operation | None, wait: Wait | None) -> None:
        """Let as many threads as the body is for run it, and the others meet its barriers."""
        choice = create_op("scf.if", [b.less(self.thread, self.step.threads)], regions=2)
        busy, idle = (region.blocks.append() for region in choice.regions)
        for op in ops:
            busy.append(op)

        def instead(op: ir.Operation) -> bool:
            if marker is None or op != marker:
                return False
            if wait is not None:
                wait(False)
            return True

        with ir.InsertionPoint(idle):
            IdleThreads(busy, self.thread, instead).emit()
            create_op("scf.yield")
        _instead(marker, wait)
        with ir.InsertionPoint(busy):
            create_op("scf.yield")

    def _place(self, copy: ir.Operation, task: list[ir.Value]) -> None:
        """Give a copied body its task's number, its block's memory, and the extents of the launch that it was made for;
        of what orders launches, leave the first wait for earlier ones."""
        values = {"gpu.block_id": task, "gpu.grid_dim": self.step.grid, "gpu.thread_id": [self.thread, 0, 0]}
        values["gpu.block_dim"] = integers(self.step.kernel.attributes["block"])
        at, kept = 0, next(filter(waits_for_launches, operations(copy.regions[0].blocks[0])), None)
        for op in everything_in(copy):
            if op.name in values:
                with ir.InsertionPoint(op):
                    value = b.as_value(values[op.name]["xyz".index(str(op.attributes["dimension"])[-2])])
                op.results[0].replace_all_uses_with(value)
                op.erase()
            elif op.name == "memref.alloca":
                type_ = op.results[0].type
                with ir.InsertionPoint(op):
                    value = self.walk.memory.view(at, type_.shape, type_.element_type)
                at += aligned_bytes(op)
                op.results[0].replace_all_uses_with(value)
                op.erase()
            elif (op.name == DEPENDENCY or waits_for_launches(op)) and (kept is None or op != kept):
                op.erase()


def _instead(marker: ir.Operation | None, wait: Wait | None) -> None:
    if marker is None:
        return
    if wait is not None:
        with ir.InsertionPoint(marker):
            wait(True)
    marker.erase()
