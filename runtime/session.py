"""A model on a device: the artifact's code, the checkpoint's weights, and the state between runs."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError, visible
from lispgpt.runtime.arrays import as_stored, read_later, readable
from lispgpt.runtime.buffers import input_buffers, shareable
from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.collectives.base import Engine
from lispgpt.runtime.collectives.beside import SharedEntry, settled
from lispgpt.runtime.committed_memory import CommittedMemory
from lispgpt.runtime.derived_weights import DerivedWeights
from lispgpt.runtime.devices.base import INPUT_BYTES, RUNS_AHEAD, Device, Pieces
from lispgpt.runtime.executables import Executables
from lispgpt.runtime.first_nan import FirstNaN
from lispgpt.runtime.given_weights import Several
from lispgpt.runtime.held_weights import HeldWeights
from lispgpt.runtime.owning import OwnLock
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.beside import beside
from lispgpt.runtime.plan.loops import with_buffers
from lispgpt.runtime.plan.plan import Buffer, Entry, Plan
from lispgpt.runtime.plan.reports import ASSERT, PRINT, span_of
from lispgpt.runtime.plan.steps import Collective, Launch
from lispgpt.runtime.repeating import Repeated, tell
from lispgpt.runtime.timeline import watch
from lispgpt.runtime.variants import check_inputs, fitting, variant
from lispgpt.runtime.weights import check_unused


class Session:
    """Loads code and weights once, then runs entries; use it in a `with`, which frees the device's memory.

    holder: the sequence whose states these are, which sets it.  kernels: the facts of all that were loaded, by name.
    buffers: the device's, by the plan's names.
    BF16 weights that the file holds as the kernels want them are adopted where they are; others are converted once, and
    those that an entry updates are copied.  What the plan makes of weights is made when it is first read.
    say: gets what entries print, by default for standard error.  first_nan: whether entries run launch by launch, up
    to the first that makes a NaN.
    engine: by which entries for several devices do what those do together.
    """

    def __init__(
        self, artifact: Artifact, device: Device, checkpoint: Checkpoint, engine: Engine | None = None
    ) -> None:
        watch(device, engine)
        self.artifact, self.device, self.checkpoint, self.engine = artifact, device, checkpoint, engine
        check_unused(checkpoint, artifact.folder, artifact.weights)
        self.config: Mapping[str, Any] = artifact.config
        self._declared: dict[str, Buffer] = {}
        self._buffers: dict[str, Any] = {}
        self.buffers: Mapping[str, Any] = self._buffers
        self._executables = Executables(device, engine, self._buffers, self._declared)
        self._entries: list[Entry] = []
        self._weights = HeldWeights(checkpoint, device, self._buffers, self.config)
        self._read_at_once: dict[int, Entry] = {}
        self.kernels: dict[str, Mapping[str, Any]] = {}
        self._unread: deque[Callable[[], np.ndarray]] = deque()
        self._told: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self.committed, self.making = CommittedMemory(device), DerivedWeights(self._make)
        self._beside, self._apart = frozenset[str](), dict[int, tuple[Entry, Entry]]()
        self._changed: dict[int, tuple[Entry, frozenset[str]]] = {}
        self.lock = OwnLock()
        self.holder: object = None
        self.first_nan = False
        self.say: Callable[[str], None] = _say_aside
        try:
            self._load(artifact, artifact.plan, "")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the device's memory, once the other devices need nothing of it."""
        try:
            if self.engine is not None:
                self.engine.close()
        finally:
            self.device.close()

    def add(self, artifact: Artifact) -> list[Entry]:
        """Load more entries of the same program, on the weights and states that are here; those entries.

        What is the artifact's own gets names of its own.  UserError where it was made for another target.
        """
        if artifact.target != self.artifact.target:
            raise UserError(f"entries for {artifact.target} cannot join a session of {self.artifact.target}")
        there, suffix = {b.name: (b.shape, b.dtype) for b in self._declared.values()}, f"#{len(self._entries)}"
        return self._load(artifact, beside(artifact.plan, there, suffix), suffix)

    def _load(self, artifact: Artifact, plan: Plan, suffix: str) -> list[Entry]:
        self.device.load(artifact.code, artifact.kernels, suffix, artifact.objects)
        self.kernels |= {name + suffix: facts for name, facts in artifact.kernels.items()}
        arguments = (a for entry in plan.entries for step in entry.steps for a in step.arguments)
        updated = {argument.buffer for argument in arguments if argument.writes}
        grows = {} if self.engine is not None else {n: axis for e in plan.entries for n, axis in e.grows.items()}
        views = []
        self._buffers |= input_buffers(self.device, plan, self._buffers)
        for buffer in plan.buffers:
            known = buffer.name in self._buffers
            self._declared[buffer.name] = buffer
            if buffer.kind != "weight":
                if not known:
                    self._buffers[buffer.name] = self.committed.made(buffer, grows.get(buffer.name))
                if buffer.kind == "device" and self.engine is not None:
                    self.device.copy_in(self._buffers[buffer.name], np.array([self.engine.rank], np.int32))
            elif not known:
                views += self._weights.load(buffer, artifact, buffer.name in updated)
            elif buffer.name in updated - self._weights.owned:
                self._weights.own(buffer)
                self._executables.forget(buffer.name)
        if views:
            self.checkpoint.check_finite(views)
        self._entries += plan.entries
        self.making.add(plan.making, self._declared)
        return list(plan.entries)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within this, only the calling thread may use the session and its device, in the process that opened it."""
        with self.lock:
            self.device.enter()
            yield

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def entries(self, name: str) -> list[Entry]:
        """The entries of that name, one for each choice of its free dimensions that it was compiled for."""
        return [entry for entry in self._entries if entry.name == name]

    def entry(self, name: str, **sizes: int) -> Entry:
        """The first entry of that name whose free dimensions have these sizes; UserError where there is none."""
        for entry in self.entries(name):
            if all(entry.sizes.get(dimension) == size for dimension, size in sizes.items()):
                return entry
        wanted = ", ".join(f"{dimension} {size}" for dimension, size in sizes.items())
        raise UserError(f"no entry {name!r} is compiled for {wanted or 'anything'}")

    def fits(self, name: str, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether an entry of that name is compiled for inputs of these shapes."""
        return fitting(self.entries(name), self._declared, shapes)[0] is not None

    def run(self, name: str, /, *values: Any, **named: Any) -> dict[str, np.ndarray]:
        """Run an entry on its inputs, in their order or by name; its results by name.

        Inputs are what numpy makes arrays of, in the shapes of the program's; integers take whole numbers, floats any
        numbers (bf16 also its bits, as uint16).  Results are of numpy's type for theirs, bf16 as float32.
        States, weights that the entry updates and inputs that it leaves for its next run change in place.  UserError
        when there is no such entry, an input is missing, or the entry was not compiled for these shapes.
        """
        entry, arrays, size = variant(self._entries, self._declared, name, values, named)
        self.holder = None
        self._put(entry, arrays, size)
        self._launch(entry)
        return {result: self.result(entry, result) for result in entry.results}

    def start(self, entry: Entry, named: Mapping[str, Any]) -> None:
        """Give an entry its inputs and run it; this may return before it is done."""
        self.put(entry, named)
        self._launch(entry)

    def start_beside(self, entry: Entry, named: Mapping[str, Any]) -> None:
        """`start` of an entry that goes on beside those that are started next, up to the first that has something in
        common with it, on devices that can; what is asked for next of what it has waits for it."""
        waits = any(self.kernels[launch.kernel].get("persistent") for launch in entry.launches)
        alone = waits or entry.repeats is not None or entry.reports or self.first_nan or entry.together
        if alone or not self.device.asynchronous or self.engine is not None:
            self.start(entry, named)
            return
        self._meet(None)
        self.put(entry, named)
        if id(entry) not in self._apart:
            self._apart[id(entry)] = entry, self._with_own_room(entry)
        own = self._apart[id(entry)][1]
        executable = self._executables.of(own)
        self.before(entry)
        self.device.launch_beside(executable)
        self._beside = self._changing(own)

    def _with_own_room(self, entry: Entry) -> Entry:
        """The entry with room of its own for what is there between its launches only, which entries share else."""
        used = {argument.buffer for step in entry.steps for argument in step.arguments}
        names = {name: name for name in used}
        for name in used:
            declared = self._declared[name]
            if declared.kind in ("arena", "control"):
                names[name] = own = f"{name}, beside"
                if own not in self._buffers:
                    self._declared[own] = replace(declared, name=own)
                    self._buffers[own] = self.device.alloc(declared.nbytes)
        return replace(entry, steps=tuple(with_buffers(step, names, "") for step in entry.steps))

    def _changing(self, entry: Entry) -> frozenset[str]:
        """The buffers of an entry that may change."""
        if id(entry) not in self._changed:
            used = {argument.buffer for step in entry.steps for argument in step.arguments}
            own = {name for name in used if self._declared[name].kind not in ("weight", "made")}
            self._changed[id(entry)] = entry, frozenset(own | {*entry.inputs.values()})
        return self._changed[id(entry)][1]

    def _meet(self, names: Iterable[str] | None) -> None:
        """Have what is started next wait for what goes on beside, where that has one of these buffers; None is all."""
        if self._beside and (names is None or not self._beside.isdisjoint(names)):
            self._beside = frozenset()
            self.device.join()

    def _launch(self, entry: Entry) -> None:
        self._meet_entry(entry)
        executable = self._executables.of(entry)
        self.before(entry)
        if entry.repeats is not None:
            tell(self.device, self._buffers, self._told, entry.repeats, 1)
        if self.first_nan and not entry.together:
            own = self._buffers, self._declared, self.kernels, self.artifact.sources
            FirstNaN(self.device, self._launch_one, *own).run(entry)
        elif isinstance(executable, SharedEntry):
            assert self.engine is not None
            executable.run(self.device, self.engine)
        else:
            self.device.launch(executable)
        if entry.reports:
            self._say(entry)

    def _meet_entry(self, entry: Entry) -> None:
        if self._beside:
            self._meet(self._changing(entry))

    def _launch_one(self, entry: Entry, launch: Launch) -> None:
        self.device.launch(self._executables.make(replace(entry, steps=(launch,))))

    def _say(self, entry: Entry) -> None:
        """Say what an entry's last run has to say; UserError where one of its assertions does not hold."""
        for report in entry.reports:
            arrays = [readable(self.read(place), self._declared[place].dtype) for place in report.values]
            if report.kind == PRINT:
                if self.engine is None or self.engine.rank == 0:
                    self.say(f"{report.form}: {report.said(arrays)}")
            elif report.kind == ASSERT and (failure := report.failure(arrays)):
                span = span_of(report.form, self.artifact.sources)
                raise UserError(failure if span else f"{report.form}: {failure}", span)

    def before(self, entry: Entry, runs: int = 1) -> None:
        """Have ready what the next runs of an entry need."""
        self.committed.before(entry, runs)
        self.making.before(entry)

    def _make(self, making: Entry) -> None:
        """Compute what a plan makes of weights, once these are there."""
        if self.engine is not None:
            self.engine.settle()
        self.device.launch(self._executables.of(making))

    def result(self, entry: Entry, name: str) -> np.ndarray:
        """A result of an entry's last run, as float32 or int32: the rows that the run had."""
        found = readable(self.read(entry.results[name]), self._declared[entry.results[name]].dtype)
        if entry.up_to is None:
            return found
        most = entry.sizes[entry.up_to.dimension]
        return entry.up_to.cut(name, found, self._sizes.get(entry.up_to.size, most), most)

    def result_later(self, entry: Entry, name: str) -> Callable[[], np.ndarray]:
        """What waits for it and gives it, whatever is started meanwhile; at most `READS_AHEAD` at once."""
        self._meet((entry.results[name],))
        read = read_later(self.device, self._buffers[entry.results[name]], self._declared[entry.results[name]])
        return read if self.engine is None else settled(self.engine, read)

    def repeat(
        self,
        entry: Entry,
        result: str,
        count: int,
        ahead: int = RUNS_AHEAD,
        more: Callable[[], bool] = lambda: True,
    ) -> Iterator[np.ndarray]:
        """Run an entry `count` times on what its inputs hold, which it may leave for itself; a result of each run.

        As many as `ahead` runs are launched before the oldest one's result has been read, several by one launch where
        the entry can.  When the caller stops early, states and inputs are those of the last run that was launched.
        more: asked before each launch.
        """
        for index, wait in enumerate(self._unread):  # of another caller, whose reads would be in the way
            self._unread[index] = partial(np.copy, wait())
        self._meet_entry(entry)
        self._unread = waiting = deque[Callable[[], np.ndarray]]()
        if entry.reports or self.first_nan:
            for _ in range(count):
                self._launch(entry)
                yield self.read(entry.results[result])
            return
        own = (self.device, self._executables, self._buffers, self._declared, self._told)
        yield from Repeated(*own, waiting, more, partial(self.before, entry)).results(entry, result, count, ahead)

    def copy(self, source: str, target: str, pieces: Pieces) -> None:
        """Copy pieces of one buffer to another."""
        self._meet((source, target))
        for _, start in pieces.each():
            self.committed.part(target, start, start + pieces.nbytes)
        self.making.changed(target)
        self.device.copy_pieces(self._buffers[source], self._buffers[target], pieces)

    def read_at_once(self, entry: Entry) -> None:
        """Be told that what an entry gives is read before it runs again: of small results without a copy then."""
        if id(entry) not in self._read_at_once:
            self._read_at_once[id(entry)] = entry
            for name in shareable(entry, self._declared):
                self._buffers[name] = self.device.alloc_shared(self._declared[name].nbytes)
                self._executables.forget(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """A buffer's declared shape."""
        return self._declared[name].shape

    def put(self, entry: Entry, named: Mapping[str, Any]) -> None:
        """Give inputs of an entry their values, and leave the others as they are.  UserError where they would have rows
        read or written that there are not."""
        places = {name: self._declared[entry.inputs[name]] for name in named}
        arrays = {name: as_stored(named[name], place, name) for name, place in places.items()}
        check_inputs(entry, self._declared, arrays)
        self._put(entry, arrays)

    def put_part(self, entry: Entry, name: str, part: int, values: np.ndarray) -> None:
        """Give one part of an entry's input, along its first dimension, its values, and leave the others."""
        self._meet((entry.inputs[name],))
        declared = self._declared[entry.inputs[name]]
        stored = as_stored(values[None], replace(declared, shape=(1, *declared.shape[1:])), name)
        self.device.copy_in(self._buffers[entry.inputs[name]], stored, part * stored.nbytes)

    def forget(self, entries: Iterable[Entry] | None = None) -> None:
        """Make the states of these entries zeros, as they were at the start; all states by default."""
        for name in self.held("state", entries):
            self._meet((name,))
            if self.committed.forget(name):
                continue
            declared = self._declared[name]
            self.device.copy_in(self._buffers[name], np.zeros(declared.shape, find_dtype(declared.dtype).numpy))

    def held(self, kind: str, entries: Iterable[Entry] | None = None) -> list[str]:
        """The buffers of a kind, such as "state", that steps of these entries read or write; by default of all, and of
        what is made ahead of them."""
        every = [*self._entries, *self.making.entries] if entries is None else entries
        used = {argument.buffer for entry in every for step in entry.steps for argument in step.arguments}
        return [name for name, declared in self._declared.items() if declared.kind == kind and name in used]

    def state_bytes(self) -> tuple[int, int]:
        """(bytes of all states, bytes of memory that the device has taken for them)"""
        states = [buffer for buffer in self._declared.values() if buffer.kind == "state"]
        taken = (self.device.taken(self._buffers[state.name], state.nbytes) for state in states)
        return sum(state.nbytes for state in states), sum(taken)

    def declared(self, name: str) -> Buffer:
        """A buffer's kind, shape and dtype."""
        return self._declared[name]

    def write(self, name: str, array: np.ndarray) -> None:
        """Give a state its contents, in its declared shape (BF16 as uint16)."""
        declared = self._declared[name]
        if array.shape != declared.shape or array.dtype != find_dtype(declared.dtype).numpy:
            raise ValueError(f"{name}: {array.dtype}{array.shape} for {declared.dtype}{declared.shape}")
        self._meet((name,))
        self.committed.whole(name)
        self.making.changed(name)
        self.device.copy_in(self._buffers[name], np.ascontiguousarray(array))

    def give(self, weights: Checkpoint) -> None:
        """Have weights hold, from here on, what a checkpoint has of them."""
        weights.check_finite()
        self._meet(None)
        self.checkpoint = self._weights.checkpoint = Several([self.checkpoint, weights])
        given = set(weights.names())
        for buffer in list(self._declared.values()):
            if buffer.kind == "weight" and buffer.as_declared.name in given:
                if self._weights.replace(buffer, self.artifact):
                    self._executables.forget(buffer.name)
                self.making.changed(buffer.name)

    def prepare(self, entry: Entry) -> Any:
        """What is launched for an entry of this session's plan, or one made from its steps, on what its inputs hold."""
        self._meet(None)
        self.before(entry)
        return self._executables.make(entry)

    def read(self, name: str) -> np.ndarray:
        """A buffer's contents in its declared shape (BF16 as uint16)."""
        buffer = self._declared[name]
        self._meet((name,))
        if self.engine is not None:
            self.engine.settle()
        array = np.empty(buffer.shape, find_dtype(buffer.dtype).numpy)
        self.device.copy_out(self._buffers[name], array)
        return array

    def run_collective(self, step: Collective, more: Mapping[str, Any], array: np.ndarray) -> None:
        """Do a step of no entry with the other devices, on this session's buffers and more; read the first of those."""
        assert self.engine is not None
        self.engine.wait(self.engine.start(self.engine.prepare(step, {**self._buffers, **more})))
        self.engine.settle()
        self.device.copy_out(next(iter(more.values())), array)

    def _put(self, entry: Entry, arrays: Mapping[str, np.ndarray], size: int | None = None) -> None:
        """size: of the run, where the entry is for any up to one; its own else."""
        self.committed.note_inputs(entry, arrays)
        self._meet(entry.inputs.values())
        places = {entry.inputs[name]: array for name, array in arrays.items()}
        if entry.up_to is not None:
            own = entry.sizes[entry.up_to.dimension] if size is None else size
            self._sizes[entry.up_to.size] = own
            places[entry.up_to.size] = np.array(own, np.int32)
        if self.engine is not None and any(array.nbytes > INPUT_BYTES for array in arrays.values()):
            self.engine.settle()  # which finds out where another does not come: to copy these is to wait for it
        self.device.copy_in_together([(self._buffers[place], array) for place, array in places.items()])


def _say_aside(text: str) -> None:
    print(visible(text), file=sys.stderr, flush=True)
