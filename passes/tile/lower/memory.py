"""Where a block's shared tiles lie, and what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, nested_operations
from lispgpt.passes.kernels.block_memory import BlockMemory, fits
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.types import RegisterTile, SharedTile, register_tile, ring_tiles, shared_tile

STATIC_BYTES = 48 * 1024
"""What a block has on every chip without asking for more."""

REDUCED = 4
"""Reductions of a row at most, of which a block keeps results."""

BARRIER_BYTES = 1024
"""For the barriers of rings."""


@dataclass(frozen=True)
class Slot:
    """A shared tile, or one slot of it.  memory: of [slots, parts, rows, columns + padding]; of a swizzled tile the
    address of its first byte."""

    tile: SharedTile
    memory: ir.Value
    slot: Index = 0

    @property
    def parts(self) -> int:
        """BF16 numbers of an element."""
        return self.tile.parts

    def run(self, part: int, row: Index, k: Index, length: int) -> ir.Value:
        """`length` neighbours along k of a row, in loads of eight."""
        at = [b.add(k, i) for i in range(0, length, 8)]
        return b.joined([b.load(self.memory, [self.slot, part, row, i], 8) for i in at])


class BlockTiles:
    """The shared tiles of a program's ops, by their values; those of a ring by its value and their numbers in it.

    shares_sums: whether sums of all parts lie where the tiles do, for which there is no room beside them: when they are
    added, a program is done with its tiles (see verify.py)."""

    def __init__(self, target: Gpu, ops: Sequence[ir.Operation], staging: int = 0) -> None:
        """staging: bytes for what is stored by way of the block's memory."""
        self.target, self.staging = target, staging
        self.every = [inner for op in ops for inner in (op, *nested_operations(op)) if inner.name.startswith("tile.")]
        self.tiles: list[tuple[Any, SharedTile]] = []
        for op in self.every:
            if op.name == "tile.shared":
                self.tiles.append((op.results[0], shared_tile(op.results[0])))
            elif op.name == "tile.ring":
                self.tiles += [((op.results[0], i), tile) for i, tile in enumerate(ring_tiles(op.results[0]))]
        self.places: dict[Any, ir.Value] = {}
        self.block: BlockMemory | None = None
        self.barriers: Index = 0
        self.taken = 0
        self.shares_sums = False

    @property
    def nbytes(self) -> int:
        return sum(tile.slots * tile.slot_bytes for _, tile in self.tiles)

    def allocate(self) -> None:
        """Give each tile its memory: arrays of their own where they are few bytes, else one piece of it."""
        swizzled = any(tile.swizzle for _, tile in self.tiles)
        if not swizzled and self.nbytes + self._beside() <= max(STATIC_BYTES, self.target.shared_bytes):
            for value, tile in reversed(self.tiles):
                self.places[value] = b.shared(_shape(tile), tile.dtype)
            return
        wanted = self.nbytes + BARRIER_BYTES * swizzled + self._own()
        beside = self._beside() - self._own()
        if not fits(self.target, wanted + beside, swizzled) and not swizzled:
            self.shares_sums = True
            wanted = max(self.nbytes, self._sums_bytes()) + self._own()
        if not fits(self.target, wanted + beside, swizzled):
            room = self.target.dynamic_shared_bytes or self.target.shared_bytes
            raise Refused(f"its tiles want {wanted + beside} bytes of shared memory, of which a block has {room}")
        self.block = BlockMemory(self.target, wanted, aligned=swizzled)
        offset = 0
        for value, tile in self.tiles:
            if swizzled:
                start = b.add(b.address_of(self.block.memory), self.block.start)
                self.places[value], self.barriers = b.add(start, offset), b.add(start, self.nbytes)
            else:
                self.places[value] = self.block.view(offset, _shape(tile), tile.dtype)
            offset += tile.slots * tile.slot_bytes

    def _own(self) -> int:
        """Bytes of what ops have for themselves."""
        shapes = [self._own_shape(op) for op in self.every if op.name != "tile.add_parts" or not self.shares_sums]
        return sum(b.item_bytes(type_) * prod(shape) for shape, type_ in filter(None, shapes))

    def _sums_bytes(self) -> int:
        """Bytes for sums of all parts."""
        sums = [register_tile(op.operands[0]).shape for op in self.every if op.name == "tile.add_parts"]
        return max((4 * prod(shape) for shape in sums), default=0)

    def _own_shape(self, op: ir.Operation) -> tuple[Sequence[int], ir.Type] | None:
        if op.name in ("tile.add_parts", "tile.over_members"):
            return register_tile(op.operands[0]).shape, b.f32()
        if op.name == "tile.store" and self.staging:
            return [self.staging], b.integer(8)
        tile = register_tile(op.results[0]) if op.name == "tile.as_operand" else None
        shape = None if tile is None else operand_memory(tile, self.target)
        return None if tile is None or shape is None else (shape, tile.dtype)

    def own_memory(self, op: ir.Operation) -> ir.Value | None:
        """Memory of an op's own; None where it needs none."""
        wanted = self._own_shape(op)
        if wanted is None or self.block is None:
            return None if wanted is None else b.shared(*wanted)
        if op.name == "tile.add_parts" and self.shares_sums:
            b.barrier()  # others may still read their tiles
            return self.block.view(0, *wanted)
        tiles = max(self.nbytes, self._sums_bytes()) if self.shares_sums else self.nbytes
        start = tiles + BARRIER_BYTES * any(tile.swizzle for _, tile in self.tiles) + self.taken
        self.taken += b.item_bytes(wanted[1]) * prod(wanted[0])
        return self.block.view(start, *wanted)

    def staging_at(self) -> int:
        """Where in the block's memory staging is."""
        start = self.nbytes + BARRIER_BYTES + self.taken
        self.taken += self.staging
        return start

    def _beside(self) -> int:
        """Bytes of that, and of rows' reductions."""
        rows = [ir.IntegerAttr(op.attributes["rows"]).value for op in self.every if op.name == "tile.reduce_rows"]
        return self._own() + 4 * sum(rows) * REDUCED

    def record(self, kernel: ir.Operation) -> None:
        """On a kernel's function what its launches ask for."""
        if self.block is not None:
            self.block.record(kernel)

    def memory_of(self, tile: ir.Value) -> ir.Value:
        return self.places[tile]

    def members_of(self, ring: ir.Value) -> list[tuple[SharedTile, ir.Value]]:
        """A ring's tiles, and where they lie."""
        return [(tile, self.places[name]) for name, tile in self.tiles if isinstance(name, tuple) and name[0] == ring]

    def memory_for(self, load: ir.Operation) -> ir.Value:
        """Where what a load brings is put."""
        return self.places[self._tile_of(load)]

    def put_to(self, load: ir.Operation) -> SharedTile:
        """The tile to which what a load brings is put, then or in a later turn of a loop."""
        return shared_tile(self._tile_of(load))

    def is_right(self, load: ir.Operation) -> bool:
        """Whether what a load brings is B of products alone: past the last k it may be anything, where A is zeros."""
        tile = self._tile_of(load)
        shared = [
            op.operands[1]
            for op in self.every
            if op.name == "tile.mma" and RegisterTile.of(op.operands[1].type) is None
        ]
        return all(self._slot_tile(slot) != tile for slot in shared)

    def _tile_of(self, load: ir.Operation) -> ir.Value:
        """Puts and loads of a program are of the same views in the same order."""
        view = load.operands[0]
        for put in self.every:
            if put.name == "tile.put" and _source(put.operands[0]) == view:
                return self._slot_tile(put.operands[1])
        raise AssertionError("a load is put nowhere")

    def _slot_tile(self, slot: ir.Value) -> ir.Value:
        return defining_op(slot).operands[0]


def operand_memory(tile: RegisterTile, target: Gpu) -> list[int] | None:
    """The shape of what operands made of results take of shared memory; None where they stay in registers."""
    unit = target.matrix
    assert unit is not None
    if unit.result_as_left:
        return None
    parts, rows, k = tile.shape
    return [tile.teams[0] * tile.teams[1], parts, rows // tile.teams[0], k // tile.teams[1] + unit.padding]


def _shape(tile: SharedTile) -> list[int]:
    return [tile.slots, tile.parts, tile.rows, tile.columns + tile.padding]


def _source(patches: ir.Value) -> ir.Value | None:
    """The view that patches are loaded from, through loops that carry them."""
    op = defining_op(patches)
    while op is None:
        argument = ir.BlockArgument(patches)
        loop = argument.owner.owner.operation
        patches = loop.operands[2 + argument.arg_number]
        op = defining_op(patches)
    return op.operands[0] if op.name == "tile.load" else None
