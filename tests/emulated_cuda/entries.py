"""Running one entry of an artifact for NVIDIA GPUs on numpy, without a session."""

from __future__ import annotations

import numpy as np
from emulated_cuda.machine import Memory, launch
from emulated_cuda.ptx import parse

from lispgpt.runtime.artifact import Artifact
from lispgpt.runtime.plan import Entry


def run(artifact: Artifact, entry: Entry, values: dict[str, np.ndarray]) -> np.ndarray:
    """The entry's first result as float32; what is not among the values, by their names, starts as NaN."""
    names = {a.buffer for step in entry.launches for a in step.arguments}
    buffers = [buffer for buffer in artifact.plan.buffers if buffer.name in names]
    arrays = [np.full(buffer.nbytes, 0xFF, np.uint8) for buffer in buffers]
    for array, buffer in zip(arrays, buffers, strict=True):
        given = values.get(buffer.name.rpartition("/")[2])
        if given is not None:
            array[:] = np.ascontiguousarray(given).reshape(-1).view(np.uint8)[: array.size]
    memory, text = Memory(arrays), artifact.code.decode()
    addresses = {buffer.name: address for buffer, address in zip(buffers, memory.addresses, strict=True)}
    for step in entry.launches:
        arguments = [addresses[a.buffer] + a.offset for a in step.arguments]
        launch(parse(text, step.kernel), memory, arguments, step.grid, step.shared_bytes)
        assert memory.broken() == 0, f"{step.kernel} writes outside its arguments"
    number = next(i for i, buffer in enumerate(buffers) if buffer.name == next(iter(entry.results.values())))
    return memory.read(number, np.empty(buffers[number].shape, np.float32))
