"""Kernels without operations of a program, such as choices and draws, as a CPU has them: each on what those before it
have made, so that it is given what it may be given."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from fuzz.mutated.interpret import Unknown
from real_sizes import memory
from real_sizes.elements import Place
from real_sizes.given import Given, Group, Kind

from lispgpt.compiler.compiled import Counterpart
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Launch
from lispgpt.runtime.samplers.weighted import Weighted

DRAWS = Weighted(0.8, 50, 0.9, 1)
"""How tokens are drawn."""
Results = dict[int, Callable[[Place], Any]]
"""What arguments should hold at a place, by their numbers."""


class Chains:
    """known: kernels that are not run here, as what they give is drawn."""

    def __init__(self, counterpart: Counterpart, known: Collection[str]) -> None:
        self.artifact, self.elements, self.known = counterpart.artifact, counterpart.elements, known

    def right(self, group: Group, seed: int) -> tuple[list[Kind], Given, Results]:
        """(what a group's arguments are, what they hold before, and what they should hold afterwards)."""
        main = group.main
        entry = self.artifact.plan.entries[group.number]
        chain = [step for step in entry.launches if step.kernel not in self.known]
        step = next((step for step in chain if step.kernel == main.kernel), None)
        if step is None or [a.nbytes for a in step.arguments] != [a.nbytes for a in main.arguments]:
            raise Unknown("made for the chip alone")
        kinds, buffers = self._kinds(main), self._buffers(chain, seed)
        self._run(entry, chain[: chain.index(step)], buffers)
        given = Given(group, kinds, seed)
        for number, argument in enumerate(step.arguments):
            if argument.reads:
                given.arena.part(number)[:] = buffers[argument.buffer][argument.offset : argument.end]
        self._run(entry, [step], buffers)
        results: Results = {}
        for number, argument in enumerate(step.arguments):
            if argument.writes:
                dtype = kinds[number][1]
                found = buffers[argument.buffer][argument.offset : argument.end].view(memory.DTYPES[dtype])
                results[number] = partial(_element, found, dtype)
        return kinds, given, results

    def _kinds(self, launch: Launch) -> list[Kind]:
        dtypes = self.elements[launch.kernel]
        widths = [np.dtype(memory.DTYPES[dtype]).itemsize for dtype in dtypes]
        return [((a.nbytes // width,), d) for a, width, d in zip(launch.arguments, widths, dtypes, strict=True)]

    def _buffers(self, chain: list[Launch], seed: int) -> dict[str, np.ndarray]:
        """Memory of a chain's arguments, with numbers where none of it has written before."""
        random, sizes = np.random.default_rng(seed), dict[str, int]()
        for argument in (a for step in chain for a in step.arguments):
            sizes[argument.buffer] = max(sizes.get(argument.buffer, 0), argument.end)
        buffers = {name: np.zeros(size + 64, np.uint8)[:size] for name, size in sizes.items()}
        for step in reversed(chain):
            for argument, (shape, dtype) in zip(step.arguments, self._kinds(step), strict=True):
                if argument.reads:
                    drawn = memory.elements(random, shape[0], dtype).view(np.uint8)
                    if argument.buffer.endswith("/input/sampling"):
                        drawn = np.resize(DRAWS.settings(0), shape).view(np.uint8)
                    buffers[argument.buffer][argument.offset : argument.end] = drawn
        return buffers

    def _run(self, entry: Entry, steps: list[Launch], buffers: dict[str, np.ndarray]) -> None:
        device = CpuDevice(1)
        device.load(self.artifact.code, self.artifact.kernels, objects=self.artifact.objects)
        if steps:
            device.launch(device.prepare(replace(entry, steps=tuple(steps)), buffers))
            device.sync()
        device.close()


def _element(array: np.ndarray, dtype: str, place: Place) -> Any:
    return memory.number(array[place], dtype)
