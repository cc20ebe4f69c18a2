"""Constant vectors that all rows of a product's operand are computed with, such as a norm's weights, in shared memory.

A block's threads start to copy them ahead of the wait for what is computed, and read them behind a barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, shape_of
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.targets.thread_copies import ThreadCopies

MOST_BYTES = 16 * 1024
"""Of each."""


def constant_vectors(tensor: ir.Value, constants: set[ir.Value], copies: ThreadCopies) -> list[ir.Value]:
    """Tensors of one dimension in the constants that a tensor is made of, each once."""
    waiting, found = [tensor], []
    while waiting:
        here = waiting.pop(0)
        op = defining_op(here)
        if op is None or here in found:
            continue
        if op.name != "bufferization.to_tensor":
            waiting += op.operands
        elif op.operands[0] in constants and len(shape_of(here)) == 1:
            nbytes = vector_bytes(here)
            if nbytes % copies.nbytes == 0 and nbytes <= MOST_BYTES:
                found.append(here)
    return found


def vector_bytes(tensor: ir.Value) -> int:
    return prod(shape_of(tensor)) * b.item_bytes(tensor.type.element_type)


@dataclass(frozen=True)
class CopiedVectors:
    """offset: of the first in a block's memory."""

    copies: ThreadCopies
    tensors: list[ir.Value]
    memory: BlockMemory
    offset: int

    def start(self, thread: Index, threads: int) -> None:
        """Start to bring them, as a group of each thread's copies."""
        for tensor, shared in self._shared():
            source, each = defining_op(tensor).operands[0], self.copies.nbytes // b.item_bytes(tensor.type.element_type)
            count = vector_bytes(tensor) // self.copies.nbytes
            for first in range(0, count, threads):
                at = [b.mul(b.add(thread, first), each)]
                copy = partial(self.copies.start, source, at, shared, at)
                if first + threads <= count:
                    copy()
                else:
                    b.if_then(b.less(b.add(thread, first), count), copy)
        self.copies.close()

    def bind(self, reader: Reader) -> None:
        """Let a reader find them there, behind `publish`."""
        for tensor, shared in self._shared():
            reader.bind(tensor, partial(b.load, shared))

    def publish(self, newest: int) -> None:
        """Wait for them, though not for each thread's newest groups, with the whole block."""
        self.copies.wait(newest)
        b.barrier()

    def _shared(self) -> list[tuple[ir.Value, ir.Value]]:
        """Each with where it goes."""
        found, offset = [], self.offset
        for tensor in self.tensors:
            found.append((tensor, self.memory.view(offset, shape_of(tensor), tensor.type.element_type)))
            offset += vector_bytes(tensor)
        return found
