"""What a launch has to do, and its floor: the least time in which a device can do that.

The compiler counts a kernel's bytes and floating-point operations (see its kernel_work.py) and the artifact keeps them
with the kernel's facts.  Attention's grow with the positions that its rows are at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, TypeVar

from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.plan import Entry

_Form = TypeVar("_Form", "Work", "Rates")
Positions = Sequence[Sequence[int]]
"""The position of each row of each sequence."""


@dataclass(frozen=True)
class Amount:
    """nbytes: the fewest that a launch has to read and write.  operations: on floating-point numbers.  matrix: whether
    they run on matrix instructions."""

    nbytes: int
    operations: int
    matrix: bool


@dataclass(frozen=True)
class Work:
    """Of one launch of a kernel: bytes and operations, and those for each position that is looked at, of `context` at
    most: operations for each row, bytes for each sequence as far as its furthest row."""

    bytes: int
    operations: int
    position_bytes: int
    position_operations: int
    context: int
    matrix: bool

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Work | None:
        """From a kernel's facts; None where the compiler has not counted, UserError where it has not written them."""
        return _read(Work, facts["work"]) if "work" in facts else None

    def at(self, positions: Positions) -> Amount:
        """The amount when rows are at these positions."""
        furthest = sum(max(rows) + 1 for rows in positions)
        looks = sum(position + 1 for rows in positions for position in rows)
        nbytes, operations = furthest * self.position_bytes, looks * self.position_operations
        return Amount(self.bytes + nbytes, self.operations + operations, self.matrix)

    def at_most(self, entry: Entry) -> Amount:
        """The amount when an entry's rows are the last of the context."""
        batch, positions = (entry.sizes.get(name, 1) for name in ("batch", "positions"))
        first = max(0, self.context - positions)
        return self.at([range(first, first + positions)] * batch)


@dataclass(frozen=True)
class Rates:
    """part: the product that they are of.  bandwidth: bytes/s.  matrix, vector: operations/s on matrix instructions and
    on others; infinite where they are not known."""

    part: str
    bandwidth: float
    matrix: float
    vector: float

    @staticmethod
    def of(facts: Mapping[str, Any] | None) -> Rates | None:
        """From an artifact's `rates`; UserError where they are no such thing."""
        return None if facts is None else _read(Rates, facts)

    def floor(self, amount: Amount) -> float:
        """Seconds: what takes longer, the bytes or the operations."""
        return max(amount.nbytes / self.bandwidth, amount.operations / (self.matrix if amount.matrix else self.vector))

    def __str__(self) -> str:
        tera = f", {self.matrix / 1e12:.0f} TFLOP/s on matrix instructions, {self.vector / 1e12:.0f} on others"
        return f"{self.bandwidth / 1e9:.0f} GB/s{tera if isfinite(self.matrix) else ''} ({self.part})"


def _read(form: type[_Form], data: Any) -> _Form:
    """An object of a form with these fields; UserError where they are others, or numbers that it cannot have."""
    known = {f.name: {"int": int, "float": float, "bool": bool, "str": str}[str(f.type)] for f in fields(form)}
    good = isinstance(data, dict) and set(data) == set(known)
    good = good and all(type(data[name]) is kind for name, kind in known.items())
    good = good and all(v >= 0 if type(v) is int else v > 0 for v in data.values() if type(v) in (int, float))
    if not good:
        raise UserError(f"the artifact is damaged: its {form.__name__.lower()} {str(data)[:80]!r}")
    return form(**data)
