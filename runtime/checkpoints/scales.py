"""What a matrix of 8-bit floats is multiplied by, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.numbers import CHUNK, converted


class Scaling(Protocol):
    """What stored numbers are multiplied by as they are read."""

    def fill(self, source: np.ndarray, kind: str, destination: np.ndarray, dtype: str) -> None:
        """Fill rows of a type with those of this kind as they are stored, scaled."""


@dataclass(frozen=True)
class Scales:
    """grid: f32 [blocks of rows, blocks of columns].  block: rows and columns of one; the last ones may be smaller."""

    grid: np.ndarray
    block: tuple[int, int]

    @staticmethod
    def of(folder: Path, name: str, values: np.ndarray, shape: tuple[int, ...], block: Any) -> Scales:
        """The scales in a tensor for a matrix of this shape; UserError where they do not fit it.

        block: what config.json says of blocks; without it they are all of a size.
        """
        grid = values.reshape(1, 1) if values.size == 1 else values.reshape(-1, 1) if values.ndim == 1 else values
        fits = len(shape) == 2 and grid.ndim == 2 and bool(np.isfinite(grid).all())
        listed = isinstance(block, list) and len(block) == 2 and all(type(n) is int and n > 0 for n in block)
        if fits and grid.size == 1:
            return Scales(grid, (shape[0], shape[1]))
        if fits and listed and all(-(-n // b) == g for n, b, g in zip(shape, block, grid.shape, strict=True)):
            return Scales(grid, (block[0], block[1]))
        if fits and not any(n % g for n, g in zip(shape, grid.shape, strict=True)):
            return Scales(grid, (shape[0] // grid.shape[0], shape[1] // grid.shape[1]))
        raise UserError(f"{folder}: tensor {name!r} is {list(values.shape)}, which are no scales of {list(shape)}")

    def fill(self, source: np.ndarray, kind: str, destination: np.ndarray, dtype: str) -> None:
        """Fill rows of "f32" or "bf16" with a matrix of this kind times its scales, or of "fp8" with both."""
        rows, columns = source.shape
        if find_dtype(dtype).floats == kind:
            each = find_dtype(dtype).block
            destination["qs"] = source.reshape(rows, -1, each)
            blocks = np.arange(0, columns, each) // self.block[1]
            destination["d"] = self.grid[np.arange(rows)[:, None] // self.block[0], blocks]
            return
        step = max(1, CHUNK // columns)
        across = np.repeat(self.grid, self.block[1], axis=1)[:, :columns]
        for start in range(0, rows, step):
            values = converted(np.ascontiguousarray(source[start : start + step]), kind, "f32")
            own = np.arange(start, start + len(values)) // self.block[0]
            destination[start : start + step] = converted(values * across[own], "f32", dtype)
