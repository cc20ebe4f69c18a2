"""Weights in an order of their own: which bytes of a weight a buffer holds where, for kernels that read them so.

The bytes are moved once, when the weight is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lispgpt.runtime.plan.steps import text, whole


@dataclass(frozen=True)
class Piece:
    """Bytes in an array of such extents: the one at an index lies `start` + index · `strides` bytes into the weight,
    and `to` + index · `places` bytes into the buffer."""

    extents: tuple[int, ...]
    start: int
    strides: tuple[int, ...]
    to: int
    places: tuple[int, ...]

    def problem(self, weight: int, buffer: int) -> str | None:
        """What is wrong with it beside a weight and a buffer of so many bytes."""
        if not len(self.extents) == len(self.strides) == len(self.places):
            return "a piece whose extents and strides are not as many"
        if any(n < 1 for n in self.extents) or min(self.start, self.to, *self.strides, *self.places) < 0:
            return "a piece of nothing, or ahead of the first byte"
        for first, steps, end in ((self.start, self.strides, weight), (self.to, self.places, buffer)):
            if first + sum((n - 1) * step for n, step in zip(self.extents, steps, strict=True)) >= end:
                return f"a piece that reaches past {end} bytes"
        return None


@dataclass(frozen=True)
class Packing:
    """weight: whose bytes these are.  shape: theirs, of i8.  What no piece fills is zeros."""

    weight: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def problem(self, nbytes: int) -> str | None:
        """What is wrong with it for a buffer of so many bytes."""
        found = (piece.problem(prod(self.shape), nbytes) for piece in self.pieces)
        return next((problem for problem in found if problem), None)

    def packed(self, weight: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """An i8 array of such a shape, of a weight's i8 array."""
        made = np.zeros(shape, np.int8)
        for piece in self.pieces:
            source = np.ndarray(piece.extents, np.int8, weight.data, piece.start, piece.strides)
            np.ndarray(piece.extents, np.int8, made.data, piece.to, piece.places)[...] = source
        return made


def packing_from_json(data: Mapping[str, Any]) -> Packing:
    """KeyError, TypeError or ValueError where it is misshapen."""
    pieces = [
        Piece(
            tuple(map(whole, piece["extents"])), whole(piece["start"]), tuple(map(whole, piece["strides"])),
            whole(piece["to"]), tuple(map(whole, piece["places"])),
        )
        for piece in data["pieces"]
    ]  # fmt: skip
    return Packing(text(data["weight"]), tuple(map(whole, data["shape"])), tuple(pieces))
