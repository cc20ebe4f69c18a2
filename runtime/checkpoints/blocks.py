"""Numbers in blocks, as llama.cpp has them: rows of f32 to blocks and back.

The `gguf` package has most of it; it is imported as late as it is needed, since few checkpoints have blocks.
"""

from __future__ import annotations

import numpy as np

from lispgpt.base.dtypes import MIXED, OWN_BLOCKS, find_dtype
from lispgpt.runtime.checkpoints.floats_of_8_bits import LARGEST, floats_of_8_bits, nearest_e4m3

SUB, SIXES = 32, 63
"""Of Q4_K, Q5_K and IQ4_XS: numbers that share a scale, and the largest of those in six bits."""


def widened(blocks: np.ndarray, dtype: str) -> np.ndarray:
    """Rows of blocks as rows of f32."""
    from gguf import GGMLQuantizationType, quants

    rows = np.ascontiguousarray(blocks)
    if dtype in MIXED:
        sixes = np.empty(rows.shape, find_dtype("q6_k").numpy)
        for field in ("d", "scales", "ql", "qh"):
            sixes[field] = rows[field]
        least = rows["minima"] * rows["dmin"].astype(np.float32)[..., None]
        return widened(sixes, "q6_k") - least.repeat(SUB, -1).reshape(*rows.shape[:-1], -1)
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


def mixed(blocks: np.ndarray, dtype: str) -> np.ndarray:
    """Rows of blocks of one of MIXED's types as those of "k_mix", which stand for the same numbers."""
    made = np.zeros(blocks.shape, find_dtype("k_mix").numpy)
    if dtype == "q6_k":
        for field in ("d", "scales", "ql", "qh"):
            made[field] = blocks[field]
        return made
    made["d"], made["dmin"] = blocks["d"], blocks["dmin"]
    first, second, last = (blocks["scales"][..., i : i + 4] for i in (0, 4, 8))
    scales = np.concatenate([first & SIXES, last & 15 | first >> 6 << 4], -1)
    made["scales"] = scales.repeat(2, -1)
    made["minima"] = np.concatenate([second & SIXES, last >> 4 | second >> 6 << 4], -1)
    bytes_ = blocks["qs"].reshape(*blocks.shape, 4, 1, SUB)
    numbers = np.concatenate([bytes_ & 15, bytes_ >> 4], -2).reshape(*blocks.shape, 8, SUB)
    if dtype == "q5_k":
        numbers |= (blocks["qh"][..., None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1) << 4
    _put_sixes(made, numbers + 32)
    return made


def _put_sixes(blocks: np.ndarray, sixes: np.ndarray) -> None:
    """Write numbers of six bits, 256 of each block."""
    of_half = sixes.reshape(*blocks.shape, 2, 2, 2, SUB)  # [… half upper odd 32]
    low, places = of_half & 15, np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)
    blocks["ql"] = (low[..., 0, :, :] | low[..., 1, :, :] << 4).reshape(*blocks.shape, -1)
    twos = of_half.reshape(*blocks.shape, 2, 4, SUB) >> 4 << places
    blocks["qh"] = np.bitwise_or.reduce(twos, axis=-2).reshape(*blocks.shape, -1)


def _k_mix(values: np.ndarray) -> np.ndarray:
    return mixed(_q6_k(values), "q6_k")


def _q4_k(values: np.ndarray) -> np.ndarray:
    blocks, numbers = _from_least(values, "q4_k", 15)
    _put_fours(blocks, numbers)
    return blocks.reshape(len(values), -1)


def _q5_k(values: np.ndarray) -> np.ndarray:
    blocks, numbers = _from_least(values, "q5_k", 31)
    _put_fours(blocks, numbers & 15)
    places = np.arange(8, dtype=np.uint8)[:, None]
    blocks["qh"] = np.bitwise_or.reduce(numbers >> 4 << places, axis=1)
    return blocks.reshape(len(values), -1)


def _put_fours(blocks: np.ndarray, fours: np.ndarray) -> None:
    """Write numbers of four bits, [blocks 8 SUB]."""
    pairs = fours.reshape(-1, 4, 2, SUB)
    blocks["qs"] = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(len(blocks), -1)


def _from_least(values: np.ndarray, dtype: str, most: int) -> tuple[np.ndarray, np.ndarray]:
    """(blocks without their numbers, these): each 32 from their least (or 0, if that is less) to their largest, which
    is `most` steps away; of a block's eight steps, and of its minima, the largest is 63."""
    kind = find_dtype(dtype)
    parts = values.reshape(-1, kind.block // SUB, SUB)
    least = np.minimum(parts.min(-1), 0)
    step = (parts.max(-1) - least) / most
    blocks = np.zeros(len(parts), kind.numpy)
    blocks["d"], blocks["dmin"] = step.max(-1) / SIXES, -least.min(-1) / SIXES
    scale, lowest = blocks["d"].astype(np.float32)[:, None], blocks["dmin"].astype(np.float32)[:, None]
    sc = _nearest(step, scale, SIXES)
    mn = _nearest(-least, lowest, SIXES)
    numbers = _nearest(parts + (mn * lowest)[..., None], (sc * scale)[..., None], most)
    packed = blocks["scales"]
    packed[:, :4] = sc[:, :4] | (sc[:, 4:] >> 4) << 6
    packed[:, 4:8] = mn[:, :4] | (mn[:, 4:] >> 4) << 6
    packed[:, 8:] = (sc[:, 4:] & 15) | (mn[:, 4:] & 15) << 4
    return blocks, numbers


def _q6_k(values: np.ndarray) -> np.ndarray:
    """Each 16 numbers in steps of a 32nd of the farthest, which is -32; of a block's steps the largest is 127."""
    kind = find_dtype("q6_k")
    parts = values.reshape(-1, kind.block // 16, 16)
    step = -_farthest(parts) / 32
    blocks = np.zeros(len(parts), kind.numpy)
    blocks["d"] = np.abs(step).max(-1) / 127
    scale = blocks["d"].astype(np.float32)[:, None]
    blocks["scales"] = np.clip(np.rint(_divided(step, scale)), -128, 127)
    steps = blocks["scales"] * scale
    numbers = np.clip(np.rint(_divided(parts, steps[..., None])), -32, 31).astype(np.int8) + 32
    _put_sixes(blocks, numbers.astype(np.uint8))
    return blocks.reshape(len(values), -1)


def _iq4_xs(values: np.ndarray) -> np.ndarray:
    """Each 32 numbers by the table's places nearest to them, the farthest of which is its first number; of a block's
    scales the largest is -32 or 31."""
    from gguf import quants

    kind, table = find_dtype("iq4_xs"), np.array(quants.IQ4_NL.kvalues, np.float32)
    parts = values.reshape(-1, kind.block // SUB, SUB)
    step = _farthest(parts) / table[0]
    blocks = np.zeros(len(parts), kind.numpy)
    blocks["d"] = -_farthest(step) / 32
    scale = blocks["d"].astype(np.float32)[:, None]
    six = np.clip(np.rint(_divided(step, scale)), -32, 31)
    between = (table[1:] + table[:-1]) / 2
    places = np.searchsorted(between, _divided(parts, (six * scale)[..., None])).astype(np.uint8)
    pairs, sixes = places.reshape(-1, 8, 2, 16), (six + 32).astype(np.uint16)
    blocks["qs"] = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(len(blocks), -1)
    blocks["scales_l"] = (sixes & 15)[:, ::2] | (sixes & 15)[:, 1::2] << 4
    blocks["scales_h"] = np.bitwise_or.reduce(sixes >> 4 << np.arange(0, 16, 2, dtype=np.uint16), axis=1)
    return blocks.reshape(len(values), -1)


def _mxfp4(values: np.ndarray) -> np.ndarray:
    """Each 32 numbers by the floats of 4 bits nearest to them, the largest of which is at least 4."""
    kind = find_dtype("mxfp4")
    parts = values.reshape(-1, kind.block)
    largest = np.abs(parts).max(-1)
    blocks = np.zeros(len(parts), kind.numpy)
    blocks["e"] = np.clip(np.frexp(largest)[1] + 124, 0, 254) * (largest > 0)
    sizes = np.ldexp(np.abs(parts), 127 - blocks["e"].astype(np.int32)[:, None])
    places = np.searchsorted([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], sizes).astype(np.uint8)
    places |= ((parts < 0) & (places > 0)).astype(np.uint8) << 3
    blocks["qs"] = places[:, :16] | places[:, 16:] << 4
    return blocks.reshape(len(values), -1)


def _farthest(parts: np.ndarray) -> np.ndarray:
    """Of the last dimension the number that is farthest from 0."""
    least, most = parts.min(-1), parts.max(-1)
    return np.where(-least > most, least, most)


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
    return blocks, _divided(parts, step[..., None])


def _nearest(values: np.ndarray, step: np.ndarray, most: int) -> np.ndarray:
    """The whole numbers of steps, from 0 to the most, that are nearest to values; 0 where a step is nothing."""
    return np.clip(np.rint(_divided(values, step)), 0, most).astype(np.uint8)


def _divided(values: np.ndarray, step: np.ndarray) -> np.ndarray:
    """0 where a step is nothing."""
    return np.divide(values, step, out=np.zeros_like(values), where=step != 0)


_OWN = {
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "iq4_xs": _iq4_xs,
    "mxfp4": _mxfp4,
    "k_mix": _k_mix,
    "int8": _int8,
    "fp8": _fp8,
}
"""What the package does not make, or does not know."""
