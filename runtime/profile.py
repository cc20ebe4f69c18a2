"""How long each kernel of an entry takes on the device, beside the floor of what it has to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Launch
from lispgpt.runtime.plan.work import Amount, Positions, Rates, Work
from lispgpt.runtime.session import Session

ROUNDS, ROUND_SECONDS, MOST_REPEATS, FEWEST_LAUNCHES = 5, 0.01, 50, 12
NAMES = 48
"""Characters of kernels' names and lines in a table."""
TOLD_APART = 0.02
"""Of a run: the part of it that is more than runs differ by."""
COPIED_BYTES = 1 << 29
"""More than the caches of any GPU hold."""


@dataclass(frozen=True)
class KernelTime:
    """microseconds: of one launch.  amount: what a launch has to do, where it was counted.  apart: whether it is the
    launch that advances the inputs, without which the whole is run.  label: the kernel with its line of the program."""

    kernel: str
    launches: int
    microseconds: float
    amount: Amount | None
    apart: bool = False
    label: str = ""


@dataclass(frozen=True)
class Profile:
    """rows: an entry's kernels in the order of their first launch.  microseconds: of a run of all but those apart."""

    rows: tuple[KernelTime, ...]
    microseconds: float


def profile_entry(
    session: Session, entry: Entry, positions: Positions, inputs: Mapping[str, Any], alone: bool = False
) -> Profile:
    """Times of an entry and its kernels on these inputs, with rows at these positions.

    On a device whose floors are known, a kernel's time is what a run takes less without it: then caches hold what they
    hold in a run, which is not the weights.  A kernel without arithmetic is run twice instead: what it writes may be
    addresses, which others could not do without.  Elsewhere, and where the difference is so small that it may be none,
    a kernel's launches run alone, over and over.  So does the launch that advances the inputs, as far as these may go;
    every other run does without it, unless the entry has no other.

    alone: run kernels alone wherever it is: for entries so long that no launch finds in caches what the last one left,
    and a run for each kernel would take minutes.  Where floors are not known, as on CPUs, each launch then runs where
    it stands in a run, on what those before it made: numbers that something else has left in their memory may be ones
    that processors are slow with.
    """
    own = tuple(step for step in entry.launches if not _advances(step, entry)) or entry.launches
    device, rates = session.device, session.artifact.rates

    def run_of(launches: tuple[Launch, ...]) -> Callable[[], None]:
        return partial(device.launch, session.prepare(replace(entry, steps=launches)))

    session.put(entry, inputs)
    runs, advances = _further(entry, inputs), _advances(own[0], entry)
    session.before(entry, runs)
    everything, rows = run_of(own), []
    in_order = alone and rates is None and not advances
    standing = _in_order(device, [run_of((launch,)) for launch in own]) if in_order else None
    for kernel in dict.fromkeys(launch.kernel for launch in entry.launches):
        mine = tuple(launch for launch in entry.launches if launch.kernel == kernel)
        work = Work.of(session.kernels[kernel])
        if _advances(mine[0], entry):
            seconds = _advancing(session, entry, inputs, mine, runs)
        elif standing is not None:
            seconds = sum(s for s, launch in zip(standing, own, strict=True) if launch.kernel == kernel)
        else:
            seconds = 0.0 if alone or rates is None else _missed(device, run_of, own, mine, work)
            if not seconds:
                copies = max(1, FEWEST_LAUNCHES // len(mine))
                seconds = _fastest(device, [run_of(mine * copies)])[0] / copies
        amount, each = None if work is None else work.at(positions), seconds * 1e6 / len(mine)
        rows.append(KernelTime(kernel, len(mine), each, amount, apart=mine[0] not in own, label=mine[0].label))
    whole = _advancing(session, entry, inputs, own, runs) if advances else _fastest(device, [everything])[0]
    return Profile(tuple(rows), whole * 1e6)


def _missed(
    device: Device,
    run_of: Callable[[tuple[Launch, ...]], Callable[[], None]],
    own: tuple[Launch, ...],
    mine: tuple[Launch, ...],
    work: Work | None,
) -> float:
    """Seconds that a run takes less without a kernel's launches, or more with each twice, of a kernel without
    arithmetic; 0 where that may be none."""
    others = tuple(launch for launch in own if launch.kernel != mine[0].kernel)
    if not others:
        return 0.0
    dispensable = work is not None and work.operations + work.position_operations > 0
    twice = tuple(launch for launch in own for _ in range(1 + (launch.kernel == mine[0].kernel)))
    whole, other = _fastest(device, [run_of(own), run_of(others if dispensable else twice)])
    seconds = whole - other if dispensable else other - whole
    return seconds if seconds > TOLD_APART * whole else 0.0


def _further(entry: Entry, inputs: Mapping[str, Any]) -> int:
    """How many runs may go on from these inputs, each from what the last one left, of as many as are measured."""
    bounds = [bound for bound in entry.bounds if bound.input == "positions" in inputs and entry.leaves(bound.input)]
    return max(1, min([FEWEST_LAUNCHES, *(1 + b.last - int(np.max(inputs[b.input])) for b in bounds)]))


def _advancing(
    session: Session, entry: Entry, inputs: Mapping[str, Any], launches: tuple[Launch, ...], runs: int
) -> float:
    """Seconds of launches that advance the inputs, in the fastest of a few rounds of so many runs from these on."""
    executable = session.prepare(replace(entry, steps=launches * runs))
    best = min(rounds_of(session, entry, inputs, executable, ROUNDS + 1))
    session.put(entry, inputs)
    return best / runs


def rounds_of(session: Session, entry: Entry, inputs: Mapping[str, Any], executable: Any, rounds: int) -> list[float]:
    """Seconds of each of so many launches of what was prepared, all from the same inputs of the entry."""
    found = []
    for _ in range(rounds):
        session.put(entry, inputs)
        session.device.sync()
        started = time.perf_counter()
        session.device.launch(executable)
        session.device.sync()
        found.append(time.perf_counter() - started)
    return found


def _advances(step: Launch, entry: Entry) -> bool:
    """Whether a step leaves an input for the entry's next run."""
    return any(argument.writes and argument.buffer in entry.inputs.values() for argument in step.arguments)


def measured_rates(session: Session) -> Rates | None:
    """The artifact's rates with the bandwidth that a copy of half a gigabyte reaches here, reading and writing.

    None where the chip's arithmetic rates are not known.  The copied memory stays the device's until it is closed.
    """
    rates, device = session.artifact.rates, session.device
    if rates is None:
        return None
    source, target = device.alloc(COPIED_BYTES), device.alloc(COPIED_BYTES)
    noise = np.random.default_rng(0).integers(0, 256, COPIED_BYTES // 16, np.uint8)
    for start in range(0, COPIED_BYTES, noise.size):
        device.copy_in(source, noise, start)
    (seconds,) = _fastest(device, [partial(device.copy, source, target, COPIED_BYTES)])
    return replace(rates, bandwidth=2 * COPIED_BYTES / seconds, part=f"{rates.part}; bandwidth as copied here")


def _in_order(device: Device, runs: Sequence[Callable[[], None]]) -> list[float]:
    """Seconds of each of these, which run one after the other, in the fastest of a few rounds."""
    best = [float("inf")] * len(runs)
    for _ in range(ROUNDS):
        for i, run in enumerate(runs):
            started = time.perf_counter()
            run()
            device.sync()
            best[i] = min(best[i], time.perf_counter() - started)
    return best


def _fastest(device: Device, runs: Sequence[Callable[[], None]]) -> list[float]:
    """Seconds of one of each run among many, in the fastest of a few rounds.

    The runs take turns, so that a clock that changes meanwhile changes all of them.
    """
    best = [float("inf")] * len(runs)
    repeats = [1] * len(runs)
    for number in range(ROUNDS + 1):
        for i, run in enumerate(runs):
            device.sync()
            started = time.perf_counter()
            for _ in range(repeats[i]):
                run()
            device.sync()
            seconds = (time.perf_counter() - started) / repeats[i]
            if number:
                best[i] = min(best[i], seconds)
            else:
                repeats[i] = max(2, min(MOST_REPEATS, round(ROUND_SECONDS / max(seconds, 1e-9))))
    return best


def table(profile: Profile, rates: Rates | None) -> str:
    """The rows, their sums, and the whole at once (but for what is apart), as text.

    MB and Mflop are what one launch has to do, floor how long that takes at these rates at least, and share how much of
    the time that is.
    """
    columns = ("launches", "us each", "us", "MB", "Mflop", "GB/s", "floor us", "share")
    lines = [_line("kernel", *columns)]
    for row in profile.rows:
        times = str(row.launches), f"{row.microseconds:.2f}", f"{row.microseconds * row.launches:.1f}"
        lines.append(
            _line(row.label or row.kernel, *times, *_work([row.amount] if row.amount else [], row.microseconds, rates))
        )
    together = [row for row in profile.rows if not row.apart]
    added = sum(row.microseconds * row.launches for row in profile.rows)
    lines.append(_total("sum", profile.rows, added, rates))
    name = "all at once" + ", not advancing" * (len(together) < len(profile.rows))
    return "\n".join([*lines, _total(name, together, profile.microseconds, rates)])


def _total(name: str, rows: Sequence[KernelTime], microseconds: float, rates: Rates | None) -> str:
    """A line of what these kernels' launches have to do, all together, in that time."""
    amounts = [row.amount for row in rows for _ in range(row.launches) if row.amount is not None]
    work = _work(amounts, microseconds, rates)
    return _line(name, str(sum(row.launches for row in rows)), "", f"{microseconds:.1f}", *work)


def _line(name: str, *cells: str) -> str:
    return f"{name:{NAMES}}" + "".join(f"{cell:>10}" for cell in cells)


def _work(amounts: Sequence[Amount], microseconds: float, rates: Rates | None) -> tuple[str, ...]:
    """MB, Mflop, GB/s, the floor and its share of the time; dashes for what is not known."""
    if not amounts:
        return ("-",) * 5
    megabytes = sum(a.nbytes for a in amounts) / 1e6
    known = f"{megabytes:.2f}", f"{sum(a.operations for a in amounts) / 1e6:.2f}"
    floor = sum(map(rates.floor, amounts)) * 1e6 if rates else None
    if microseconds == 0:
        return (*known, "-", "-" if floor is None else f"{floor:.2f}", "-")
    share = ("-", "-") if floor is None else (f"{floor:.2f}", f"{floor / microseconds:.0%}")
    return (*known, f"{megabytes / microseconds * 1e3:.0f}", *share)
