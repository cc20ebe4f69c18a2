"""f32 numbers in device memory that say of themselves whether they are there: the lowest bit of each is a mark.

Every word is written once in each run of a launch's steps, with the run's mark, and marks of one run and the next
differ.  So a reader that finds the run's mark has this run's number, and needs neither a fence nor a counter: what goes
from one block to others is on its way once.  A number that was read has 0 for its lowest bit, in all runs alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.targets import Gpu

GLOBAL = 1
"""LLVM's number of the device's memory."""

WIDEST = 4
"""Words that a lane loads at once."""


@dataclass(frozen=True)
class Layout:
    """How `count` words lie whose readers take `width` neighbours at once: where these are more than a load has, the
    first loads of all readers come before their second ones, so that neighbouring lanes load neighbouring words."""

    count: int
    width: int

    @property
    def parts(self) -> int:
        return self.width // WIDEST if self.width > WIDEST and self.count % self.width == 0 else 1

    def place(self, number: Index) -> Index:
        """Where a word is, in words from the first."""
        if self.parts == 1:
            return number
        part = b.mod(b.div(number, WIDEST), self.parts)
        within = b.add(b.mul(b.div(number, self.width), WIDEST), b.mod(number, WIDEST))
        return b.add(b.mul(part, self.count // self.parts), within)


@dataclass(frozen=True)
class MarkedWords:
    """Words of a run.  mark: the run's, an i32 that is 0 or 1."""

    target: Gpu
    mark: ir.Value

    def store(self, value: ir.Value, address: Index) -> None:
        """One f32."""
        bits = b.emit("arith.bitcast", [value], [b.i32()])
        word = b.emit("arith.ori", [_without_mark(bits), self.mark], [b.i32()])
        self.target.store_word(word, b.pointer(address, GLOBAL))

    def poll(self, places: Sequence[Sequence[tuple[Index, int]]]) -> list[ir.Value]:
        """What lies at each of some places, given as (address, words from there on): f32 numbers, or vectors of them,
        once all of them are this run's."""
        addresses = [[(b.pointer(address, GLOBAL), width) for address, width in place] for place in places]
        counts = [sum(width for _, width in place) for place in places]

        def load() -> tuple[ir.Value, list[ir.Value]]:
            parts = [part for place in addresses for part in place]
            words = [word for address, width in parts for word in self.target.load_words(address, width)]
            others = [b.emit("arith.xori", [word, self.mark], [b.i32()]) for word in words]
            wrong = reduce(lambda x, y: b.emit("arith.ori", [x, y], [b.i32()]), others)
            one = b.constant(1, b.i32())
            return b.equal(b.emit("arith.andi", [wrong, one], [b.i32()]), one), words

        words = b.repeat([b.i32()] * sum(counts), load)
        found = iter(b.emit("arith.bitcast", [_without_mark(word)], [b.f32()]) for word in words)
        return [b.vector_of([next(found) for _ in range(count)]) for count in counts]


def _without_mark(bits: ir.Value) -> ir.Value:
    return b.emit("arith.andi", [bits, b.constant(-2, b.i32())], [b.i32()])
