"""schedule-gpu-tiled-attention: attention of many rows at once, on the target's matrix instructions.

Before: writes of keys and values into the cache; scores, mask, softmax over all positions, weighted sum, for at least
        `rows` rows of each sequence.
After:  a launch that writes the cache; then a block for 16 rows per subgroup of one head.  It goes through positions
        that its rows may see in tiles: keys and transposed values to shared memory, scores on matrix instructions,
        a running softmax in registers, weights through shared memory back into matrix instructions.  No score reaches
        memory.  f32 operands are split into two bf16 parts, of whose products the smallest is left out.

Requires: what plan-arena ensures.
Ensures: those kernels of kind "attention" have only scalar, vector and matrix ops, a grid and a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from lispgpt.mlir import create_op, ir
from lispgpt.passes.base import Pass
from lispgpt.passes.gpu import build as b
from lispgpt.passes.gpu.attention import Attention, parse_attention
from lispgpt.passes.gpu.build import Index
from lispgpt.passes.gpu.expand import exp
from lispgpt.passes.gpu.kernel import coordinates, reschedule
from lispgpt.passes.gpu.read import Reader
from lispgpt.passes.gpu.softmax import LOWEST
from lispgpt.passes.gpu.team import subgroup_reduce, tree
from lispgpt.passes.schedule_gpu_attention import split_off_writes
from lispgpt.passes.structure import kernel_functions
from lispgpt.passes.targets import Gpu

PRODUCTS = ((0, 0), (0, 1), (1, 0))
"""Which parts of the left operand meet which of the right one."""


@dataclass(frozen=True)
class ScheduleGpuTiledAttention(Pass):
    """rows: the fewest rows of a sequence to treat this way.  subgroups: of a block.  keys: positions of a tile."""

    name: ClassVar[str] = "schedule-gpu-tiled-attention"
    rows: int = 64
    subgroups: int = 4
    keys: int = 32

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.matrix is None:
            return
        for kernel in kernel_functions(module, "attention"):
            attention = parse_attention(kernel)
            if attention.shape[1] >= self.rows and attention.depth % target.matrix.columns == 0:
                split_off_writes(module, kernel, target)
                _Schedule(kernel, parse_attention(kernel), target, self).emit()


class _Schedule:
    def __init__(
        self, kernel: ir.Operation, attention: Attention, target: Gpu, options: ScheduleGpuTiledAttention
    ) -> None:
        assert target.matrix is not None
        self.kernel, self.attention, self.target, self.unit = kernel, attention, target, target.matrix
        self.positions, self.depth, self.keys = attention.shape[1], attention.depth, options.keys
        self.subgroups = min(options.subgroups, -(-self.positions // 16))
        self.threads = self.subgroups * target.subgroup
        self.tile = 16 * self.subgroups
        self.padded = -(-self.depth // self.unit.block) * self.unit.block
        cache_bytes = b.item_bytes(attention.cache.type)
        self.cache_parts = 1 if cache_bytes == 2 else 2
        self.width = b.largest_width(self.depth, cache_bytes, target.vector_bytes)
        self.products = [p for p in PRODUCTS if p[1] < self.cache_parts]
        self.score_tiles = self.keys // self.unit.columns
        self.sum_tiles = self.depth // self.unit.columns

    def emit(self) -> None:
        tiles = -(-self.positions // self.tile)
        grid = [tiles, self.attention.shape[0] * prod(self.attention.shape[2:])]
        reschedule(self.kernel, grid, [self.threads], self.target, self._body)

    def _body(self) -> None:
        self.thread = b.thread_id()
        self.lane, self.subgroup = b.mod(self.thread, self.target.subgroup), b.div(self.thread, self.target.subgroup)
        outer = coordinates(b.block_id("y"), (self.attention.shape[0], *self.attention.shape[2:]))
        self.sequence, self.heads = outer[0], outer[1:]
        self.reader = Reader(self.target)
        for tensor in self.attention.updated:
            self.reader.bind(tensor, lambda index, width: b.load(self.attention.cache, index, width))
        bf16, pad = ir.BF16Type.get(), self.unit.padding
        self.key_memory = b.shared([self.cache_parts, self.keys, self.padded + pad], bf16)
        self.value_memory = b.shared([self.cache_parts, self.depth, self.keys + pad], bf16)
        self.weight_memory = b.shared([self.subgroups, 2, 16, self.keys + pad], bf16)
        self.target.dependency_release()
        self.target.dependency_wait()
        self.first = b.mul(b.block_id("x"), self.tile)
        self.own_first = b.add(self.first, b.mul(self.subgroup, 16))
        self.queries = self._load_queries()
        self.last = self._last_of_tile()
        row_rule, column_rule = self.unit.result_lane()
        first_row = b.add(self.own_first, self._lane(row_rule))
        self.column = self._lane(column_rule)
        self.sharing = column_rule[1]
        self.rows = [self._place(b.add(first_row, piece.row)) for piece in self.unit.pieces()]
        self.result_rows = [b.add(first_row, piece.row) for piece in self.unit.pieces()]
        self._write(self._attend())

    def _place(self, row: Index) -> list[Index]:
        """The scores' leading indices for a row of the sequence; past the end, the last row's."""
        if self.positions % self.tile:
            row = b.emit("arith.minui", [b.as_value(row), b.as_value(self.positions - 1)], [ir.IndexType.get()])
        return [self.sequence, row, *self.heads]

    def _lane(self, rule: tuple[int, ...]) -> Index:
        divisor, modulus, *factor = rule
        return b.mul(b.mod(b.div(self.lane, divisor), modulus), factor[0] if factor else 1)

    def _load_queries(self) -> list[list[list[ir.Value]]]:
        """queries[part][block of d]: this lane's runs, one for each row that it holds."""
        row, group = self._lane(self.unit.lane_row()), self._lane(self.unit.lane_group())
        parts: list[list[list[ir.Value]]] = [[], []]
        places = [self._place(b.add(self.own_first, b.add(row, offset))) for offset in self.unit.left_rows]
        for block in range(self.padded // self.unit.block):
            d = b.add(block * self.unit.block, b.mul(group, self.unit.run))
            split = [self._split(self._query(place, d)) for place in places]
            for part in range(2):
                parts[part].append([pair[part] for pair in split])
        return parts

    def _query(self, place: list[Index], d: Index) -> ir.Value:
        """A run of a query; zero past its depth."""
        tensor, pieces = self.attention.scores.operands[0], []
        for i in range(0, self.unit.run, 4):
            at = b.add(d, i)
            inside = None if self.padded == self.depth else b.less(at, self.depth)
            where = at if inside is None else b.select(inside, b.as_value(at), b.as_value(0))
            value = b.extend(self.reader.read(tensor, self.attention.query_index(place, where), 4))
            pieces.append(value if inside is None else b.select(inside, value, b.constant(0.0, value.type)))
        return _joined(pieces)

    def _split(self, value: ir.Value) -> list[ir.Value]:
        """An f32 vector as two bf16 vectors that add up to it."""
        type_ = ir.VectorType.get([b.width_of(value)], ir.BF16Type.get())
        high = b.emit("arith.truncf", [value], [type_])
        low = b.emit("arith.truncf", [b.binary("arith.subf", value, b.extend(high))], [type_])
        return [high, low]

    def _last_of_tile(self) -> ir.Value:
        """The largest position that any row of the block may see."""
        found = []
        for start in range(0, self.tile, self.target.subgroup):
            row = b.add(self.first, b.add(start, self.lane))
            last = self.attention.last_position(self.reader, self._place(row))
            found.append(b.emit("arith.index_cast", [b.as_value(last)], [b.i32()]))
        size = self.target.subgroup
        largest = subgroup_reduce("arith.maxsi", tree("arith.maxsi", found), size, size)
        return b.emit("arith.index_cast", [largest], [ir.IndexType.get()])

    def _attend(self) -> tuple[list[ir.Value], list[ir.Value]]:
        """(sums, totals): the weighted values by tile, and for each of the lane's rows the sum of its weights."""
        count = len(self.rows)
        tops = [b.constant(LOWEST, b.f32())] * count
        totals = [b.constant(0.0, b.f32())] * count
        sums = [b.constant(0.0, self.unit.accumulator_type())] * self.sum_tiles

        def step(start: Index, *carried: ir.Value) -> list[ir.Value]:
            state = [list(carried[:count]), list(carried[count : 2 * count]), list(carried[2 * count :])]
            with self.reader.scope():
                return self._step(start, *state)

        results = b.loop(0, b.add(self.last, 1), self.keys, [*tops, *totals, *sums], step)
        return results[2 * count :], results[count : 2 * count]

    def _step(self, start: Index, tops: list[ir.Value], totals: list[ir.Value], sums: list[ir.Value]) -> list[ir.Value]:
        loaded = self._load_tile(start)
        b.barrier()
        self._store_tile(*loaded)
        b.barrier()
        scores = self._scores(start)
        flat: list[ir.Value] = []
        weights, new_tops = [], []
        for i, row in enumerate(scores):
            top = subgroup_reduce("arith.maxnumf", tree("arith.maxnumf", row), self.sharing, self.target.subgroup)
            top = b.binary("arith.maxnumf", tops[i], top)
            scale = exp(b.binary("arith.subf", tops[i], top), self.target)
            powers = [exp(b.binary("arith.subf", value, top), self.target) for value in row]
            own = subgroup_reduce("arith.addf", tree("arith.addf", powers), self.sharing, self.target.subgroup)
            totals[i] = b.fma(totals[i], scale, own)
            flat.append(scale)
            weights.append(powers)
            new_tops.append(top)
        self._store_weights(weights)
        b.barrier()
        return [*new_tops, *totals, *self._add_values([self._scaled(s, flat) for s in sums])]

    def _load_tile(self, start: Index) -> tuple[list[ir.Value], list[ir.Value]]:
        """This thread's vectors of the tile's keys and values; zero where no row looks."""
        keys: list[ir.Value] = []
        values: list[ir.Value] = []
        attention, place = self.attention, self._place(0)
        for number in range(self._vectors()):
            for found, op, index_of, (t, d) in (
                (keys, attention.scores, attention.key_index, self._key_place(number)),
                (values, attention.weighted, attention.value_index, self._value_place(number)),
            ):
                at = b.add(start, t)
                inside = b.less(at, self.last, predicate=7)
                at = b.select(inside, b.as_value(at), b.as_value(0))
                value = self.reader.read(op.operands[1], index_of(place, at, d), self.width)
                found.append(b.select(inside, value, b.constant(0.0, value.type)))
        return keys, values

    def _vectors(self) -> int:
        return -(-self.keys * self.depth // self.width // self.threads)

    def _key_place(self, number: int) -> tuple[Index, Index]:
        """(t, d) of this thread's number-th vector of keys: neighbouring threads go along d."""
        vector = b.add(self.thread, number * self.threads)
        per_row = self.depth // self.width
        return b.mod(b.div(vector, per_row), self.keys), b.mul(b.mod(vector, per_row), self.width)

    def _value_place(self, number: int) -> tuple[Index, Index]:
        """The same for values: neighbouring threads go along t, which is how shared memory holds them."""
        vector = b.add(self.thread, number * self.threads)
        per_row = self.depth // self.width
        return b.mod(vector, self.keys), b.mul(b.mod(b.div(vector, self.keys), per_row), self.width)

    def _store_tile(self, keys: list[ir.Value], values: list[ir.Value]) -> None:
        for number in range(self._vectors()):
            t, d = self._key_place(number)
            for part, key in enumerate(self._parts(keys[number])):
                b.store(key, self.key_memory, [part, t, d])
            t, d = self._value_place(number)
            for part, value in enumerate(self._parts(values[number])):
                for i in range(self.width):
                    b.store(b.lane_of(value, i), self.value_memory, [part, b.add(d, i), t])
        self._clear_padding()

    def _clear_padding(self) -> None:
        """Zero the keys past the depth, which matrix instructions multiply too."""
        if self.padded == self.depth:
            return
        zero = b.constant(0.0, ir.BF16Type.get())
        excess = self.padded - self.depth
        for number in range(-(-self.keys * excess // self.threads)):
            place = b.mod(b.add(self.thread, number * self.threads), self.keys * excess)
            for part in range(self.cache_parts):
                b.store(zero, self.key_memory, [part, b.div(place, excess), b.add(self.depth, b.mod(place, excess))])

    def _parts(self, value: ir.Value) -> list[ir.Value]:
        return [value] if self.cache_parts == 1 else self._split(value)

    def _scores(self, start: Index) -> list[list[ir.Value]]:
        """For each of the lane's rows its masked scores."""
        row, group = self._lane(self.unit.lane_row()), self._lane(self.unit.lane_group())
        pieces = self.unit.pieces()
        found: list[list[ir.Value]] = [[] for _ in pieces]
        for n in range(self.score_tiles):
            total = b.constant(0.0, self.unit.accumulator_type())
            for block in range(self.padded // self.unit.block):
                d = b.add(block * self.unit.block, b.mul(group, self.unit.run))
                t = b.add(row, n * self.unit.columns)
                keys = [self._run(self.key_memory, [part, t, d]) for part in range(self.cache_parts)]
                for left, right in self.products:
                    total = self.unit.multiply(self.queries[left][block], keys[right], total)
            flat = self._flat(total)
            for i, piece in enumerate(pieces):
                for j, element in enumerate(piece.elements):
                    t = b.add(start, b.add(self.column, n * self.unit.columns + j))
                    found[i].append(self._masked(b.lane_of(flat, element), self.rows[i], t))
        return found

    def _masked(self, score: ir.Value, place: list[Index], t: Index) -> ir.Value:
        self.reader.bind(self.attention.scores.results[0], lambda index, width: score)
        value = self.reader.read(self.attention.softmax.operands[0], [*place, t])
        inside = b.less(t, self.last, predicate=7)
        return b.select(inside, value, b.constant(float("-inf"), b.f32()))

    def _store_weights(self, weights: list[list[ir.Value]]) -> None:
        """The lane's softmax weights, in two parts, to where its subgroup reads them as a left operand."""
        row_rule, _ = self.unit.result_lane()
        first_row = self._lane(row_rule)
        for i, piece in enumerate(self.unit.pieces()):
            run = len(piece.elements)
            for n in range(self.score_tiles):
                value = b.vector_of(weights[i][n * run : (n + 1) * run])
                vector = value if run > 1 else b.splat(value, 1)
                where = [b.add(first_row, piece.row), b.add(self.column, n * self.unit.columns)]
                for part, half in enumerate(self._split_any(vector)):
                    b.store(half, self.weight_memory, [self.subgroup, part, *where])

    def _split_any(self, value: ir.Value) -> list[ir.Value]:
        if b.width_of(value) > 1:
            return self._split(value)
        high = b.emit("arith.truncf", [value], [ir.BF16Type.get()])
        rest = b.binary("arith.subf", value, b.extend(high))
        return [high, b.emit("arith.truncf", [rest], [ir.BF16Type.get()])]

    def _add_values(self, sums: list[ir.Value]) -> list[ir.Value]:
        row, group = self._lane(self.unit.lane_row()), self._lane(self.unit.lane_group())
        for block in range(self.keys // self.unit.block):
            t = b.add(block * self.unit.block, b.mul(group, self.unit.run))
            left = [
                [self._run(self.weight_memory, [self.subgroup, part, b.add(row, r), t]) for r in self.unit.left_rows]
                for part in range(2)
            ]
            for n in range(self.sum_tiles):
                d = b.add(row, n * self.unit.columns)
                right = [self._run(self.value_memory, [part, d, t]) for part in range(self.cache_parts)]
                for mine, other in self.products:
                    sums[n] = self.unit.multiply(left[mine], right[other], sums[n])
        return sums

    def _scaled(self, total: ir.Value, scales: list[ir.Value]) -> ir.Value:
        """An accumulator with each row's elements times the row's scale."""
        order = {e: scales[i] for i, piece in enumerate(self.unit.pieces()) for e in piece.elements}
        factors = b.vector_of([order[e] for e in range(len(order))])
        scaled = b.binary("arith.mulf", self._flat(total), factors)
        return (
            scaled if scaled.type == total.type else create_op("vector.shape_cast", [scaled], [total.type]).results[0]
        )

    def _flat(self, total: ir.Value) -> ir.Value:
        type_ = ir.VectorType.get([prod(self.unit.accumulator)], b.f32())
        return total if total.type == type_ else create_op("vector.shape_cast", [total], [type_]).results[0]

    def _run(self, memory: ir.Value, index: list[Index]) -> ir.Value:
        *outer, k = index
        return _joined([b.load(memory, [*outer, b.add(k, i)], 8) for i in range(0, self.unit.run, 8)])

    def _write(self, result: tuple[list[ir.Value], list[ir.Value]]) -> None:
        sums, totals = result
        for i, piece in enumerate(self.unit.pieces()):
            inverse = b.binary("arith.divf", b.constant(1.0, b.f32()), totals[i])

            def write(i: int = i, elements: tuple[int, ...] = piece.elements, inverse: ir.Value = inverse) -> None:
                for n, total in enumerate(sums):
                    flat = self._flat(total)
                    value = b.vector_of([b.binary("arith.mulf", b.lane_of(flat, e), inverse) for e in elements])
                    d = b.add(self.column, n * self.unit.columns)
                    b.store(value, self.attention.out_buffer, [*self.rows[i], d])

            if self.positions % self.tile:
                b.if_then(b.less(self.result_rows[i], self.positions), write)
            else:
                write()


def _joined(vectors: list[ir.Value]) -> ir.Value:
    """Vectors of one size, one after the other."""
    while len(vectors) > 1:
        size = vectors[0].type.shape[0]
        mask = ir.DenseI64ArrayAttr.get(list(range(2 * size)))
        type_ = ir.VectorType.get([2 * size], vectors[0].type.element_type)
        vectors = [
            create_op("vector.shuffle", vectors[i : i + 2], [type_], {"mask": mask}).results[0]
            for i in range(0, len(vectors), 2)
        ]
    return vectors[0]
