"""How long each kernel of an entry takes on the device, and how that compares with the bytes it touches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from lispgpt.runtime.plan import Entry, Launch
from lispgpt.runtime.session import Session

ROUNDS, REPEATS, FEWEST_LAUNCHES = 3, 20, 12


@dataclass(frozen=True)
class KernelTime:
    """microseconds: of one launch, among others of its kind.  nbytes: of all that one launch's arguments hold."""

    kernel: str
    launches: int
    microseconds: float
    nbytes: int


def profile_entry(session: Session, entry: Entry, restore: Callable[[], None]) -> list[KernelTime]:
    """Times of an entry's kernels, in the order of their first launch.

    Each kernel's launches run alone, back to back, many times over.  States and inputs change meanwhile; restore() puts
    the inputs back, and is called before each kernel.
    """
    rows = []
    for kernel in dict.fromkeys(launch.kernel for launch in entry.launches):
        mine = tuple(launch for launch in entry.launches if launch.kernel == kernel)
        copies = max(1, FEWEST_LAUNCHES // len(mine))
        restore()
        seconds = _seconds(session, replace(entry, launches=mine * copies))
        each = seconds / (len(mine) * copies) * 1e6
        rows.append(KernelTime(kernel, len(mine), each, max(map(_touched, mine))))
    return rows


def _seconds(session: Session, entry: Entry) -> float:
    """The fastest of a few rounds, for one run of the entry."""
    device = session.device
    executable = session.prepare(entry)
    device.launch(executable)
    best = float("inf")
    for _ in range(ROUNDS):
        device.sync()
        started = time.perf_counter()
        for _ in range(REPEATS):
            device.launch(executable)
        device.sync()
        best = min(best, (time.perf_counter() - started) / REPEATS)
    return best


def _touched(launch: Launch) -> int:
    return sum(argument.nbytes for argument in launch.arguments)


def table(rows: list[KernelTime]) -> str:
    """The rows and their sum as text."""
    lines = [f"{'kernel':36} {'launches':>8} {'us each':>9} {'us':>9} {'MB':>8} {'GB/s':>7}"]
    for row in rows:
        total = row.microseconds * row.launches
        rate = row.nbytes / row.microseconds / 1e3
        lines.append(
            f"{row.kernel:36} {row.launches:8} {row.microseconds:9.2f} {total:9.1f} {row.nbytes / 1e6:8.2f} {rate:7.0f}"
        )
    lines.append(
        f"{'sum':36} {sum(r.launches for r in rows):8} {'':9} {sum(r.microseconds * r.launches for r in rows):9.1f}"
    )
    return "\n".join(lines)
