"""How long kernels take by each of the schedules that they could have: measured on a device, or counted on an emulator.

For each schedule the program is compiled once, with that schedule for all kernels that it takes, and what it makes of
each is timed alone, over and over, on weights and inputs that are drawn here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.bench.prediction import GAP, Emulated, counted_seconds, rates_of
from lispgpt.execution.opening import device_for
from lispgpt.runtime.checkpoints.initial import InitialWeights
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.buffer import Buffer
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.profile import profile_entry
from lispgpt.runtime.session import Session

SPLIT_OFF = "_write"
"""How the names of kernels end that do a part of the one that they are named after."""


@dataclass(frozen=True)
class Candidates:
    """identity: what the kernel computes.  kernel: its name.  microseconds: by each schedule.  device: where."""

    identity: str
    kernel: str
    microseconds: Mapping[str, float]
    device: str


def measure(
    compiled: Callable[[Mapping[str, str]], Artifact], target: str, tell: Callable[[str], None]
) -> list[Candidates]:
    """Of each kernel that several schedules take.

    compiled: makes an artifact with these schedules by kernels' identities.  target: the user's word for where to run,
    which may be an emulated chip.  tell: is told of each schedule tried.  UserError where no kernel has several.
    """
    made = compiled({})
    kernels, schedules = choices(made)
    if not kernels:
        raise UserError(
            f"no kernel for {made.target} could be by several schedules, which products and "
            "attention have on GPUs (--target cuda, rocm, emulated:gfx1151, …)"
        )
    times: dict[str, dict[str, float]] = {identity: {} for identity in kernels}
    device = ""
    for schedule in dict.fromkeys(name for names in schedules.values() for name in names):
        wanted = {identity: schedule for identity, names in schedules.items() if schedule in names}
        tell(f"{schedule}: {len(wanted)} kernels")
        artifact = compiled(wanted)
        device, found = _times(artifact, target)
        for kernel, facts in artifact.kernels.items():
            identity = facts.get("identity", "")
            if (
                identity in wanted
                and kernel in found
                and facts.get("chosen") == facts.get("tiles", schedule) == schedule
            ):
                times[identity][schedule] = round(found[kernel] + found.get(kernel + SPLIT_OFF, 0.0), 3)
    return [Candidates(identity, kernels[identity], known, device) for identity, known in times.items() if known]


def choices(artifact: Artifact) -> tuple[dict[str, str], dict[str, list[str]]]:
    """By identity, a kernel that several schedules of the library take, and these."""
    names, schedules = {}, {}
    for kernel, facts in artifact.kernels.items():
        taking = [offer["schedule"] for offer in facts.get("offers", ()) if "us" in offer and "own" not in offer]
        if len(taking) > 1 and "identity" in facts:
            names[facts["identity"]], schedules[facts["identity"]] = kernel, taking
    return names, schedules


def _times(artifact: Artifact, target: str) -> tuple[str, dict[str, float]]:
    """(the device, microseconds of a launch of each kernel)."""
    if target.startswith("emulated:"):
        return target, dict(_counted(artifact))
    device, _ = device_for(artifact, target, (None, False, ""), None, None)
    found: dict[str, float] = {}
    with Session(artifact, device, InitialWeights.declared(artifact.config, artifact.weights, 0)) as session:
        for entry in artifact.plan.entries:
            inputs = inputs_of(entry, artifact.plan.buffers)
            rows = profile_entry(session, entry, [[0]], inputs, alone=True).rows
            found |= {row.kernel: row.microseconds for row in rows}
        return device.name, found


def _counted(artifact: Artifact) -> Iterator[tuple[str, float]]:
    """By what the emulator counts of a launch (see `prediction`), of kernels that were chosen for, and their parts."""
    known = rates_of(artifact)
    assert known is not None  # without them nothing is chosen
    for entry in artifact.plan.entries:
        emulated = Emulated(artifact, entry, inputs_of(entry, artifact.plan.buffers))
        for launch in {launch.kernel: launch for launch in entry.launches}.values():
            whole = artifact.kernels.get(launch.kernel.removesuffix(SPLIT_OFF), {})
            if "tuned" in whole:
                yield launch.kernel, 1e6 * (GAP + max(counted_seconds(emulated.count(launch), *known).values()))


def inputs_of(entry: Entry, buffers: Sequence[Buffer]) -> Mapping[str, Any]:
    """Zeros for each input, and positions from the first on."""
    declared = {buffer.name: buffer for buffer in buffers}
    found = {}
    for name, place in entry.inputs.items():
        shape, dtype = declared[place].shape, find_dtype(declared[place].dtype).numpy
        found[name] = np.zeros(shape, dtype)
        if name == "positions" and shape:
            found[name][...] = np.arange(shape[-1], dtype=dtype)
    return found
