"""A tile program executed block by block, by numpy: what it means, whatever chip it is for.

Roles are coroutines that take turns in a seeded order, a slot that nothing has been written to since it was released is
NaN, and so is what no block stores.  It stands between the float64 reference (evaluate.py) and what a chip or its
emulator computes: where it differs from the reference the schedule is wrong, and where the chip differs from it the
lowering is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product as every
from typing import Any

import numpy as np

from lispgpt.base.dtypes import Dtype, find_dtype
from lispgpt.base.errors import InternalError
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import integers, nested_operations, operations, shape_of
from lispgpt.passes.recognise.attention import attention_of
from lispgpt.passes.recognise.attention_gradients import attention_gradients_of
from lispgpt.passes.recognise.in_blocks import bytes_of_blocks, kind_of_blocks
from lispgpt.passes.recognise.product_layout import ProductLayout
from lispgpt.passes.tile.attention_rows import AttentionRows
from lispgpt.passes.tile.copies import BULK
from lispgpt.passes.tile.evaluate import Array, Evaluator, to_bf16
from lispgpt.passes.tile.row_kernels import RowsKernel
from lispgpt.passes.tile.sum_rows import SumRows
from lispgpt.passes.tile.types import (
    PATCHES,
    ROW,
    SHARES,
    RegisterTile,
    SharedTile,
    register_tile,
    ring_tiles,
    shared_tile,
)
from lispgpt.passes.tile.walk import Agent, Machine, Numbering, Step, Turn, run_together


def interpret(
    kernel: ir.Operation,
    memory: Sequence[Array],
    rng: np.random.Generator,
    blocks: Iterable[tuple[int, ...]] | None = None,
) -> list[Array]:
    """The results of a kernel that has a tile program, in order, from the arrays of its arguments; NaN where none of
    the blocks, all of the grid's unless they are named, has stored anything."""
    body = kernel.regions[0].blocks[0]
    steps = Numbering().program(body)
    grid = integers(ir.DictAttr(kernel.attributes["tile"])["grid"])
    machine = _Meaning(kernel, dict(zip(body.arguments, memory, strict=True)))
    agents_of = [len(integers(op.attributes["threads"])) for op in nested_operations(kernel) if op.name == "tile.role"]
    agents_of += [_number(op, "teams") for op in nested_operations(kernel) if op.name == "tile.team"]
    for x, *y in every(*map(range, grid)) if blocks is None else blocks:
        machine.start((x, *y, 0, 0)[:3])  # type: ignore[arg-type]
        agents = [Agent(machine, role) for role in range(agents_of[0] if agents_of else 1)]
        if stuck := run_together([agent.run(steps) for agent in agents], rng):
            raise InternalError(f"a tile program ends in waiting for {'; '.join(stuck)}")
    return machine.results


def _in_parts(values: Array, count: int) -> Array:
    """As so many BF16 numbers that add up to each."""
    parts: list[Array] = []
    while len(parts) < count:
        parts.append(to_bf16(values))
        values = values - parts[-1]
    return np.stack(parts)


class _Meaning(Machine):
    """values: of the kernel's tensors.  packed: of views of weights in blocks, which are numbers here, their type.
    wide: tiles of those.  slots: what lies in each slot of a shared tile.  filled, released: the newest numbers of
    rings.  parts: the sums that blocks have of a tile whose k they share out."""

    def __init__(self, kernel: ir.Operation, memory: dict[ir.Value, Array]) -> None:
        self.values = Evaluator(memory, exact=False)
        attention = attention_of(kernel)
        self.rows = None if attention is None else AttentionRows(attention)
        gradients = attention_gradients_of(kernel)
        self.sums = None if gradients is None else SumRows(gradients)
        self.layout, self.of_rows = ProductLayout.of_kernel(kernel), RowsKernel(kernel)
        self.packed: dict[int, Dtype] = {}
        self.parts: dict[tuple[int, int, int], list[list[Array]]] = {}
        self.wide: set[Any] = set()
        ops = operations(kernel.regions[0].blocks[0])
        products = [op for op in ops if op.name == "linalg.contract"]
        self.products = [op.results[0] for op in products]
        self.blocks = [x for op in products for x in op.operands]
        self.writes = [op for op in ops if op.name == "bufferization.materialize_in_destination"]
        self.results = [np.full(op.operands[0].type.shape, np.nan, np.float32) for op in self.writes]

    def start(self, block: tuple[int, int, int]) -> None:
        self.block = block
        self.slots: dict[Any, Array] = {}
        self.counts: dict[Any, int] = {}
        self.filled: dict[int, int] = {}
        self.released: dict[int, int] = {}

    def other(self, agent: Agent, step: Step, values: list[Any]) -> list[Any]:
        """A function of register tiles; or a tensor op, which is computed when a view or a result asks for it."""
        tile = RegisterTile.of(step.op.results[0].type) if len(step.op.results) == 1 else None
        if tile is None:
            return [None] * len(step.results)
        if step.name == "arith.constant":
            splat = ir.DenseElementsAttr(step.op.attributes["value"]).get_splat_value()
            return [np.full(tile.shape, ir.FloatAttr(splat).value, np.float32)]
        with np.errstate(divide="ignore", invalid="ignore"):
            return [np.asarray(self.values.scalar(step.op, values), np.float32)]

    def barrier(self, agent: Agent, step: Step, values: list[Any]) -> None:
        """One agent does what all threads of a role do."""

    reduce_rows = keep = ask = clear = meet = fetch = barrier

    def role(self, agent: Agent, step: Step, values: list[Any]) -> list[int]:
        return [agent.role]

    team = role

    # ---- views and shared tiles

    def view(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        kinds = [integers(step.op.attributes[name]) for name in ("batch", "outer", "inner")]
        tensor, packed = step.op.operands[0], self._in_blocks(step.op.operands[0])
        if packed is not None:
            self.packed[step.results[0]] = find_dtype(kind_of_blocks(packed))
            return [self.values.of(packed)[None]]
        array = self.values.of(tensor)
        return [array.transpose([d for kind in kinds for d in kind]).reshape(step.op.results[0].type.shape)]

    def _in_blocks(self, tensor: ir.Value) -> ir.Value | None:
        """The product's operand whose blocks' bytes a tensor is."""
        return next((x for x in self.blocks if kind_of_blocks(x) and bytes_of_blocks(x) == tensor), None)

    def _box(self, number: int, view: Array, at: Sequence[int], shape: tuple[int, int]) -> Array:
        """Zeros past the view's ends; of blocks the numbers that they stand for."""
        batch, outer, inner = at
        if (dtype := self.packed.get(number)) is not None:
            inner, columns = (n // dtype.item_bytes * dtype.block for n in (inner, shape[1]))
            shape = shape[0], columns
        found = np.zeros(shape, np.float32)
        inside = view[batch, outer : outer + shape[0], inner : inner + shape[1]]
        found[: inside.shape[0], : inside.shape[1]] = inside
        return found

    def limit(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        """What is behind the end might be anything, but no box has it."""
        view, end = values
        return [view[:, :, :end] if ir.BoolAttr(step.op.attributes["inner"]).value else view[:, :end]]

    def load(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        tile = register_tile(step.op.results[0])
        if tile.layout == ROW:
            *at, number = values[1:]
            return [self._box(step.operands[0], values[0], (*at, number * tile.shape[0]), (1, tile.shape[0]))[0]]
        box = self._box(step.operands[0], values[0], values[1:], tile.shape[-2:])  # type: ignore[arg-type]
        return [box if tile.layout == PATCHES else _in_parts(box, tile.shape[0])]

    def operand(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        tile = register_tile(step.op.results[0])
        parts, rows, share = tile.shape
        shape = rows, tile.row_bytes if tile.blocks else parts * share
        box = self._box(step.operands[0], values[0], values[1:], shape)  # type: ignore[arg-type]
        return [box.reshape(rows, parts, share).transpose(1, 0, 2)]

    def split(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        return [_in_parts(values[0], register_tile(step.op.results[0]).shape[0])]

    def _empty(self, tile: SharedTile) -> Array:
        return np.full((tile.parts, tile.rows, tile.numbers), np.nan, np.float32)

    def shared(self, agent: Agent, step: Step, values: list[Any]) -> list[Any]:
        """A tile is known by the number of the value that it is."""
        tile = shared_tile(step.op.results[0])
        self._hold(step.results[0], tile)
        return [step.results[0]]

    def _hold(self, name: Any, tile: SharedTile) -> None:
        self.counts[name] = tile.slots
        if tile.blocks:
            self.wide.add(name)
        for slot in range(tile.slots):
            self.slots.setdefault((name, slot), self._empty(tile))

    def slot(self, agent: Agent, step: Step, values: list[Any]) -> list[tuple[int, int]]:
        tile, number = values
        return [(tile, number % self.counts[tile])]

    def put(self, agent: Agent, step: Step, values: list[Any]) -> None:
        patches, place = values
        self.slots[place] = patches[None] if place[0] in self.wide else _in_parts(patches, len(self.slots[place]))

    # ---- rings

    def ring(self, agent: Agent, step: Step, values: list[Any]) -> list[Any]:
        """A tile of a ring is known by the ring's number and its own."""
        for member, tile in enumerate(ring_tiles(step.op.results[0])):
            self._hold((step.results[0], member), tile)
        return [step.results[0]]

    def fill(self, agent: Agent, step: Step, values: list[Any]) -> Turn:
        ring, view, *at, number = values
        tiles, member = ring_tiles(step.op.operands[0]), ir.IntegerAttr(step.op.attributes["member"]).value
        how = ir.StringAttr(step.op.operands[0].owner.attributes["copies"]).value
        while how == BULK and self.released.get(ring, -1) < number - tiles[0].slots:
            yield f"a slot for number {number}"
        tile = tiles[member]
        box = self._box(step.operands[1], view, at, (tile.rows, tile.columns))
        whole = bool(tile.blocks) or tile.wide
        self.slots[(ring, member), number % tile.slots] = box[None] if whole else _in_parts(box, tile.parts)
        if member == len(tiles) - 1:
            self.filled[ring] = number

    def wait(self, agent: Agent, step: Step, values: list[Any]) -> Turn:
        ring, number = values
        while self.filled.get(ring, -1) < number:
            yield f"number {number} to be filled"
        tiles = ring_tiles(step.op.operands[0])
        return [[((ring, member), number % tile.slots) for member, tile in enumerate(tiles)]]

    def member(self, agent: Agent, step: Step, values: list[Any]) -> list[Any]:
        return [values[0][ir.IntegerAttr(step.op.attributes["member"]).value]]

    def release(self, agent: Agent, step: Step, values: list[Any]) -> None:
        ring, number = values
        self.released[ring] = number
        for member, tile in enumerate(ring_tiles(step.op.operands[0])):
            self.slots[(ring, member), number % tile.slots] = self._empty(tile)

    def drain(self, agent: Agent, step: Step, values: list[Any]) -> None:
        """Copies are there at once."""

    # ---- registers

    def zeros(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        return [np.zeros(register_tile(step.op.results[0]).shape, np.float32)]

    def mma(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        sums, (a, b) = values[0], (v if isinstance(v, np.ndarray) else self.slots[v] for v in values[1:])
        b = b.transpose(0, 2, 1) if "across" in step.op.attributes else b
        if isinstance(values[1], np.ndarray) and register_tile(step.op.operands[1]).blocks:
            a = a[None]  # numbers of blocks are as they are
        a, b = (v if v.ndim == 4 else _by_members(v, len(sums)) for v in (a, b))
        most, found = max(len(a), len(b)), sums.copy()
        for part, p, q in every(range(len(sums)), range(len(a)), range(len(b))):
            if p + q < most:
                found[part] += a[p, part] @ b[q, part].T
        return [found]

    def reduce(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        """Of each member's columns; shares of lanes are known by what they add up to."""
        tile = register_tile(step.op.operands[0])
        if tile.layout == SHARES:
            return [values[0]]
        members = tile.shape[0] * tile.teams[1]
        each = values[0].reshape(tile.shape[0], tile.shape[1], tile.teams[1], -1)
        combine = np.maximum if "max" in str(step.op.attributes["by"]) else np.add
        found = combine.reduce(each, axis=3)  # type: ignore[attr-defined]
        return [found.transpose(0, 2, 1).reshape(members, tile.shape[1])]

    def over_members(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        combine = np.maximum if "max" in str(step.op.attributes["by"]) else np.add
        return [np.broadcast_to(combine.reduce(values[0], axis=0), values[0].shape)]  # type: ignore[attr-defined]

    def broadcast(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        tile = register_tile(step.op.results[0])
        if tile.layout == SHARES:
            return [values[0]]
        each = values[0].reshape(tile.shape[0], tile.teams[1], tile.shape[1], 1).transpose(0, 2, 1, 3)
        return [np.repeat(each, tile.shape[2] // tile.teams[1], axis=3).reshape(tile.shape)]

    def as_operand(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        return [_in_parts(values[0][0], register_tile(step.op.results[0]).shape[0])]

    # ---- attention

    def visible(self, agent: Agent, step: Step, values: list[Any]) -> list[int]:
        """By what the softmax is given where every score is 0."""
        assert self.rows is not None
        scores = self.rows.attention.scores
        self.values.hold(scores.results[0], np.zeros(shape_of(scores.results[0]), np.float32))
        seen = self._softmax_rows(values[0], values[1], ir.IntegerAttr(step.op.attributes["rows"]).value) > -np.inf
        first, last = [0], [seen.shape[1] - 1]
        if self.rows.attention.upper is not None:
            last = [int(row.size - 1 - np.argmax(row[::-1])) if row.any() else 0 for row in seen]
        if self.rows.attention.lower is not None:
            first = [int(np.argmax(row)) for row in seen]
        return [min(first), min(last), max(last)]

    def _softmax_rows(self, batch: int, row: int, count: int) -> Array:
        """Rows of what the softmax is given; behind the last, it is the last again."""
        assert self.rows is not None
        source = self.values.of(self.rows.attention.softmax.operands[0])
        return np.stack([source[self._loops(batch, min(row + i, self.rows.rows - 1))] for i in range(count)])

    def _loops(self, batch: int, row: int) -> tuple[Any, ...]:
        """The scores' leading indices, as numpy takes them."""
        assert self.rows is not None
        return tuple(self.rows.loops(batch, row))

    def mask(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        assert self.rows is not None
        scores, batch, row, position, _, last = values
        _, rows, columns = scores.shape
        tensor = self.rows.attention.scores.results[0]
        whole, seen = np.full(shape_of(tensor), np.nan, np.float32), slice(position, position + columns)
        for i in range(min(rows, self.rows.rows - row)):
            whole[(*self._loops(batch, row + i), seen)] = scores[0, i, : whole.shape[-1] - position]
        self.values.hold(tensor, whole)
        found = np.full(scores.shape, -np.inf, np.float32)
        given = self._softmax_rows(batch, row, rows)[:, seen]
        found[0, :, : given.shape[1]] = given / np.float32(ir.FloatAttr(step.op.attributes["over"]).value)
        found[0, :, max(0, last + 1 - position) :] = -np.inf
        return [found]

    def reach(self, agent: Agent, step: Step, values: list[Any]) -> list[int]:
        """All that there is: what no row sees weighs nothing."""
        assert self.sums is not None
        return [0, self.sums.along]

    def weights(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        assert self.sums is not None
        task, row, round_, along, *scores = values
        _, rows, columns = scores[0].shape
        count = min(rows, self.sums.rows - row), max(0, min(columns, self.sums.along - along))
        places = [[self._score(task, round_, row + i, along + j) for j in range(count[1])] for i in range(count[0])]
        for product, tile in zip(self.sums.sums.products, scores, strict=True):
            whole = np.full(shape_of(product.op.results[0]), np.nan, np.float32)
            for i, of_row in enumerate(places):
                for j, place in enumerate(of_row):
                    whole[place] = tile[0, i, j]
            self.values.hold(product.op.results[0], whole)
        found = [np.zeros(scores[0].shape, np.float32) for _ in self.sums.sums.sums]
        for one, tile in zip(self.sums.sums.sums, found, strict=True):
            made = self.values.of(one.unrounded)
            for i, of_row in enumerate(places):
                for j, place in enumerate(of_row):
                    tile[0, i, j] = made[place]
        return found

    def _score(self, task: int, round_: int, kept: int, along: int) -> tuple[Any, ...]:
        """Where a score is."""
        assert self.sums is not None
        place, position = self.sums.walk.place(task, round_, kept, along)
        return *place, position

    def _store_part(self, registers: Array, tensor: ir.Value, task: int, row: int) -> None:
        """Rows of one of the sums."""
        assert self.sums is not None
        part = self.sums.part_of(tensor)
        whole, mine = np.full(shape_of(tensor), np.nan, np.float32), np.zeros(shape_of(tensor), bool)
        for i in range(min(registers.shape[-2], part.rows - row)):
            for column in range(part.columns):
                at: Any = tuple(part.place(task, row + i, column))
                whole[at], mine[at] = registers[0, i, column], True
        self.values.hold(tensor, whole)
        for write, result in zip(self.writes, self.results, strict=True):
            if write.operands[0] == part.sum.out.tensor:
                result[mine] = self.values.of(write.operands[0])[mine]

    def _store_rows(self, registers: Array, tensor: ir.Value, batch: int, row: int) -> None:
        """The same for rows of an attention: sums of weighed values, or one number each."""
        assert self.rows is not None
        shape = shape_of(tensor)
        one = self.rows.is_log_sum(tensor)
        registers = registers[0, :, None] if one else registers.reshape(-1, registers.shape[-1])
        whole, mine = np.full(shape, np.nan, np.float32), np.zeros(shape, bool)
        for i in range(min(len(registers), self.rows.rows - row)):
            for column in range(1 if one else registers.shape[1]):
                at: Any = self._loops(batch, row + i) if one else tuple(self.rows.place(batch, row + i, column))
                whole[at], mine[at] = registers[i, column], True
        self.values.hold(tensor, whole)
        for write, result in zip(self.writes, self.results, strict=True):
            if self.rows.is_log_sum(write.operands[0]) == one:
                result[mine] = self.values.of(write.operands[0])[mine]

    def _store_numbers(self, numbers: Array, tensor: ir.Value, batch: int, row: int, number: int) -> None:
        """Those of a row that a rows kernel's results have."""
        column = number * numbers.size
        columns = self.of_rows.columns_of(tensor)
        for write, result in zip(self.writes, self.results, strict=True):
            if write.operands[0] == tensor:
                whole = result.reshape(result.shape[0] if self.of_rows.leading else 1, -1, columns)
                whole[batch, row, column : column + numbers.size] = numbers[: columns - column]

    def settle(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        return [values[0]]

    def add_parts(self, agent: Agent, step: Step, values: list[Any]) -> list[Array]:
        return [values[0].sum(0, dtype=np.float32)]

    def store(self, agent: Agent, step: Step, values: list[Any]) -> None:
        """Take the sums for a part of the product, compute the kernel's results of it, and keep those of this part."""
        sums, _, batch, row, column, *others = values
        found = [sums, *others]
        if "splits" in step.op.attributes:
            parts = self.parts.setdefault((batch, row, column), [])
            parts.append(found)
            if len(parts) < _number(step.op, "splits"):
                return
            found = [np.sum(each, axis=0) for each in zip(*parts, strict=True)]
        if register_tile(step.op.operands[0]).layout == ROW:
            self._store_numbers(sums, step.op.operands[1], batch, row, column)
            return
        if self.sums is not None:
            self._store_part(sums, step.op.operands[1], batch, row)
            return
        if self.rows is not None:
            self._store_rows(sums, step.op.operands[1], batch, row)
            return
        assert self.layout is not None
        shape = step.op.operands[1].type.shape
        layout = self.layout.transposed() if "transposed" in step.op.attributes else self.layout
        kinds = (layout.batch, layout.rows, layout.columns)
        order = [layout.result.index(loop) for kind in kinds for loop in kind]
        flat = [layout.extent(kind) for kind in kinds]
        ends = min(flat[1], row + sums.shape[-2]), min(flat[2], column + sums.shape[-1])
        at = (batch, slice(row, ends[0]), slice(column, ends[1]))
        for each, result in zip(found, self.products, strict=True):
            whole = np.full(flat, np.nan, np.float32)
            whole[at] = each.reshape(each.shape[-2:])[: flat[1] - row, : flat[2] - column]
            self.values.hold(result, whole.reshape([shape[d] for d in order]).transpose(np.argsort(order)))
        mine = np.zeros(flat, bool)
        mine[at] = True
        mine = mine.reshape([shape[d] for d in order]).transpose(np.argsort(order))
        for write, result in zip(self.writes, self.results, strict=True):
            result[mine] = self.values.of(write.operands[0])[mine]


def _by_members(tile: Array, members: int) -> Array:
    """[numbers, rows, k] by the members that share out k."""
    numbers, rows, k = tile.shape
    return tile.reshape(numbers, rows, members, k // members).transpose(0, 2, 1, 3)


def _number(op: ir.Operation, name: str) -> int:
    return ir.IntegerAttr(op.attributes[name]).value
