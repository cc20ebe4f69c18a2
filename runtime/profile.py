"""How long each kernel of an entry takes on the device, beside the floor of what it has to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.plan import Entry
from lispgpt.runtime.session import Session
from lispgpt.runtime.work import Amount, Positions, Rates, Work

ROUNDS, REPEATS, FEWEST_LAUNCHES = 3, 20, 12
COPIED_BYTES = 1 << 29
"""More than the caches of any GPU hold."""


@dataclass(frozen=True)
class KernelTime:
    """microseconds: of one launch, among others of its kind.  amount: what a launch has to do, where it was counted."""

    kernel: str
    launches: int
    microseconds: float
    amount: Amount | None


def profile_entry(session: Session, entry: Entry, tokens: Positions, positions: Positions) -> list[KernelTime]:
    """Times of an entry's kernels at these tokens and positions, in the order of their first launch.

    Each kernel's launches run alone, back to back, many times over.  States and inputs change meanwhile; the inputs are
    put back before each kernel.
    """
    rows = []
    for kernel in dict.fromkeys(launch.kernel for launch in entry.launches):
        mine = tuple(launch for launch in entry.launches if launch.kernel == kernel)
        copies = max(1, FEWEST_LAUNCHES // len(mine))
        session.set_inputs(entry, (tokens, positions))
        executable = session.prepare(replace(entry, launches=mine * copies))
        each = _seconds(session.device, partial(session.device.launch, executable)) / (len(mine) * copies)
        work = Work.of(session.artifact.kernels[kernel])
        rows.append(KernelTime(kernel, len(mine), each * 1e6, None if work is None else work.at(positions)))
    return rows


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
    seconds = _seconds(device, partial(device.copy, source, target, COPIED_BYTES))
    return replace(rates, bandwidth=2 * COPIED_BYTES / seconds, part=f"{rates.part}; bandwidth as copied here")


def _seconds(device: Device, launch: Callable[[], None]) -> float:
    """The fastest of a few rounds, for one launch among many."""
    launch()
    best = float("inf")
    for _ in range(ROUNDS):
        device.sync()
        started = time.perf_counter()
        for _ in range(REPEATS):
            launch()
        device.sync()
        best = min(best, (time.perf_counter() - started) / REPEATS)
    return best


def table(rows: list[KernelTime], rates: Rates | None) -> str:
    """The rows and their sums as text: MB and Mflop of one launch, its floor, and the floor's share of its time."""
    columns = ("launches", "us each", "us", "MB", "Mflop", "GB/s", "floor us", "share")
    lines = [f"{'kernel':36}" + "".join(f"{c:>10}" for c in columns)]
    for row in rows:
        times = (str(row.launches), f"{row.microseconds:.2f}", f"{row.microseconds * row.launches:.1f}")
        work: tuple[str, ...] = ("-", "-", "-", "-", "-")
        if row.amount is not None:
            rate = row.amount.nbytes / row.microseconds / 1e3
            moved = f"{row.amount.nbytes / 1e6:.2f}", f"{row.amount.operations / 1e6:.2f}", f"{rate:.0f}"
            work = (*moved, *_share(rates.floor(row.amount) * 1e6 if rates else None, row.microseconds))
        lines.append(f"{row.kernel:36}" + "".join(f"{cell:>10}" for cell in (*times, *work)))
    return "\n".join([*lines, _sums(rows, rates)])


def _sums(rows: list[KernelTime], rates: Rates | None) -> str:
    microseconds = sum(row.microseconds * row.launches for row in rows)
    known = [(row.amount, row.launches) for row in rows if row.amount is not None]
    nbytes, operations = (sum(getattr(a, n) * k for a, k in known) / 1e6 for n in ("nbytes", "operations"))
    floor = sum(rates.floor(a) * k for a, k in known) * 1e6 if rates and known else None
    work = (f"{nbytes:.1f}", f"{operations:.1f}", f"{nbytes / microseconds * 1e3:.0f}") if known else ("-", "-", "-")
    cells = (str(sum(row.launches for row in rows)), "", f"{microseconds:.1f}", *work, *_share(floor, microseconds))
    return f"{'sum':36}" + "".join(f"{cell:>10}" for cell in cells)


def _share(floor: float | None, microseconds: float) -> tuple[str, str]:
    """The floor in microseconds, and how much of the time that is."""
    return ("-", "-") if floor is None else (f"{floor:.2f}", f"{floor / microseconds:.0%}")
