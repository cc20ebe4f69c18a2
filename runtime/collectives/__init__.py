"""What devices do together, by the engine that does it: `nccl.py` in this folder is what CUDA devices use.

A file is an engine's where it has `open_engine`; `base` says what that gives.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.host import keep_near
from lispgpt.runtime.collectives.base import Engine
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.devices import open_device
from lispgpt.runtime.devices.base import Device

__all__ = ["Engine", "engine_names", "open_engine", "open_shared"]

USUAL = {"cuda": "nccl", "rocm": "rccl"}
"""The engines of GPUs; what memory of hosts holds is added up by them."""


def open_shared(
    target: str, threads: int | None, checked: bool, trace: str, peers: Peers, engine: str | None
) -> tuple[Device, Engine]:
    """This process's device, of several that share entries, and the engine by which they work together.

    threads: of a CPU; by default its part of the machine's.  checked, trace: see `open_device`.  Processes that share
    a machine's CPU keep to its NUMA nodes in turn, a device each.
    """
    place = peers.place
    near = keep_near(place.local, place.neighbours) if target.partition(":")[0] == "cpu" else None
    device = open_device(target, threads or near, checked, trace, place.local)
    try:
        return device, open_engine(target, device, peers, engine)
    except BaseException:
        device.close()
        raise


def engine_names() -> list[str]:
    """The engines that there are."""
    names = [info.name for info in pkgutil.iter_modules(__path__)]
    return [name for name in names if hasattr(importlib.import_module(f"{__name__}.{name}"), "open_engine")]


def open_engine(target: str, device: Device, peers: Peers, name: str | None = None) -> Engine:
    """The engine by which a device works with its peers'.

    name: of the engine; by default what is made for the target, and for CPUs `mpi` where MPI has started the processes.
    UserError where it cannot be used here.
    """
    name = name or USUAL.get(target.partition(":")[0]) or ("mpi" if peers.place.by_mpi else "local")
    if name not in engine_names():
        raise UserError(f"there is no engine {name!r} for collectives; there are {', '.join(engine_names())}")
    module: Any = importlib.import_module(f"{__name__}.{name}")
    engine: Engine = module.open_engine(device, peers)
    return engine
