"""Which whole numbers an entry may be given: those that it reads or writes rows by, and has memory for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.runtime.plan.steps import text, whole


@dataclass(frozen=True)
class InputBound:
    """input: its name.  first, last: what its elements may be.  offsets, sizes: the part that is meant; () for all."""

    input: str
    first: int
    last: int
    offsets: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> InputBound:
        offsets, sizes = (tuple(map(whole, data.get(key, ()))) for key in ("offsets", "sizes"))
        if len(offsets) != len(sizes) or type(data["first"]) is not int or type(data["last"]) is not int:
            raise ValueError("bounds of an input")
        return InputBound(text(data["input"]), data["first"], data["last"], offsets, sizes)

    def outside(self, array: np.ndarray) -> int | None:
        """An element that may not be; None where there is none."""
        box = tuple(slice(start, start + size) for start, size in zip(self.offsets, self.sizes, strict=True))
        part = array[box]
        if not part.size:
            return None
        least, most = int(part.min()), int(part.max())
        return least if least < self.first else most if most > self.last else None
