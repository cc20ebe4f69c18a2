"""Executing a tile program without a chip: what runs it, whatever its ops are taken to do.

A program is run by agents, each of which goes through the ops of its role as a coroutine; they take turns wherever one
has to wait.  What an op does is up to a Machine: the verifier's knows only who has read and written what, the
interpreter's computes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base.errors import InternalError
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import constant_number, operations

Turn = Generator[str, None, Any]
"""A coroutine: it yields what it waits for."""


@dataclass(frozen=True)
class Step:
    """An op, read once: MLIR's bindings take longer than most of what is done with it.

    operands, results: numbers of values.  bodies: of its regions' blocks, with the numbers of their arguments.
    """

    name: str
    op: ir.Operation
    operands: tuple[int, ...]
    results: tuple[int, ...]
    bodies: tuple[tuple[tuple[int, ...], tuple[Step, ...]], ...]
    constant: int | None = None


def program_ops(block: ir.Block) -> list[ir.Operation]:
    """Those of a kernel's body behind the last that says what its results are."""
    ops = operations(block)
    ends = [i for i, op in enumerate(ops) if op.name == "bufferization.materialize_in_destination"]
    return ops[ends[-1] + 1 if ends else 0 :]


class Numbering:
    """Values by numbers."""

    def __init__(self) -> None:
        self.numbers: dict[ir.Value, int] = {}

    def of(self, value: ir.Value) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def program(self, block: ir.Block) -> tuple[Step, ...]:
        """The tile program in a kernel's body, which stands behind what the kernel computes."""
        return tuple(map(self._step, program_ops(block)))

    def steps(self, block: ir.Block) -> tuple[Step, ...]:
        """The ops of a block, and of those in them."""
        return tuple(self._step(op) for op in operations(block))

    def _step(self, op: ir.Operation) -> Step:
        bodies = []
        if op.name.startswith("scf."):
            for region in op.regions:
                for block in region.blocks:
                    bodies.append((tuple(map(self.of, block.arguments)), self.steps(block)))
        constant = constant_number(op.results[0]) if op.name == "arith.constant" and _is_index(op.results[0]) else None
        operands, results = (tuple(map(self.of, values)) for values in (op.operands, op.results))
        return Step(op.name, op, operands, results, tuple(bodies), constant)


def _is_index(value: ir.Value) -> bool:
    return isinstance(value.type, (ir.IndexType, ir.IntegerType))


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divui": lambda a, b: a // b,
    "arith.remui": lambda a, b: a % b,
    "arith.minui": min,
    "arith.maxui": max,
    "arith.divsi": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.minsi": min,
    "arith.maxsi": max,
    "arith.select": lambda c, a, b: a if c else b,
}
PREDICATES: tuple[Callable[[int, int], bool], ...] = (
    lambda a, b: a == b, lambda a, b: a != b,
    *(lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b) * 2,
)  # fmt: skip
"""arith.cmpi's, signed and unsigned."""


class Machine:
    """What ops do.  An op `tile.fill` is done by `fill(agent, step, values)`, which gives its results, or a coroutine
    of them where it may have to wait; `other` does what is none of `tile`, `scf` or index arithmetic."""

    block: tuple[int, int, int] = (0, 0, 0)

    def trips(self, step: Step, low: int, high: int, stride: int) -> range:
        """The turns of a loop that are to be run."""
        return range(low, high, stride)

    def other(self, agent: Any, step: Step, values: list[Any]) -> Any:
        raise InternalError(f"{step.name} stands in a tile program, where it means nothing")


class Agent:
    """Who runs a program.  role: its number, where there are roles."""

    def __init__(self, machine: Machine, role: int = 0) -> None:
        self.machine, self.role, self.values = machine, role, {}  # type: ignore[var-annotated]
        self.turn: tuple[int, ...] = ()
        """Of each loop that it is in, how many turns it has begun in all."""
        self.begun = 0

    def run(self, steps: Sequence[Step]) -> Turn:
        """Go through a block; the values that its last op hands on."""
        for step in steps:
            if step.name == "scf.yield":
                return [self.values[n] for n in step.operands]
            results = yield from self._do(step)
            if results is not None:
                self.values.update(zip(step.results, results, strict=True))
        return []

    def _do(self, step: Step) -> Turn:
        if step.constant is not None:
            return [step.constant]
        dialect, _, name = step.name.partition(".")
        if dialect == "scf":
            return (yield from getattr(self, f"_{name}")(step))
        if dialect == "gpu" and name == "block_id":
            return [self.machine.block["xyz".index(str(step.op.attributes["dimension"])[-2])]]
        values = [self.values.get(n) for n in step.operands]
        if step.name == "arith.cmpi":
            return [PREDICATES[ir.IntegerAttr(step.op.attributes["predicate"]).value](*values)]
        if step.name in ARITHMETIC and all(isinstance(v, (int, bool)) for v in values):
            return [ARITHMETIC[step.name](*values)]
        if dialect == "tile" or step.name == "gpu.barrier":
            found = getattr(self.machine, name)(self, step, values)
        else:
            found = self.machine.other(self, step, values)
        return (yield from found) if isinstance(found, Generator) else found

    def _for(self, step: Step) -> Turn:
        low, high, stride = (self.values[n] for n in step.operands[:3])
        carried = [self.values.get(n) for n in step.operands[3:]]
        names, body = step.bodies[0]
        around = self.turn
        for i in self.machine.trips(step, low, high, stride):
            self.begun += 1
            self.turn = (*around, self.begun)
            self.values.update(zip(names, [i, *carried], strict=True))
            carried = yield from self.run(body)
        self.turn = around
        return carried

    def _if(self, step: Step) -> Turn:
        side = 0 if self.values[step.operands[0]] else 1
        return (yield from self.run(step.bodies[side][1])) if side < len(step.bodies) else []

    def _index_switch(self, step: Step) -> Turn:
        cases = list(ir.DenseI64ArrayAttr(step.op.attributes["cases"]))
        value = self.values[step.operands[0]]
        return (yield from self.run(step.bodies[1 + cases.index(value) if value in cases else 0][1]))


def run_together(turns: Sequence[Turn], rng: np.random.Generator | None = None) -> list[str]:
    """Let coroutines take turns, in an order drawn from rng, until all have ended or none gets on: then what each of
    the rest waits for."""
    waiting: dict[int, str] = dict.fromkeys(range(len(turns)), "")
    while waiting:
        moved = False
        order = list(waiting) if rng is None else list(rng.permutation(list(waiting)))
        for number in order:
            before = waiting[number]
            try:
                waiting[number] = next(turns[number])
                moved |= waiting[number] != before or before == ""
            except StopIteration:
                del waiting[number]
                moved = True
        if not moved:
            return list(waiting.values())
    return []
