"""Running one entry's PTX on numpy, with every buffer that has no value full of NaN."""

from __future__ import annotations

import numpy as np
from emulated_cuda.machine import Memory, launch_step

from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Entry


def run(artifact: Artifact, entry: Entry, values: dict[str, np.ndarray]) -> np.ndarray:
    """The entry's first result, which is f32.  values: of inputs, weights and states, by their names."""
    return next(iter(run_all(artifact, entry, values).values()))


def run_all(artifact: Artifact, entry: Entry, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All of an entry's results, which are f32."""
    used = {a.buffer for step in entry.launches for a in step.arguments}
    buffers = [buffer for buffer in artifact.plan.buffers if buffer.name in used]
    arrays = [np.full(buffer.nbytes, 0xFF, np.uint8) for buffer in buffers]
    for array, buffer in zip(arrays, buffers, strict=True):
        given = values.get(buffer.name.rpartition("/")[2])
        if given is not None:
            stored = given.reshape(-1).view(np.uint8)[: array.size]
            array[: stored.size] = stored
    memory = Memory(arrays)
    addresses = {buffer.name: address for buffer, address in zip(buffers, memory.addresses, strict=True)}
    text = artifact.code.decode()
    for step in entry.launches:
        launch_step(text, step, artifact.kernels[step.kernel], memory, addresses)
    numbers = {buffer.name: number for number, buffer in enumerate(buffers)}
    shapes = {name: buffers[numbers[buffer]].shape for name, buffer in entry.results.items()}
    return {
        name: memory.read(numbers[entry.results[name]], np.empty(shape, np.float32)) for name, shape in shapes.items()
    }
