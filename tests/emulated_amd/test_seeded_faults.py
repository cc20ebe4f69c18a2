"""Mistakes made in compiled kernels: the emulator finds each, by a check or by what the kernel computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from emulated_amd.mutants import MISTAKES, mutated, sites
from emulated_amd.running import CHIPS, Emulation

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault
from lispgpt.runtime.plan.artifact import Artifact

PROGRAM = Path(__file__).resolve().parent.parent.parent / "examples" / "gpt2_generate.lisp"
SIZES = {"layers": 1, "heads": 2, "width": 64, "vocab": 211, "padded-vocab": 256, "context": 32, "weight-type": "bf16"}
ENTRIES = {"decode-greedy": 1, "prefill": 16}
"""Entries by their tokens: those of a prompt are multiplied on matrix instructions."""
PATIENCE = 20_000
FOUND_BY_CHECKS = ("dropped barrier", "missing wait")


@pytest.fixture(scope="module", params=CHIPS)
def artifact(request: pytest.FixtureRequest) -> Artifact:
    compiled, _ = compile_request(Request(PROGRAM, f"rocm:{request.param}", SIZES, entries=list(ENTRIES)), Observer())
    return compiled


def random_values(artifact: Artifact, random: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    values: dict[str, np.ndarray] = {"tokens": random.integers(0, SIZES["vocab"], rows).astype(np.int32)}
    values["positions"] = np.arange(rows, dtype=np.int32)
    for buffer in artifact.plan.buffers:
        numbers = random.standard_normal(buffer.shape, np.float32)
        if buffer.kind == "weight":
            values[buffer.name] = (
                (numbers.view(np.uint32) >> 16).astype(np.uint16) if buffer.dtype == "bf16" else numbers
            )
        elif buffer.kind == "state":
            values[buffer.name] = np.zeros(buffer.nbytes, np.uint8)
    return values


@pytest.mark.drawn
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(artifact: Artifact, mistake: str, entry: str) -> None:
    """In a norm or a product over rows, picked anew each time: each of their barriers, waits and exchanges matters."""
    seed = int(seeded.rng().integers(1 << 30))
    random = np.random.default_rng(seed)
    emulation = Emulation(artifact, random_values(artifact, random, ENTRIES[entry]))
    launches = emulation.entry(entry, ENTRIES[entry]).launches
    fitting = [
        (number, site)
        for number, launch in enumerate(launches)
        if launch.kernel.startswith(("rows", "contraction"))
        for site in sites(artifact, launch.kernel, mistake)
    ]
    number, site = fitting[random.integers(len(fitting))]
    for launch in launches[:number]:
        emulation.launch(launch)
    broken = Emulation(artifact, {}, mutated(artifact, site))
    broken.machine.patience = PATIENCE
    for name, data in emulation.buffers.items():
        broken.buffers[name][:] = data
    emulation.launch(launches[number])
    found = ""
    try:
        broken.launch(launches[number])
    except KernelFault as fault:
        found = str(fault)
    about = f"{mistake} at {site.address:#x} ({site.instruction.text()}) of {site.kernel}, seed {seed}"
    differ = any((broken.buffers[name] != data).any() for name, data in emulation.buffers.items())
    assert found or differ, about
    if mistake in FOUND_BY_CHECKS:
        assert found, about
