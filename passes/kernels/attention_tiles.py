"""Tiles of keys and values in shared memory, in bf16: how threads bring them there and how lanes read them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import read_operand
from lispgpt.passes.kernels.matrices import Lanes, joined, split
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.model.attention import Attention
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class Rows:
    """Rows of `width` bf16 numbers in shared memory, `padding` apart.

    Row r has its columns exchanged by r % turns * run in exclusive or, which puts what lanes read at once on different
    banks where rows have no padding.
    """

    count: int
    width: int
    padding: int
    turns: int = 1
    run: int = 0

    @property
    def stride(self) -> int:
        return self.width + self.padding

    def column(self, row: Index, column: Index) -> Index:
        """Where in its row an aligned run of at most `run` columns starts."""
        if self.turns == 1:
            return column
        shift = b.mul(b.mod(row, self.turns), self.run)
        return b.emit("arith.xori", [b.as_value(column), b.as_value(shift)], [ir.IndexType.get()])


class TileLayout:
    """What a tile of `keys` positions takes: in shared memory, in `parts` bf16 parts, and of `threads` threads."""

    def __init__(self, attention: Attention, target: Gpu, keys: int, threads: int, for_warpgroups: bool) -> None:
        """for_warpgroups: whether both are right operands of warpgroup instructions, in their layout."""
        assert target.matrix is not None
        self.for_warpgroups = for_warpgroups
        self.attention, self.unit = attention, target.matrix
        self.positions, self.threads, self.depth = keys, threads, attention.depth
        cache_bytes = b.item_bytes(attention.keys.element)
        self.parts = 1 if cache_bytes == 2 else 2
        self.width = b.largest_width(self.depth, cache_bytes, target.vector_bytes)
        self.vectors = -(-keys * self.depth // self.width // threads)
        self.padded = -(-self.depth // self.unit.block) * self.unit.block
        self.keys, self.values = self._keys(), self._values()

    def _keys(self) -> Rows:
        """Eight lanes read 64 bytes of two neighbouring rows at once."""
        if self.for_warpgroups:
            return Rows(self.positions, self.depth, 0, 8, 8)
        turns = self.unit.padding == 0 and self.padded % 64 == 0
        return Rows(self.positions, self.padded, self.unit.padding, *((2, 32) if turns else ()))

    def _values(self) -> Rows:
        """As they are where the unit can turn them: it reads 16 bytes of eight neighbouring rows at once."""
        if not self.unit.result_as_left:
            return Rows(self.depth, self.positions, self.unit.padding)
        if self.depth % 64 == 0:
            return Rows(self.positions, self.depth, 0, 8, 8)
        return Rows(self.positions, self.depth, 8 if self.depth % 16 == 0 else 0)

    @property
    def words(self) -> int:
        """Registers of a thread that one tile takes on its way."""
        return 2 * self.vectors * self.width * b.item_bytes(self.attention.keys.element) // 4

    @property
    def nbytes(self) -> int:
        """In shared memory."""
        return sum(self.part_bytes(rows) * self.parts for rows in (self.keys, self.values))

    def part_bytes(self, rows: Rows) -> int:
        return 2 * rows.count * rows.stride


class Tiles:
    """Each team's tile.

    memory: gives what starts at a byte of the block's shared memory, with its shape and type.  thread: of the team.
    place: indices of a row of the scores, whose keys and values are those of all the block's rows.  last: the largest
    position.
    """

    def __init__(
        self,
        layout: TileLayout,
        reader: Reader,
        lanes: Lanes,
        memory: Callable[[int, list[int], ir.Type], ir.Value],
        teams: int,
        team: Index,
        thread: Index,
        place: list[Index],
        last: ir.Value,
    ) -> None:
        self.layout, self.unit, self.attention = layout, layout.unit, layout.attention
        self.reader, self.lanes, self.team, self.thread = reader, lanes, team, thread
        self.place, self.last = place, last
        self.memories, start = [], 0
        for rows in (layout.keys, layout.values):
            shape = [teams, layout.parts, rows.count, rows.stride]
            self.memories.append(memory(start, shape, ir.BF16Type.get()))
            start += teams * layout.parts * layout.part_bytes(rows)

    def offset(self, which: int, part: int) -> Index:
        """Bytes from the start of the memory of keys (0) or values (1) to a part of the team's tile."""
        nbytes = self.layout.part_bytes((self.layout.keys, self.layout.values)[which])
        return b.mul(b.add(b.mul(self.team, self.layout.parts), part), nbytes)

    def load(self, start: Index) -> list[ir.Value]:
        """This thread's vectors of the keys from position `start` on, then of the values; past the last, the last's."""
        attention = self.attention
        found: list[ir.Value] = []
        for operand, place_of in ((attention.keys, self._key_place), (attention.values, self._value_place)):
            for number in range(self.layout.vectors):
                t, d = place_of(number)
                at = b.at_most(b.add(start, t), self.last)
                found.append(read_operand(self.reader, operand, self.place, at, d, self.layout.width))
        return found

    def _key_place(self, number: int) -> tuple[Index, Index]:
        """(t, d) of this thread's number-th vector: neighbouring threads go along d."""
        vector = b.add(self.thread, number * self.layout.threads)
        per_row = self.layout.depth // self.layout.width
        return b.mod(b.div(vector, per_row), self.layout.positions), b.mul(b.mod(vector, per_row), self.layout.width)

    def _value_place(self, number: int) -> tuple[Index, Index]:
        """The same for values; where shared memory holds them transposed, neighbouring threads go along t."""
        if self.unit.result_as_left:
            return self._key_place(number)
        vector, positions = b.add(self.thread, number * self.layout.threads), self.layout.positions
        per_row = self.layout.depth // self.layout.width
        return b.mod(vector, positions), b.mul(b.mod(b.div(vector, positions), per_row), self.layout.width)

    def store(self, loaded: list[ir.Value]) -> None:
        """Put what load gave in shared memory."""
        keys, values = self.memories
        for number in range(self.layout.vectors):
            t, d = self._key_place(number)
            for part, piece in enumerate(self._parts(loaded[number])):
                b.store(piece, keys, [self.team, part, t, self.layout.keys.column(t, d)])
        for number in range(self.layout.vectors):
            t, d = self._value_place(number)
            for part, piece in enumerate(self._parts(loaded[self.layout.vectors + number])):
                if self.unit.result_as_left:
                    b.store(piece, values, [self.team, part, t, self.layout.values.column(t, d)])
                else:
                    for i in range(self.layout.width):
                        b.store(b.lane_of(piece, i), values, [self.team, part, b.add(d, i), t])
        self._clear_padding()

    def _parts(self, value: ir.Value) -> list[ir.Value]:
        return [value] if self.layout.parts == 1 else split(value)

    def _clear_padding(self) -> None:
        """Zero the keys past the depth, which matrix instructions multiply too."""
        excess, layout = self.layout.padded - self.layout.depth, self.layout
        zero = b.constant(0.0, ir.BF16Type.get())
        for number in range(-(-layout.positions * excess // layout.threads)):
            place = b.mod(b.add(self.thread, number * layout.threads), layout.positions * excess)
            t, d = b.div(place, excess), b.add(layout.depth, b.mod(place, excess))
            for part in range(layout.parts):
                b.store(zero, self.memories[0], [self.team, part, t, layout.keys.column(t, d)])

    def key_run(self, part: int, number: int, block: int) -> ir.Value:
        """The lane's run, in block `block` of the depth, of the number-th tile of keys as right operand."""
        t = b.add(self.lanes.row, number * self.unit.columns)
        d = b.add(block * self.unit.block, b.mul(self.lanes.group, self.unit.run))
        return self._run(self.memories[0], [self.team, part, t], self.layout.keys.column(t, d))

    def value_run(self, part: int, number: int, block: int) -> ir.Value:
        """The lane's run, in block `block` of the positions, of the number-th columns of the values."""
        if self.unit.result_as_left:
            t = b.add(self.lanes.lane, block * self.unit.block)
            d = self.layout.values.column(self.lanes.lane, number * self.unit.columns)
            return self.unit.load_right(self.memories[1], [b.as_value(i) for i in (self.team, part, t, d)])
        d = b.add(self.lanes.row, number * self.unit.columns)
        t = b.add(block * self.unit.block, b.mul(self.lanes.group, self.unit.run))
        return self._run(self.memories[1], [self.team, part, d], t)

    def _run(self, memory: ir.Value, row: list[Index], k: Index) -> ir.Value:
        return joined([b.load(memory, [*row, b.add(k, i)], 8) for i in range(0, self.unit.run, 8)])
