"""Memory of a kernel's arguments at real sizes, of which no more is taken than what is different."""

from __future__ import annotations

import ctypes
import mmap
import os
from math import prod

import numpy as np

PAGE = mmap.PAGESIZE
PERIOD = 509 * PAGE
"""Bytes after which large arguments repeat: a prime number of pages, so that rows a tile apart differ."""
LARGE = 4 * PERIOD
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i1": np.int8, "i8": np.int8, "i32": np.int32,
          "i16": np.int16, "i64": np.int64, "f8E4M3FN": np.uint8}  # fmt: skip
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
FIXED = 0x10


def repeated(period: np.ndarray, nbytes: int) -> np.ndarray:
    """Bytes that repeat those of `period` [PERIOD], which all of them share: not to be written."""
    file = os.memfd_create("period")
    try:
        os.write(file, period.tobytes())
        whole = mmap.mmap(-1, -(-nbytes // PERIOD) * PERIOD, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        array = np.frombuffer(whole, np.uint8)
        for start in range(0, array.size, PERIOD):
            where = array.ctypes.data + start
            found = _libc.mmap(where, PERIOD, mmap.PROT_READ, mmap.MAP_SHARED | FIXED, file, 0)
            assert found == where, os.strerror(ctypes.get_errno())
    finally:
        os.close(file)
    return array[:nbytes]


def elements(random: np.random.Generator, count: int, dtype: str) -> np.ndarray:
    """Random elements, as their bits: small whole numbers, which are places in every model, or normal ones; of bytes
    those that make no large numbers, NaN or infinity where some are the upper half of a block's F16."""
    if dtype == "i8":
        return (random.integers(0, 256, count) & ~0x40).astype(np.uint8).view(np.int8)
    if dtype == "i32":
        return random.integers(0, 10, count).astype(np.int32)
    if dtype[0] == "i":
        return random.integers(-127, 128, count).astype(DTYPES[dtype])
    numbers = random.standard_normal(count, np.float32)
    return (numbers.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else numbers.astype(DTYPES[dtype])


def argument(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An argument that is read, as bits of its elements."""
    kind = np.dtype(DTYPES[dtype])
    nbytes = prod(shape) * kind.itemsize
    if nbytes <= LARGE:
        return elements(random, prod(shape), dtype).reshape(shape)
    period = elements(random, PERIOD // kind.itemsize, dtype)
    return repeated(period.view(np.uint8), nbytes).view(kind).reshape(shape)
