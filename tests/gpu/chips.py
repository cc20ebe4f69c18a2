"""The GPU that tests run on: the one whose driver is here, or an emulated one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from emulated_cuda.device import EmulatedCuda

from lispgpt.base.errors import UserError
from lispgpt.compiler.present import running_target
from lispgpt.runtime.devices import device_kinds, device_module, open_device

T = TypeVar("T")


@dataclass(frozen=True)
class Chip:
    """target: what code is made for, such as "cuda:sm_90a".  device: what `lispgpt.load` calls it.  emulated: so that
    everything takes a million times as long."""

    target: str
    device: str
    emulated: bool = False

    @property
    def kind(self) -> str:
        return self.target.partition(":")[0]

    def sized(self, real: T, emulated: T) -> T:
        """What a test takes here: as much as a real chip does in no time, or as little as shows that it works."""
        return emulated if self.emulated else real

    def open(self) -> Any:
        """The device, once more."""
        return open_device(self.device)

    def says(self) -> str:
        """The product's name and the target."""
        device = self.open()
        device.close()
        return f"{device.name}, {self.target}"


def find_chip(wanted: str) -> Chip:
    """The chip of a target, of a GPU's kind, or of the first driver that has one ("auto"); UserError says what is
    missing."""
    kind, _, chip = wanted.partition(":")
    if kind == "emulated":  # NVIDIA's are emulated by the tests alone: see `emulated_cuda_opener`
        nvidia = chip.startswith("sm_")
        return Chip(f"{'cuda' if nvidia else 'rocm'}:{chip}", f"cuda:{chip}" if nvidia else wanted, True)
    kinds = [k for k in device_kinds() if hasattr(device_module(k), "API")] if wanted == "auto" else [kind]
    missing = []
    for each in kinds:
        try:
            found = running_target(each)
        except UserError as error:
            missing.append(error.message.removeprefix(f"--target {each}: "))
        else:
            return Chip(wanted if chip else found, wanted if chip else found)
    raise UserError("; ".join(missing))


def emulated_cuda_opener(threads: int | None = None, index: int = 0) -> EmulatedCuda:
    """In place of the one that asks NVIDIA's driver."""
    return EmulatedCuda()
