"""Running one entry's PTX on numpy, with every buffer that has no value full of NaN, but for signals."""

from __future__ import annotations

import numpy as np
from emulated_cuda.machine import Memory, launch_step

from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Buffer, Entry


def run(artifact: Artifact, entry: Entry, values: dict[str, np.ndarray], seed: int = 0) -> np.ndarray:
    """The entry's first result, as f32.  values: of inputs, weights and states, by their names."""
    return next(iter(run_all(artifact, entry, values, seed).values()))


def run_all(
    artifact: Artifact, entry: Entry, values: dict[str, np.ndarray], seed: int = 0, watched: bool | None = None
) -> dict[str, np.ndarray]:
    """All of an entry's results, those in bf16 as f32.  seed: of the order in which warpgroups take turns.  watched:
    whether races are looked for; see launch."""
    making = artifact.plan.making
    graphs = [entry.launches] if making is None else [making.launches, entry.launches]
    used = {a.buffer for launches in graphs for step in launches for a in step.arguments}
    buffers = [buffer for buffer in artifact.plan.buffers if buffer.name in used]
    arrays = [np.full(buffer.nbytes, 0 if buffer.kind == "signals" else 0xFF, np.uint8) for buffer in buffers]
    for array, buffer in zip(arrays, buffers, strict=True):
        given = values.get(buffer.name.rpartition("/")[2])
        if given is not None:
            stored = given.reshape(-1).view(np.uint8)[: array.size]
            array[: stored.size] = stored
    memory = Memory(arrays)
    addresses = {buffer.name: address for buffer, address in zip(buffers, memory.addresses, strict=True)}
    text = artifact.code.decode()
    for launches in graphs:
        memory.begin()
        for step in launches:
            launch_step(text, step, artifact.kernels[step.kernel], memory, addresses, seed, watched)
    numbers = {buffer.name: number for number, buffer in enumerate(buffers)}
    return {name: _result(memory, numbers[place], buffers[numbers[place]]) for name, place in entry.results.items()}


def _result(memory: Memory, number: int, buffer: Buffer) -> np.ndarray:
    if buffer.dtype == "bf16":
        bits = memory.read(number, np.empty(buffer.shape, np.uint16))
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return memory.read(number, np.empty(buffer.shape, np.float32))
