"""Arguments for launches that run one after another, drawn by a seed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from real_sizes import memory

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, operations
from lispgpt.passes.recognise.bf16_parts import parts_of
from lispgpt.runtime.plan.steps import Argument, Launch

Kind = tuple[Sequence[int], str]
"""Shape and element type of an argument."""
LEFT = 2.0**-10
"""Of a number beside its BF16 part, about."""
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


def lower_parts(function: ir.Operation) -> set[int]:
    """The arguments of a kernel that hold what is left of numbers beside their BF16 parts in other arguments."""
    block = function.regions[0].blocks[0]
    found = set()
    for op in operations(block):
        if parts := parts_of(op):
            value = parts[1]
            while (made := defining_op(value)) is not None:
                value = made.operands[0]
            found.add(list(block.arguments).index(value))
    return found


class Given:
    """Memory for the arguments of a group.

    kinds: of those of its last launch that a program's operations have; others are made by the launches before it, or
    are the launch's own.  signed: whether numbers may be below 0.  lower: arguments that hold what is left of numbers
    beside their BF16 parts, which is 2^-9 of them at most.
    """

    def __init__(
        self, group: Group, kinds: Sequence[Kind], seed: int, signed: bool = True, lower: Collection[int] = ()
    ) -> None:
        random = np.random.default_rng(seed)
        self.regions: list[Argument] = list(group.main.arguments)
        self.starts = [self._region_starts(launch) for launch in group.launches]
        self.arena = memory.Arena([region.nbytes for region in self.regions])
        self.arrays = [self._filled(number, random, kinds[number] if number < len(kinds) else None, signed)
                       for number in range(len(self.regions))]  # fmt: skip
        for number in lower:
            bits = self.arrays[number]
            bits[...] = (memory.number(bits, "bf16") * np.float32(LEFT)).view(np.uint32) >> 16

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
