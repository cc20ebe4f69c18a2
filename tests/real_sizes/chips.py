"""What executes kernels: the emulator of AMD's chips and the interpreter of PTX, watching races, and this CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Protocol

import numpy as np
from emulated_cuda.bulk_ops import MappedTensor
from emulated_cuda.harmless import run_watched
from emulated_cuda.memory_ops import GLOBAL_BASE
from emulated_cuda.ptx import Kernel, parse
from emulated_cuda.spans import Span, Spans
from emulated_cuda.threads import MOST_WATCHED, Threads
from real_sizes.memory import Arena

from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault
from lispgpt.runtime.devices.amd_emulator.global_memory import Argument, GlobalMemory
from lispgpt.runtime.devices.amd_emulator.machine import Machine
from lispgpt.runtime.devices.amd_emulator.memory import Memory
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.steps import Launch
from lispgpt.runtime.plan.tensor_maps import TensorMap

Block = tuple[int, int, int]


class Chip(Protocol):
    """Executes kernels of an artifact."""

    def scratch(self, kernel: str) -> int | None:
        """Bytes of memory of a thread that spilled registers and arrays take; None where nobody here knows."""

    def run(
        self, launch: Launch, arena: Arena, places: Sequence[int], blocks: Sequence[Block], random: np.random.Generator
    ) -> list[np.ndarray]:
        """Execute some blocks on arguments at places in an arena; KernelFault for a race, or an access of anything
        else.  Which bytes of each argument have been stored [nbytes]."""


class Amd:
    def __init__(self, artifact: Artifact) -> None:
        self.code = CodeObject(artifact.code, artifact.target.partition(":")[2])

    def scratch(self, kernel: str) -> int:
        return self.code.descriptor(kernel).private_bytes

    def run(
        self, launch: Launch, arena: Arena, places: Sequence[int], blocks: Sequence[Block], random: np.random.Generator
    ) -> list[np.ndarray]:
        machine = Machine(self.code, Memory())
        parts = [arena.bytes[at : at + a.nbytes] for at, a in zip(places, launch.arguments, strict=True)]
        addresses = [machine.memory.add(part, f"argument {n}") for n, part in enumerate(parts)]
        touches = [Argument(at, a) for at, a in zip(addresses, launch.arguments, strict=True)]
        given = np.array(addresses, np.uint64).tobytes()
        machine.launch(launch.kernel, launch.grid, launch.block, given, launch.shared_bytes, blocks, touches)
        watched = machine.watched
        assert watched is not None
        return [_stored(watched, argument) for argument in touches]


def _stored(watched: GlobalMemory, argument: Argument) -> np.ndarray:
    """Which bytes of an argument have been stored."""
    nbytes = argument.region.nbytes
    piece = watched.piece(argument.address, argument.end)
    if piece < 0 or not watched.written[piece]:
        return np.zeros(nbytes, bool)
    start = int(watched.first[piece]) + (argument.address - int(watched.starts[piece])) // watched.grain
    marks: np.ndarray = watched.shadow.written[start : start + nbytes // watched.grain] > 0
    return marks.repeat(watched.grain)


class Nvidia:
    def __init__(self, artifact: Artifact) -> None:
        self.text, self.facts = artifact.code.decode(), artifact.kernels

    def scratch(self, kernel: str) -> None:
        """What ptxas makes of registers nobody knows here."""

    def run(
        self, launch: Launch, arena: Arena, places: Sequence[int], blocks: Sequence[Block], random: np.random.Generator
    ) -> list[np.ndarray]:
        kernel = parse(self.text, launch.kernel)
        starts = [GLOBAL_BASE + place for place in places]
        maps = [MappedTensor(m, starts[m.argument] + m.offset) for m in TensorMap.of(self.facts[launch.kernel])]
        own = [Span(at, at + a.nbytes, a.writes) for at, a in zip(places, launch.arguments, strict=True)]
        written = [slice(span.start, span.end) for span in own if span.writable]
        symbols, end = _constants(kernel, arena)
        spans = Spans([*own, Span(arena.starts[-1], end, False)])
        if any(i.op.startswith("ld.relaxed") for i in kernel.body):  # its blocks wait for each other
            return self._run_whole(kernel, launch, arena, [*starts, *maps], symbols)
        for some in _together(kernel, launch.grid, blocks):
            order = int(random.integers(1 << 30))  # of warps: one for all runs of these blocks

            def threads(some: Sequence[int] = some, order: int = order) -> Threads:
                return Threads(kernel, arena.bytes, [*starts, *maps], launch.grid, some, launch.shared_bytes,
                               order, True, symbols, spans)  # fmt: skip

            try:
                run_watched(threads, arena.bytes, written)
            except AssertionError as error:
                raise KernelFault(str(error)) from error
        return [spans.stored(span.start, span.end - span.start) for span in own]

    @staticmethod
    def _run_whole(
        kernel: Kernel, launch: Launch, arena: Arena, arguments: list[int | MappedTensor], symbols: dict[str, int]
    ) -> list[np.ndarray]:
        """Run all blocks side by side, without a look at races."""
        blocks = range(prod(launch.grid))
        try:
            Threads(kernel, arena.bytes, arguments, launch.grid, blocks, launch.shared_bytes, symbols=symbols).run()
        except AssertionError as error:
            raise KernelFault(str(error)) from error
        return [np.broadcast_to(np.bool_(a.writes), a.nbytes) for a in launch.arguments]


class Cpu:
    """This machine's, which runs whole launches, and holds them to nothing."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact, self.device = artifact, CpuDevice(1)
        self.device.load(artifact.code, artifact.kernels, objects=artifact.objects)

    def scratch(self, kernel: str) -> None:
        """Registers that are kept on the stack are the compiler's own affair."""

    def run(
        self, launch: Launch, arena: Arena, places: Sequence[int], blocks: Sequence[Block], random: np.random.Generator
    ) -> list[np.ndarray]:
        """All blocks."""
        moved = tuple(replace(a, buffer="arena", offset=at) for at, a in zip(places, launch.arguments, strict=True))
        entry = replace(self.artifact.plan.entries[0], steps=(replace(launch, arguments=moved),))
        self.device.launch(self.device.prepare(entry, {"arena": arena.bytes}))
        self.device.sync()
        return [np.broadcast_to(np.bool_(a.writes), a.nbytes) for a in launch.arguments]


def _constants(kernel: Kernel, arena: Arena) -> tuple[dict[str, int], int]:
    """(a module's constants by name, each aligned as it says; where they end in the arena)."""
    symbols, end = {}, arena.starts[-1]
    for constant in kernel.constants:
        at = -(-end // (2 * constant.align)) * 2 * constant.align + constant.align
        end = at + len(constant.data)
        arena.bytes[at:end] = np.frombuffer(constant.data, np.uint8)
        symbols[constant.name] = GLOBAL_BASE + at
    return symbols, end


def _together(kernel: Kernel, grid: Block, blocks: Sequence[Block]) -> Iterator[list[int]]:
    """Blocks by their numbers, those of whole clusters, as many at a time as are watched side by side."""
    x, y, _ = grid
    clusters = sorted({(b[0] + x * (b[1] + y * b[2])) // kernel.cluster for b in blocks})
    step = max(1, MOST_WATCHED // (kernel.threads * kernel.cluster))
    for at in range(0, len(clusters), step):
        yield [c * kernel.cluster + i for c in clusters[at : at + step] for i in range(kernel.cluster)]


def open_chip(artifact: Artifact) -> Chip:
    """What executes an artifact's kernels."""
    return {"rocm": Amd, "cuda": Nvidia, "cpu": Cpu}[artifact.target.partition(":")[0]](artifact)  # type: ignore[no-any-return]
