"""A session on a device of this process, or on one of several whose processes work together."""

from __future__ import annotations

from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.collectives import open_engine
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.devices import open_device
from lispgpt.runtime.devices.cpu import host_cores
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session


def open_session(
    artifact: Artifact,
    checkpoint: Checkpoint,
    target: str,
    threads: int | None = None,
    check: bool = False,
    trace: str = "",
    peers: Peers | None = None,
    engine: str | None = None,
) -> Session:
    """target, threads, check, trace: see `open_device`.  peers: the processes beside this one, with the devices of
    which it shares entries by an engine, the usual one where none is named."""
    if peers is None:
        return Session(artifact, open_device(target, threads, check, trace), checkpoint)
    threads = threads or max(1, host_cores() // peers.place.neighbours)
    device = open_device(target, threads, check, trace, peers.place.local)
    try:
        working = open_engine(target, device, peers, engine)
    except BaseException:
        device.close()
        raise
    return Session(artifact, device, checkpoint, working)
