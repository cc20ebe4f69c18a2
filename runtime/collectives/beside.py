"""Entries with collectives: runs of launches, and between them what all devices do, beside the launches that follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lispgpt.runtime.collectives.base import Engine
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Collective, Launch, Step

LAUNCH, START, WAIT = "launch", "start", "wait"


@dataclass(frozen=True)
class SharedEntry:
    """parts, in order: (LAUNCH, an executable of the device), (START, what the engine has prepared, its number), (WAIT,
    None, the number of what has begun)."""

    parts: tuple[tuple[str, Any, int], ...]

    def run(self, device: Device, engine: Engine) -> None:
        """Give everything to the device and the engine."""
        begun: dict[int, Any] = {}
        for kind, content, number in self.parts:
            if kind == LAUNCH:
                device.launch(content)
            elif kind == START:
                begun[number] = engine.start(content)
            else:
                engine.wait(begun.pop(number))


def prepare(
    entry: Entry, prepare_launches: Callable[[Entry], Any], prepare_collective: Callable[[Collective], Any]
) -> SharedEntry:
    """An entry made ready part by part."""
    parts: list[tuple[str, Any, int]] = []
    launches: list[Launch] = []
    waits = waits_of(entry.steps)

    def end_run() -> None:
        if launches:
            parts.append((LAUNCH, prepare_launches(replace(entry, steps=tuple(launches))), 0))
            launches.clear()

    for number, step in enumerate([*entry.steps, None]):
        for begun in (begun for begun, first in waits.items() if first == number):
            end_run()
            parts.append((WAIT, None, begun))
        if isinstance(step, Collective):
            end_run()
            parts.append((START, prepare_collective(step), number))
        elif isinstance(step, Launch):
            launches.append(step)
    end_run()
    return SharedEntry(tuple(parts))


def settled(engine: Engine, read: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
    """A read that waits before for what the devices have begun together by now, and for nothing that they begin later.

    Unlike a wait for the device alone, this finds out where another does not come.
    """
    count = engine.mark()

    def wait() -> np.ndarray:
        engine.settle(count)
        return read()

    return wait


def waits_of(steps: Sequence[Step]) -> dict[int, int]:
    """For each collective, by its number, the first later step that has to come behind it, or the end.

    Collectives come behind each other as it is: what waits for one waits for all before it, so that no run of launches
    is parted for those.
    """
    waits: dict[int, int] = {}
    first = len(steps)
    for number, step in reversed([*enumerate(steps)]):
        if isinstance(step, Collective):
            later = (
                place
                for place, other in enumerate(steps)
                if place > number
                and not isinstance(other, Collective)
                and any(mine.conflicts(theirs) for mine in step.arguments for theirs in other.arguments)
            )
            waits[number] = first = min(first, next(later, len(steps)))
    return dict(sorted(waits.items()))
