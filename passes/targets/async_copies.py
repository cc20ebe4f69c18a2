"""Copies of a few neighbours from global to shared memory that threads start and later wait for, in groups.

NVIDIA's cp.async, from sm_80 on.  Source: "Parallel Thread Execution ISA", section cp.async.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir


@dataclass(frozen=True)
class AsyncCopies:
    """piece: bytes of one copy, aligned to as many."""

    piece: int = 16

    def start(
        self, memory: ir.Value, at: Sequence[Index], shared: ir.Value, place: Sequence[Index], live: ir.Value | None
    ) -> None:
        """Start to bring a piece from memory[at] to shared[place]: zeros, of which nothing is read, where live is not
        true (None: it is)."""
        count = self.piece // b.item_bytes(memory.type)
        index, token = ir.IndexType.get(), ir.Type.parse("!nvgpu.device.async.token")
        read = [] if live is None else [b.select(live, b.as_value(count), b.as_value(0))]
        sizes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(place), 1, len(at), len(read)])}
        operands = [shared, *map(b.as_value, place), memory, *map(b.as_value, at), *read]
        attributes = {**sizes, "dstElements": ir.IntegerAttr.get(index, count), "bypassL1": ir.UnitAttr.get()}
        create_op("nvgpu.device_async_copy", operands, [token], attributes)

    def close(self) -> None:
        """Make a group of the copies that this thread has started since the last one."""
        create_op("nvvm.cp.async.commit.group")

    def wait(self, newest: int) -> None:
        """Until this thread's copies are there, but those of the `newest` groups."""
        create_op("nvvm.cp.async.wait.group", attributes={"n": ir.IntegerAttr.get(b.i32(), newest)})


ASYNC_COPIES = AsyncCopies()
