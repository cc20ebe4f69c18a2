"""Run entries of an AMD artifact on an instruction emulator: run_entry.py CHIP ARTIFACT IN.npz OUT.npz ENTRY…

IN.npz holds tokens, weights and states by name, and positions if they do not count from 0; OUT.npz the first result of
each entry as bytes, by the entry's name.  Every other buffer starts as bytes of 0xFF, which read as NaN.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import bounded_shared
import emulator
import numpy as np

from lispgpt.runtime.artifact import Artifact, load_artifact

ELEMENT_BYTES = {"bf16": 2, "f32": 4, "i32": 4, "i8": 1}
GIVEN = ("weight", "input", "state")


def main(chip: str, path: str, given: str, out: str, *names: str) -> None:
    artifact, values = load_artifact(Path(path)), dict(np.load(given))
    values.setdefault("positions", np.arange(values["tokens"].size, dtype=np.int32))
    code = emulator.code_object(chip)(artifact.code, chip)
    np.savez(out, **{name: run(artifact, code, values, name) for name in names})


def run(artifact: Artifact, code: Any, values: dict[str, np.ndarray], name: str) -> np.ndarray:
    plan = artifact.plan
    entry = next(e for e in plan.entries if e.name == name and e.sizes["positions"] == values["tokens"].size)
    memory = {}
    for buffer in plan.buffers:
        size = int(np.prod(buffer.shape)) * ELEMENT_BYTES[buffer.dtype]
        memory[buffer.name] = np.full(size, 0xFF, np.uint8)
        key = buffer.name.rpartition("/")[2]
        if buffer.kind in GIVEN and key in values and values[key].nbytes == size:
            memory[buffer.name][:] = np.ascontiguousarray(values[key]).reshape(-1).view(np.uint8)
    for launch in entry.launches:
        addresses = [memory[a.buffer].ctypes.data + a.offset for a in launch.arguments]
        code.launch(launch.kernel, tuple(launch.grid), tuple(launch.block), addresses, bounded_shared.BYTES)
    return memory[next(iter(entry.results.values()))]


if __name__ == "__main__":
    main(*sys.argv[1:])
