"""Memory of a launch's arguments at real sizes, of which no more is taken than what is different."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from math import prod
from typing import Any

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
FIXED, NORESERVE = 0x10, 0x4000
"""Flags of mmap."""
SPARE = 1 << 22
"""Bytes behind all arguments, for a module's constants."""


class Arena:
    """Arrays one after another, a page apart.  starts: of each, in `bytes`, and of what is spare behind them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        pages = [-(-size // PERIOD) * PERIOD if size > LARGE else -(-size // PAGE) * PAGE for size in sizes]
        self.starts = [0]
        for size in pages:
            self.starts.append(self.starts[-1] + size + PAGE)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
        self.bytes = np.frombuffer(mmap.mmap(-1, self.starts[-1] + SPARE, flags=flags), np.uint8)
        self.sizes = list(sizes)

    def part(self, number: int) -> np.ndarray:
        """The bytes of an argument."""
        return self.bytes[self.starts[number] :][: self.sizes[number]]

    def repeat(self, number: int, period: np.ndarray) -> None:
        """Let an argument's bytes repeat those of `period` [PERIOD]; what is stored there later takes memory."""
        file = os.memfd_create("period")
        try:
            os.write(file, period.tobytes())
            first = self.bytes.ctypes.data + self.starts[number]
            for where in range(first, first + self.sizes[number], PERIOD):
                found = _libc.mmap(where, PERIOD, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | FIXED, file, 0)
                assert found == where, os.strerror(ctypes.get_errno())
        finally:
            os.close(file)

    def fill(
        self, number: int, random: np.random.Generator, kind: tuple[Sequence[int], str], reads: bool
    ) -> np.ndarray:
        """An argument as an array of its shape: random elements, or NaN where nobody reads them."""
        shape, dtype = kind
        element = np.dtype(DTYPES[dtype])
        if not reads:
            self.part(number)[:] = 0xFF
        elif self.sizes[number] > LARGE:
            self.repeat(number, elements(random, PERIOD // element.itemsize, dtype).view(np.uint8))
        else:
            self.part(number)[:] = elements(random, prod(shape), dtype).view(np.uint8)
        return self.part(number).view(element).reshape(shape)


def elements(random: np.random.Generator, count: int, dtype: str) -> np.ndarray:
    """Random elements, as their bits: small whole numbers, which are places in every model, or normal ones; of bytes
    those that make no large numbers, NaN or infinity where some are the upper half of a block's F16; of truths 0 or 1,
    which are all that a program writes."""
    if dtype == "i1":
        return random.integers(0, 2, count).astype(np.int8)
    if dtype == "i8":
        return (random.integers(0, 256, count) & ~0x40).astype(np.uint8).view(np.int8)
    if dtype == "i32":
        return random.integers(0, 8, count).astype(np.int32)
    if dtype[0] == "i":
        return random.integers(-127, 128, count).astype(DTYPES[dtype])
    numbers = random.standard_normal(count, np.float32)
    if dtype == "bf16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16)
    return numbers.astype(DTYPES[dtype])  # type: ignore[no-any-return]


def number(bits: Any, dtype: str) -> np.ndarray:
    """Elements as numbers."""
    if dtype == "bf16":
        return (np.asarray(bits, np.uint32) << np.uint32(16)).view(np.float32)
    return np.asarray(bits)
