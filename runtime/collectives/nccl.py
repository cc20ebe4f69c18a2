"""NVIDIA GPUs: NCCL, of the system or of PyPI's `nvidia-nccl` packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.collectives.streams import Library, StreamEngine
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.devices.cuda import CudaDevice

NAME = "libnccl.so.2"


def open_engine(device: Device, peers: Peers) -> StreamEngine:
    if not isinstance(device, CudaDevice):
        raise UserError(f"NCCL is for NVIDIA's GPUs, and not for {device.name}")
    return StreamEngine(device, peers, Library("NCCL", [*_of_packages(), NAME], "pip install 'lispgpt[nccl]'"))


def _of_packages() -> list[str]:
    """Where the package has put it."""
    try:
        spec = find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return []
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    return [str(Path(folder) / "lib" / NAME) for folder in folders]
