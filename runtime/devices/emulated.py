"""AMD GPUs on the CPU, instruction by instruction: target emulated:gfx1151 runs what rocm:gfx1151 compiles.

For looking at kernels and finding their mistakes (see `amd_emulator`), through the same calls of HIP as a real GPU.  It
needs the packages of the extra `emulated`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lispgpt.base import scratch
from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.global_memory import Argument
from lispgpt.runtime.devices.amd_emulator.stand_in import StandIn
from lispgpt.runtime.devices.amd_emulator.trace import Tracer
from lispgpt.runtime.devices.driver import Driver
from lispgpt.runtime.devices.rocm import API, HipDevice
from lispgpt.runtime.plan.steps import Launch

PACKAGES = {"elftools": "pyelftools", "tinygrad": "tinygrad"}


def missing() -> str | None:
    """Why nothing can be emulated here and what would help, in one line; None if it can."""
    absent = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    return f"emulation needs {' and '.join(absent)}: pip install 'lispgpt[emulated]'" if absent else None


def to_standard_error(line: str) -> None:
    print(line, file=sys.stderr)


class EmulatedDevice(HipDevice):
    """A chip by LLVM's name.  trace: the kernel whose first launch is written, line by line; "" for none."""

    weight_rows = 16  # as on the CPU that does the work

    def __init__(self, chip: str, trace: str = "", write: Callable[[str], None] = to_standard_error) -> None:
        problem = missing()
        if problem is not None:
            raise UserError(problem)
        self._tracer = Tracer(trace, write) if trace else None
        with scratch.used() as own, tempfile.TemporaryDirectory(dir=own) as folder:
            try:
                self._stand_in = StandIn(chip, Path(folder), self._tracer)
            except NotModelled as error:
                raise UserError(f"--target emulated:{chip}: {error}") from error
        super().__init__(driver=_Explaining(self._stand_in))

    def load(
        self,
        code: bytes,
        kernels: Mapping[str, Mapping[str, Any]],
        suffix: str = "",
        objects: Sequence[bytes] = (),
    ) -> None:
        if self._tracer is not None and self._tracer.kernel not in kernels:
            raise UserError(
                f"there is no kernel {self._tracer.kernel} to trace; there are {', '.join(sorted(kernels))}"
            )
        super().load(code, kernels, suffix, objects)

    def alloc_together(self, sizes: Sequence[int]) -> list[int]:
        """Buffers apart from each other, so that what leaves one is seen."""
        return [self.alloc(nbytes) for nbytes in sizes]

    def alloc_shared(self, nbytes: int) -> int:
        """Kernels reach what is allocated on the device, and nothing of the host's."""
        return self.alloc(nbytes)

    def _launch_kernel(self, launch: Launch, addresses: list[int], first: bool) -> None:
        self._stand_in.touches = [Argument(at, a) for at, a in zip(addresses, launch.arguments, strict=True)]
        super()._launch_kernel(launch, addresses, first)

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._stand_in.leave()


class _Explaining(Driver):
    """Says of a failed launch what its kernel did wrong."""

    def __init__(self, stand_in: StandIn) -> None:
        super().__init__(API)
        self._stand_in = stand_in

    def _check_process(self) -> None:
        """What is emulated is memory like any other, which a fork has too."""

    def error(self, status: Any) -> str:
        fault = self._stand_in.fault
        return super().error(status) + (f", {fault}" if fault is not None else "")
