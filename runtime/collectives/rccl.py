"""AMD GPUs: ROCm's RCCL, which has NCCL's functions."""

from __future__ import annotations

from lispgpt.base.errors import UserError
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.collectives.streams import Library, StreamEngine
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.devices.rocm import HipDevice

LIBRARY = Library("RCCL", ["librccl.so.1", "/opt/rocm/lib/librccl.so", "librccl.so"], "install ROCm's rccl")


def open_engine(device: Device, peers: Peers) -> StreamEngine:
    if not isinstance(device, HipDevice):
        raise UserError(f"RCCL is for AMD's GPUs, and not for {device.name}")
    return StreamEngine(device, peers, LIBRARY)
