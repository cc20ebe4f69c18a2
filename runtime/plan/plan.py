"""What compiled entries are: buffers and lists of steps, and the checks that a plan passes before it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from lispgpt.base.access import ACCESSES, WRITE
from lispgpt.base.dtypes import DTYPES, MOST_DIMENSIONS, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.html import table
from lispgpt.runtime.plan.buffer import KINDS, buffer_from_json
from lispgpt.runtime.plan.buffer import Buffer as Buffer
from lispgpt.runtime.plan.input_bounds import InputBound
from lispgpt.runtime.plan.loops import Loop, launches, leaves, step_from_json, to_json
from lispgpt.runtime.plan.reports import Report
from lispgpt.runtime.plan.steps import LARGEST, Argument, Collective, Launch, text, whole
from lispgpt.runtime.plan.tensor_maps import maps_problem
from lispgpt.runtime.plan.up_to import UpTo, up_to_from_json

MOST_BLOCKS, MOST_THREADS, MOST_SHARED = (1 << 31) - 1, 1024, 1 << 20
"""Of a launch: blocks along one side of its grid, threads of a block, bytes of a block's shared memory."""


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
    bounds: what inputs may be by which it reads or writes.  reports: what is said of each run.  up_to: whether one of
    its sizes may be smaller in a run.
    """

    name: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, str]
    results: Mapping[str, str]
    steps: tuple[Launch | Collective | Loop, ...]
    repeatable: bool = field(default=True, kw_only=True)
    remarks: tuple[str, ...] = field(default=(), kw_only=True)
    repeats: Repeats | None = field(default=None, kw_only=True)
    grows: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    bounds: tuple[InputBound, ...] = field(default=(), kw_only=True)
    reports: tuple[Report, ...] = field(default=(), kw_only=True)
    up_to: UpTo | None = field(default=None, kw_only=True)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """Those of its steps that are launches, and those of all rounds of its loops."""
        return tuple(launches(self.steps))

    @property
    def first_launches(self) -> tuple[Launch, ...]:
        """The same, those of a loop's first round alone."""
        return tuple(leaves(self.steps))

    @property
    def together(self) -> bool:
        """Whether it has steps that devices do together."""
        return any(isinstance(step, Collective) for step in self.steps)

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

    def __repr__(self) -> str:
        return f"<Entry {self.label}: {', '.join(self.inputs)} → {', '.join(self.results)}; {len(self.steps)} steps>"

    def _repr_html_(self) -> str:
        """What notebooks show: its steps, in order."""
        rows = [
            (number, step.label, f"{sum(a.nbytes for a in step.arguments):,}") for number, step in enumerate(self.steps)
        ]
        title = f"{self.label}: {', '.join(self.inputs)} → {', '.join(self.results)}"
        return table(title, ("step", "what", "bytes it touches"), rows)


@dataclass(frozen=True)
class Plan:
    """All entries of an artifact and the buffers they use.

    making: what computes the buffers of kind "made" of weights, which entries read.  It is no entry of the program: a
    session runs it before the first of them that does, and again when weights that it reads have changed.
    """

    buffers: tuple[Buffer, ...]
    entries: tuple[Entry, ...]
    making: Entry | None = None

    @property
    def every(self) -> tuple[Entry, ...]:
        """What has steps: the entries, and what is made ahead of them."""
        return self.entries if self.making is None else (*self.entries, self.making)

    def __repr__(self) -> str:
        return f"<Plan of {len(self.entries)} entries over {len(self.buffers)} buffers>"

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return self.table(f"Plan over {len(self.buffers)} buffers")

    def table(self, title: str) -> str:
        """The entries as HTML: what each takes and gives, such as `logits f32[1, 300]`."""
        said = {b.name: f"{b.dtype}[{', '.join(map(str, b.shape))}]" for b in self.buffers}

        def shown(ports: Mapping[str, str]) -> str:
            return ", ".join(f"{name} {said[place]}" for name, place in ports.items())

        rows = [(e.label, shown(e.inputs), shown(e.results)) for e in self.entries]
        return table(title, ("entry", "takes", "gives"), rows)

    def to_json(self) -> dict[str, Any]:
        data, forms = asdict(self), dict[str, int]()
        fields_of = [*data["entries"], *([data["making"]] if self.making else [])]
        for entry, made in zip(self.every, fields_of, strict=True):
            made["steps"] = [to_json(step, forms) for step in entry.steps]
        return data | {"forms": list(forms)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Plan:
        """Rebuild a plan; a missing or misshapen field is a UserError that names the plan."""
        try:
            buffers = tuple(map(buffer_from_json, data["buffers"]))
            forms, making = data.get("forms", ()), data.get("making")
            entries = tuple(_entry_from_json(entry, forms) for entry in data["entries"])
            making = None if making is None else _entry_from_json(making, forms)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise UserError(f"the artifact's plan is damaged: {type(error).__name__} {error}") from error
        return Plan(buffers, entries, making)

    def validate(self, kernels: Mapping[str, Mapping[str, Any]]) -> None:
        """Check names, kinds, bounds and alignment; UserError names the first step that breaks them.

        kernels: what the artifact's machine code has: name → `Launch.facts`.  Arguments start at whole elements, those
        in untyped memory at multiples of what their size and 4 bytes have in common.
        """
        buffers: dict[str, Buffer] = {}
        for buffer in self.buffers:
            if buffer.name in buffers or buffer.kind not in KINDS or buffer.dtype not in DTYPES:
                raise UserError(f"the artifact's plan is damaged: buffer {buffer.name!r}")
            many = len(buffer.shape) > MOST_DIMENSIONS
            if many or any(type(n) is not int or n < 0 for n in buffer.shape) or buffer.nbytes > LARGEST:
                raise UserError(f"the artifact's plan is damaged: shape of buffer {buffer.name!r}")
            if buffer.is_no_part:
                raise UserError(f"the artifact's plan is damaged: parts of buffer {buffer.name!r}")
            if buffer.packing is not None and (problem := buffer.packing.problem(buffer.nbytes)):
                raise UserError(f"the artifact's plan is damaged: packing of buffer {buffer.name!r}: {problem}")
            buffers[buffer.name] = buffer
        for entry in self.every:
            if any(size < 0 for size in entry.sizes.values()):
                raise UserError(f"the artifact's plan is damaged: sizes of entry {entry.name!r}")
            for kind, ports in (("input", entry.inputs), ("result", entry.results)):
                for name, place in ports.items():
                    if place not in buffers or buffers[place].kind != kind:
                        raise UserError(f"the artifact's plan is damaged: {kind} {name!r} of entry {entry.name!r}")
            shapes = {name: b.shape for name, b in buffers.items() if b.kind == "result"}
            if wrong := next((w for report in entry.reports if (w := report.problem(shapes))), None):
                raise UserError(f"the artifact's plan is damaged: {wrong} in entry {entry.name!r}")
            _check_up_to(entry, buffers)
            if entry.repeats is not None:
                _check_repeats(entry, entry.repeats, buffers)
            for name, axis in entry.grows.items():
                known = name in buffers and buffers[name].kind == "state"
                if not known or not 0 <= axis < len(buffers[name].shape):
                    raise UserError(f"the artifact's plan is damaged: growing {name!r} of entry {entry.name!r}")
            for index, step in enumerate(entry.steps):
                own = None if isinstance(step, Launch) else step.problem()
                own = own or next((p for leaf in leaves((step,)) if (p := _launch_problem(leaf, kernels))), None)
                reached = tuple(step.ranges()) if isinstance(step, Loop) else ()
                problem = own or _bounds_problem((*step.arguments, *reached), buffers)
                if problem:
                    where = f"step {index} of entry {entry.name!r} ({step.label})"
                    raise UserError(f"the artifact's plan is damaged: {where}: {problem}")
        if problem := making_problem(self.entries, self.making, buffers):
            raise UserError(f"the artifact's plan is damaged: {problem}")


def _check_up_to(entry: Entry, buffers: Mapping[str, Buffer]) -> None:
    """UserError where a run would be told its size, or be given rows, in a place that is none."""
    if entry.up_to is None:
        return
    size = buffers.get(entry.up_to.size)
    good = size is not None and (size.kind, size.shape, size.dtype) == ("input", (), "i32")
    shapes = ({n: buffers[place].shape for n, place in ports.items()} for ports in (entry.inputs, entry.results))
    problem = entry.up_to.problem(*shapes)
    if not good or entry.up_to.dimension not in entry.sizes or problem:
        raise UserError(f"the artifact's plan is damaged: {problem or 'the size'} of entry {entry.name!r}")


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


def making_problem(entries: Sequence[Entry], making: Entry | None, buffers: Mapping[str, Buffer]) -> str | None:
    """What is wrong with what is made of weights: all of it is to be made, by the one entry that is for that."""
    for entry in entries:
        for step in entry.steps:
            for argument in step.arguments:
                if argument.writes and buffers[argument.buffer].kind == "made":
                    return f"entry {entry.name!r} ({step.label}) writes {argument.buffer!r}, which is made of weights"
    steps = () if making is None else making.steps
    alone = all(isinstance(step, Launch) for step in steps)
    if making is not None and (making.inputs or making.results or making.repeats or not alone):
        return "what makes of weights has inputs, results or steps that are no launches"
    written: dict[str, list[tuple[int, int]]] = {name: [] for name, b in buffers.items() if b.kind == "made"}
    for argument in (argument for step in steps for argument in step.arguments):
        allowed = ("made", "arena") if argument.writes else ("weight", "made", "arena")
        if buffers[argument.buffer].kind not in allowed:
            return f"what is made of weights {'writes' if argument.writes else 'reads'} {argument.buffer!r}"
        if argument.access == WRITE and argument.buffer in written:
            written[argument.buffer].append((argument.offset, argument.end))
    for name, parts in written.items():
        end = 0
        for first, last in sorted(parts):
            end = max(end, last) if first <= end else end
        if end < buffers[name].nbytes:
            return f"nothing makes {name!r}" + (f" from byte {end} on" if end else "")
    return None


def _entry_from_json(data: Mapping[str, Any], forms: Sequence[str]) -> Entry:
    inputs, results = ({text(k): text(place) for k, place in data[key].items()} for key in ("inputs", "results"))
    sizes = {text(name): whole(size) for name, size in data["sizes"].items()}
    steps = tuple(step_from_json(step, forms) for step in data["steps"])
    remarks = tuple(map(text, data.get("remarks", ())))
    repeats, repeatable = data.get("repeats"), bool(data["repeatable"])
    if repeats is not None:
        kept = {text(name): text(place) for name, place in repeats["kept"].items()}
        repeats = Repeats(whole(repeats["most"]), text(repeats["more"]), kept)
    given: dict[str, Any] = {"repeatable": repeatable, "remarks": remarks, "repeats": repeats}
    given["grows"] = {text(place): whole(axis) for place, axis in data.get("grows", {}).items()}
    given["bounds"] = tuple(map(InputBound.from_json, data.get("bounds", ())))
    up_to = data.get("up_to")
    given["up_to"] = None if up_to is None else up_to_from_json(up_to)
    given["reports"] = tuple(map(Report.from_json, data.get("reports", ())))
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
