"""Copies of 16 bytes from global to shared memory that threads start and go on, each for itself.

NVIDIA's cp.async.  What a thread has copied is there for itself once it has waited; a barrier makes it the block's.
Source: "Parallel Thread Execution ISA", section cp.async.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir


@dataclass(frozen=True)
class VectorCopies:
    """nbytes: of one copy, whose both ends are aligned so."""

    nbytes: int = 16

    def start(self, shared: ir.Value, to: Sequence[Index], source: ir.Value, index: Sequence[Index]) -> None:
        """Start to copy the neighbours from `source[index]` on to `shared[to]` on, past the first-level cache."""
        width = self.nbytes // b.item_bytes(source.type)
        attributes = {
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(to), 1, len(index), 0]),
            "dstElements": ir.IntegerAttr.get(ir.IndexType.get(), width),
            "bypassL1": ir.UnitAttr.get(),
        }
        operands = [shared, *map(b.as_value, to), source, *map(b.as_value, index)]
        create_op("nvgpu.device_async_copy", operands, [ir.Type.parse("!nvgpu.device.async.token")], attributes)

    def close(self) -> None:
        """End a batch of this thread's copies, which may be empty."""
        create_op("nvvm.cp.async.commit.group")

    def wait(self, newest: int) -> None:
        """Until this thread's batches but the `newest` have arrived."""
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), newest)
        create_op("nvvm.cp.async.wait.group", attributes={"n": number})


VECTOR_COPIES = VectorCopies()
