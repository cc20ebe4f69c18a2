"""MPI, through mpi4py: for CPUs of any number of machines, and whatever else has its memory copied to the host's."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.collectives.host import HostEngine, Part, rounded, waiting_loop, widened
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.plan.steps import (
    ALL_GATHER,
    ALL_REDUCE_MAX,
    ALL_REDUCE_MIN,
    ALL_SLICE,
    BROADCAST,
    REDUCING,
    Collective,
)


def open_engine(device: Device, peers: Peers) -> HostEngine:
    return HostEngine(device, peers, MpiTransport(peers))


def load() -> Any:
    """mpi4py's module of MPI, whose import begins MPI; UserError where it or MPI's library is not there."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise UserError(
            f"MPI needs mpi4py and an MPI library (pip install 'lispgpt[mpi]', or the system's): {error}"
        ) from error
    return MPI


def abort() -> None:
    """End all processes that MPI has started, where this one has begun with it: its own end waits for those."""
    module = sys.modules.get("mpi4py.MPI")
    if module is not None:
        sys.stderr.flush()
        module.COMM_WORLD.Abort(1)


class MpiTransport:
    """The processes that MPI has started, of which there have to be as many as the run's."""

    def __init__(self, peers: Peers) -> None:
        self._mpi, self._peers = load(), peers
        world = self._mpi.COMM_WORLD
        if (world.Get_rank(), world.Get_size()) != (peers.place.rank, peers.place.size):
            start = f"; its own command starts processes: mpiexec -n {peers.place.size} lispgpt …"
            raise UserError(
                f"MPI says that this is rank {world.Get_rank()} of {world.Get_size()}, and the run has it as rank "
                f"{peers.place.rank} of {peers.place.size}{start if world.Get_size() == 1 else ''}"
            )
        if self._mpi.Query_thread() < self._mpi.THREAD_SERIALIZED:
            raise UserError("this MPI library lets its first thread alone call it: it was built without threads")
        self._world = world.Dup()
        vendor, version = self._mpi.get_vendor()
        self.name = f"{vendor} {'.'.join(map(str, version))}"

    def run(self, step: Collective, part: Part) -> None:
        source, target, dtype = part
        if step.operation == BROADCAST:
            self._wait(step, self._world.Ibcast(target.view("u1"), root=0))
        elif step.operation == ALL_GATHER:
            self._wait(step, self._world.Iallgather(source.view("u1"), target.view("u1")))
        elif step.operation == ALL_SLICE:
            target[:] = source.reshape(self._world.size, target.size)[self._world.rank]
        elif dtype == "bf16":
            wide = widened(source)
            made = wide if step.operation in REDUCING else np.empty(target.size, np.float32)
            self._combine(step, wide, made)
            target[:] = rounded(made)
        else:
            self._combine(step, source, target)

    def _combine(self, step: Collective, source: np.ndarray, target: np.ndarray) -> None:
        extremes = {ALL_REDUCE_MAX: self._mpi.MAX, ALL_REDUCE_MIN: self._mpi.MIN}
        if step.operation in REDUCING:
            how = extremes.get(step.operation, self._mpi.SUM)
            self._wait(step, self._world.Iallreduce(self._mpi.IN_PLACE, target, how))
        else:
            self._wait(step, self._world.Ireduce_scatter_block(source, target, self._mpi.SUM))

    def _wait(self, step: Collective, request: Any) -> None:
        waiting_loop(self._peers, request.Test, step.label, time.sleep, time.monotonic)

    def close(self) -> None:
        """MPI ends with the process."""
