"""one-launch: an entry's launches become one, of blocks that stay and walk all the tasks.

Before:                                        After:
  func.func private @a(%x, %y)                   func.func private @entry_launch(%x, …, %arena, %signals)
      {grid = [12, 1, 1], block = …}                 {kernel = "persistent", grid = [workers, 1, 1], block = …} {
  func.func private @b(%y, %w, %z)                 for %task = worker to 12 step workers {  … body of @a … }
  func.func @entry(%x, …, %arena) {                signal: a has been done by so many
    call @a(%x, %y)                                for %task = worker to 48 step workers {
    call @b(%y, %w, %z)                              first time: wait until all 12 of a are done
                                                     … body of @b … }
                                                 func.func @entry(%x, …, %arena, %signals) {
                                                   call @entry_launch(%x, …, %arena, %signals)

It is done between schedules and lowering, where a kernel still is a number of tasks and a body for one, written in
gpu.block_id.  The blocks of the launch, its workers, are as many as the chip holds at once; task t of every step is
worker t's, modulo their number, and within a step nobody waits.  A step waits for those earlier steps alone whose bytes
it touches (see lispgpt.base.access), and only a worker that has a task of it waits: by a signal for each step, which
counts its finished tasks.  As all walk the steps in one order, the first step that is not done never waits for a later
one: there is no deadlock while all workers are there at once, which the device sees to.  What a body reads ahead of
its `dependency_wait`, weights, it reads ahead of the wait here too.

Steps that come again and again, as a model's layers do, are rounds of one loop (rounds.py).  Bodies share one piece of
memory of the block.  A body for fewer threads than the block has is run by the first of them, and the others meet its
barriers (idle_threads.py).  Blocks that run in clusters stay so.

An entry that leaves the inputs of its next run, as decoding does, can be run several times by one launch: signals count
on, a run starts when all workers have left the one before, and small results are kept run by run.

Requires: every kernel has a `grid`.  Ensures: calls that are left are of kernels that one launch cannot have, or of
entries whose launches are as fast apart, or which run once (make_weights.py); no kernel is left that nothing calls.
Entries say in `remarks` what was chosen and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.base.access import READ, Region
from lispgpt.ir import build as b
from lispgpt.ir.collectives import collective_functions
from lispgpt.ir.mlir import attribute, ir
from lispgpt.ir.places import together
from lispgpt.ir.structure import callee_of, entry_functions, kernel_functions, operations, strings, symbol_of
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import resize
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.signals import signal_words
from lispgpt.passes.memory.kernel_buffers import add_argument
from lispgpt.passes.model.make_weights import MAKES
from lispgpt.passes.plan.persistent_kernel import PersistentKernel, Repeats, worker_count
from lispgpt.passes.plan.tasks import Tasks, check_part, modelled_seconds
from lispgpt.passes.states import IN_ARENA
from lispgpt.passes.targets import Gpu

WORTH = 0.9
"""One launch is taken where it is modelled to take at most this much of the launches' time."""
SIGNALS, MORE = "signals:signals", "control:more"
KEPT_BYTES = 4096
"""Of a result of all runs of a launch, at most: devices read no more while they go on."""


@dataclass(frozen=True)
class OneLaunch(Pass):
    """when: "modelled", where it is faster by what the target knows of its costs; "always", wherever it can be done;
    "never".  workers: blocks of a launch, at most; 0: as many as the chip holds.  threads: of a block, at most.
    runs: of an entry in one launch, at most, where it leaves the inputs of its next run."""

    starts_from = (IN_ARENA,)
    when: str = "modelled"
    workers: int = 0
    threads: int = 512
    runs: int = 8

    def run(self, module: ir.Module, target: Gpu) -> None:
        if self.when == "never":
            return
        kernels = {symbol_of(kernel): kernel for kernel in kernel_functions(module)}
        apart = self._apart(kernels, target)
        entries = [entry for entry in entry_functions(module) if MAKES not in entry.attributes]
        called = kernels | collective_functions(module)
        runs = [(entry, run) for entry in entries for run in self._runs(entry, called, apart, target)]
        words = max((signal_words(len(run) + 2) for _, run in runs), default=0)
        for number, (entry, run) in enumerate(runs):
            same = sum(other == entry for other, _ in runs[:number])
            name = f"{symbol_of(entry)}_launch" + (f"{same + 1}" if same else "")
            whole = len(run) == len(_calls(entry))
            repeats = self._repeats(entry, run) if whole else Repeats()
            for step in run:
                resize(step.kernel, worker_count(run, target, self.workers)[0])
            made = PersistentKernel(module, name, run, words, target, self.workers, whole, repeats)
            _replace(run, made, _own_memory(entry, made, repeats))
        left = {callee_of(op) for entry in entry_functions(module) for op in _calls(entry)}
        for name, kernel in kernels.items():
            if name not in left:
                kernel.erase()

    def _apart(self, kernels: dict[str, ir.Operation], target: Gpu) -> dict[str, str]:
        """The kernels that one launch cannot have, with why; none are looked for where nothing is taken anyway."""
        reasons = {}
        for name, kernel in kernels.items() if self.when == "always" or target.launch_seconds else ():
            try:
                check_part(kernel, target, self.threads)
            except Refused as refused:
                reasons[name] = str(refused)
        return reasons

    def _runs(
        self, entry: ir.Operation, called: dict[str, ir.Operation], apart: dict[str, str], target: Gpu
    ) -> list[list[Tasks]]:
        """The runs of an entry's steps that become a launch each, of at least two steps."""
        runs: list[list[Tasks]] = [[]]
        reasons: dict[str, None] = {}
        for call in _calls(entry):
            name = callee_of(call)
            if "collective" not in called[name].attributes and name not in apart:
                runs[-1].append(Tasks.of(call, called[name]))
                continue
            if name in apart:
                reasons[f"{name} stays apart: {apart[name]}"] = None
            runs.append([])
        runs = [run for run in runs if len(run) > 1]
        chosen = [self._chosen(run, target) for run in runs]
        counts = Counter(text for text, _ in chosen)
        said = [text if count == 1 else f"{text} ({count} times)" for text, count in counts.items()]
        said += reasons if any(taken for _, taken in chosen) else ()
        if said:
            before = strings(entry.attributes["remarks"]) if "remarks" in entry.attributes else []
            entry.attributes["remarks"] = attribute([*before, *said])
        return [run for run, (_, taken) in zip(runs, chosen, strict=True) if taken]

    def _repeats(self, entry: ir.Operation, run: Sequence[Tasks]) -> Repeats:
        """How often a launch may run an entry, which leaves inputs for its next run, and which results are kept."""
        kinds = [name.partition(":")[0] for name in strings(entry.attributes["arguments"])]
        written = [region for step in run for region in step.regions if region.access != READ]
        if self.runs < 2 or not any(kinds[int(region.buffer)] == "input" for region in written):
            return Repeats()
        sizes = [ir.MemRefType(a.type).shape[0] for a in entry.regions[0].blocks[0].arguments]
        results = [str(i) for i, kind in enumerate(kinds) if kind == "result"]
        kept = [n for n in results if sizes[int(n)] % 4 == 0 and sizes[int(n)] * self.runs <= KEPT_BYTES]
        return Repeats(self.runs, tuple(Region(n, 0, sizes[int(n)], READ) for n in kept)) if kept else Repeats()

    def _chosen(self, run: list[Tasks], target: Gpu) -> tuple[str, bool]:
        """What to say of a run of steps, and whether it becomes one launch."""
        times = modelled_seconds(run, target)
        if times is None:
            taken, why = self.when == "always", "not known what waiting costs on this chip"
        else:
            taken = self.when == "always" or times.together <= WORTH * times.apart
            apart, together = (f"{s * 1e6:.0f} us" for s in (times.apart, times.together))
            why = f"modelled {apart} apart, {together} as one"
        return f"{len(run)} launches {'are one' if taken else 'stay apart'}: {why}", taken


def _calls(entry: ir.Operation) -> list[ir.Operation]:
    return [op for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call"]


def _replace(run: Sequence[Tasks], made: PersistentKernel, own: Sequence[ir.Value]) -> None:
    """Call the one kernel where the last of its steps was called.  own: the entry's memory for what only it needs."""
    block = run[0].call.operation.block
    sources = [block.arguments[int(buffer.buffer)] for buffer in made.buffers]
    offsets = [buffer.offset for buffer in made.buffers] + [0] * len(own)
    with ir.InsertionPoint(run[-1].call), together(step.call for step in run):
        views = [
            b.emit("memref.view", [source, b.as_value(offset)], [type_])
            for source, offset, type_ in zip([*sources, *own], offsets, made.types, strict=True)
        ]
        b.call(made.name, views)
    for step in run:
        step.call.erase()


def _own_memory(entry: ir.Operation, made: PersistentKernel, repeats: Repeats) -> list[ir.Value]:
    """An entry's arguments for signals, for the number of more runs, and for each run's results."""
    names, types = strings(entry.attributes["arguments"]), list(entry.attributes["types"])
    i32 = ir.IntegerType.get_signless(32)
    wanted = [(SIGNALS, ir.RankedTensorType.get(made.types[len(made.buffers)].shape, i32))]
    if repeats.most > 1:
        wanted.append((MORE, ir.RankedTensorType.get([1], i32)))
        results = [int(result.buffer) for result in repeats.results]
        for i in results:
            type_ = ir.TypeAttr(types[i]).value
            kept = ir.RankedTensorType.get([repeats.most, *type_.shape], type_.element_type)
            wanted.append((names[i].replace("result:", "kept:"), kept))
        kept_of = [names[i].partition(":")[2] for i in results]
        entry.attributes["repeats"] = attribute({"most": repeats.most, "kept": kept_of})
    return [add_argument(entry, name, type_) for name, type_ in wanted]
