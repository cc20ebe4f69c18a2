"""Targets by name: "cpu", "cpu:x86-64-v3", "rocm:gfx1151", "cuda:sm_90"."""

from __future__ import annotations

from lispgpt.errors import UserError
from lispgpt.passes.targets import cuda, rocm
from lispgpt.passes.targets.base import Gpu, Target
from lispgpt.passes.targets.cpu import Cpu, make_cpu

__all__ = ["DEFAULT_CHIPS", "GPU_CHIPS", "Cpu", "Gpu", "Target", "find_target"]

GPU_CHIPS: dict[str, dict[str, Gpu]] = {"rocm": dict(rocm.CHIPS), "cuda": dict(cuda.CHIPS)}
DEFAULT_CHIPS = {"rocm": "gfx1151", "cuda": "sm_90"}


def find_target(text: str) -> Target:
    """The target of that name; a kind alone means its usual chip (the host for "cpu").

    UserError lists what there is.
    """
    kind, _, chip = text.partition(":")
    if kind == "cpu":
        return make_cpu(chip)
    if kind not in GPU_CHIPS:
        raise UserError(
            f"no target {text!r} (there are cpu, {', '.join(GPU_CHIPS)}; a chip follows a colon: rocm:gfx1151)"
        )
    chips = GPU_CHIPS[kind]
    chip = chip or DEFAULT_CHIPS[kind]
    if chip not in chips:
        raise UserError(f"target {kind} has no chip {chip!r} (it has {', '.join(chips)})")
    return chips[chip]
