"""Entries of AMD artifacts on the instruction emulator, without a driver between: buffers are arrays here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.global_memory import Argument
from lispgpt.runtime.devices.amd_emulator.machine import Machine
from lispgpt.runtime.devices.amd_emulator.memory import Memory
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Launch

GIVEN = ("weight", "input", "state")
CHIPS = ("gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")


class Emulation:
    """An artifact's code and buffers.  values: inputs, weights and states by name; signals and control start as zeros,
    and all else as bytes of 0xFF, which read as NaN.  code: other machine code than the artifact's own."""

    def __init__(self, artifact: Artifact, values: Mapping[str, np.ndarray], code: bytes | None = None) -> None:
        chip = artifact.target.partition(":")[2]
        self.plan, self.memory, self.buffers = artifact.plan, Memory(), {}
        self.machine = Machine(CodeObject(code or artifact.code, chip), self.memory)
        for buffer in self.plan.buffers:
            poison = 0 if buffer.kind in ("signals", "control") else 0xFF
            data = np.full(-(-buffer.nbytes // 16) * 16, poison, np.uint8)[: buffer.nbytes]
            value = values.get(buffer.name.rpartition("/")[2])
            if buffer.kind in GIVEN and value is not None and value.nbytes == buffer.nbytes:
                data[:] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            self.memory.add(data, buffer.name)
            self.buffers[buffer.name] = data

    def entry(self, name: str, positions: int) -> Entry:
        return next(e for e in self.plan.entries if e.name == name and e.sizes["positions"] == positions)

    def run(self, entry: Entry) -> np.ndarray:
        """Run an entry's launches; its first result as float32."""
        for launch in entry.launches:
            self.launch(launch)
        return self.buffers[next(iter(entry.results.values()))].view(np.float32)

    def launch(self, launch: Launch, only: Sequence[tuple[int, int, int]] | None = None) -> None:
        """only: workgroups, where not all are to run."""
        addresses = [self.buffers[a.buffer].ctypes.data + a.offset for a in launch.arguments]
        arguments = np.array(addresses, np.uint64).tobytes()
        touches = [Argument(at, a) for at, a in zip(addresses, launch.arguments, strict=True)]
        self.machine.launch(launch.kernel, launch.grid, launch.block, arguments, launch.shared_bytes, only, touches)


def run_entries(artifact: Artifact, names: list[str], values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The first results of entries, each from the values as given; values has `tokens`, and `positions` or counts."""
    rows = values["tokens"].size
    given = {"positions": np.arange(rows, dtype=np.int32), **values}
    found = {}
    for name in names:
        emulation = Emulation(artifact, given)
        found[name] = emulation.run(emulation.entry(name, rows))
    return found
