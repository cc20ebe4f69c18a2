"""Random weights of models of real sizes, made as fast as memory is filled: blocks are drawn, and not rounded to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.runtime.checkpoints.base import TensorInfo
from lispgpt.runtime.checkpoints.floats_of_8_bits import nearest_e4m3

STEPS = 1 << 16
DRAWN = {"q8_0": 127 / 4.5, "int8": 127 / 4.5, "q4_0": 3.0, "q4_k": 257.0, "q5_k": 527.0, "q6_k": 1366.0}
DRAWN |= {"k_mix": 1366.0, "iq4_xs": 1270.0, "fp8": 100.0}
"""How large the numbers of a block are as a rule, in steps of its `d`."""


@dataclass
class DrawnWeights:
    """What a session asks of a checkpoint.  items: arrays as their types have them.  dtypes: of each, by name."""

    items: Mapping[str, np.ndarray]
    dtypes: Mapping[str, str]
    config: dict[str, Any] = field(default_factory=dict)
    format: str = "drawn"
    notice: str = ""
    path: Path = Path("drawn weights")

    def names(self) -> list[str]:
        return list(self.items)

    def info(self, name: str) -> TensorInfo:
        items, kind = self.items[name], find_dtype(self.dtypes[name])
        return TensorInfo((*items.shape[:-1], items.shape[-1] * kind.block), kind.name)

    def view(self, name: str) -> np.ndarray:
        return self.items[name]

    def check_finite(self, names: object = None) -> None:
        """All are."""


def of_16_bits(x: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """How far off a product may be whose left operand has 16 bits, and a scale for each 32 numbers."""
    steps = np.abs(x.reshape(len(x), -1, 32)).max(-1).repeat(32, -1) / 65024
    return steps @ np.abs(numbers).T + 1e-6 * np.abs(x) @ np.abs(numbers).T


def drawn_weights(declared: Mapping[str, Mapping[str, Any]], scale: float, seed: int) -> DrawnWeights:
    """Normal ones of that size; vectors, which multiply norms, are around 1.  declared: an artifact's weights."""
    rng = np.random.default_rng(seed)
    items = {name: _drawn(facts["shape"], facts["dtype"], scale, rng) for name, facts in declared.items()}
    return DrawnWeights(items, {name: facts["dtype"] for name, facts in declared.items()})


def _drawn(shape: list[int], dtype: str, scale: float, rng: np.random.Generator) -> np.ndarray:
    kind = find_dtype(dtype)
    if dtype == "f32":
        vector = len(shape) == 1 or shape[-2] < 8  # of each layer
        return rng.normal(vector, 0.5 if vector else scale, shape).astype(np.float32)
    if dtype == "bf16":
        table = np.sort(rng.normal(0, scale, STEPS)).astype(np.float32).view(np.uint32) >> 16
        return table.astype(np.uint16)[rng.integers(0, STEPS, shape, np.uint16)]
    blocks = np.frombuffer(rng.bytes(kind.nbytes(int(np.prod(shape)))), kind.numpy).reshape(kind.items(tuple(shape)))
    blocks = blocks.copy()
    if dtype == "mxfp4":
        blocks["e"] = rng.integers(0, 2, blocks.shape) + round(float(np.log2(scale))) + 125
        return blocks
    blocks["d"] = step = rng.uniform(0.7, 1.3, blocks.shape) * scale / DRAWN[dtype]
    if "dmin" in kind.numpy.names:  # type: ignore[operator]
        blocks["dmin"] = {"q4_k": 7.5, "q5_k": 15.5, "k_mix": 0.5}[dtype] * step
    if "qs" not in kind.numpy.names or dtype == "iq4_xs":  # type: ignore[operator]
        return blocks  # which scales of both signs give a mean of 0
    half = np.abs(rng.normal(0, DRAWN[dtype], 128))
    whole = np.rint(np.concatenate([half, -half]))  # with a mean of 0: else one token would be every text's best
    if blocks["qs"].dtype == np.int8:
        blocks["qs"] = np.clip(whole, -127, 127).astype(np.int8)[blocks["qs"].view(np.uint8)]
    if kind.floats:
        blocks["qs"] = nearest_e4m3(np.clip(np.concatenate([half, -half]), -448, 448).astype(np.float32))[blocks["qs"]]
    if dtype == "q4_0":
        fours = np.clip(whole, -7, 7).astype(np.int8) + 8
        pairs = fours | rng.permutation(fours) << 4
        blocks["qs"] = pairs.astype(np.uint8)[blocks["qs"]]
    return blocks
