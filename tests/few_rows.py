"""Products of few rows for tests: chips, norms, weights in blocks, and what is near enough to float64."""

from __future__ import annotations

import numpy as np

from lispgpt.base.dtypes import find_dtype

CHIPS = ("cuda:sm_90a", "cuda:sm_80", "rocm:gfx942", "rocm:gfx1151", "rocm:gfx1201")


def rms(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g


def in_blocks(rng: np.random.Generator, rows: int, columns: int, kind: str) -> np.ndarray:
    """Bytes of blocks with scales of either sign and any numbers, [rows blocks bytes]."""
    dtype = find_dtype(kind)
    blocks = rng.integers(0, 256, (rows, columns // dtype.block, dtype.item_bytes), dtype=np.uint8)
    if dtype.floats:
        blocks[(blocks & 0x7F) == 0x7F] = 0  # which are no numbers
    records = blocks.reshape(rows, -1).view(dtype.numpy)
    for name in {"d", "dmin"} & set(dtype.numpy.names or ()):
        records[name] = 0.01 * rng.standard_normal(records.shape)
    if kind == "mxfp4":
        records["e"] = rng.integers(115, 125, records.shape)
    return blocks


def agrees(found: np.ndarray, expected: np.ndarray, what: object) -> None:
    assert np.isfinite(found).all(), what
    assert np.linalg.norm(found.reshape(expected.shape) - expected) <= 3e-5 * np.linalg.norm(expected), what
