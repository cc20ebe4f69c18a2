"""Schedules as passes are given them: by name, as functions that write tile programs, whatever language they are in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Schedule:
    """takes: None where a kernel is one for it, else why not.  write: emits the program.  Both are given the kernel's
    `lispgpt.passes.tile.build.Builder`.  of: what kernels it is for, "product", "attention",
    "attention-gradient" or "rows".  products: how many a kernel of products has to have for it; 0: any number."""

    name: str
    takes: Callable[[Any], str | None]
    write: Callable[[Any], None]
    of: str = "product"
    products: int = 1

    def suits(self, builder: Any) -> bool:
        """Whether a kernel is of its kind."""
        return self.of == builder.of and (self.of != "product" or self.products in (0, len(builder.products)))


@dataclass(frozen=True)
class Library:
    """own: schedules of the user's, which come first.  common: those that come with the compiler.  tuned: by kernels'
    identities, the names of those that were measured to be fastest."""

    own: tuple[Schedule, ...] = ()
    common: tuple[Schedule, ...] = ()
    tuned: Mapping[str, str] = field(default_factory=dict)


NO_SCHEDULES = Library()
