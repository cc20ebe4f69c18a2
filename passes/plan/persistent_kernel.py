"""One kernel of a run of steps: each of its blocks walks the steps and does its tasks of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lispgpt.base.access import READ, READ_WRITE, SCRATCH, WRITE, Region, dependencies
from lispgpt.ir import build as b
from lispgpt.ir.access import set_access
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import everything_in, integers, operations
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.kernel import coordinates, set_launch
from lispgpt.passes.kernels.signals import Signals, Wanted
from lispgpt.passes.memory.kernel_buffers import byte_size
from lispgpt.passes.model.kernel_work import KernelWork, record_work, recorded_work
from lispgpt.passes.plan.idle_threads import IdleThreads
from lispgpt.passes.plan.rounds import Stretch, by_round, stretches
from lispgpt.passes.plan.tasks import Tasks, block_memory
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.base import DEPENDENCY_MARK

THREADS_OF_A_CORE = 512
"""How many threads the workers of one core have together."""
ALIGNMENT = 16
"""Of buffers' first bytes, and of a block's arrays."""
DEPENDENCY = "nvvm.griddepcontrol"


Wait = Callable[[bool], None]
"""Emits a wait: all of it, or with False the part of threads that have nothing to do."""


class PersistentKernel:
    """Made in `module` as `name`.  buffers: what it is called with, as parts of the entry's buffers, then memory for
    signals of `signals_type`.  workers: blocks of the launch at most, 0 for as many as the chip holds.  whole: whether
    the run is all of an entry."""

    def __init__(
        self, module: ir.Module, name: str, run: Sequence[Tasks], words: int, target: Gpu, workers: int, whole: bool
    ) -> None:
        self.name, self.run, self.target = name, run, target
        self.waits = dependencies([step.regions for step in run])
        self.buffers = _buffers(run, whole)
        self.number = {buffer.buffer: i for i, buffer in enumerate(self.buffers)}
        self.threads = max(step.threads for step in run)
        self.cluster = max(step.cluster for step in run)
        self.signals_type = ir.MemRefType.get([words], b.i32())
        self._function(module)
        self._describe(workers)
        with ir.InsertionPoint(self.body), run[0].kernel.location:
            self._emit()
            create_op("func.return")
        self.memory.record(self.function)

    def _function(self, module: ir.Module) -> None:
        i8 = ir.IntegerType.get_signless(8)
        types = [*(ir.MemRefType.get([buffer.nbytes], i8) for buffer in self.buffers), self.signals_type]
        attributes = {
            "sym_name": ir.StringAttr.get(self.name),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
            "sym_visibility": ir.StringAttr.get("private"),
            "kernel": ir.StringAttr.get("persistent"),
            "persistent": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self.cluster),
        }
        before, where = self.run[0].kernel, self.run[0].kernel.location
        self.function = create_op(
            "func.func", attributes=attributes, regions=1, loc=where, ip=ir.InsertionPoint(before)
        )
        self.body = self.function.regions[0].blocks.append(*types, arg_locs=[where] * len(types))

    def _describe(self, workers: int) -> None:
        """What a launch of it is, and what it does."""
        each = max(1, THREADS_OF_A_CORE // self.threads)
        count = min(self.target.cores_for(self.cluster) * each, workers or 1 << 30)
        count = min(count, max(step.count for step in self.run))
        count = max(1, count // self.cluster) * self.cluster
        set_launch(self.function, [count], [self.threads])
        set_access(self.function, [*(buffer.access for buffer in self.buffers), READ_WRITE])
        self.target.set_residency(self.function, each)
        if self.cluster > 1:
            self.target.set_cluster(self.function, self.cluster)
        works = [work for step in self.run if (work := recorded_work(step.kernel)) is not None]
        context = max((work["context"] for work in works), default=0)
        names = ("bytes", "operations", "position_bytes", "position_operations")
        record_work(self.function, KernelWork(**{n: sum(w[n] for w in works) for n in names}, context=context))

    def _emit(self) -> None:
        nbytes = max(sum(map(_aligned_bytes, block_memory(step.kernel))) for step in self.run)
        self.memory = BlockMemory(self.target, max(nbytes, ALIGNMENT), aligned=False)
        self.thread, self.worker = b.thread_id(), b.block_id()
        self.workers = self.target.worker_count()
        self.signals = Signals(self.target, self.body.arguments[len(self.buffers)], self.thread)
        for stretch in stretches([step.shape for step in self.run]):
            if stretch.rounds == 1:
                self._round(stretch, 0)
            else:
                b.each(0, stretch.rounds, 1, partial(self._round, stretch))
        b.if_then(b.equal(self.thread, 0), self._leave)

    def _leave(self) -> None:
        """The last worker that leaves makes all signals zero again."""
        done = len(self.run)
        before = b.emit("arith.index_cast", [self.signals.add(done, b.constant(1, b.i32()))], [ir.IndexType.get()])
        last = b.equal(b.add(before, 1), self.workers)
        b.if_then(last, lambda: self.signals.clear(done + 1))

    def _round(self, stretch: Stretch, number: Index) -> None:
        whole = stretch.count - (stretch.rounds - 1) * stretch.period
        for position in range(stretch.period):
            step = _Step(self, stretch.items(position), number)
            if position < whole or isinstance(number, int):
                step.emit()
            else:
                b.if_then(b.less(number, stretch.rounds - 1), step.emit)


class _Step:
    """The steps of a kernel's run at one position of each round.  number: of the round at hand."""

    def __init__(self, kernel: PersistentKernel, items: list[int], number: Index) -> None:
        self.owner, self.items, self.number = kernel, items, number
        self.step = kernel.run[items[0]]

    def emit(self) -> None:
        owner, zero = self.owner, b.constant(0, b.i32())
        places = [self._argument(i) for i in range(len(self.step.regions))]

        def task(number: ir.Value, done: ir.Value) -> list[ir.Value]:
            self._task(number, places)
            b.barrier()
            return [b.emit("arith.addi", [done, b.constant(1, b.i32())], [b.i32()])]

        done = b.loop(owner.worker, self.step.count, owner.workers, [zero], task)[0]
        mine = b.less(owner.worker, self.step.count)
        leads = b.emit("arith.andi", [mine, b.equal(owner.thread, 0)], [mine.type])
        b.if_then(leads, lambda: owner.signals.add(by_round(self.items, self.number), done))

    def _argument(self, i: int) -> ir.Value:
        """The memory that the kernel's i-th argument is in this round."""
        owner, regions = self.owner, [self.owner.run[item].regions[i] for item in self.items]
        number = owner.number[regions[0].buffer]
        low = owner.buffers[number].offset
        offset = by_round([region.offset - low for region in regions], self.number)
        type_ = self.step.kernel.regions[0].blocks[0].arguments[i].type
        return b.emit("memref.view", [owner.body.arguments[number], b.as_value(offset)], [type_])

    def _wanted(self) -> list[Wanted]:
        """The signals of the steps that this one waits for.  A step that is so far back in some rounds only is waited
        for in these."""
        run, waits = self.owner.run, self.owner.waits
        distances = sorted({item - earlier for item in self.items for earlier in waits[item]})
        wanted = []
        for distance in distances:
            earlier = [item - distance if item - distance in waits[item] else None for item in self.items]
            counts = [0 if n is None else run[n].count for n in earlier]
            wanted.append(Wanted(by_round([n or 0 for n in earlier], self.number), by_round(counts, self.number)))
        return wanted

    def _task(self, number: ir.Value, places: Sequence[ir.Value]) -> None:
        """Emit one task: the kernel's body, for a block of that number."""
        owner, kernel = self.owner, self.step.kernel
        first = b.equal(number, owner.worker)
        task = [b.as_value(x) for x in coordinates(number, self.step.grid[::-1])][::-1]
        wait = self._waiting(first)
        marked = any(map(_waits, operations(kernel.regions[0].blocks[0])))
        if wait is not None and not marked:
            wait(True)
        copy = kernel.clone().operation
        body = copy.regions[0].blocks[0]
        for argument, place in zip(body.arguments, places, strict=True):
            argument.replace_all_uses_with(place)
        self._place(copy, task)
        *ops, terminator = operations(body)
        terminator.erase()
        marker = next(filter(_waits, ops), None)
        if self.step.threads == owner.threads:
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
        wait = self.owner.signals.wait
        return lambda works: b.if_then(first, lambda: wait(wanted) if works else b.barrier())

    def _guarded(self, ops: list[ir.Operation], marker: ir.Operation | None, wait: Wait | None) -> None:
        """Let as many threads as the body is for run it, and the others meet its barriers."""
        choice = create_op("scf.if", [b.less(self.owner.thread, self.step.threads)], regions=2)
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
        values = {"gpu.block_id": task, "gpu.grid_dim": self.step.grid}
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
                    value = self.owner.memory.view(at, type_.shape, type_.element_type)
                at += _aligned_bytes(op)
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


def _aligned_bytes(op: ir.Operation) -> int:
    return -(-byte_size(op.results[0].type) // ALIGNMENT) * ALIGNMENT


def _buffers(run: Sequence[Tasks], whole: bool) -> list[Region]:
    """The part of each of the entry's buffers that a run of steps touches, and what it does there all in all.

    whole: whether the run is all of the entry, so that nothing is in its memory before, and nothing wanted afterwards.
    """
    found: dict[str, list[Region]] = {}
    for region in (region for step in run for region in step.regions):
        found.setdefault(region.buffer, []).append(region)
    return [_joined(regions, whole) for regions in found.values()]


def _joined(regions: Sequence[Region], whole: bool) -> Region:
    low = min(region.offset for region in regions) // ALIGNMENT * ALIGNMENT
    end = max(region.end for region in regions)
    written: list[Region] = []
    early = False
    for region in regions:
        early |= region.reads and not _covered(region.offset, region.end, written)
        written += [region] if region.access == WRITE else []
    if all(region.access == READ for region in regions):
        access = READ
    elif not early and _covered(low, end, written):
        access = WRITE
    else:
        access = SCRATCH if whole and not early else READ_WRITE
    return Region(regions[0].buffer, low, end - low, access)


def _covered(start: int, end: int, parts: Sequence[Region]) -> bool:
    """Whether every byte from start to end is in one of the parts."""
    for part in sorted(parts, key=lambda part: part.offset):
        if part.offset <= start:
            start = max(start, part.end)
    return start >= end
