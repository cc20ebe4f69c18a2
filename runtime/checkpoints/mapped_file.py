"""Files of which arrays are views."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.reading import check_ordinary


class MappedFile:
    """A whole file mapped read-only, with arrays of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        check_ordinary(path)
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {path}: {error}") from error
        self._bytes = np.frombuffer(self._map, np.uint8)

    @property
    def nbytes(self) -> int:
        return self._bytes.size

    def array(self, offset: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """A view of the bytes from `offset` on, read as `dtype`'s storage."""
        storage = find_dtype(dtype).numpy
        nbytes = storage.itemsize * int(np.prod(shape, dtype=object))
        if offset < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{self.path}: bytes {offset} to {offset + nbytes} of {self.nbytes}")
        return self._bytes[offset : offset + nbytes].view(storage).reshape(shape)

    def release(self, array: np.ndarray) -> None:
        """Let go of the memory pages that an array of this file fills; they can still be read again."""
        if not np.may_share_memory(array, self._bytes):
            return
        first = array.ctypes.data - self._bytes.ctypes.data
        start = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (first + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
        if length > 0:
            self._map.madvise(mmap.MADV_DONTNEED, start, length)
