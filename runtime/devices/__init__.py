"""Devices by the target of an artifact."""

from __future__ import annotations

from lispgpt.errors import UserError
from lispgpt.runtime.devices.base import Device

__all__ = ["Device", "best_target", "installed_chip", "open_device"]


def open_device(target: str, threads: int | None = None, checked: bool = False) -> Device:
    """The device that runs an artifact's target; UserError says in one line what is missing.

    checked: hold every launch to what its arguments say, which CPUs alone can (see `checked`).
    """
    kind = target.partition(":")[0]
    if checked:
        from lispgpt.runtime.devices.checked import CheckedCpuDevice

        if kind != "cpu":
            raise UserError(f"launches are checked on a CPU only, and this is for {target}")
        return CheckedCpuDevice(threads)
    if kind == "cpu":
        from lispgpt.runtime.devices.cpu import CpuDevice

        return CpuDevice(threads)
    if kind == "null":
        from lispgpt.runtime.devices.null import NullDevice

        return NullDevice()
    if kind == "rocm":
        from lispgpt.runtime.devices.hip import HipDevice

        return HipDevice()
    if kind == "cuda":
        from lispgpt.runtime.devices.cuda import CudaDevice

        return CudaDevice()
    raise UserError(f"no device runs target {target!r}")


def installed_chip(kind: str) -> str:
    """The target, such as "rocm:gfx1151", of the GPU of that kind here; UserError says in one line what is missing."""
    from lispgpt.runtime.devices import cuda, hip

    device = {"rocm": hip, "cuda": cuda}[kind]
    missing = device.probe()
    if missing is not None:
        raise UserError(f"target {kind} cannot run here: {missing}")
    found = device.installed_target()
    assert found is not None
    return found


def best_target() -> str:
    """The target of the best device present: an AMD or NVIDIA GPU, else the CPU."""
    from lispgpt.runtime.devices import cuda, hip

    return hip.installed_target() or cuda.installed_target() or "cpu"
