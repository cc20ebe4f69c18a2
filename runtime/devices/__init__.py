"""Devices by the target of an artifact: `cuda.py` in this folder is what runs targets that begin with "cuda".

A file is a device's where it has `open_device`; `base` says what else such a file has.
"""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import suppress
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.host import memory
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.devices.driver import Driver

__all__ = [
    "Device",
    "best_target",
    "device_kinds",
    "device_module",
    "installed_chip",
    "missing",
    "open_device",
    "room",
    "wake_driver",
]

EMULATED = "emulated"
"""In the place of a kind: what runs code for AMD's chips without any.  It takes longer to import than all others."""


def open_device(
    target: str, threads: int | None = None, checked: bool = False, trace: str = "", index: int = 0
) -> Device:
    """The device that runs an artifact's target; UserError says in one line what is missing.

    checked: hold every launch to what its arguments say, which CPUs alone can (see `checked`).  trace: a kernel whose
    instructions are printed to standard error, which emulated GPUs alone can (see `emulated`).  index: which of several
    GPUs.
    """
    kind, _, chip = target.partition(":")
    if checked:
        from lispgpt.runtime.devices.checked import CheckedCpuDevice

        if kind != "cpu":
            raise UserError(f"launches are checked on a CPU only, and this is for {target}")
        return CheckedCpuDevice(threads)
    if kind == EMULATED:
        from lispgpt.runtime.devices.emulated import EmulatedDevice

        return EmulatedDevice(chip, trace)
    if trace:
        raise UserError(
            f"kernels are traced on emulated GPUs only (--target emulated:gfx1151), and this is for {target}"
        )
    device: Device = device_module(kind).open_device(threads, index)
    return device


def missing(target: str) -> str | None:
    """Why nothing can run here that is made for a target, an emulated one too, and what would help; None if it can."""
    kind = target.partition(":")[0]
    module = importlib.import_module(f"{__name__}.{EMULATED}") if kind == EMULATED else device_module(kind)
    return module.missing()  # type: ignore[no-any-return]


def room(target: str) -> int | None:
    """Bytes of memory that what runs a target has in all, where that is known before it is opened."""
    return memory() if target.partition(":")[0] == "cpu" else None


def device_kinds() -> list[str]:
    """The targets' kinds that there are devices for, the preferred first."""
    names = [info.name for info in pkgutil.iter_modules(__path__) if info.name != EMULATED]
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    kinds = [name for name, module in modules.items() if hasattr(module, "open_device")]
    return sorted(kinds, key=lambda kind: -modules[kind].RANK)


def device_module(kind: str) -> Any:
    """The module of a kind of devices; UserError where there is none."""
    if kind not in device_kinds():
        raise UserError(f"no target {kind!r} (there are {', '.join(device_kinds())})")
    return importlib.import_module(f"{__name__}.{kind}")


def installed_chip(kind: str) -> str:
    """The target, such as "rocm:gfx1151", of the device of a kind that is here; UserError says what is missing."""
    module = device_module(kind)
    missing = module.missing()
    if missing is not None:
        raise UserError(f"--target {kind}: {missing}")
    found: str = module.installed_target()
    return found


def wake_driver(target: str) -> None:
    """Start the driver that a target's device needs, if any, which may take a while; what fails will fail again."""
    kind = target.partition(":")[0]
    if kind in device_kinds() and hasattr(module := device_module(kind), "start"):
        with suppress(UserError):
            Driver(module.API)("Init")


def best_target() -> str:
    """The target of the best device present: an AMD or NVIDIA GPU, else the CPU."""
    found = (device_module(kind).installed_target() for kind in device_kinds())
    return next(target for target in found if target is not None)
