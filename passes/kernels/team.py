"""Threads that share a row: how they divide its elements and how they reduce over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.refusal import Refused

UNROLLED_CHUNKS = 8
SHUFFLED = ("f32", "i32")
"""Types whose values lanes can exchange on every GPU."""


@dataclass(frozen=True)
class Chunk:
    """Where one thread's next elements start; live: whether they lie in the row at all (None: always)."""

    start: Index
    live: ir.Value | None


@dataclass(frozen=True)
class Team:
    """Threads numbered `rank` of `size`: one subgroup, or the whole block where `size` exceeds it."""

    rank: Index
    size: int
    subgroup: int
    _chunks: dict[tuple[int, int, int], Chunk] = field(default_factory=dict, compare=False, repr=False)

    def chunk_count(self, extent: int, width: int) -> int:
        return -(-extent // (self.size * width))

    def chunk(self, number: Index, extent: int, width: int) -> Chunk:
        """The thread's `number`-th vector of `width` elements of a row; known numbers get the same values again."""
        if not isinstance(number, int):
            return self._make_chunk(number, extent, width)
        key = (number, extent, width)
        if key not in self._chunks:
            self._chunks[key] = self._make_chunk(number, extent, width)
        return self._chunks[key]

    def _make_chunk(self, number: Index, extent: int, width: int) -> Chunk:
        start = b.mul(b.add(b.mul(number, self.size), self.rank), width)
        if extent % (self.size * width) == 0:
            return Chunk(start, None)
        if isinstance(number, int) and (number + 1) * self.size * width <= extent:
            return Chunk(start, None)
        live = b.less(start, extent)
        return Chunk(b.select(live, b.as_value(start), b.as_value(0)), live)

    def reduce_row(
        self, combiner: str, neutral: ir.Value, extent: int, width: int, read: Callable[[Index], ir.Value]
    ) -> ir.Value:
        """Combine read(start) over a row's vectors; every thread of the team gets the result."""
        idle = b.splat(neutral, width)

        def step(number: Index, total: ir.Value | None) -> ir.Value:
            chunk = self.chunk(number, extent, width)
            value = read(chunk.start)
            if chunk.live is not None:
                value = b.select(chunk.live, value, idle)
            return value if total is None else b.binary(combiner, total, value)

        count = self.chunk_count(extent, width)
        total: ir.Value | None = None
        if count <= UNROLLED_CHUNKS:
            for number in range(count):
                total = step(number, total)
        else:
            total = b.loop(0, count, 1, [idle], lambda i, carried: [step(i, carried)])[0]
        assert total is not None
        return self.all_reduce(combiner, b.horizontal(combiner, total))

    def all_reduce(self, combiner: str, value: ir.Value) -> ir.Value:
        """Combine one value of each thread; every thread gets the result."""
        if str(value.type) not in SHUFFLED:
            raise Refused(f"lanes cannot exchange {value.type}")
        value = subgroup_reduce(combiner, value, min(self.size, self.subgroup), self.subgroup)
        if self.size <= self.subgroup:
            return value
        groups = self.size // self.subgroup
        partial = b.shared([groups], value.type)
        lane, group = b.mod(self.rank, self.subgroup), b.div(self.rank, self.subgroup)
        b.if_then(b.equal(lane, 0), lambda: b.store(value, partial, [group]))
        b.barrier()
        return tree(combiner, [b.load(partial, [i], 1) for i in range(groups)])


def tree(combiner: str, values: Sequence[ir.Value]) -> ir.Value:
    parts = list(values)
    while len(parts) > 1:
        parts = [
            b.binary(combiner, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)
        ]
    return parts[0]


def subgroup_reduce(combiner: str, value: ir.Value, lanes: int, subgroup: int) -> ir.Value:
    """A butterfly over `lanes` neighbours (a power of two); each gets the result."""
    distance = lanes // 2
    while distance:
        value = b.binary(combiner, value, b.shuffle_xor(value, distance, subgroup))
        distance //= 2
    return value
