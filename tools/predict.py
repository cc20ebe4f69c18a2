"""Predicts how long a decode step of GPT-2 124M takes on an AMD GPU, from the instructions that it executes.

    .venv/bin/python tools/predict.py [--target rocm:gfx1151] [--position 64]

Every launch of the step runs on the emulator, which counts instructions, cache lines and waits for memory.  What a
launch takes is then the gap between launches, and behind it the longest of three: its lines at the part's bandwidth,
its busiest core's vector instructions, and its slowest wave's waits for memory, one after the other.

Assumptions: memory reaches REACHED of the datasheet's bandwidth, and nothing is left in a cache from the launch before;
a core of RDNA starts two vector instructions of 32 lanes a cycle and one of CDNA one of 64, at the clock that the
datasheet's vector rate stands for; workgroups are spread evenly over the cores; LATENCY and GAP are guesses, measured
on no such chip.  `lispgpt run … --profile` on one is how to check it, kernel by kernel.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.passes.targets import GPU_CHIPS
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.machine import Machine
from lispgpt.runtime.devices.amd_emulator.memory import Memory
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.steps import Launch

PROGRAM = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
SIZES = {"layers": 12, "heads": 12, "width": 768, "vocab": 50257, "padded-vocab": 50304, "context": 1024}
REACHED, LATENCY, GAP = 0.85, 0.8e-6, 2e-6
"""Of the bandwidth; seconds of a wait for memory; seconds from the end of a launch to the start of the next."""
FLOP_A_CYCLE = 256
"""Of one core, by which a datasheet's vector rate gives the clock."""
VECTOR_STARTS = {32: 2, 64: 1}
"""Vector instructions that a core starts in a cycle, by the lanes of a wave."""


@dataclass(frozen=True)
class Count:
    """Of one launch: instructions by kind over all waves, bytes of the cache lines touched, the most waits for memory
    that one wave has, workgroups, and lanes of a wave."""

    kinds: Counter[str]
    line_bytes: int
    trips: int
    groups: int
    lanes: int


def kind_of(name: str) -> str:
    """The unit that executes an instruction."""
    if "WMMA" in name or "MFMA" in name:
        return "matrix"
    if name.startswith("V_"):
        return "vector"
    if name.startswith(("GLOBAL", "BUFFER", "FLAT", "SCRATCH", "S_LOAD")):
        return "memory"
    return "shared" if name.startswith("DS_") else "scalar"


class Step:
    """A decode step of random weights on the emulator, after `position` others."""

    def __init__(self, artifact: Artifact, position: int) -> None:
        self.memory, self.buffers, random = Memory(), {}, np.random.default_rng(0)
        self.machine = Machine(CodeObject(artifact.code, artifact.target.partition(":")[2]), self.memory)
        self.entry = next(e for e in artifact.plan.entries if e.name == "decode-greedy")
        for buffer in artifact.plan.buffers:
            data = np.zeros(-(-buffer.nbytes // 16) * 16, np.uint8)[: buffer.nbytes]
            if buffer.kind == "weight":
                numbers = random.standard_normal(buffer.shape, np.float32) * np.float32(0.05)
                bits = (numbers.view(np.uint32) >> 16).astype(np.uint16) if buffer.dtype == "bf16" else numbers
                data[:] = bits.reshape(-1).view(np.uint8)
            self.buffers[buffer.name] = data
            self.memory.add(data, buffer.name)
        self.buffers[self.entry.inputs["positions"]].view(np.int32)[:] = position

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


def seconds(count: Count, chip: Any) -> dict[str, float]:
    """The three times of a launch, by what they are of."""
    clock = chip.rates.vector / chip.cores / FLOP_A_CYCLE
    share = -(-count.groups // chip.cores) / count.groups  # of all workgroups, on the busiest core
    return {
        "bytes": count.line_bytes / (REACHED * chip.rates.bandwidth),
        "vector": count.kinds["vector"] * share / VECTOR_STARTS[count.lanes] / clock,
        "waits": count.trips * LATENCY,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="rocm:gfx1151")
    parser.add_argument("--position", type=int, default=64)
    options = parser.parse_args()
    chip: Any = GPU_CHIPS["rocm"][options.target.partition(":")[2]]
    request = Request(PROGRAM, options.target, {**SIZES, "weight-type": "bf16"})
    step = Step(compile_request(request, Observer())[0], options.position)
    rows: dict[str, tuple[int, Count, float, str]] = {}
    for launch in step.entry.launches:
        count = step.count(launch)
        times = seconds(count, chip)
        longest = max(times, key=lambda name: times[name])
        launches, _, total, _ = rows.get(launch.kernel, (0, count, 0.0, ""))
        rows[launch.kernel] = (launches + 1, count, total + GAP + times[longest], longest)
    print(f"a decode step at position {options.position} on {chip.rates.part} ({options.target}), predicted")
    print(f"{'kernel':28} launches       MB   vector  matrix  memory  waits  bound by      us")
    for kernel, (launches, count, total, longest) in rows.items():
        kinds = "".join(f"{count.kinds[kind]:8}" for kind in ("vector", "matrix", "memory"))
        work = f"{count.line_bytes / 1e6:9.3f} {kinds} {count.trips:6}"
        print(f"{kernel:28} {launches:8}{work}  {longest:8} {total * 1e6:8.1f}")
    total, least = sum(row[2] for row in rows.values()), sum(row[0] * row[1].line_bytes for row in rows.values())
    floor = f"{least / 1e6:.0f} MB at the datasheet's bandwidth take {least / chip.rates.bandwidth * 1e6:.0f} us"
    print(f"together {total * 1e6:.0f} us a token; {floor}")


if __name__ == "__main__":
    main()
