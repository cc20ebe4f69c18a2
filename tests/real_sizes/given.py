"""Arguments for launches that run one after another, drawn by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from real_sizes import memory

from lispgpt.runtime.plan.steps import Argument, Launch

Kind = tuple[Sequence[int], str]
"""Shape and element type of an argument."""
POSITIONS = "/input/positions"
"""How buffers end that have places in sequences: one after another."""


@dataclass(frozen=True)
class Group:
    """Launches that do together what a kernel says, whose own launch is the last.  number: of an entry of the plan."""

    number: int
    launches: tuple[Launch, ...]

    @property
    def main(self) -> Launch:
        return self.launches[-1]


class Given:
    """Memory for the arguments of a group.

    kinds: of those of its last launch that a program's operations have; others are made by the launches before it, or
    are the launch's own.  signed: whether numbers may be below 0.
    """

    def __init__(self, group: Group, kinds: Sequence[Kind], seed: int, signed: bool = True) -> None:
        random = np.random.default_rng(seed)
        self.regions: list[Argument] = list(group.main.arguments)
        self.starts = [self._region_starts(launch) for launch in group.launches]
        self.arena = memory.Arena([region.nbytes for region in self.regions])
        self.arrays = [self._filled(number, random, kinds[number] if number < len(kinds) else None, signed)
                       for number in range(len(self.regions))]  # fmt: skip

    def _region_starts(self, launch: Launch) -> list[tuple[int, int]]:
        """For each argument of a launch the region that it is in, and where there."""
        if launch.arguments == tuple(self.regions[: len(launch.arguments)]):
            return [(number, 0) for number in range(len(launch.arguments))]
        return [self._region(argument) for argument in launch.arguments]

    def _region(self, argument: Argument) -> tuple[int, int]:
        for number, region in sorted(enumerate(self.regions), key=lambda each: not each[1].reads):
            inside = region.offset <= argument.offset and argument.end <= region.end
            if region.buffer == argument.buffer and inside:
                return number, argument.offset - region.offset
        self.regions.append(argument)
        return len(self.regions) - 1, 0

    def places(self, launch: int) -> list[int]:
        """Where the arguments of a launch start in the arena."""
        return [self.arena.starts[number] + offset for number, offset in self.starts[launch]]

    def _filled(self, number: int, random: np.random.Generator, kind: Kind | None, signed: bool) -> np.ndarray:
        region = self.regions[number]
        if kind is None:
            self.arena.part(number)[:] = 0 if region.reads else 0xFF  # signals begin with 0
            return self.arena.part(number)
        array = self.arena.fill(number, random, kind, region.reads)
        if region.reads and region.buffer.endswith(POSITIONS):
            array.reshape(-1)[:] = random.integers(8) + np.arange(array.size)
        if region.reads and not signed and kind[1] in ("f32", "f16") and region.nbytes <= memory.LARGE:
            np.abs(array, out=array)
        return array
