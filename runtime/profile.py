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
    addresses, which others could not do without.  Elsewhere a kernel's launches run alone, over and over.  So does the
    launch that advances the inputs, which every other run does without.

    alone: run kernels alone wherever it is: for entries so long that no launch finds in caches what the last one left,
    and a run for each kernel would take minutes.  Where floors are not known, as on CPUs, each launch then runs where
    it stands in a run, on what those before it made: numbers that something else has left in their memory may be ones
    that processors are slow with.
    """
    own, device = tuple(step for step in entry.launches if not _advances(step, entry)), session.device
    rates = session.artifact.rates

    def run_of(launches: tuple[Launch, ...]) -> Callable[[], None]:
        return partial(device.launch, session.prepare(replace(entry, steps=launches)))

    session.put(entry, inputs)
    everything, rows = run_of(own), []
    standing = _in_order(device, [run_of((launch,)) for launch in own]) if alone and rates is None else None
    for kernel in dict.fromkeys(launch.kernel for launch in entry.launches):
        mine = tuple(launch for launch in entry.launches if launch.kernel == kernel)
        work = Work.of(session.kernels[kernel])
        others = tuple(launch for launch in own if launch.kernel != kernel)
        if standing is not None and mine[0] in own:
            seconds = sum(s for s, launch in zip(standing, own, strict=True) if launch.kernel == kernel) / len(mine)
        elif not alone and rates is not None and 0 < len(others) < len(own):
            dispensable = work is not None and work.operations + work.position_operations > 0
            changed = others if dispensable else tuple(n for n in own for _ in range(1 + (n.kernel == kernel)))
            whole, other = _fastest(device, [everything, run_of(changed)])
            seconds = max(whole - other if dispensable else other - whole, 0.0) / len(mine)
        else:
            copies = max(1, FEWEST_LAUNCHES // len(mine))
            seconds = _fastest(device, [run_of(mine * copies)])[0] / (copies * len(mine))
            session.put(entry, inputs)
        amount = None if work is None else work.at(positions)
        label = mine[0].label
        rows.append(KernelTime(kernel, len(mine), seconds * 1e6, amount, apart=mine[0] not in own, label=label))
    return Profile(tuple(rows), _fastest(device, [everything])[0] * 1e6)


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
