"""Predicts how long a GPU's launches take, where no such GPU is at hand.

An AMD chip's launches run on the emulator, which counts instructions, cache lines and waits for memory.  What a launch
takes is then the gap between launches, and behind it the longest of three: its lines at the part's bandwidth, its
busiest core's vector instructions, and its slowest wave's waits for memory, one after the other.  Of other GPUs, and of
entries with many rows, there are the bytes and operations that the compiler counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.passes.targets import GPU_CHIPS
from lispgpt.passes.targets.rates import Rates
from lispgpt.runtime.devices.emulated import missing
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Launch
from lispgpt.runtime.plan.work import Positions, Work

REACHED, LATENCY, GAP = 0.85, 0.8e-6, 2e-6
"""Of the bandwidth; seconds of a wait for memory; seconds from the end of a launch to the start of the next."""
FLOP_A_CYCLE = 256
"""Of one core, by which a datasheet's vector rate gives the clock."""
VECTOR_STARTS = {32: 2, 64: 1}
"""Vector instructions that a core starts in a cycle, by the lanes of a wave."""
ASSUMPTIONS = (
    f"memory reaches {REACHED:.0%} of the datasheet's bandwidth, and nothing is left in a cache from the launch before",
    "a core of RDNA starts two vector instructions of 32 lanes a cycle and one of CDNA one of 64, at the clock that "
    "the datasheet's vector rate stands for",
    "workgroups are spread evenly over the cores",
    f"a wait for memory takes {LATENCY * 1e6:.1f} us and a launch begins {GAP * 1e6:.1f} us after the one before: "
    "guesses, measured on no such chip",
)


@dataclass(frozen=True)
class Count:
    """Of one launch: instructions by kind over all waves, bytes of the cache lines touched, the most waits for memory
    that one wave has, workgroups, and lanes of a wave."""

    kinds: Counter[str]
    line_bytes: int
    trips: int
    groups: int
    lanes: int


@dataclass(frozen=True)
class Predicted:
    """Of one launch.  bound: what takes longest.  count: what the emulator counted, if it did."""

    seconds: float
    bound: str
    count: Count | None = None


def kind_of(name: str) -> str:
    """The unit that executes an instruction."""
    if "WMMA" in name or "MFMA" in name:
        return "matrix"
    if name.startswith("V_"):
        return "vector"
    if name.startswith(("GLOBAL", "BUFFER", "FLAT", "SCRATCH", "S_LOAD")):
        return "memory"
    return "shared" if name.startswith("DS_") else "scalar"


def rates_of(artifact: Artifact) -> tuple[Rates, int] | None:
    """(the datasheet's rates of an artifact's chip, its cores); None where they are not known."""
    kind, _, chip = artifact.target.partition(":")
    target = GPU_CHIPS.get(kind, {}).get(chip)
    return None if target is None or target.rates is None else (target.rates, target.cores)


def predict(
    artifact: Artifact,
    entry: Entry,
    inputs: Mapping[str, np.ndarray],
    positions: Positions,
    kernels: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[tuple[Launch, Predicted]]:
    """Each launch of an entry on these inputs, its rows at these positions; nothing where the chip is not known.

    kernels: the facts of all kernels where the entry may be another artifact's of the same session.
    """
    kernels = kernels or artifact.kernels
    known = rates_of(artifact)
    if known is None:
        return
    of_it = all(launch.kernel in artifact.kernels for launch in entry.launches)
    if artifact.target.startswith("rocm:") and entry.sizes.get("positions") == 1 and missing() is None and of_it:
        emulated = Emulated(artifact, entry, inputs)
        for launch in entry.launches:
            count = emulated.count(launch)
            times = counted_seconds(count, *known)
            bound = max(times, key=lambda name: times[name])
            yield launch, Predicted(GAP + times[bound], bound, count)
        return
    for launch in entry.launches:
        work = Work.of(kernels[launch.kernel])
        if work is not None:
            amount, rates = work.at(positions), known[0]
            operations = amount.operations / (rates.matrix if amount.matrix else rates.vector)
            times = {"bytes": amount.nbytes / (REACHED * rates.bandwidth), "operations": operations}
            bound = max(times, key=lambda name: times[name])
            yield launch, Predicted(GAP + times[bound], bound)


def counted_seconds(count: Count, rates: Rates, cores: int) -> dict[str, float]:
    """The three times of a launch, by what they are of."""
    clock = rates.vector / cores / FLOP_A_CYCLE
    share = -(-count.groups // cores) / count.groups  # of all workgroups, on the busiest core
    return {
        "bytes": count.line_bytes / (REACHED * rates.bandwidth),
        "vector": count.kinds["vector"] * share / VECTOR_STARTS[count.lanes] / clock,
        "waits": count.trips * LATENCY,
    }


class Emulated:
    """An entry with random weights on the emulator."""

    def __init__(self, artifact: Artifact, entry: Entry, inputs: Mapping[str, np.ndarray]) -> None:
        from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
        from lispgpt.runtime.devices.amd_emulator.machine import Machine
        from lispgpt.runtime.devices.amd_emulator.memory import Memory

        self.memory, self.buffers, random = Memory(), {}, np.random.default_rng(0)
        self.machine = Machine(CodeObject(artifact.code, artifact.target.partition(":")[2]), self.memory)
        for buffer in artifact.plan.buffers:
            data = np.zeros(-(-buffer.nbytes // 16) * 16, np.uint8)[: buffer.nbytes]
            if buffer.kind == "weight":
                numbers = random.standard_normal(buffer.shape, np.float32) * np.float32(0.05)
                bits = (numbers.view(np.uint32) >> 16).astype(np.uint16) if buffer.dtype == "bf16" else numbers
                data[:] = bits.reshape(-1).view(np.uint8)
            self.buffers[buffer.name] = data
            self.memory.add(data, buffer.name)
        for name, place in entry.inputs.items():
            if name in inputs:
                self.buffers[place][:] = np.ascontiguousarray(inputs[name]).reshape(-1).view(np.uint8)

    def count(self, launch: Launch) -> Count:
        before, self.memory.touched = self.machine.counts(), {}
        addresses = [self.buffers[a.buffer].ctypes.data + a.offset for a in launch.arguments]
        arguments = np.array(addresses, np.uint64).tobytes()
        self.machine.launch(launch.kernel, launch.grid, launch.block, arguments, launch.shared_bytes)
        kinds: Counter[str] = Counter()
        for name, number in (self.machine.counts() - before).items():
            kinds[kind_of(name)] += number
        trips = int(self.machine.hazards.trips.max())
        return Count(kinds, self.memory.touched_bytes(), trips, int(np.prod(launch.grid)), self.machine.lanes)
