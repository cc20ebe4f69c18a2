"""One kernel of a run of steps: each of its blocks walks the steps and does its tasks of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.base.access import READ, READ_WRITE, Region
from lispgpt.ir import build as b
from lispgpt.ir.access import set_access
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.kernel import set_launch
from lispgpt.passes.kernels.signals import Signals, Wanted
from lispgpt.passes.memory.kernel_buffers import byte_array
from lispgpt.passes.model.kernel_work import KernelWork, record_work, recorded_work
from lispgpt.passes.plan.rounds import Stretch, stretches
from lispgpt.passes.plan.tasks import ALIGNMENT, Tasks, aligned_bytes, block_memory, touched_buffers, waits_of
from lispgpt.passes.plan.walked_step import Walk, WalkedStep
from lispgpt.passes.targets import Gpu

THREADS_OF_A_CORE = 512
"""How many threads the workers of one core have together."""


@dataclass(frozen=True)
class Repeats:
    """That a launch does its run several times, `most` at most: one more than the number in an argument of its own.

    results: those of the buffers of which each run's contents are kept, in an argument each, [most, words of i32].
    """

    most: int = 1
    results: tuple[Region, ...] = ()


def worker_count(run: Sequence[Tasks], target: Gpu, most: int) -> tuple[int, int]:
    """How many workers a run gets, and how many of them a core.  most: workers at most, 0 for what the chip holds."""
    each = max(1, THREADS_OF_A_CORE // max(step.threads for step in run))
    cluster = max(step.cluster for step in run)
    count = min(target.cores_for(cluster) * each, most or 1 << 30, max(step.count for step in run))
    return max(1, count // cluster) * cluster, each


class PersistentKernel:
    """Made in `module` as `name`.  buffers: what it is called with, as parts of the entry's buffers, then memory of i32
    for signals, and with `repeats` the number of more runs, and memory for results.  workers: blocks of the launch at
    most, 0 for as many as the chip holds.  whole: whether the run is all of an entry.  words: how many i32 the signals
    are."""

    def __init__(
        self,
        module: ir.Module,
        name: str,
        run: Sequence[Tasks],
        words: int,
        target: Gpu,
        workers: int,
        whole: bool,
        repeats: Repeats,
    ) -> None:
        self.name, self.run, self.target, self.repeats = name, run, target, repeats
        self.buffers = touched_buffers(run, whole)
        self.threads = max(step.threads for step in run)
        self.cluster = max(step.cluster for step in run)
        more = [[1], *([repeats.most, result.nbytes // 4] for result in repeats.results)] if repeats.most > 1 else []
        self.types = [byte_array(buffer.nbytes) for buffer in self.buffers]
        self.types += [ir.MemRefType.get(shape, b.i32()) for shape in ([words], *more)]
        self._function()
        self._describe(workers)
        with ir.InsertionPoint(self.body), run[0].kernel.location:
            self._emit()
            create_op("func.return")
        self.walk.memory.record(self.function)

    def _function(self) -> None:
        before, where = self.run[0].kernel, self.run[0].kernel.location
        with ir.InsertionPoint(before), where:
            facts = {"kernel": "persistent", "persistent": self.cluster}
            self.function = b.private_function(self.name, self.types, **facts)
        self.body = self.function.regions[0].blocks.append(*self.types, arg_locs=[where] * len(self.types))

    def _describe(self, workers: int) -> None:
        """What a launch of it is, and what it does."""
        count, each = worker_count(self.run, self.target, workers)
        set_launch(self.function, [count], [self.threads])
        access = [buffer.access for buffer in self.buffers] + [READ_WRITE]
        access += [READ] * (self.repeats.most > 1) + [READ_WRITE] * len(self.repeats.results)
        set_access(self.function, access)
        self.target.set_residency(self.function, each)
        if self.cluster > 1:
            self.target.set_cluster(self.function, self.cluster)
        works = [work for step in self.run if (work := recorded_work(step.kernel)) is not None]
        context = max((work["context"] for work in works), default=0)
        names = ("bytes", "operations", "position_bytes", "position_operations")
        record_work(self.function, KernelWork(**{n: sum(w[n] for w in works) for n in names}, context=context))

    def _emit(self) -> None:
        nbytes = max(sum(map(aligned_bytes, block_memory(step.kernel))) for step in self.run)
        memory = BlockMemory(self.target, max(nbytes, ALIGNMENT), aligned=False)
        thread, worker, self.workers = b.thread_id(), b.block_id(), self.target.worker_count()
        arguments, count = list(self.body.arguments), len(self.buffers)
        signals = Signals(self.target, arguments[count], thread)
        parts = (self.run, waits_of(self.run), self.buffers, arguments[:count])
        self.walk = Walk(*parts, self.threads, thread, worker, self.workers, signals, memory, self.target)
        self.times: Index = 1
        if self.repeats.most > 1:
            self.times = b.add(_index(b.load(arguments[count + 1], [0], 1)), 1)
            b.each(0, self.times, 1, self._run)
        else:
            self._run(0)

    def _run(self, number: Index) -> None:
        """All steps once.  number: of the run.  It starts when all have left the one before, which leaves inputs."""
        walk = self.walk
        walk.repeat, walk.signals.thread = number, self.target.fresh(walk.thread, False)
        if self.repeats.most > 1:
            left = [Wanted(len(self.run), b.mul(self.workers, number))]
            b.if_then(b.less(0, number), lambda: walk.signals.wait(left))
        self._once()
        walk.signals.thread = self.target.fresh(walk.thread, False)
        if self.repeats.most > 1:
            b.if_then(b.equal(walk.worker, 0), lambda: self._keep(number))
        b.if_then(b.equal(walk.signals.thread, 0), lambda: self._leave(number))

    def _keep(self, number: Index) -> None:
        """By the first worker: keep a run's results, which it has made, or waits for with all of the run."""
        walk, thread = self.walk, self.walk.signals.thread
        results = {result.buffer for result in self.repeats.results}
        makers = [step for step in self.run if any(r.writes and r.buffer in results for r in step.regions)]
        if any(step.count > 1 for step in makers):
            others = b.sub(b.mul(self.workers, b.add(number, 1)), 1)
            walk.signals.wait([Wanted(len(self.run), others)])
        kept = list(self.body.arguments)[-len(self.repeats.results) :]
        for result, memory in zip(self.repeats.results, kept, strict=True):
            words = result.nbytes // 4
            source = walk.memories[[buffer.buffer for buffer in self.buffers].index(result.buffer)]
            values = b.emit("memref.view", [source, b.as_value(0)], [ir.MemRefType.get([words], b.i32())])

            def keep(i: Index, values: ir.Value = values, memory: ir.Value = memory) -> None:
                b.store(b.load(values, [i], 1), memory, [number, i])

            b.each(thread, words, self.threads, keep)
        b.barrier()

    def _leave(self, number: Index) -> None:
        """By one thread: leave a run.  Who leaves the last run last makes all signals zero again."""
        signals, done = self.walk.signals, len(self.run)
        before = _index(signals.add(done, b.constant(1, b.i32())))
        last = b.equal(b.add(before, 1), b.mul(self.workers, self.times))
        clear = partial(signals.clear, done + 1)
        if isinstance(self.times, int):
            b.if_then(last, clear)
        else:
            b.if_then(b.equal(b.add(number, 1), self.times), lambda: b.if_then(last, clear))

    def _once(self) -> None:
        for stretch in stretches([step.shape for step in self.run]):
            if stretch.rounds == 1:
                self._round(stretch, 0)
            else:
                b.each(0, stretch.rounds, 1, partial(self._round, stretch))

    def _round(self, stretch: Stretch, number: Index) -> None:
        for position in range(stretch.period):
            step = WalkedStep(self.walk, stretch.items(position), number)
            if position < stretch.last or isinstance(number, int):
                step.emit()
            else:
                b.if_then(b.less(number, stretch.rounds - 1), step.emit)


def _index(word: ir.Value) -> ir.Value:
    return b.emit("arith.index_cast", [word], [ir.IndexType.get()])
