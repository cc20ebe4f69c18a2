"""One step of a persistent kernel, or the steps at one position of each round of its loop: their tasks and waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lispgpt.base.access import Region
from lispgpt.ir import build as b
from lispgpt.ir.access import ALIASES
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import everything_in, integers, nested_operations, operations
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.kernel import coordinates
from lispgpt.passes.kernels.signals import Signals, Wanted
from lispgpt.passes.plan.idle_threads import IdleThreads
from lispgpt.passes.plan.prefetch import prefetch_loads
from lispgpt.passes.plan.rounds import by_round
from lispgpt.passes.plan.tasks import Tasks, aligned_bytes
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.base import DEPENDENCY_MARK

DEPENDENCY = "nvvm.griddepcontrol"
Wait = Callable[[bool], None]
"""Emits a wait: all of it, or with False the part of threads that have nothing to do."""


@dataclass
class Walk:
    """What the steps of a persistent kernel have in common.

    run: the steps; waits: for each those before it that it waits for.  buffers, memories: the parts of the entry's
    buffers that they touch, and the kernel's arguments that are these.  threads: of a block.  thread, worker, workers:
    which thread and block this is, and of how many blocks.  memory: the block's.  repeat: how often the whole run was
    done before in this launch; None where it is done once.  A signal of the number of the run's length is then given
    after each.  ahead: whether a step asks for the next one's weights while it waits.
    """

    run: Sequence[Tasks]
    waits: Sequence[Sequence[int]]
    buffers: Sequence[Region]
    memories: Sequence[ir.Value]
    threads: int
    thread: ir.Value
    worker: ir.Value
    workers: ir.Value
    signals: Signals
    memory: BlockMemory
    target: Gpu
    ahead: bool = False
    repeat: Index | None = None


class WalkedStep:
    """The steps of a kernel's run at one position of each round.  number: of the round at hand.  following: the step
    after it in the same round, if any."""

    def __init__(self, walk: Walk, items: list[int], number: Index, following: WalkedStep | None = None) -> None:
        self.walk, self.items, self.number, self.following = walk, items, number, following
        self.step = walk.run[items[0]]

    def emit(self) -> None:
        walk, zero = self.walk, b.constant(0, b.i32())
        self.worker, self.thread = (walk.target.fresh(v, u) for v, u in ((walk.worker, True), (walk.thread, False)))
        self.zero = walk.target.fresh(b.as_value(0), True)
        walk.signals.thread = self.thread
        places = [self._argument(i) for i in range(len(self.step.regions))]

        def task(number: ir.Value, done: ir.Value) -> list[ir.Value]:
            self._task(number, places)
            b.barrier()
            return [b.emit("arith.addi", [done, b.constant(1, b.i32())], [b.i32()])]

        done = b.loop(self.worker, self.step.count, walk.workers, [zero], task)[0]
        mine = b.less(self.worker, self.step.count)
        leads = b.emit("arith.andi", [mine, b.equal(self.thread, 0)], [mine.type])
        b.if_then(leads, lambda: walk.signals.add(by_round(self.items, self.number), done))

    def _argument(self, i: int) -> ir.Value:
        """The memory that the kernel's i-th argument is in this round."""
        walk, regions = self.walk, [self.walk.run[item].regions[i] for item in self.items]
        number = [buffer.buffer for buffer in walk.buffers].index(regions[0].buffer)
        low = walk.buffers[number].offset
        offset = b.add(by_round([region.offset - low for region in regions], self.number), self.zero)
        type_ = self.step.kernel.regions[0].blocks[0].arguments[i].type
        return b.emit("memref.view", [walk.memories[number], b.as_value(offset)], [type_])

    def _wanted(self) -> list[Wanted]:
        """The signals that this step waits for.  A step that is so far back in some rounds only is waited for in these;
        a step that waits for none in its run waits for the end of the run before."""
        run, waits, repeat = self.walk.run, self.walk.waits, self.walk.repeat
        distances = sorted({item - earlier for item in self.items for earlier in waits[item]})
        wanted = []
        for distance in distances:
            earlier = [item - distance if item - distance in waits[item] else None for item in self.items]
            counts = by_round([0 if n is None else run[n].count for n in earlier], self.number)
            counts = counts if repeat is None else b.mul(counts, b.add(repeat, 1))
            wanted.append(Wanted(by_round([n or 0 for n in earlier], self.number), counts))
        if repeat is not None and any(not waits[item] for item in self.items):
            first = by_round([int(not waits[item]) for item in self.items], self.number)
            wanted.append(Wanted(len(run), b.mul(first, repeat)))
        return wanted

    def _looks_early(self) -> bool:
        """Whether the body says where it has to wait, and what it reads before that is none that the run writes."""
        ops = operations(self.step.kernel.regions[0].blocks[0])
        at = next((i for i, op in enumerate(ops) if _waits(op)), None)
        if at is None or self.walk.repeat is None:
            return at is not None
        roots: dict[ir.Value, ir.Value] = {}
        read: set[ir.Value] = set()
        for op in (inner for outer in ops[:at] for inner in (outer, *nested_operations(outer))):
            read.update(roots.get(value, value) for value in op.operands if isinstance(value.type, ir.MemRefType))
            if op.name in ALIASES:
                roots[op.results[0]] = roots.get(op.operands[0], op.operands[0])
        arguments = list(self.step.kernel.regions[0].blocks[0].arguments)
        regions = [self.step.regions[arguments.index(value)] for value in read if value in arguments]
        written = {region.buffer for step in self.walk.run for region in step.regions if region.writes}
        return not any(region.buffer in written for region in regions)

    def _task(self, number: ir.Value, places: Sequence[ir.Value]) -> None:
        """Emit one task: the kernel's body, for a block of that number."""
        walk, kernel = self.walk, self.step.kernel
        first = b.equal(number, self.worker)
        task = [b.as_value(x) for x in coordinates(number, self.step.grid[::-1])][::-1]
        wait = self._waiting(first)
        early = self._looks_early()
        if wait is not None and not early:
            wait(True)
            wait = None
        copy = kernel.clone().operation
        body = copy.regions[0].blocks[0]
        for argument, place in zip(body.arguments, places, strict=True):
            argument.replace_all_uses_with(place)
        self._place(copy, task)
        *ops, terminator = operations(body)
        terminator.erase()
        marker = next(filter(_waits, ops), None)
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
        wait = self.walk.signals.wait

        def whole() -> None:
            if self.walk.ahead and self.following is not None:
                self.following.prefetch(self)
            wait(wanted)

        return lambda works: b.if_then(first, whole if works else b.barrier)

    def prefetch(self, now: WalkedStep) -> None:
        """Ask, in the step before, for what the body of a worker's first task reads ahead of its wait."""
        ops = operations(self.step.kernel.regions[0].blocks[0])
        at = next((i for i, op in enumerate(ops) if _waits(op)), 0)
        self.zero = now.zero
        mine = b.less(now.worker, self.step.count)
        works = b.emit("arith.andi", [mine, b.less(now.thread, self.step.threads)], [mine.type])

        def ask() -> None:
            arguments = list(self.step.kernel.regions[0].blocks[0].arguments)
            memories = {argument: self._argument(i) for i, argument in enumerate(arguments)}
            task = [b.as_value(x) for x in coordinates(now.worker, self.step.grid[::-1])][::-1]
            prefetch_loads(ops[:at], memories, {"gpu.block_id": task, "gpu.thread_id": [now.thread]}, self.walk.target)

        b.if_then(works, ask)

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
            IdleThreads(busy, instead).emit()
            create_op("scf.yield")
        _instead(marker, wait)
        with ir.InsertionPoint(busy):
            create_op("scf.yield")

    def _place(self, copy: ir.Operation, task: list[ir.Value]) -> None:
        """Give a copied body its task's number, its block's memory, and the extents of the launch that it was made for;
        of what orders launches, leave the first wait for earlier ones."""
        values = {"gpu.block_id": task, "gpu.grid_dim": self.step.grid, "gpu.thread_id": [self.thread, 0, 0]}
        values["gpu.block_dim"] = integers(self.step.kernel.attributes["block"])
        at, kept = 0, next(filter(_waits, operations(copy.regions[0].blocks[0])), None)
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
            elif (op.name == DEPENDENCY or _waits(op)) and (kept is None or op != kept):
                op.erase()


def _waits(op: ir.Operation) -> bool:
    """Whether all threads of a body wait there for earlier launches, or would if it had started ahead of their ends."""
    return DEPENDENCY_MARK in op.attributes or (op.name == DEPENDENCY and "wait" in str(op.attributes["kind"]))


def _instead(marker: ir.Operation | None, wait: Wait | None) -> None:
    if marker is None:
        return
    if wait is not None:
        with ir.InsertionPoint(marker):
            wait(True)
    marker.erase()
