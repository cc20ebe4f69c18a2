"""Targets by name: "cpu", "cpu:x86-64-v3", "rocm:gfx1151", "cuda:sm_90".

A file of this folder is a kind of targets, named as they are, where it has CHIPS and DEFAULT_CHIP; see `base`.
"""

from __future__ import annotations

import importlib
import pkgutil

from lispgpt.base.errors import UserError
from lispgpt.passes.targets.base import Gpu, Target
from lispgpt.passes.targets.cpu import Cpu

__all__ = ["CHIPS", "GPU_CHIPS", "Cpu", "Gpu", "Target", "find_target"]

_MODULES = {info.name: importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)}
CHIPS: dict[str, dict[str, Target]] = {k: dict(m.CHIPS) for k, m in _MODULES.items() if hasattr(m, "DEFAULT_CHIP")}
"""Kind → chip → target."""

GPU_CHIPS: dict[str, dict[str, Gpu]] = {
    kind: {chip: target for chip, target in chips.items() if isinstance(target, Gpu)}
    for kind, chips in CHIPS.items()
    if any(isinstance(target, Gpu) for target in chips.values())
}


def find_target(text: str) -> Target:
    """The target of that name; a kind alone means its usual chip (the host for "cpu").

    UserError lists what there is.
    """
    kind, _, chip = text.partition(":")
    if kind not in CHIPS:
        raise UserError(f"no target {text!r} (there are {', '.join(CHIPS)}; a chip follows a colon: rocm:gfx1151)")
    chips: dict[str, Target] = {**CHIPS[kind], **GPU_CHIPS.get(kind, {})}
    chip = chip or _MODULES[kind].DEFAULT_CHIP
    if chip not in chips:
        known = ", ".join(name for name in chips if name)
        portable = getattr(_MODULES[kind], "portable", lambda chip: None)(chip)
        advice = f"; {kind}:{portable} is PTX, which its driver makes code for {chip} of" if portable else ""
        own = "" if all(chips) else ", or none: this machine"
        raise UserError(f"target {kind} has no chip {chip!r} (it has {known}{own}){advice}")
    return chips[chip]
