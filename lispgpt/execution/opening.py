"""The device that an artifact is to run on."""

from __future__ import annotations

from lispgpt.base.errors import UserError
from lispgpt.compiler.present import compiled_target
from lispgpt.runtime.collectives import open_shared
from lispgpt.runtime.collectives.base import Engine
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.devices import Device, open_device
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.room import check_room


def device_for(
    artifact: Artifact, asked: str, given: tuple[int | None, bool, str], peers: Peers | None, engine: str | None
) -> tuple[Device, Engine | None]:
    """The device, and, beside other processes (peers), by what they work together; UserError where the artifact is for
    another or does not fit there.

    asked: the target that a user asked for, which may be an emulated one of the artifact's chip.  given: threads of a
    CPU, whether launches are checked, and the kernel that is traced (see `open_device`).  engine: see `open_shared`.
    """
    target = asked if asked.startswith("emulated:") else artifact.target
    if compiled_target(target) != artifact.target:
        raise UserError(f"the artifact was compiled for {artifact.target}, which is not what {target} runs")
    device, found = (open_device(target, *given), None) if peers is None else open_shared(target, *given, peers, engine)
    check_room(artifact.plan, device.room)
    return device, found
