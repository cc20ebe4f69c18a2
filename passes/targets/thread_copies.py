"""Copies of a few bytes from global to shared memory that go on by themselves, and which their thread waits for.

NVIDIA's cp.async, from sm_80 on.  A thread closes a group of what it has started, and waits until only so many of its
newest groups are still under way; what it has copied itself it may read then, and others behind a barrier.
Source: "Parallel Thread Execution ISA", section cp.async.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir


@dataclass(frozen=True)
class ThreadCopies:
    """nbytes: of each copy, to whose multiples both ends are aligned."""

    nbytes: int = 16

    def start(self, memory: ir.Value, at: Sequence[Index], shared: ir.Value, place: Sequence[Index]) -> None:
        """Start to bring what lies at an index of memory to one of shared memory, past the core's own cache."""
        elements = self.nbytes // b.item_bytes(shared.type.element_type)
        attributes = {
            "dstElements": ir.IntegerAttr.get(ir.IndexType.get(), elements),
            "bypassL1": ir.UnitAttr.get(),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(place), 1, len(at), 0]),
        }
        operands = [shared, *map(b.as_value, place), memory, *map(b.as_value, at)]
        create_op("nvgpu.device_async_copy", operands, [ir.Type.parse("!nvgpu.device.async.token")], attributes)

    def close(self) -> None:
        """Let what this thread has started since the last time be a group, which may be empty."""
        create_op("nvvm.cp.async.commit.group")

    def wait(self, newest: int) -> None:
        """Until all of this thread's groups but the `newest` are there."""
        create_op("nvvm.cp.async.wait.group", attributes={"n": ir.IntegerAttr.get(b.i32(), newest)})


THREAD_COPIES = ThreadCopies()
