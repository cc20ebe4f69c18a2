"""Random products as machine code: PTX on numpy, and code for AMD's GPUs on their emulator, against float64."""

from __future__ import annotations

import numpy as np
from emulated_amd.running import Emulation
from emulated_cuda.entries import run
from random_products import RandomProduct

from lispgpt.runtime.plan.artifact import Artifact


def on_emulated_cuda(artifact: Artifact, values: dict[str, np.ndarray]) -> np.ndarray:
    (entry,) = artifact.plan.entries
    dtypes = {buffer.name: buffer.dtype for buffer in artifact.plan.buffers}
    bits = {n: (v.view(np.uint32) >> 16).astype(np.uint16) if dtypes[n] == "bf16" else v for n, v in values.items()}
    return run(artifact, entry, bits)


def on_emulated_amd(product: RandomProduct, values: dict[str, np.ndarray], artifact: Artifact) -> np.ndarray:
    dtypes = dict(zip(("x", "w"), product.dtypes, strict=True))
    bits = {n: (v.view(np.uint32) >> 16).astype(np.uint16) if dtypes.get(n) == "bf16" else v for n, v in values.items()}
    (entry,) = artifact.plan.entries
    emulation = Emulation(artifact, bits)
    return emulation.run(entry).reshape([product.sizes[i] for i in product.result])


def check(found: np.ndarray, product: RandomProduct, values: dict[str, np.ndarray], error: float, what: str) -> None:
    expected = product.expected(values)
    assert found.shape == expected.shape, what
    size = max(product.size(values), 1e-3)
    assert np.linalg.norm(found - expected) <= error * size, f"{what}: {product}"
