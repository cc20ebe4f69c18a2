"""A block's shared memory as one piece, parts of which are seen as arrays: static where it is small, else dynamic."""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.base.errors import InternalError
from lispgpt.ir import build as b
from lispgpt.ir.mlir import attribute, ir
from lispgpt.passes.targets import Gpu

ALIGNMENT = 1024
"""Of dynamic memory: what swizzled operands of warpgroup instructions need."""


def dynamic_bytes(target: Gpu, nbytes: int, aligned: bool) -> int:
    """What a launch asks for where a block uses `nbytes`, their alignment included; 0 where they are static."""
    return 0 if nbytes <= target.shared_bytes and not aligned else nbytes + ALIGNMENT


def fits(target: Gpu, nbytes: int, aligned: bool) -> bool:
    """Whether a block can have a BlockMemory of this size."""
    return dynamic_bytes(target, nbytes, aligned) <= target.dynamic_shared_bytes


class BlockMemory:
    """`nbytes` of shared memory, from its first byte on aligned to 16 bytes, or if `aligned` to 1024."""

    def __init__(self, target: Gpu, nbytes: int, aligned: bool) -> None:
        """Raises InternalError where it does not fit, which schedules have to find out first."""
        if not fits(target, nbytes, aligned):
            raise InternalError(f"a kernel wants {nbytes} bytes of shared memory, more than {target} has for a block")
        i8, index = b.integer(8), ir.IndexType.get()
        self.start: ir.Value | int = 0
        self.dynamic_bytes = dynamic_bytes(target, nbytes, aligned)
        if self.dynamic_bytes == 0:
            self.memory = b.shared([nbytes], i8)
            return
        everything = b.shared_type([ir.ShapedType.get_dynamic_size()], i8)
        self.memory = b.emit("gpu.dynamic_shared_memory", [], [everything])
        address = b.address_of(self.memory)
        below = b.sub(b.as_value(0), address)
        self.start = b.emit("arith.andi", [below, b.as_value(ALIGNMENT - 1)], [index])

    def view(self, offset: int, shape: Sequence[int], type_: ir.Type) -> ir.Value:
        """What starts `offset` bytes from the first."""
        return b.emit(
            "memref.view", [self.memory, b.as_value(b.add(self.start, offset))], [b.shared_type(shape, type_)]
        )

    def record(self, kernel: ir.Operation) -> None:
        """On a kernel's function, after `reschedule`, what its launches ask for."""
        kernel.attributes["shared_bytes"] = attribute(self.dynamic_bytes)
