"""Stored numbers: bfloat16 as raw 16-bit patterns, conversion between precisions, and the test for NaN and infinity.

Everything here works on C-contiguous or strided numpy arrays in chunks that stay in a core's cache, so converting a
whole model costs one pass over memory and no second copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lispgpt.base.dtypes import FLOATS_OF_8_BITS, INTEGERS, MIXED, find_dtype
from lispgpt.runtime.checkpoints.blocks import mixed, widened
from lispgpt.runtime.checkpoints.floats_of_8_bits import floats_of_8_bits

CHUNK = 1 << 17
"""Elements handled at a time: 512 KiB of f32."""


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """Exact f32 values of a uint16 array of bf16 patterns; same shape."""
    wide = bits.astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)


def f32_to_bf16(values: np.ndarray) -> np.ndarray:
    """The nearest bf16 patterns (ties to even) of an f32 array, as uint16; NaN stays NaN, large values become Inf."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    odd = bits >> np.uint32(16)
    odd &= np.uint32(1)
    odd += np.uint32(0x7FFF)
    odd += bits
    odd >>= np.uint32(16)
    rounded = odd.astype(np.uint16)
    # Adding the rounding bias to a NaN's payload may carry into its sign, so NaNs are made anew.
    if not is_finite(values, "f32"):
        rounded[np.isnan(values)] = 0x7FC0
    return rounded


def is_finite(array: np.ndarray, dtype: str) -> bool:
    """Whether an array in `dtype`'s storage holds no NaN and no infinity.

    Read as integers, the patterns of +Inf and the positive NaNs are the largest signed ones, and those of -Inf and the
    negative NaNs the largest unsigned ones: two maxima decide, without a temporary array.
    """
    if find_dtype(dtype).block > 1:
        record, floats = find_dtype(dtype).numpy, find_dtype(dtype).floats
        kinds = {np.dtype("<f2"): "f16", np.dtype("<f4"): "f32"}
        known = {n: floats if floats and n == "qs" else kinds.get(record[n]) for n in record.names or ()}
        return all(is_finite(array[name], kind) for name, kind in known.items() if kind)
    limit, size = find_dtype(dtype).smallest_nonfinite, find_dtype(dtype).item_bytes
    if limit is None:
        return True
    flat = np.ascontiguousarray(array).reshape(-1)
    for start in range(0, flat.size, CHUNK):
        chunk = flat[start : start + CHUNK]
        if chunk.view(f"<i{size}").max() >= limit or chunk.view(f"<u{size}").max() >= limit | 1 << (8 * size - 1):
            return False
    return True


def converted(block: np.ndarray, source: str, target: str) -> np.ndarray:
    """A small array in `source` storage as `target` storage; the array itself where they agree.

    target: "f32" or "bf16", or a type that f32 converts to when it is assigned; an integer where source is one.
    """
    if source == target or (source in INTEGERS and target in INTEGERS):
        return block
    if target == "f64" and source in ("f16", *INTEGERS):
        return block.astype(np.float64)
    if source in MIXED.get(target, ()):
        return mixed(block, source)
    if find_dtype(source).block > 1:
        block = widened(block, source)
    elif source == "bf16":
        block = bf16_to_f32(block)
    elif source in FLOATS_OF_8_BITS:
        block = floats_of_8_bits(source)[block]
    elif source != "f32":
        block = block.astype(np.float32)
    return f32_to_bf16(block) if target == "bf16" else block


def copy_converted(
    source: np.ndarray, source_dtype: str, destination: np.ndarray, dtype: str, added: float = 0.0
) -> None:
    """Fill a 2-D destination of `dtype` from a source of the same shape, which may be a transposed view or of blocks.

    added: what the source's values are larger by.
    """
    rows, columns = destination.shape
    # A block of rows of a transposed view is a block of columns in memory: at least a few cache lines of each.
    step = max(1, CHUNK // max(columns, 1))
    if step >= 64:
        step -= step % 64
    elif source.strides[0] < source.strides[1]:
        step = 64
    for start in range(0, rows, step):
        block = source[start : start + step]
        if added:
            values = converted(np.ascontiguousarray(block), source_dtype, "f32") - np.float32(added)
            destination[start : start + step] = converted(values, "f32", dtype)
        elif source_dtype == dtype:
            destination[start : start + step] = block
        else:
            destination[start : start + step] = converted(np.ascontiguousarray(block), source_dtype, dtype)


def in_parallel(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """The function's results in order, worked out by as many threads as the process may use cores (at most 8).

    numpy leaves Python's lock while it copies or reduces, so memory-bound work spreads.
    """
    work = list(items)
    threads = min(8, len(os.sched_getaffinity(0)), len(work))
    if threads < 2:
        return [function(item) for item in work]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, work))
