"""Running an entry's PTX on numpy where the blocks of a cluster read each other's shared memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from emulated_cuda.machine import Memory, run_block
from emulated_cuda.ptx import Instruction, Kernel, parse
from emulated_cuda.warp import Warp

from lispgpt.runtime.artifact import Artifact
from lispgpt.runtime.plan import Entry

CLUSTER = 8
SLOT = 1 << 16
"""Bytes from one block's shared memory to the next one's in a cluster: any block's address is one of this memory."""


def run(artifact: Artifact, entry: Entry, values: dict[str, np.ndarray]) -> np.ndarray:
    """The entry's result; what is not among the values starts as NaN."""
    names = {a.buffer for step in entry.launches for a in step.arguments}
    buffers = [buffer for buffer in artifact.plan.buffers if buffer.name in names]
    arrays = [np.full(buffer.nbytes, 0xFF, np.uint8) for buffer in buffers]
    for array, buffer in zip(arrays, buffers, strict=True):
        given = values.get(buffer.name.rpartition("/")[2])
        if given is not None:
            array[:] = given.reshape(-1).view(np.uint8)[: array.size]
    memory, text = Memory(arrays), artifact.code.decode()
    addresses = {buffer.name: address for buffer, address in zip(buffers, memory.addresses, strict=True)}
    for step in entry.launches:
        arguments = [addresses[a.buffer] + a.offset for a in step.arguments]
        launch(parse(text, step.kernel), memory, arguments, step.grid[0])
    assert memory.broken() == 0
    number = next(i for i, buffer in enumerate(buffers) if buffer.name == next(iter(entry.results.values())))
    return memory.read(number, np.empty(buffers[number].shape, np.float32))


def launch(kernel: Kernel, memory: Memory, arguments: list[int], blocks: int) -> None:
    """Run the blocks of a cluster together, on one memory with a slot for each block."""
    cluster = CLUSTER if any(i.op == "barrier.cluster.wait" for i in kernel.body) else 1
    assert kernel.shared_bytes <= SLOT and blocks % cluster == 0
    for first in range(0, blocks, cluster):
        shared, warps = np.full(cluster * SLOT, 0xFF, np.uint8), []
        for rank in range(cluster):
            block = {"%ctaid.x": first + rank, "%ctaid.y": 0, "%ctaid.z": 0}
            own = in_cluster(kernel, rank)
            warps += [ClusterWarp(own, memory.bytes, shared, arguments, block, n) for n in range(kernel.threads // 32)]
        run_block(warps)


def in_cluster(kernel: Kernel, rank: int) -> Kernel:
    """One block's view: its shared memory in its slot, its own barriers, and the cluster's as one that all count at."""

    def changed(instruction: Instruction) -> Instruction:
        op = instruction.op
        if op == "barrier.cluster.arrive":
            return replace(instruction, op="fence")
        if op == "barrier.cluster.wait":
            return replace(instruction, op="bar.sync", operands=("0", str(CLUSTER * kernel.threads)))
        if op.partition(".")[0] in ("bar", "barrier"):
            assert instruction.operands == ("0",)
            return replace(instruction, operands=(str(rank + 1), str(kernel.threads)))
        return instruction

    shared = {name: place + rank * SLOT for name, place in kernel.shared.items()}
    return replace(kernel, shared=shared, body=tuple(map(changed, kernel.body)))


class ClusterWarp(Warp):
    def op_div(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, b = (self.value(o, suffixes[-1]) for o in operands[1:])
        self.write(operands[0], a / b if suffixes[-1] == "f32" else a // b, lanes)

    def op_mapa(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        place, rank = self.value(operands[1], "u64"), self.value(operands[2], "u32").astype(np.uint64)
        self.write(operands[0], place % np.uint64(SLOT) + rank * np.uint64(SLOT), lanes)

    def op_not(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        self.write(operands[0], ~self.value(operands[1], suffixes[-1].replace("b", "u")), lanes)

    def op_bfe(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """A field of constant place and length, which a signed one's top bit extends."""
        a = self.value(operands[1], suffixes[-1])
        start, length = (int(o) for o in operands[2:])
        size = 8 * a.itemsize
        self.write(operands[0], a << a.dtype.type(size - start - length) >> a.dtype.type(size - length), lanes)
