"""What the interpreter knows of PTX instructions ahead of their execution."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from emulated_cuda.operations import of_registers
from emulated_cuda.ptx import Kernel

TOGETHER = {"wgmma": 128}
TOGETHER |= dict.fromkeys(("setmaxnreg", "shfl", "vote", "redux", "bar.", "ldmatrix", "stmatrix", "mma"), 32)
"""How many threads execute such an instruction together."""


@lru_cache(4096)
def parts(op: str) -> tuple[str, list[str]]:
    """An instruction's name and what follows it."""
    name, *suffixes = op.split(".")
    return name, suffixes


@lru_cache(4096)
def together(op: str) -> int:
    return next((n for name, n in TOGETHER.items() if op.startswith(name)), 1)


@lru_cache(4096)
def goes_on(op: str) -> int:
    """Whether threads that have executed an instruction go on, and others do not for it: 1 where it touches their own
    registers only, 2 where it does not, and 0 for all else."""
    name, suffixes = parts(op)
    if of_registers(name):
        return 1
    own = name in ("ld", "st") and not {"relaxed", "acquire", "release", "async"} & set(suffixes)
    return 2 if own or name in ("shfl", "vote", "redux", "ldmatrix", "stmatrix", "mma") else 0


def polls(kernel: Kernel) -> np.ndarray:
    """For each place in a kernel, where the straight piece of code starts whose first load of what others change it is;
    where it is none, a place behind all."""
    found, start, seen = np.full(len(kernel.body) + 1, len(kernel.body) + 1), 0, False
    labels = set(kernel.labels.values())
    for at, instruction in enumerate(kernel.body):
        if at in labels or (at and kernel.body[at - 1].op.startswith(("bra", "brx"))):
            start, seen = at, False
        if instruction.op.startswith("ld.relaxed") and not seen:
            found[at], seen = start, True
    return found
