"""delay-collectives: have what all devices do together run beside kernels that lose least by it.

Before:                                              After (when=always):
  call @all_reduce_2(%b1, %w1)                         call @contraction_…(…)      ; a block for each core
  call @contraction_…(…)                               call @all_reduce_2(%b1, %w1)
  call @attention_gradient_…(…)                        call @attention_gradient_…(…)

Libraries of collectives hold some cores until they are done.  A kernel that has one block for each core, as fast
products do, then waits for those of its blocks that found none: it takes twice its time.  One of many short blocks
loses no more than the cores' share.  So a collective starts in front of the next such kernels that take as long as it
does, by the floors of those and the rate of the link, where its memory is not needed before.

Requires: what join-collectives leaves; no arena yet.  Ensures: the same calls in an order that means the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from lispgpt.ir.collectives import collective_functions, collective_of
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import entry_functions, integers, kernel_functions, operations
from lispgpt.passes.base import Pass
from lispgpt.passes.distribute.join_collectives import place_of
from lispgpt.passes.memory.kernel_buffers import byte_size
from lispgpt.passes.model.kernel_work import recorded_work
from lispgpt.passes.states import NO_ARENA, PLACED
from lispgpt.passes.targets.base import Gpu

ALWAYS, NEVER = "always", "never"

Place: TypeAlias = "tuple[ir.Value, int, int]"


@dataclass(frozen=True)
class DelayCollectives(Pass):
    """when: "always" or "never".  gigabytes: that go through the link between devices in a second.  blocks: for each
    core, of a kernel that others can run beside."""

    starts_from = (PLACED, NO_ARENA)
    when: str = NEVER
    gigabytes: int = 250
    blocks: int = 16

    def run(self, module: ir.Module, target: object) -> None:
        known = collective_functions(module)
        if self.when == NEVER or not known or not isinstance(target, Gpu) or target.rates is None:
            return
        seconds = self._kernels_with_room(module, target)
        for entry in entry_functions(module):
            self._delay(operations(entry.regions[0].blocks[0]), known, seconds)

    def _kernels_with_room(self, module: ir.Module, target: Gpu) -> dict[str, float]:
        """The least seconds of each kernel of many blocks, by its name."""
        found = {}
        assert target.rates is not None
        for kernel in kernel_functions(module):
            attributes, work = kernel.attributes, recorded_work(kernel)
            if work is None or "grid" not in attributes or "persistent" in attributes:
                continue
            if prod(integers(attributes["grid"])) >= self.blocks * target.cores:
                seconds = max(work["bytes"] / target.rates.bandwidth, work["operations"] / target.rates.matrix)
                found[ir.StringAttr(attributes["sym_name"]).value] = seconds
        return found

    def _delay(self, ops: list[ir.Operation], known: dict[str, ir.Operation], seconds: dict[str, float]) -> None:
        touched = [_places(op) for op in ops]
        runs = _runs(ops, known, seconds)
        left = [sum(time for _, time in run) for run in runs]
        for number, op in enumerate(ops):
            if collective_of(op, known) is None:
                continue
            wanted = sum(byte_size(value.type) for value in op.operands) / (self.gigabytes * 1e9)
            end = next((n for n in range(number + 1, len(ops)) if _overlap(touched[n], touched[number])), len(ops))
            for place, run in enumerate(runs):
                if number < run[0][0] and run[-1][0] < end and left[place] >= wanted:
                    op.move_before(ops[run[0][0]])
                    left[place] -= wanted
                    break


def _runs(
    ops: list[ir.Operation], known: dict[str, ir.Operation], seconds: dict[str, float]
) -> list[list[tuple[int, float]]]:
    """Neighbouring launches of kernels with room for others: their places, and seconds."""
    runs: list[list[tuple[int, float]]] = [[]]
    for number, op in enumerate(ops):
        if op.name != "func.call" or collective_of(op, known) is not None:
            continue
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        if name in seconds:
            runs[-1].append((number, seconds[name]))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _places(op: ir.Operation) -> list[Place]:
    """The memory that a call touches."""
    memory = [value for value in op.operands if isinstance(value.type, ir.MemRefType)]
    return [place_of(value) for value in memory] if op.name == "func.call" else []


def _overlap(some: list[Place], others: list[Place]) -> bool:
    return any(one == other and a < d and c < b for one, a, b in some for other, c, d in others)
