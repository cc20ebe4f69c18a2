"""Copies from global to shared memory that run on their own while threads go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir


@dataclass(frozen=True)
class AsyncCopies:
    """NVIDIA's cp.async, by which each thread copies for itself.

    Source: "Parallel Thread Execution ISA", section cp.async.
    """

    def start(
        self,
        source: ir.Value,
        source_index: Sequence[Index],
        shared: ir.Value,
        shared_index: Sequence[Index],
        width: int,
        count: ir.Value | None = None,
    ) -> None:
        """Start to copy `width` elements, 16 bytes; only the first `count` where it is given, and zeros after them."""
        places = [[b.as_value(i) for i in index] for index in (shared_index, source_index)]
        counts = [] if count is None else [count]
        attributes = {
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(places[0]), 1, len(places[1]), len(counts)]),
            "dstElements": ir.IntegerAttr.get(ir.IndexType.get(), width),
            "bypassL1": ir.UnitAttr.get(),
        }
        token = ir.Type.parse("!nvgpu.device.async.token")
        create_op("nvgpu.device_async_copy", [shared, *places[0], source, *places[1], *counts], [token], attributes)

    def commit(self) -> None:
        """End a batch of this thread's copies; a batch may be empty."""
        create_op("nvvm.cp.async.commit.group")

    def wait(self, newest: int) -> None:
        """Until this thread's batches but the `newest` have arrived; a barrier then makes them the block's."""
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), newest)
        create_op("nvvm.cp.async.wait.group", attributes={"n": number})


ASYNC_COPIES = AsyncCopies()
