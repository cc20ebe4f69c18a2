"""A text on a device beside the CPU: logits after each part of it, and where they part, the kernel that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from lispgpt.base.dtypes import CACHE_TYPE
from lispgpt.base.errors import UserError
from lispgpt.base.precisions import EXACT
from lispgpt.checking.difference import ALLOWED_LOGITS, Difference, difference
from lispgpt.checking.reference import Reference, allowed_beside, why_not
from lispgpt.checking.walk import FAULTS, Walk, Wrong
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import artifact_of, counterpart_of, declared
from lispgpt.compiler.request import Request
from lispgpt.execution.model import Model
from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.checkpoints.none import NoWeights
from lispgpt.runtime.decoding import (
    ALL_LOGITS,
    GREEDY,
    Row,
    chunk_sizes,
    padded,
    runs_on,
    single,
    step_inputs,
    taking_in,
)
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session


@dataclass(frozen=True)
class Part:
    """A run of an entry for a part of a text.

    places: in the text, of the logits that it gives: one of each sequence.
    """

    entry: Entry
    inputs: Mapping[str, Any]
    places: tuple[int, ...]

    @property
    def last(self) -> int:
        return max(self.places)


@dataclass(frozen=True)
class Parted:
    """Where a device's logits are not the CPU's: after which part of the text, and how far off; what the device said
    instead, where it did not run to its end."""

    part: Part
    difference: Difference | None
    said: str = ""


@dataclass
class Found:
    """What a check has found.

    tokens: the text.  logits: how many rows of them were compared.  worst: how far off the worst number in these was
    from the CPU's, beside the largest; alike: whether that is no more than is allowed.  cpu: how far off the CPU's are
    from those in float64; exact: the same of the device's rows that were compared; None where there are none, for which
    unknown says why.  as_one: where a step that is one launch is wrong, and the same as launches is right or wrong by
    itself.  parted: where launches are wrong.  wrong: launches that are wrong, the first first; compared: how many were
    compared, of how many kernels.  drawn: tokens that the device chose in one go, where those are wrong.  together:
    whether launches are right one by one, and wrong as they run.
    """

    tokens: list[int]
    logits: int = 0
    worst: float = 0.0
    cpu: Difference | None = None
    exact: float | None = None
    unknown: str = ""
    alike: bool = True
    as_one: Parted | None = None
    parted: Parted | None = None
    wrong: list[Wrong] = field(default_factory=list)
    compared: int = 0
    kernels: int = 0
    drawn: tuple[int, int, int] | None = None
    together: bool = False

    @property
    def right(self) -> bool:
        return self.device_right and self.cpu_right

    @property
    def device_right(self) -> bool:
        return not (self.as_one or self.parted or self.wrong or self.drawn)

    @property
    def unsure(self) -> bool:
        """Whether logits part from the CPU's, and nothing but kernels one by one says whose fault that is."""
        return not self.alike and self.exact is None

    @property
    def cpu_right(self) -> bool:
        """Whether the CPU's logits are those in float64, where these are known."""
        return self.cpu is None or not self.cpu.wrong


@dataclass(frozen=True)
class Checked:
    """What is checked: a request for the device's target, and how to open it.

    device: the target as it was asked for, which may be an emulated one.  artifact: what runs there, where that is
    there already; the request then is for what it was made of.
    """

    request: Request
    checkpoint: Checkpoint | None
    device: str
    threads: int | None = None
    cache: Cache | None = None
    artifact: Artifact | None = None

    def model(self, apart: bool = False) -> Model:
        """On the device; apart: with no launch for many kernels, compiled anew where there are some."""
        given = {"cache": self.cache, "device": self.device, "threads": self.threads}
        source = self.artifact if self.artifact is not None and not apart else replace(self.request, apart=apart)
        return Model(source, self.checkpoint, **given)  # type: ignore[arg-type]

    @cached_property
    def _on_cpu(self) -> Request:
        """With the device's type of keys and values, which may be another than a CPU's own."""
        config = declared(self.request).config if self.artifact is None else self.artifact.config
        kept = {CACHE_TYPE: config[CACHE_TYPE]} if CACHE_TYPE in config else {}
        alone = replace(self.request, target="cpu", pipeline=None, schedules=(), precision="exact", longest=0, batch=1)
        return replace(alone, overrides={**self.request.overrides, **kept})

    def on_cpu(self) -> Model:
        return Model(self._on_cpu, self.checkpoint, cache=self.cache, device="cpu", threads=self.threads)

    def reference(self, text: Sequence[int], cpu: Model) -> Reference:
        """A text's logits on the CPU, and in float64 where the model is small.  cpu: its model there."""
        logits, allowed = cpu.logits(text), allowed_beside(cpu.artifact)
        if unknown := why_not(cpu.artifact, len(text)):
            return Reference(logits, unknown=unknown, allowed=allowed)
        sizes = tuple(entry.sizes for entry in cpu.session.entries(ALL_LOGITS))  # two where states go on
        wide = replace(self._on_cpu, float64=True, entries=(ALL_LOGITS,), sizes=sizes, unsized=False)
        try:
            made = artifact_of(wide, None, self.cache)
            with Model(made, self.checkpoint, device="cpu", threads=self.threads) as model:
                return Reference(logits, model.logits(text), allowed=allowed)
        except UserError as error:
            return Reference(logits, unknown=error.message.splitlines()[0], allowed=allowed)


def check(
    checked: Checked, prompt: Sequence[int], steps: int, every: bool, only: str, say: Callable[[str], None]
) -> Found:
    """Compare a prompt and some greedy steps after it.

    every: compare kernels even where logits agree.  only: the one kernel to compare; "" for all.  say: told what is
    under way.
    """
    if checked.request.target.partition(":")[0] == "cpu":
        raise UserError("the CPU is what devices are compared with: give --target cuda, rocm or an emulated chip")
    say("on the CPU")
    with checked.on_cpu() as cpu:
        text = list(prompt)
        written = cpu.generate(text, greedy=True, max_new_tokens=steps)
        for _ in written:
            continue
        text += written.tokens
        wanted = checked.reference(text, cpu)
    found = Found(text, cpu=wanted.of_cpu(), unknown=wanted.unknown)
    say(f"on {checked.device}")
    with checked.model() as model:
        found.parted = _parted(model, checked, text, len(prompt), wanted, found)
        one = [name for name, facts in model.session.kernels.items() if facts.get("persistent")]
        if found.parted is None and checked.request.batch == 1:
            found.drawn = _drawn(model, text, len(prompt), wanted)
    if found.parted is not None and any(launch.kernel in one for launch in found.parted.part.entry.launches):
        found.as_one, found.parted = found.parted, None
        say("as launches one by one")
        with checked.model(apart=True) as model:
            found.parted = _parted(model, checked, text, len(prompt), wanted, found)
    if not found.device_right or every or only or found.unsure:
        say("kernel by kernel")
        _walk(checked, bool(one), text, len(prompt), wanted, only, found)
    return found


def _walk(
    checked: Checked, apart: bool, text: Sequence[int], prompt: int, wanted: Reference, only: str, found: Found
) -> None:
    """Compare launches one by one, up to the end of the first part of the text in which one is wrong.

    apart: whether the device's kernels are compiled anew, as some of them were one launch.
    """
    counterpart = counterpart_of(checked.request)
    weights = checked.checkpoint or NoWeights()
    with checked.model(apart=apart) as model, Session(counterpart.artifact, CpuDevice(checked.threads), weights) as cpu:
        walk, device = Walk(model.session, cpu, counterpart.elements, only), model.session
        found.wrong += walk.making()
        parts = iter(parts_of(device, model, text, prompt, checked.request.batch))
        parted = None
        while not found.wrong and parted is None and (part := next(parts, None)) is not None:
            found.wrong += walk.run(part.entry, part.inputs)
            parted = None if found.wrong else compared(device, part, wanted, found)
        found.compared, found.kernels = walk.compared, len(walk.kernels)
        found.together = found.parted is not None and not found.wrong and parted is None


def _parted(
    model: Model, checked: Checked, text: Sequence[int], prompt: int, wanted: Reference, found: Found
) -> Parted | None:
    """The first part of the text after which the device's logits, or the token that it chooses, are not the CPU's."""
    session = model.session
    for part in parts_of(session, model, text, prompt, checked.request.batch):
        try:
            session.start(part.entry, part.inputs)
            parted = compared(session, part, wanted, found)
        except FAULTS as error:
            return Parted(part, None, str(error))
        if parted is not None:
            return parted
    return None


def compared(session: Session, part: Part, wanted: Reference, found: Found) -> Parted | None:
    """What is wrong with what the last run gave."""
    results, places = list(part.entry.results), list(part.places)
    rows, precise = wanted.best()[places], ALLOWED_LOGITS[session.artifact.precision]
    allowed = max(precise, wanted.allowed_of_device)
    logits = session.result(part.entry, results[0])[:, : rows.shape[1]]
    off = difference(logits, wanted.cpu[places], precise)
    found.logits, found.worst = found.logits + len(rows), max(found.worst, off.worst)
    found.alike &= not off.wrong
    beside = difference(logits, rows, allowed)
    if wanted.exact is not None:
        found.exact = max(found.exact or 0.0, beside.worst)
    off = beside if off.wrong else off
    if off.wrong:
        return Parted(part, off)
    if "next" not in results:
        return None
    for token, row in zip(session.result(part.entry, "next").ravel().tolist(), logits, strict=True):
        if not _is_chosen(token, row, ALLOWED_LOGITS[EXACT]):
            said = f"its logits are right, their best token is {row.argmax()}, and it chooses {token}"
            return Parted(part, None, said)
    return None


def _is_chosen(token: int, row: np.ndarray, near: float) -> bool:
    """Whether a token is the best of a row of logits, or is so near to it, beside the largest."""
    return 0 <= token < row.size and bool(row[token] >= row.max() - near * np.abs(row).max())


def parts_of(session: Session, model: Model, text: Sequence[int], prompt: int, batch: int = 1) -> Iterator[Part]:
    """The runs of entries by which the device takes in a text as `generate` does: its prompt in chunks, then token by
    token; several sequences of it token by token from the first."""
    entry = str((model.artifact.generate or {})["entry"])
    if batch > 1:
        yield from _parts_of_batch(session, entry, text, batch)
        return
    entries = taking_in(session, entry)
    repeatable = all(each.repeatable for each in entries.values())
    session.holder = None
    if not repeatable:
        session.forget(entries.values())
    context, start = int(session.config["context"]), 0
    sizes = tuple(sorted(size for size in entries if size <= context))
    for size in chunk_sizes(prompt, sizes, session.device.weight_rows, repeatable):
        chunk = text[start : min(start + size, prompt)]
        inputs = dict(zip(entries[size].inputs, padded(chunk, start, size), strict=True))
        start += len(chunk)
        yield Part(entries[size], inputs, (start - 1,))
    step = single(session, GREEDY) or entries[1]
    for place in range(prompt, len(text)):
        yield Part(step, step_inputs(step, [Row(text[place], place, {})]), (place,))


def _parts_of_batch(session: Session, entry: str, text: Sequence[int], batch: int) -> Iterator[Part]:
    """Steps of several sequences of one text; each is a place behind the one before it, where a place can be run
    again."""
    name = GREEDY if session.entries(GREEDY) else entry
    step = session.entry(name, batch=batch, positions=1)
    session.holder = None
    if not step.repeatable:
        session.forget([step])
    for round_ in range(len(text) + (batch - 1 if step.repeatable else 0)):
        behind = range(batch) if step.repeatable else [0] * batch
        places = tuple(min(max(round_ - late, 0), len(text) - 1) for late in behind)
        yield Part(step, step_inputs(step, [Row(text[place], place, {}) for place in places]), places)


def _drawn(model: Model, text: Sequence[int], prompt: int, wanted: Reference) -> tuple[int, int, int] | None:
    """(which, what the device chose, what the CPU did) of the first token that is clearly another, where the device
    goes on by itself from token to token."""
    session = model.session
    step = single(session, GREEDY)
    if step is None or not runs_on(step) or len(text) <= prompt:
        return None
    near = 2 * max(ALLOWED_LOGITS[session.artifact.precision], wanted.allowed_of_device)  # both logits may be off
    for part in parts_of(session, model, text[:prompt], prompt):
        session.start(part.entry, part.inputs)
    session.put(step, step_inputs(step, [Row(text[prompt], prompt, {})]))
    for place, chosen in enumerate(session.repeat(step, "next", len(text) - prompt), prompt):
        token = int(chosen.ravel()[0])
        if not _is_chosen(token, wanted.best()[place], near):
            return place, token, int(wanted.best()[place].argmax())
        if place + 1 < len(text) and token != text[place + 1]:
            return None  # a near tie, behind which the text is another one
    return None
