"""Numbers in blocks, as llama.cpp has them: rows of f32 to blocks and back.

The `gguf` package has most of it; it is imported as late as it is needed, since few checkpoints have blocks.
"""

from __future__ import annotations

import numpy as np

from lispgpt.base.dtypes import OWN_BLOCKS, find_dtype
from lispgpt.runtime.checkpoints.floats_of_8_bits import LARGEST, floats_of_8_bits, nearest_e4m3

SUB, SIXES, FIFTEEN = 32, 63, 15
"""Of Q4_K: numbers that share a scale and a minimum, the largest of those in six bits, and the largest number."""


def widened(blocks: np.ndarray, dtype: str) -> np.ndarray:
    """Rows of blocks as rows of f32."""
    from gguf import GGMLQuantizationType, quants

    rows = np.ascontiguousarray(blocks)
    if dtype in OWN_BLOCKS:
        floats = find_dtype(dtype).floats
        numbers = floats_of_8_bits(floats)[rows["qs"]] if floats else rows["qs"]
        return (numbers * rows["d"][..., None]).reshape(*rows.shape[:-1], -1)
    values: np.ndarray = quants.dequantize(rows.view(np.uint8), GGMLQuantizationType[dtype.upper()])
    return values.astype(np.float32, copy=False)


def in_blocks_of(values: np.ndarray, dtype: str) -> np.ndarray:
    """Rows of f32, of whole blocks, as rows of blocks."""
    from gguf import GGMLQuantizationType, quants

    flat = np.ascontiguousarray(values, np.float32).reshape(-1, values.shape[-1])
    if dtype in _OWN:
        made = _OWN[dtype](flat)
    else:
        made = quants.quantize(flat, GGMLQuantizationType[dtype.upper()]).view(find_dtype(dtype).numpy)
    return made.reshape(*values.shape[:-1], -1)


def _q4_k(values: np.ndarray) -> np.ndarray:
    """Each 32 numbers from their least (or 0, if that is less) to their largest in 16 steps; of a block's eight steps,
    and of its minima, the largest is 63."""
    kind = find_dtype("q4_k")
    parts = values.reshape(-1, kind.block // SUB, SUB)
    least = np.minimum(parts.min(-1), 0)
    step = (parts.max(-1) - least) / FIFTEEN
    blocks = np.zeros(len(parts), kind.numpy)
    blocks["d"], blocks["dmin"] = step.max(-1) / SIXES, -least.min(-1) / SIXES
    scale, lowest = blocks["d"].astype(np.float32)[:, None], blocks["dmin"].astype(np.float32)[:, None]
    sc = _nearest(step, scale, SIXES)
    mn = _nearest(-least, lowest, SIXES)
    fours = _nearest(parts + (mn * lowest)[..., None], (sc * scale)[..., None], FIFTEEN)
    pairs = fours.reshape(-1, 4, 2, SUB)
    blocks["qs"] = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, kind.block // 2)
    packed = blocks["scales"]
    packed[:, :4] = sc[:, :4] | (sc[:, 4:] >> 4) << 6
    packed[:, 4:8] = mn[:, :4] | (mn[:, 4:] >> 4) << 6
    packed[:, 8:] = (sc[:, 4:] & FIFTEEN) | (mn[:, 4:] & FIFTEEN) << 4
    return blocks.reshape(len(values), -1)


def _int8(values: np.ndarray) -> np.ndarray:
    """128 numbers in steps of a 127th of the largest."""
    blocks, found = _scaled(values, "int8", 127)
    blocks["qs"] = np.rint(found)
    return blocks


def _fp8(values: np.ndarray) -> np.ndarray:
    """128 numbers of E4M3, of which the largest is that format's."""
    blocks, found = _scaled(values, "fp8", LARGEST)
    blocks["qs"] = nearest_e4m3(np.clip(found, -LARGEST, LARGEST))
    return blocks


def _scaled(values: np.ndarray, dtype: str, most: float) -> tuple[np.ndarray, np.ndarray]:
    """(blocks that have a scale with which the largest number is `most`, the numbers by that scale)."""
    kind = find_dtype(dtype)
    parts = values.reshape(len(values), -1, kind.block)
    blocks = np.zeros(parts.shape[:2], kind.numpy)
    blocks["d"] = step = np.abs(parts).max(-1) / np.float32(most)
    return blocks, np.divide(parts, step[..., None], out=np.zeros_like(parts), where=step[..., None] > 0)


def _nearest(values: np.ndarray, step: np.ndarray, most: int) -> np.ndarray:
    """The whole numbers of steps, from 0 to the most, that are nearest to values; 0 where a step is nothing."""
    found = np.divide(values, step, out=np.zeros_like(values), where=step > 0)
    return np.clip(np.rint(found), 0, most).astype(np.uint8)


_OWN = {"q4_k": _q4_k, "int8": _int8, "fp8": _fp8}
"""What the package does not make, or does not know."""
