"""Weights of the next step on their way to the block's memory while a step waits: what its body would load first.

Each thread copies what it is going to load itself in its worker's first task of the next step, and finds it in its own
places there, so that nobody else has to wait for that.  Two areas take turns, one step after the other.  What a body
loads ahead of its wait for earlier launches none of these writes, as they all may still be under way there; so rows of
a cache are copied like weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import clone_with, defining_op, operations
from lispgpt.passes.kernels.block_memory import BlockMemory, fits
from lispgpt.passes.kernels.marked_words import GLOBAL
from lispgpt.passes.plan.marked_bodies import RECKONED, lift
from lispgpt.passes.plan.tasks import Tasks
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.base import waits_for_launches

COPIED = 16
"""Bytes that a thread copies at once."""


@dataclass(frozen=True)
class CopiedWeights:
    """loads: of each kernel, the numbers of those ops of its body that load what is copied, by the kernel's symbol.
    start, area: bytes of the block's memory ahead of the two areas, and of each."""

    loads: Mapping[ir.Operation, Sequence[int]]
    threads: int
    start: int
    area: int

    @staticmethod
    def of(run: Sequence[Tasks], threads: int, start: int, target: Gpu) -> CopiedWeights | None:
        """None where the chip does not copy so, or has no room, or there is nothing to copy."""
        kernels = dict.fromkeys(step.kernel for step in run) if target.async_copies else {}
        loads = {kernel: _early_loads(kernel) for kernel in kernels}
        area = max(map(len, loads.values()), default=0) * threads * COPIED
        if not area or not fits(target, start + 2 * area, aligned=False):
            return None
        return CopiedWeights(loads, threads, start, area)

    @property
    def nbytes(self) -> int:
        return 2 * self.area

    def copy(
        self, kernel: ir.Operation, memories: Mapping[ir.Value, ir.Value], task: Sequence[ir.Value],
        thread: ir.Value, memory: BlockMemory, turn: Index, target: Gpu,
    ) -> None:  # fmt: skip
        """Start the copies of a task's weights to the area whose turn it is, by a thread that the body has work for.

        memories: for each of the kernel's arguments that is known the memory that it will be.
        """
        values = dict(memories)
        ids = {"gpu.block_id": task, "gpu.thread_id": [thread]}
        ops = operations(kernel.regions[0].blocks[0])
        for place, number in enumerate(self.loads[kernel]):
            load = ops[number]
            indices = [_again(value, values, ids) for value in list(load.operands)[1:]]
            source = _address(values[load.operands[0]], indices)
            own = self._own(load, place, thread, memory, turn)
            target.copy_async(b.pointer(_address(*own), 3), b.pointer(source, GLOBAL), COPIED)

    def take(
        self, kernel: ir.Operation, body: ir.Block, copied: ir.Value, thread: ir.Value,
        memory: BlockMemory, turn: Index, target: Gpu,
    ) -> None:  # fmt: skip
        """Let a copy of a kernel's body take its weights from the area where they have been copied, if they have."""
        ops = operations(body)
        if not self.loads[kernel]:
            return
        order, first = {op: i for i, op in enumerate(ops)}, ops[self.loads[kernel][0]]
        places = {place: ops[number] for place, number in enumerate(self.loads[kernel])}
        places = {place: load for place, load in places.items() if lift(load, first, order)}
        loads = list(places.values())
        types = [load.results[0].type for load in loads]

        def own() -> list[ir.Value]:
            target.wait_copies(1)
            areas = [self._own(load, place, thread, memory, turn) for place, load in places.items()]
            widths = [b.width_of(load.results[0]) for load in loads]
            return [b.load(*area, width) for area, width in zip(areas, widths, strict=True)]

        def there() -> list[ir.Value]:
            return [clone_with(load, {}).results[0] for load in loads]

        with ir.InsertionPoint(loads[0]):
            found = b.choose(copied, types, own, there)
        for load, value in zip(loads, found, strict=True):
            load.results[0].replace_all_uses_with(value)
            load.erase()

    def _own(
        self, load: ir.Operation, place: int, thread: ir.Value, memory: BlockMemory, turn: Index
    ) -> tuple[ir.Value, list[Index]]:
        """A thread's own place for what a load gives, as memory and an index."""
        element = b.element_of(load.results[0].type)
        width = b.width_of(load.results[0])
        view = memory.view(b.add(self.start, b.mul(turn, self.area)), [self.area // COPIED * width], element)
        return view, [b.mul(b.add(thread, place * self.threads), width)]


def _early_loads(kernel: ir.Operation) -> list[int]:
    """The numbers of a body's ops that load as much as is copied at once from its arguments, ahead of its wait for
    earlier launches."""
    block = kernel.regions[0].blocks[0]
    ops, arguments = operations(block), set(block.arguments)
    at = next((i for i, op in enumerate(ops) if waits_for_launches(op)), 0)
    return [
        i
        for i, op in enumerate(ops[:at])
        if op.name == "vector.load"
        and op.operands[0] in arguments
        and b.width_of(op.results[0]) * b.item_bytes(op.results[0].type) == COPIED
        and all(_reckoned(index, arguments) for index in list(op.operands)[1:])
    ]


def _reckoned(value: ir.Value, arguments: Collection[ir.Value]) -> bool:
    """Whether an index depends on nothing but which thread and block it is for, and on numbers in arguments."""
    if value in arguments:
        return True
    op = defining_op(value)
    if op is None or not (op.name.startswith(RECKONED) or op.name == "memref.load"):
        return False
    return all(_reckoned(operand, arguments) for operand in op.operands)


def _again(value: ir.Value, values: dict[ir.Value, ir.Value], ids: Mapping[str, Sequence[ir.Value]]) -> ir.Value:
    """An index reckoned again, for another thread and block."""
    op = defining_op(value)
    if value not in values and op is not None:
        if op.name in ids:
            values[value] = ids[op.name]["xyz".index(str(op.attributes["dimension"])[-2])]
        else:
            for operand in op.operands:
                _again(operand, values, ids)
            clone_with(op, values)
    return values[value]


def _address(memory: ir.Value, place: Sequence[Index]) -> Index:
    linear: Index = 0
    for index, extent in zip(place, memory.type.shape, strict=True):
        linear = b.add(b.mul(linear, extent), index)
    return b.add(b.address_of(memory), b.mul(linear, b.item_bytes(memory.type)))
