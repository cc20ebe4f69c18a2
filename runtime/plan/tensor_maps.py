"""What a kernel's bulk copies have to know of a tensor: a map, made for one of its arguments before it is launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lispgpt.base.dtypes import DTYPES, find_dtype
from lispgpt.runtime.plan.steps import Argument, text, whole

KEY = "tensor_maps"
"""The kernel fact that lists maps: values of a kernel behind its arguments, in their order."""

LINE, ALIGNMENT, MOST_RANK, MOST_BOX, MOST_EXTENT = 128, 16, 5, 256, 1 << 32
"""Bytes of a box' innermost dimension, which are swizzled in pieces of 16; of a tensor's start and strides; dimensions;
elements of a box, and of a tensor, along one.  Source: "CUDA Driver API", cuTensorMapEncodeTiled."""


@dataclass(frozen=True)
class TensorMap:
    """extents: of the dimensions, innermost first.  strides: bytes from element to element of each but the innermost,
    whose elements are neighbours.  box: elements of a copy along each.  It starts `offset` bytes into an argument."""

    argument: int
    offset: int
    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @staticmethod
    def of(facts: Mapping[str, Any]) -> tuple[TensorMap, ...]:
        """A kernel's maps; a missing or misshapen field raises KeyError or TypeError."""
        return tuple(
            TensorMap(
                whole(fields["argument"]),
                whole(fields["offset"]),
                text(fields["dtype"]),
                *(tuple(map(whole, fields[name])) for name in ("extents", "strides", "box")),
            )
            for fields in facts.get(KEY, ())
        )

    def problem(self, arguments: Sequence[Argument]) -> str | None:
        """What keeps a copy from being right and inside its argument, if anything does."""
        rank = len(self.extents)
        if self.argument >= len(arguments) or self.dtype not in DTYPES:
            return "a tensor map has no such argument or element type"
        item, argument = find_dtype(self.dtype).item_bytes, arguments[self.argument]
        if not 1 < rank <= MOST_RANK or len(self.box) != rank or len(self.strides) != rank - 1:
            return "a tensor map's rank is wrong"
        if any(not 0 < n <= MOST_EXTENT for n in self.extents) or any(not 0 < n <= MOST_BOX for n in self.box):
            return "a tensor map's extents are wrong"
        if (
            any(n % ALIGNMENT for n in self.strides)
            or (argument.offset + self.offset) % ALIGNMENT
            or self.box[0] * item != LINE
        ):
            return "a tensor map is not aligned"
        last = self.offset + sum(
            (n - 1) * stride for n, stride in zip(self.extents, (item, *self.strides), strict=True)
        )
        if last + item > argument.nbytes:
            return f"a tensor map of {last + item} bytes is for an argument of {argument.nbytes}"
        return None


def maps_problem(facts: Mapping[str, Any], arguments: Sequence[Argument]) -> str | None:
    """The first problem of a kernel's maps, where they are for these arguments."""
    try:
        return next((problem for map_ in TensorMap.of(facts) if (problem := map_.problem(arguments))), None)
    except (AttributeError, KeyError, TypeError) as error:
        return f"its tensor maps: {type(error).__name__} {error}"
