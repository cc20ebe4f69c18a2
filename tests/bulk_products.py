"""Products of many rows and columns for tests: layouts, what they are in float64, and their PTX run on numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from compiled_models import rounded_to_bf16
from emulated_cuda.entries import run_all

from lispgpt.runtime.plan.artifact import Artifact

SHAPES = {
    "x": "[300 328] bf16", "f": "[300 328]", "w": "[200 328] bf16", "v": "[328 200] bf16", "dy": "[300 200] bf16",
    "b": "[200]", "r": "[300 200]", "dz": "[1100 200] bf16", "z": "[1100 328] bf16",
    "q": "[40 3 600] bf16", "p": "[3 40 3 200] bf16",
}  # fmt: skip
"""Rows, columns and k fill neither the last tile nor the last step."""

PRODUCTS: dict[str, tuple[str, Callable[..., np.ndarray]]] = {
    "forward": ("(contract [n o] x [n i] w [o i])", lambda x, w: x @ w.T),
    "backward": ("(contract [n i] dy [n o] w [o i])", lambda dy, w: dy @ w),
    "of a weight": ("(contract [o i] dy [n o] x [n i])", lambda dy, x: dy.T @ x),
    "from registers": ("(contract [n o] f [n i] v [i o])", lambda f, v: f @ v),
    "of slices": (
        "(contract [n o] (slice x [32 0] [200 192]) [n i] (slice w [0 136] [96 192]) [o i])",
        lambda x, w: x[32:232, :192] @ w[:96, 136:].T,
    ),
    "of heads": (
        "(contract [h n m] (slice q [0 0 200] [40 3 200]) [n h d] (slice p [1 0 0 0] [1 40 3 200]) [o m h d])",
        lambda q, p: np.einsum("nhd,mhd->hnm", q[:, :, 200:400], p[1]),
    ),
}


def random_values(names: list[str], rng: np.random.Generator) -> dict[str, np.ndarray]:
    found = {}
    for name in names:
        shape, _, dtype = SHAPES[name].strip("[").partition("]")
        values = rng.standard_normal([int(n) for n in shape.split()], np.float32)
        found[name] = rounded_to_bf16(values) if dtype else values
    return found


def results(
    artifact: Artifact, values: dict[str, np.ndarray], seed: int, watched: bool = False
) -> dict[str, np.ndarray]:
    dtypes = {buffer.name: buffer.dtype for buffer in artifact.plan.buffers}
    bits = {n: (v.view(np.uint32) >> 16).astype(np.uint16) if dtypes[n] == "bf16" else v for n, v in values.items()}
    (entry,) = artifact.plan.entries
    return run_all(artifact, entry, bits, seed, watched)


def close(found: np.ndarray, wanted: np.ndarray, error: float) -> bool:
    return found.shape == wanted.shape and bool(np.linalg.norm(found - wanted) <= error * np.linalg.norm(wanted))
