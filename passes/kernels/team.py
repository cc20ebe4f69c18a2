"""Who reduces over a row: threads that divide its elements, or one call of a CPU's kernel in vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from math import gcd
from typing import Any, Protocol

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.combiners import COMBINERS, neutral
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.targets import Target

UNROLLED_CHUNKS = 8
LOADED_SUMS = 8
"""Of so many subgroups every thread adds the results up; of more, which would take as many registers for as long as a
compiler puts the sum off, the lanes of each subgroup do it together."""
SHUFFLED = ("f32", "i32")
"""Types whose values lanes can exchange on every GPU."""


class RowReader(Protocol):
    """A Reader: the target, and scopes for loops' bodies."""

    target: Target

    def scope(self) -> Any: ...


@dataclass(frozen=True)
class Row:
    """One row.  read: (first element, width) to that many elements.  prepare: computes what all elements have in
    common, ahead of a loop over them."""

    read: Callable[..., ir.Value]
    prepare: Callable[[], None]


@dataclass(frozen=True)
class Alone:
    """One call of a CPU's kernel, which has its rows to itself: whole vectors, and single elements at their ends.

    together: vectors that a turn of a loop takes, as far as turns are whole: each is combined with others than the one
    beside it, so that none waits for it."""

    together: int = 1

    def shares(self, row: Sequence[Index]) -> bool:
        """Whether the rows at these indices are one row for all that reduce."""
        return True

    def over_row(self, rows: RowReader, combiner: str, start: ir.Value, extent: int, row: Row) -> ir.Value:
        """Combine a row's elements, starting with `start`, which changes nothing."""
        row.prepare()
        total: ir.Value | None = None
        for first, last, width in vector_ranges(extent, rows.target.vector_bytes // 4):

            def step(i: ir.Value, *so_far: ir.Value, width: int = width) -> list[ir.Value]:
                with rows.scope():
                    found = [row.read(b.add(i, n * width), width) for n in range(len(so_far))]
                    return [b.emit(combiner, list(pair), [pair[0].type]) for pair in zip(so_far, found, strict=True)]

            idle = b.constant(neutral(combiner, start.type), b.with_width(start.type, width))
            count = gcd(self.together, (last - first) // width) if width > 1 else 1
            parts = b.loop(first, last, count * width, [idle] * count, step)
            part = b.reduce_vector(COMBINERS[combiner], tree(combiner, parts))
            total = part if total is None else b.emit(combiner, [total, part], [part.type])
        return start if total is None else total


@dataclass(frozen=True)
class Neighbours:
    """Lanes beside each other, a power of two of them, that have the same short row: each asks for its share of the
    elements at once."""

    lane: Index
    lanes: int
    subgroup: int
    starts: dict[int, Index] = field(default_factory=dict)

    def shares(self, row: Sequence[Index]) -> bool:
        """Whether the rows at these indices are one row for all that reduce."""
        return True

    def over_row(self, rows: RowReader, combiner: str, start: ir.Value, extent: int, row: Row) -> ir.Value:
        """Combine a row's elements, starting with `start`, which changes nothing."""
        row.prepare()
        each = next(n for n in range(-(-extent // self.lanes), extent + 1) if extent % n == 0)
        width = b.largest_width(each, 4, rows.target.vector_bytes)
        own = b.mod(self.lane, self.lanes)
        if each not in self.starts:
            self.starts[each] = b.mul(b.at_most(own, extent // each - 1), each)
        found = [row.read(b.add(self.starts[each], i), width) for i in range(0, each, width)]
        total = b.horizontal(combiner, tree(combiner, found))
        if each * self.lanes > extent:
            idle = b.constant(neutral(combiner, total.type), total.type)
            total = b.select(b.less(own, extent // each), total, idle)
        return subgroup_reduce(combiner, total, self.lanes, self.subgroup)


def vector_ranges(extent: int, width: int) -> list[tuple[int, int, int]]:
    """(start, stop, width) of the loops that cover a row: whole vectors, then single elements."""
    whole = extent // width * width
    return [r for r in ((0, whole, width), (whole, extent, 1)) if r[0] < r[1]]


@dataclass(frozen=True)
class Chunk:
    """Where one thread's next elements start; live: whether they lie in the row at all (None: always)."""

    start: Index
    live: ir.Value | None


@dataclass(frozen=True)
class Team:
    """Threads numbered `rank` of `size`: one subgroup or a power of two of its lanes, or the whole block where `size`
    exceeds it.  number: the team's own in its block, by which its rows differ from those of the others.  item_bytes: of
    the elements by which a thread's vectors are as long as the widest load.  together: of a row with many chunks, those
    that a thread reads ahead of using the first."""

    rank: Index
    size: int
    subgroup: int
    number: ir.Value | None = None
    item_bytes: int = 4
    together: int = 1
    _chunks: dict[tuple[int, int, int], Chunk] = field(default_factory=dict, compare=False, repr=False)

    def shares(self, row: Sequence[Index]) -> bool:
        """Whether the rows at these indices, of which each thread has its own, are one row for all threads."""
        return not any(_depends_on_thread(i, self.number) for i in row if not isinstance(i, int))

    def chunk_count(self, extent: int, width: int) -> int:
        return -(-extent // (self.size * width))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Within it, vectors that were not known before are known only inside (a loop's body)."""
        known = dict(self._chunks)
        yield
        self._chunks.clear()
        self._chunks.update(known)

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
        return Chunk(b.or_zero(live, start), live)

    def over_row(self, rows: RowReader, combiner: str, start: ir.Value, extent: int, row: Row) -> ir.Value:
        """Combine a row's elements, starting with `start`, which changes nothing; every thread gets the result."""
        width = b.largest_width(extent, self.item_bytes, rows.target.vector_bytes)
        if self.chunk_count(extent, width) <= UNROLLED_CHUNKS:
            return self.reduce_row(combiner, start, extent, width, partial(row.read, width=width))
        row.prepare()
        with rows.scope():
            return self.reduce_row(combiner, start, extent, width, partial(row.read, width=width))

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
            (total,) = self.each_chunk(
                count, [idle], lambda numbers, total: [reduce(lambda t, n: step(n, t), numbers, total)]
            )
        assert total is not None
        return self.all_reduce(combiner, b.horizontal(combiner, total))

    def each_chunk(
        self, count: int, start: Sequence[ir.Value], body: Callable[..., Sequence[ir.Value]]
    ) -> Sequence[ir.Value]:
        """A loop over the chunks of a long row: body(numbers of some chunks, *carried) returns what is carried on."""
        whole = count // self.together * self.together

        def some(first: Index, carried: Sequence[ir.Value], many: int) -> Sequence[ir.Value]:
            return body([b.add(first, i) for i in range(many)], *carried)

        carried = b.loop(0, whole, self.together, start, lambda first, *carried: some(first, carried, self.together))
        return some(whole, carried, count - whole) if whole < count else carried

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
        if groups <= LOADED_SUMS:
            return tree(combiner, [b.load(partial, [i], 1) for i in range(groups)])
        lanes = 1 << (groups - 1).bit_length()
        place = b.mod(lane, lanes)
        if lanes == groups:
            return subgroup_reduce(combiner, b.load(partial, [place], 1), lanes, self.subgroup)
        there = b.less(place, groups)
        mine = b.load(partial, [b.or_zero(there, place)], 1)
        idle = b.constant(neutral(combiner, value.type), value.type)
        return subgroup_reduce(combiner, b.select(there, mine, idle), lanes, self.subgroup)


def _depends_on_thread(value: ir.Value, team: ir.Value | None = None) -> bool:
    """Whether threads of a block (or of one team, by its number) may have different values; true also where that is not
    known."""
    waiting, seen = [value], {value}
    while waiting:
        if team is not None and waiting[0] == team:
            waiting = waiting[1:]
            continue
        op = defining_op(waiting[0])
        if op is None:
            argument = ir.BlockArgument(waiting[0])
            owner = argument.owner.owner
            counts = owner.name == "scf.for" and argument.arg_number == 0
            if not counts and not owner.name.endswith(".func"):
                return True
            operands = list(owner.operands)[:3] if counts else []
        elif op.name == "gpu.thread_id" or len(op.regions):
            return True
        else:
            operands = list(op.operands)
        waiting = waiting[1:] + [o for o in operands if o not in seen]
        seen.update(operands)
    return False


def tree(combiner: str, values: Sequence[ir.Value]) -> ir.Value:
    """All combined, as a balanced tree."""
    parts = list(values)
    while len(parts) > 1:
        pairs = (parts[i : i + 2] for i in range(0, len(parts), 2))
        parts = [b.binary(combiner, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def subgroup_reduce(combiner: str, value: ir.Value, lanes: int, subgroup: int) -> ir.Value:
    """A butterfly over `lanes` neighbours (a power of two); each gets the result."""
    distance = lanes // 2
    while distance:
        value = b.binary(combiner, value, b.shuffle_xor(value, distance, subgroup))
        distance //= 2
    return value
