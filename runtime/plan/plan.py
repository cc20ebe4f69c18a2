"""What compiled entries are: buffers and lists of steps, and the checks that a plan passes before it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from lispgpt.base.access import ACCESSES
from lispgpt.base.dtypes import DTYPES, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.input_bounds import InputBound
from lispgpt.runtime.plan.packing import Packing, packing_from_json
from lispgpt.runtime.plan.steps import LARGEST, Argument, Collective, Launch, step_from_json, text, whole
from lispgpt.runtime.plan.tensor_maps import maps_problem

MOST_BLOCKS, MOST_THREADS, MOST_SHARED = (1 << 31) - 1, 1024, 1 << 20
"""Of a launch: blocks along one side of its grid, threads of a block, bytes of a block's shared memory."""

KINDS = ("weight", "state", "input", "result", "arena", "signals", "control", "kept", "device")


@dataclass(frozen=True)
class Buffer:
    """One allocation of a session.

    kind: "weight", "state" and "arena" are shared by the entries that name them; "input" and "result" belong to the
    host's side of a step; "signals" start as zeros, and blocks of a launch tell each other by them how far they are;
    "control" tells a launch something and starts as zero; "kept" has what several runs of one launch made, see Repeats;
    "device" holds the number of this device, of several that share entries.
    shape and dtype ("f32", "bf16", "i32", "i8") say how the bytes are read, row-major.  whole: of a state of which each
    device has a part, equal ones along the first dimension that is another, the shape of all of it.  summed: of a
    state, whether it is the sum of what the devices have in its place.  packing: of a weight that is another's bytes in
    another order, which.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    whole: tuple[int, ...] | None = None
    summed: bool = False
    packing: Packing | None = None

    @property
    def nbytes(self) -> int:
        return find_dtype(self.dtype).nbytes(math.prod(self.shape))

    @property
    def as_declared(self) -> Buffer:
        """The buffer that would hold a weight as the program declares it."""
        return self if self.packing is None else Buffer(self.packing.weight, self.kind, self.packing.shape, "i8")

    @property
    def divided(self) -> int:
        """The dimension along which it is a part of the whole; 0 where it is all of it."""
        pairs = zip(self.shape, self.whole or self.shape, strict=True)
        return next((axis for axis, (own, all_) in enumerate(pairs) if own != all_), 0)


@dataclass(frozen=True)
class Repeats:
    """That one launch runs an entry several times, `most` at most, each time on what the run before has left.

    more: the buffer that says how many times more than once.  kept: for results by name, the buffer that then has that
    of each run, [most, …].
    """

    most: int
    more: str
    kept: Mapping[str, str]


@dataclass(frozen=True)
class Entry:
    """An entry compiled for one choice of its free dimensions.

    sizes: those dimensions by name.  inputs, results: the buffer that holds each, by its name in the program, in the
    program's order; an input that a step writes is what the next run finds there unless the host puts something else.
    steps: run as if one after another; see `flow.dependencies`.  repeatable: whether running it again on the same
    inputs leaves results and states as they are, so that a row may stand twice to fill a batch or a chunk.
    remarks: what the compiler has to say of its launches.  repeats: whether one launch can be several runs.
    grows: the states that it writes at its rows' positions only, and which of their dimensions counts positions.
    bounds: what inputs may be by which it reads or writes.
    """

    name: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, str]
    results: Mapping[str, str]
    steps: tuple[Launch | Collective, ...]
    repeatable: bool = field(default=True, kw_only=True)
    remarks: tuple[str, ...] = field(default=(), kw_only=True)
    repeats: Repeats | None = field(default=None, kw_only=True)
    grows: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    bounds: tuple[InputBound, ...] = field(default=(), kw_only=True)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """Those of its steps that are launches."""
        return tuple(step for step in self.steps if isinstance(step, Launch))

    def leaves(self, name: str) -> bool:
        """Whether it leaves an input of its own for its next run."""
        return self.inputs[name] in self._written

    @cached_property
    def _written(self) -> frozenset[str]:
        """The buffers that its steps write: asked for in each run, of entries that have thousands of arguments."""
        return frozenset(a.buffer for step in self.steps for a in step.arguments if a.writes)

    @property
    def label(self) -> str:
        """The entry's name and sizes, for people."""
        sizes = ", ".join(f"{name} {size}" for name, size in self.sizes.items())
        return f"{self.name} ({sizes})" if sizes else self.name


@dataclass(frozen=True)
class Plan:
    """All entries of an artifact and the buffers they use."""

    buffers: tuple[Buffer, ...]
    entries: tuple[Entry, ...]

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        for entry, made in zip(self.entries, data["entries"], strict=True):
            for step, fields in zip(entry.steps, made["steps"], strict=True):
                fields["kind"] = step.kind
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Plan:
        """Rebuild a plan; a missing or misshapen field is a UserError that names the plan."""
        try:
            buffers = tuple(map(_buffer_from_json, data["buffers"]))
            entries = tuple(map(_entry_from_json, data["entries"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"the artifact's plan is damaged: {type(error).__name__} {error}") from error
        return Plan(buffers, entries)

    def validate(self, kernels: Mapping[str, Mapping[str, Any]]) -> None:
        """Check names, kinds, bounds and alignment; UserError names the first step that breaks them.

        kernels: what the artifact's machine code has: name → `Launch.facts`.  Arguments start at whole elements, those
        in untyped memory at multiples of what their size and 4 bytes have in common.
        """
        buffers: dict[str, Buffer] = {}
        for buffer in self.buffers:
            if buffer.name in buffers or buffer.kind not in KINDS or buffer.dtype not in DTYPES:
                raise UserError(f"the artifact's plan is damaged: buffer {buffer.name!r}")
            if any(type(n) is not int or n < 0 for n in buffer.shape) or buffer.nbytes > LARGEST:
                raise UserError(f"the artifact's plan is damaged: shape of buffer {buffer.name!r}")
            if _is_no_part(buffer):
                raise UserError(f"the artifact's plan is damaged: parts of buffer {buffer.name!r}")
            if buffer.packing is not None and (problem := buffer.packing.problem(buffer.nbytes)):
                raise UserError(f"the artifact's plan is damaged: packing of buffer {buffer.name!r}: {problem}")
            buffers[buffer.name] = buffer
        for entry in self.entries:
            if any(size < 1 for size in entry.sizes.values()):
                raise UserError(f"the artifact's plan is damaged: sizes of entry {entry.name!r}")
            for kind, ports in (("input", entry.inputs), ("result", entry.results)):
                for name, place in ports.items():
                    if place not in buffers or buffers[place].kind != kind:
                        raise UserError(f"the artifact's plan is damaged: {kind} {name!r} of entry {entry.name!r}")
            if entry.repeats is not None:
                _check_repeats(entry, entry.repeats, buffers)
            for name, axis in entry.grows.items():
                known = name in buffers and buffers[name].kind == "state"
                if not known or not 0 <= axis < len(buffers[name].shape):
                    raise UserError(f"the artifact's plan is damaged: growing {name!r} of entry {entry.name!r}")
            for index, step in enumerate(entry.steps):
                own = _launch_problem(step, kernels) if isinstance(step, Launch) else step.problem()
                problem = own or _bounds_problem(step.arguments, buffers)
                if problem:
                    where = f"step {index} of entry {entry.name!r} ({step.label})"
                    raise UserError(f"the artifact's plan is damaged: {where}: {problem}")


def _check_repeats(entry: Entry, repeats: Repeats, buffers: Mapping[str, Buffer]) -> None:
    """UserError where a launch would be told of more runs, or keep more of them, than there is room for."""
    more = buffers.get(repeats.more)
    good = repeats.most > 1 and more is not None and (more.kind, more.shape, more.dtype) == ("control", (1,), "i32")
    for name, place in repeats.kept.items():
        kept, result = buffers.get(place), buffers[entry.results[name]] if name in entry.results else None
        good = good and kept is not None and result is not None and kept.kind == "kept"
        good = good and (kept.shape, kept.dtype) == ((repeats.most, *result.shape), result.dtype)  # type: ignore[union-attr]
    if not good:
        raise UserError(f"the artifact's plan is damaged: repeats of entry {entry.name!r}")


def beside(plan: Plan, there: Mapping[str, tuple[tuple[int, ...], str]], suffix: str) -> Plan:
    """A plan that shares a session with others: its kernels and what is its own get a suffix behind their names.

    there: the shapes and dtypes of the session's buffers.  A weight keeps its name; a state gets that of the session's
    state of that name and shape, whatever sizes the session met first.
    """
    names = {buffer.name: _name_beside(buffer, there, suffix) for buffer in plan.buffers}

    def step_beside(step: Launch | Collective) -> Launch | Collective:
        arguments = tuple(replace(a, buffer=names[a.buffer]) for a in step.arguments)
        if isinstance(step, Launch):
            return replace(step, kernel=step.kernel + suffix, arguments=arguments)
        return replace(step, arguments=arguments)

    def renamed(entry: Entry) -> Entry:
        steps = tuple(map(step_beside, entry.steps))
        inputs, results = ({k: names[place] for k, place in ports.items()} for ports in (entry.inputs, entry.results))
        again = entry.repeats
        if again is not None:
            again = Repeats(again.most, names[again.more], {k: names[place] for k, place in again.kept.items()})
        grows = {names[place]: axis for place, axis in entry.grows.items()}
        return replace(entry, inputs=inputs, results=results, steps=steps, repeats=again, grows=grows)

    buffers = tuple(replace(buffer, name=names[buffer.name]) for buffer in plan.buffers)
    return Plan(buffers, tuple(map(renamed, plan.entries)))


def _name_beside(buffer: Buffer, there: Mapping[str, tuple[tuple[int, ...], str]], suffix: str) -> str:
    if buffer.kind == "weight":
        if there.get(buffer.name, (buffer.shape, buffer.dtype)) != (buffer.shape, buffer.dtype):
            raise UserError(f"weight {buffer.name!r} has another shape or type in the session")
        return buffer.name
    if buffer.kind != "state":
        return buffer.name + suffix
    own = buffer.name.partition("@")[0]
    same = (n for n, facts in there.items() if n.partition("@")[0] == own and facts == (buffer.shape, buffer.dtype))
    spelled = f"{own}@{'x'.join(map(str, buffer.shape))}"
    return next(same, buffer.name if buffer.name not in there else spelled)


def _buffer_from_json(data: Mapping[str, Any]) -> Buffer:
    shape, packing = data.get("whole"), data.get("packing")
    return Buffer(
        text(data["name"]),
        text(data["kind"]),
        tuple(data["shape"]),
        text(data["dtype"]),
        None if shape is None else tuple(map(whole, shape)),
        data.get("summed", False) is True,
        None if packing is None else packing_from_json(packing),
    )


def _is_no_part(buffer: Buffer) -> bool:
    """Whether a buffer cannot be the part that it says it is."""
    if buffer.whole is None:
        return buffer.summed and buffer.kind != "state"
    if buffer.summed or len(buffer.whole) != len(buffer.shape) or not buffer.shape or buffer.kind != "state":
        return True
    same = [a == b for d, (a, b) in enumerate(zip(buffer.shape, buffer.whole, strict=True)) if d != buffer.divided]
    return not all(same) or 0 in buffer.shape or buffer.whole[buffer.divided] % buffer.shape[buffer.divided] != 0


def _entry_from_json(data: Mapping[str, Any]) -> Entry:
    inputs, results = ({text(k): text(place) for k, place in data[key].items()} for key in ("inputs", "results"))
    sizes = {text(name): whole(size) for name, size in data["sizes"].items()}
    steps = tuple(map(step_from_json, data["steps"]))
    remarks = tuple(map(text, data.get("remarks", ())))
    repeats, repeatable = data.get("repeats"), bool(data["repeatable"])
    if repeats is not None:
        kept = {text(name): text(place) for name, place in repeats["kept"].items()}
        repeats = Repeats(whole(repeats["most"]), text(repeats["more"]), kept)
    given: dict[str, Any] = {"repeatable": repeatable, "remarks": remarks, "repeats": repeats}
    given["grows"] = {text(place): whole(axis) for place, axis in data.get("grows", {}).items()}
    given["bounds"] = tuple(map(InputBound.from_json, data.get("bounds", ())))
    return Entry(text(data["name"]), sizes, inputs, results, steps, **given)


def _launch_problem(launch: Launch, kernels: Mapping[str, Mapping[str, Any]]) -> str | None:
    if launch.kernel not in kernels:
        return "no such kernel in the machine code"
    if min(*launch.grid, *launch.block) < 1:
        return "empty grid or block"
    if max(launch.grid) > MOST_BLOCKS or math.prod(launch.block) > MOST_THREADS or launch.shared_bytes > MOST_SHARED:
        return "its grid, block or shared memory is larger than any device's"
    for name, fact in launch.facts().items():
        made_for = kernels[launch.kernel].get(name)
        if fact != made_for:
            return f"its {name} {fact} should be {made_for}"
    return maps_problem(kernels[launch.kernel], launch.arguments)


def _bounds_problem(arguments: tuple[Argument, ...], buffers: Mapping[str, Buffer]) -> str | None:
    for argument in arguments:
        buffer = buffers.get(argument.buffer)
        if buffer is None:
            return f"no buffer {argument.buffer!r}"
        if argument.access not in ACCESSES:
            return f"no access is {argument.access!r}"
        if argument.offset < 0 or argument.nbytes < 0 or argument.end > buffer.nbytes:
            return f"bytes {argument.offset}…{argument.end} of {buffer.name!r} ({buffer.nbytes})"
        alignment = find_dtype(buffer.dtype).item_bytes if buffer.dtype != "i8" else math.gcd(argument.nbytes, 4)
        if argument.offset % alignment:
            return f"offset {argument.offset} of {buffer.name!r} is not a multiple of {alignment}"
    return None
