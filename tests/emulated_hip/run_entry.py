"""Run one entry of an AMD artifact on an instruction emulator: run_entry.py CHIP ARTIFACT ENTRY IN.npz OUT.npy

IN.npz holds the weights by name, and tokens; OUT.npy is the entry's first result as bytes.  Every buffer starts as
bytes of 0xFF, which read as NaN.
"""

from __future__ import annotations

import sys
from pathlib import Path

import emulate_amdgpu
import numpy as np

from lispgpt.runtime.artifact import load_artifact

ELEMENT_BYTES = {"bf16": 2, "f32": 4, "i32": 4, "i8": 1}
SHARED_BYTES = 64 * 1024


def main(chip: str, path: str, name: str, given: str, out: str) -> None:
    artifact = load_artifact(Path(path))
    values = dict(np.load(given))
    count = values["tokens"].size
    values["positions"] = np.arange(count, dtype=np.int32)
    plan = artifact.plan
    entry = next(e for e in plan.entries if e.name == name and e.positions == count)
    memory = {}
    for buffer in plan.buffers:
        size = int(np.prod(buffer.shape)) * ELEMENT_BYTES[buffer.dtype]
        memory[buffer.name] = np.full(size, 0xFF, np.uint8)
        key = buffer.name.rpartition("/")[2]
        if buffer.kind in ("weight", "input") and key in values and values[key].nbytes == size:
            memory[buffer.name][:] = np.ascontiguousarray(values[key]).reshape(-1).view(np.uint8)
    code = emulate_amdgpu.CodeObject(artifact.code, chip)
    for launch in entry.launches:
        addresses = [memory[a.buffer].ctypes.data + a.offset for a in launch.arguments]
        code.launch(launch.kernel, tuple(launch.grid), tuple(launch.block), addresses, SHARED_BYTES)
    np.save(out, memory[entry.results[0]])


if __name__ == "__main__":
    main(*sys.argv[1:])
