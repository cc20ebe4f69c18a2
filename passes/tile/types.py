"""The types of tile programs, as MLIR's own: what a tile is made of stands in its type, and nowhere else.

A view is a plain tensor of [batch, outer, inner].  A shared tile is a memref of [slots, parts, rows, columns] (without
slots: one slot of it) whose memory space says how its rows lie; a ring is a tuple of such.  A register tile is a tensor
whose encoding says which threads have what.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from lispgpt.base.dtypes import BLOCK_DTYPES, find_dtype
from lispgpt.base.errors import InternalError
from lispgpt.ir import build as b
from lispgpt.ir.mlir import attribute, ir
from lispgpt.ir.structure import integers

PATCHES, SUMS, SPREAD = "patches", "sums", "spread"
OPERANDS = A, B = "a", "b"
"""Layouts of register tiles.  Patches: what threads bring of a view, each some neighbours.  Sums: what matrix
instructions leave with the subgroups or warpgroups of a team.  Spread: a block's results shared out over all threads,
each some neighbours of a row.  A, B: what lanes hold of an operand that matrix instructions take from registers."""

OPERAND, ROWS, SHARES = "operand", "rows", "shares"
"""More of them.  Operand: [parts, rows, k] in BF16, as matrix instructions take A.  Rows: one number for each row of
sums, [members, rows], which each of the members that lie along its columns has its own of, and all lanes that hold the
row.  Shares: the same in shares of these lanes, which add up to it."""

ROW = "row"
"""[columns] of a row, of which each thread of a team has as many neighbours; or one number, which all of them have."""

SUBGROUP, WARPGROUP, THREAD = "subgroup", "warpgroup", "thread"
"""What executes one matrix instruction; and each of a team that has a row."""

WARPGROUP_SUBGROUPS = 4

SWIZZLE = 128
"""Bytes of a line whose sixteen-byte pieces change places by the line's number, as bulk copies write them and warpgroup
instructions read them."""


@dataclass(frozen=True)
class SharedTile:
    """A tile of BF16 numbers, which is what matrix instructions take, in a block's shared memory; or one of weights in
    blocks as they are, which are widened on their way from there to registers.

    slots: how many of it there are; 0: this is one of them.  parts: BF16 numbers that add up to an element.  columns:
    elements of a row, of blocks their bytes.  swizzle: SWIZZLE, or 0.  padding: elements between rows.  blocks: their
    type; "": these are BF16 numbers.  across: whether its swizzled lines lie along rows, not along columns.
    wide: whether it is of F32 numbers, which warpgroups split on their way to registers.
    """

    slots: int
    parts: int
    rows: int
    columns: int
    swizzle: int = 0
    padding: int = 0
    blocks: str = ""
    across: bool = False
    wide: bool = False

    @property
    def slot(self) -> SharedTile:
        return replace(self, slots=0)

    @property
    def slot_bytes(self) -> int:
        return self.item_bytes * self.parts * self.rows * (self.columns + self.padding)

    @property
    def item_bytes(self) -> int:
        return 1 if self.blocks else 4 if self.wide else 2

    @property
    def dtype(self) -> ir.Type:
        if self.wide:
            return b.f32()
        return ir.IntegerType.get_signless(8) if self.blocks else ir.BF16Type.get()

    @property
    def numbers(self) -> int:
        """Of a row."""
        if not self.blocks:
            return self.columns
        dtype = find_dtype(self.blocks)
        return self.columns // dtype.item_bytes * dtype.block

    @property
    def type(self) -> ir.Type:
        facts: dict[str, int | str] = {"padding": self.padding, "swizzle": self.swizzle}
        facts |= {"blocks": self.blocks} if self.blocks else {}
        facts |= {"across": 1} if self.across else {}
        shape = [*([self.slots] if self.slots else []), self.parts, self.rows, self.columns]
        return ir.MemRefType.get(shape, self.dtype, memory_space=attribute(facts))

    @staticmethod
    def of(type_: ir.Type) -> SharedTile | None:
        """None where a type is no shared tile's."""
        space = type_.memory_space if isinstance(type_, ir.MemRefType) else None
        if not isinstance(space, ir.DictAttr) or len(type_.shape) not in (3, 4):
            return None
        facts = {one.name: one.attr for one in space}
        blocks = ir.StringAttr(facts.pop("blocks")).value if "blocks" in facts else ""
        across = bool(facts.pop("across", None))
        if set(facts) != {"padding", "swizzle"} or blocks not in ("", *BLOCK_DTYPES):
            return None
        padding, swizzle = (ir.IntegerAttr(facts[name]).value for name in ("padding", "swizzle"))
        slots, parts, rows, columns = [0, *type_.shape] if len(type_.shape) == 3 else type_.shape
        wide = type_.element_type == b.f32()
        tile = SharedTile(slots, parts, rows, columns, swizzle, padding, blocks, across, wide)
        return tile if type_.element_type == tile.dtype else None


@dataclass(frozen=True)
class RegisterTile:
    """A tile in a team's registers: [rows, columns]; of sums [parts, rows, columns], as subgroups that share out k have
    each sums of their own; of operands [parts, rows, k], a subgroup's own k; and of operands in so many BF16 numbers an
    element [numbers, parts, rows, k].

    teams: how many subgroups or warpgroups (`unit`) lie along the rows and along the columns; of a row, its threads.
    blocks: of an operand whose numbers are weights in blocks as they are, their type.
    """

    shape: tuple[int, ...]
    dtype: ir.Type
    layout: str
    teams: tuple[int, int] = (1, 1)
    unit: str = SUBGROUP
    blocks: str = ""

    @property
    def row_bytes(self) -> int:
        """Of a row in memory, for all that share out k."""
        numbers = prod(self.shape[:-2]) * self.shape[-1]
        if not self.blocks:
            return numbers * b.item_bytes(self.dtype)
        dtype = find_dtype(self.blocks)
        return numbers // dtype.block * dtype.item_bytes

    @property
    def members(self) -> int:
        """Subgroups or warpgroups that have a part of it."""
        parts = self.shape[-3] if len(self.shape) > 2 else 1
        return parts * self.teams[0] * self.teams[1]

    @property
    def by_subgroups(self) -> RegisterTile:
        """The same as the subgroups of its warpgroups have it, each a quarter of their rows."""
        if self.unit != WARPGROUP:
            return self
        return replace(self, teams=(WARPGROUP_SUBGROUPS * self.teams[0], self.teams[1]), unit=SUBGROUP)

    @property
    def type(self) -> ir.Type:
        facts = {"layout": self.layout, "teams": list(self.teams), "unit": self.unit}
        facts |= {"blocks": self.blocks} if self.blocks else {}
        return ir.RankedTensorType.get(list(self.shape), self.dtype, attribute(facts))

    @staticmethod
    def of(type_: ir.Type) -> RegisterTile | None:
        """None where a type is no register tile's."""
        encoding = type_.encoding if isinstance(type_, ir.RankedTensorType) else None
        if not isinstance(encoding, ir.DictAttr):
            return None
        facts = {one.name: one.attr for one in encoding}
        blocks = ir.StringAttr(facts.pop("blocks")).value if "blocks" in facts else ""
        if set(facts) != {"layout", "teams", "unit"} or blocks not in ("", *BLOCK_DTYPES):
            return None
        layout, unit = (ir.StringAttr(facts[name]).value for name in ("layout", "unit"))
        rows, columns = integers(facts["teams"])
        return RegisterTile(tuple(type_.shape), type_.element_type, layout, (rows, columns), unit, blocks)


def shared_tile(value: ir.Value) -> SharedTile:
    """The type of a value that is a shared tile."""
    found = SharedTile.of(value.type)
    if found is None:
        raise InternalError(f"a shared tile is wanted, not {value.type}")
    return found


def register_tile(value: ir.Value) -> RegisterTile:
    """The type of a value that is a register tile."""
    found = RegisterTile.of(value.type)
    if found is None:
        raise InternalError(f"a register tile is wanted, not {value.type}")
    return found


def ring_tiles(value: ir.Value) -> list[SharedTile]:
    """The tiles of a ring, or of what was waited for of it: a tuple of shared tiles."""
    type_ = value.type
    if not isinstance(type_, ir.TupleType):
        raise InternalError(f"a ring is wanted, not {type_}")
    found = [SharedTile.of(type_.get_type(i)) for i in range(type_.num_types)]
    if None in found:
        raise InternalError(f"a ring has shared tiles, and this is {type_}")
    return [tile for tile in found if tile is not None]
