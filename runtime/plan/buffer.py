"""What a plan says of a session's allocations: what each is for, and how its bytes are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lispgpt.base.dtypes import find_dtype
from lispgpt.runtime.plan.packing import Packing, packing_from_json
from lispgpt.runtime.plan.steps import text, whole

KINDS = ("weight", "made", "state", "input", "result", "arena", "signals", "control", "kept", "device")


@dataclass(frozen=True)
class Buffer:
    """One allocation of a session.

    kind: "weight", "state" and "arena" are shared by the entries that name them; "made" has what is computed of weights
    alone, see `Plan.making`; "input" and "result" belong to the host's side of a step; "signals" start as zeros, and
    blocks of a launch tell each other by them how far they are; "control" tells a launch something and starts as zero;
    "kept" has what several runs of one launch made, see Repeats; "device" holds the number of this device, of several
    that share entries.
    shape and dtype ("f32", "bf16", "i32", "i8") say how the bytes are read, row-major.  whole: of a state of which each
    device has a part, equal ones along the first dimension that is another, the shape of all of it.  summed: of a
    state, whether it is the sum of what the devices have in its place.  packing: of a weight that is another's bytes in
    another order, which.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    whole: tuple[int, ...] | None = None
    summed: bool = False
    packing: Packing | None = None

    @property
    def nbytes(self) -> int:
        return find_dtype(self.dtype).nbytes(math.prod(self.shape))

    @property
    def as_declared(self) -> Buffer:
        """The buffer that would hold a weight as the program declares it."""
        return self if self.packing is None else Buffer(self.packing.weight, self.kind, self.packing.shape, "i8")

    @property
    def divided(self) -> int:
        """The dimension along which it is a part of the whole; 0 where it is all of it."""
        pairs = zip(self.shape, self.whole or self.shape, strict=True)
        return next((axis for axis, (own, all_) in enumerate(pairs) if own != all_), 0)

    @property
    def is_no_part(self) -> bool:
        """Whether it cannot be the part that it says it is."""
        if self.whole is None:
            return self.summed and self.kind != "state"
        if self.summed or len(self.whole) != len(self.shape) or not self.shape or self.kind != "state":
            return True
        same = [a == b for d, (a, b) in enumerate(zip(self.shape, self.whole, strict=True)) if d != self.divided]
        return not all(same) or 0 in self.shape or self.whole[self.divided] % self.shape[self.divided] != 0


def buffer_from_json(data: Mapping[str, Any]) -> Buffer:
    """AttributeError, KeyError, TypeError or ValueError where it is misshapen."""
    shape, packing = data.get("whole"), data.get("packing")
    return Buffer(
        text(data["name"]),
        text(data["kind"]),
        tuple(data["shape"]),
        text(data["dtype"]),
        None if shape is None else tuple(map(whole, shape)),
        data.get("summed", False) is True,
        None if packing is None else packing_from_json(packing),
    )
