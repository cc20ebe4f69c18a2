"""What the types of a tile program's ops have to be to each other."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.ir.diagnostics import form_of
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, integers, operations, shape_of
from lispgpt.passes.targets import Cpu, Gpu
from lispgpt.passes.tile.copies import ASYNC, BULK, PIECE, operand_of, stored_parts
from lispgpt.passes.tile.types import (
    OPERAND,
    OPERANDS,
    PATCHES,
    ROW,
    ROWS,
    SHARES,
    SPREAD,
    SUBGROUP,
    SUMS,
    SWIZZLE,
    THREAD,
    WARPGROUP,
    A,
    B,
    RegisterTile,
    SharedTile,
    ring_tiles,
)


class Unsafe(UserError):
    """A tile program that a chip may not run."""


OF_ROWS = ("view", "team", "load", "store", "reduce_rows", "ask", "keep")
"""Ops of programs of rows, which are all that CPUs run."""


def check_types(op: ir.Operation, target: Gpu | Cpu) -> None:
    """Unsafe where an op's operands, results or attributes do not fit each other."""
    dialect, _, name = op.name.partition(".")
    _want(dialect != "tile" or name in OF_ROWS or isinstance(target, Gpu), op, f"{target} runs programs of rows alone")
    check = _CHECKS.get(op.name)
    if check is not None:
        check(op, target)


def _want(holds: bool, op: ir.Operation, says: str) -> None:
    if not holds:
        raise Unsafe(f"{op.name}: {says}", form_of(op.location))


def _shared(op: ir.Operation, value: ir.Value, slots: bool) -> SharedTile:
    tile = SharedTile.of(value.type)
    _want(
        tile is not None and bool(tile.slots) == slots,
        op,
        f"{value.type} is not {'all' if slots else 'one'} of its slots",
    )
    assert tile is not None
    return tile


def _registers(op: ir.Operation, value: ir.Value, *layouts: str) -> RegisterTile:
    tile = RegisterTile.of(value.type)
    _want(
        tile is not None and tile.layout in layouts, op, f"{value.type} is no register tile of {' or '.join(layouts)}"
    )
    assert tile is not None
    return tile


def _view(op: ir.Operation, target: Gpu) -> None:
    shape = shape_of(op.operands[0])
    kinds = [integers(op.attributes[name]) for name in ("batch", "outer", "inner")]
    _want(sorted(d for kind in kinds for d in kind) == list(range(len(shape))), op, "each dimension is of one kind")
    extents = [prod(shape[d] for d in kind) for kind in kinds]
    same = ir.RankedTensorType.get(extents, op.operands[0].type.element_type)
    _want(op.results[0].type == same, op, f"its result is {same}")


def _tiles(op: ir.Operation, value: ir.Value, slots: bool) -> list[SharedTile]:
    """The tiles of a ring, or of what was waited for."""
    _want(isinstance(value.type, ir.TupleType), op, f"{value.type} is no tuple of tiles")
    found = ring_tiles(value)
    _want(
        all(bool(tile.slots) == slots for tile in found), op, f"{value.type} has {'no' if slots else 'several'} slots"
    )
    return found


def _lines(op: ir.Operation, tile: SharedTile) -> None:
    lined = tile.item_bytes * (tile.rows if tile.across else tile.columns)
    whole = tile.swizzle in (0, SWIZZLE) and (tile.swizzle > 0 or not (tile.across or tile.wide))
    whole = whole and lined % (tile.swizzle or 1) == 0
    _want(whole and not (tile.swizzle and tile.padding), op, f"swizzled lines have {SWIZZLE} bytes, none between them")


def _memory(op: ir.Operation, target: Gpu) -> None:
    _lines(op, _shared(op, op.results[0], slots=True))


def _ring(op: ir.Operation, target: Gpu) -> None:
    tiles, how = _tiles(op, op.results[0], slots=True), ir.StringAttr(op.attributes["copies"]).value
    _want(how in (BULK, ASYNC), op, f"its copies are {BULK} or {ASYNC}, not {how}")
    _want(len({tile.slots for tile in tiles}) == 1, op, "all of its tiles have as many slots")
    for tile in tiles:
        _lines(op, tile)
        _want((tile.swizzle == SWIZZLE) == (how == BULK), op, f"lines that {how} copies write do not lie so")
        _want(tile.parts == 1 or how == BULK, op, "copies split no numbers into parts")
        _pieces(op, tile)


def _slot(op: ir.Operation, target: Gpu) -> None:
    _want(_shared(op, op.operands[0], slots=True).slot.type == op.results[0].type, op, "its result is no slot of it")


def _fill(op: ir.Operation, target: Gpu) -> None:
    tiles, member = _tiles(op, op.operands[0], slots=True), ir.IntegerAttr(op.attributes["member"]).value
    view, source = op.operands[1], defining_op(op.operands[1])
    _want(0 <= member < len(tiles), op, f"a ring of {len(tiles)} tiles has no member {member}")
    _want(source is not None and source.name in ("tile.view", "tile.limit"), op, "copies are of views")
    if tiles[member].parts > 1:
        _want(stored_parts(operand_of(view)) == tiles[member].parts, op, "copies split no numbers into parts")
        return
    _want(
        view.type.element_type == tiles[member].dtype, op, "copies are of BF16 numbers, or of bytes to tiles of blocks"
    )


def _pieces(op: ir.Operation, tile: SharedTile) -> None:
    _want(tile.columns * tile.item_bytes % PIECE == 0, op, f"rows of a box are not of whole pieces of {PIECE} bytes")


def _wait(op: ir.Operation, target: Gpu) -> None:
    slots = [tile.slot for tile in _tiles(op, op.operands[0], slots=True)]
    _want(_tiles(op, op.results[0], slots=False) == slots, op, "its result is one slot of each of its tiles")


def _member(op: ir.Operation, target: Gpu) -> None:
    tiles, member = _tiles(op, op.operands[0], slots=False), ir.IntegerAttr(op.attributes["member"]).value
    _want(0 <= member < len(tiles) and tiles[member].type == op.results[0].type, op, "its result is no member")


def _release(op: ir.Operation, target: Gpu) -> None:
    _tiles(op, op.operands[0], slots=True)


def _load(op: ir.Operation, target: Any) -> None:
    patches = _registers(op, op.results[0], PATCHES, OPERAND, ROW)
    _want(patches.layout == ROW or isinstance(target, Gpu), op, f"{target} runs programs of rows alone")
    if patches.layout == OPERAND:
        _operand(op, patches, target)
        return
    if patches.layout == ROW:
        wide = patches.dtype == ir.F32Type.get() and op.operands[0].type.element_type in (
            ir.BF16Type.get(),
            ir.F16Type.get(),
        )
        _want(patches.dtype == op.operands[0].type.element_type or wide, op, "it changes no dtype but to f32")
        _want(patches.unit == THREAD and len(patches.shape) == 1, op, "threads have vectors of it")
        _row(op, patches.shape[0], patches.teams[0], target)
        return
    _want(patches.dtype == op.operands[0].type.element_type, op, "it changes no dtype")


def _row(op: ir.Operation, columns: int, threads: int, target: Gpu | Cpu) -> None:
    """Of so many columns each thread of a team has one vector, which starts at a multiple of its width."""
    extent, width = op.operands[0].type.shape[2], columns // threads
    vectors = columns == threads * width and width > 0 and width & (width - 1) == 0
    vectors = vectors and (target.in_turns or extent % width == 0)
    whole = extent == columns == 1 or vectors
    _want(whole, op, f"{columns} columns of {extent} are no vectors of {threads} threads")


def _team(op: ir.Operation, target: Gpu | Cpu) -> None:
    threads, teams = (ir.IntegerAttr(op.attributes[name]).value for name in ("threads", "teams"))
    part = threads & (threads - 1) == 0 and threads <= target.subgroup
    _want(part or (teams == 1 and threads % target.subgroup == 0), op, f"{threads} threads are no team of {teams}")
    together = threads if target.in_turns else threads * teams
    _want(0 < together <= target.max_threads, op, f"a block has at most {target.max_threads} threads")


def _of_row(op: ir.Operation, target: Gpu) -> None:
    source = defining_op(op.operands[0])
    _want(source is not None and source.name == "tile.view", op, "it is of a view")


def _reduce_rows(op: ir.Operation, target: Gpu) -> None:
    source = defining_op(op.operands[0])
    _want(source is not None and source.name == "tile.view", op, "it is of a view")
    _want(ir.IntegerAttr(op.attributes["rows"]).value > 0, op, "it wants some rows")


def _put(op: ir.Operation, target: Gpu) -> None:
    patches, tile = _registers(op, op.operands[0], PATCHES), _shared(op, op.operands[1], slots=False)
    _want(patches.shape == (tile.rows, tile.columns), op, "the tiles are not alike")
    _want(tile.parts == 1 or patches.dtype != ir.BF16Type.get(), op, "BF16 numbers have one part")
    _want((patches.dtype == tile.dtype) or not tile.blocks, op, "a tile of blocks has bytes")


def _lanes(op: ir.Operation, target: Gpu) -> None:
    tile = _registers(op, op.results[0], *OPERANDS)
    _want(len(tile.shape) == 3 and tile.dtype == op.operands[0].type.element_type, op, "it changes no dtype")


def _split(op: ir.Operation, target: Gpu) -> None:
    whole, numbers = (_registers(op, value, *OPERANDS) for value in (op.operands[0], op.results[0]))
    same = RegisterTile((*numbers.shape[:1], *whole.shape), ir.BF16Type.get(), whole.layout, whole.teams, whole.unit)
    _want(len(whole.shape) == 3 and numbers == same, op, "its result is other BF16 numbers than its operand's")


def _mma_of_lanes(op: ir.Operation, target: Gpu) -> None:
    """Where lanes hold both operands."""
    sums = _registers(op, op.operands[0], SUMS)
    a, b = (_registers(op, value, layout) for value, layout in zip(list(op.operands)[1:], (A, B), strict=True))
    _want(op.results[0].type == op.operands[0].type, op, "its result has another type than its sums")
    unit = target.matrix
    _want(unit is not None and sums.unit == SUBGROUP, op, f"{target} has no matrix instruction for {sums.unit}s")
    assert unit is not None
    short = [x for x in (a, b) if not x.blocks]
    _want(all(len(x.shape) == 4 and x.dtype == ir.BF16Type.get() for x in short), op, "they are in BF16")
    _want(b in short, op, "B is in BF16")
    (parts, rows, columns), teams, k = sums.shape, sums.teams, a.shape[-1]
    same = a.shape[-3:-1] == (parts, rows) and b.shape[1:] == (parts, columns, k)
    _want(same, op, _differ((rows, columns), (a.shape[-2], parts * k), (b.shape[-2], parts * b.shape[-1])))
    _want(a.teams == b.teams == teams, op, "A and B are other members' than the sums")
    each = rows // teams[0], columns // teams[1], k
    whole = (each[0] * teams[0], each[1] * teams[1]) == (rows, columns)
    fits = each[0] % unit.rows == each[1] % unit.columns == each[2] % unit.block == 0
    _want(
        whole and fits, op, f"a member's {each} are no whole instructions of {unit.rows}, {unit.columns}, {unit.block}"
    )


def _mma(op: ir.Operation, target: Gpu) -> None:
    if RegisterTile.of(op.operands[2].type) is not None:
        _mma_of_lanes(op, target)
        return
    sums = _registers(op, op.operands[0], SUMS)
    _want(op.results[0].type == op.operands[0].type, op, "its result has another type than its sums")
    if RegisterTile.of(op.operands[1].type) is not None:
        _mma_of_registers(op, sums, target)
        return
    a, b = (_shared(op, value, slots=False) for value in list(op.operands)[1:])
    parts, rows, columns = sums.shape
    same = (rows, columns) == (a.rows, b.rows) and a.numbers == b.numbers
    _want(same, op, _differ((rows, columns), (a.rows, a.numbers), (b.rows, b.numbers)))
    _want(not b.blocks, op, "B is in BF16")
    warpgroups = sums.unit == WARPGROUP
    _want(warpgroups or "later" not in op.attributes, op, "only warpgroups multiply later")
    _want((a.swizzle == b.swizzle == SWIZZLE) == warpgroups, op, f"{sums.unit}s do not read lines that lie so")
    unit = target.warpgroup if warpgroups else target.matrix
    _want(unit is not None, op, f"{target} has no matrix instruction of {sums.unit}s")
    assert unit is not None
    along = rows // sums.teams[0], columns // sums.teams[1], a.numbers // parts
    whole = (rows, columns, a.numbers) == (along[0] * sums.teams[0], along[1] * sums.teams[1], along[2] * parts)
    fits = along[0] % unit.rows == along[1] % unit.columns == along[2] % unit.block == 0
    _want(
        whole and fits, op, f"a member's {along} are no whole instructions of {unit.rows}, {unit.columns}, {unit.block}"
    )
    if warpgroups:
        assert target.warpgroup is not None
        plain = parts == 1 and not a.blocks and 2 * a.columns % SWIZZLE == 2 * b.columns % SWIZZLE == 0
        _want(plain and along[1] <= target.warpgroup.most_columns, op, "too wide")


def _differ(sums: tuple[int, int], a: tuple[int, int], b: tuple[int, int]) -> str:
    """What is said of extents that do not go together: each operand's rows and those that are summed."""
    wanted = f"A's rows by B's would be [{a[0]} {b[0]}], of as many elements each"
    return f"sums [{sums[0]} {sums[1]}], A [{a[0]} {a[1]}] and B [{b[0]} {b[1]}] do not go together: {wanted}"


def _operand(op: ir.Operation, tile: RegisterTile, target: Gpu) -> None:
    """A of a subgroup's or warpgroup's instructions, in whole ones."""
    unit = target.warpgroup if tile.unit == WARPGROUP else target.matrix
    _want(unit is not None and len(tile.shape) == 3, op, f"{target} takes no such operand")
    assert unit is not None
    _, rows, k = tile.shape
    _want(tile.dtype == ir.BF16Type.get(), op, "operands are in BF16")
    whole = rows % (tile.teams[0] * unit.rows) == 0 == k % (tile.teams[1] * unit.block)
    _want(whole, op, f"{rows} rows of {k} are no whole instructions of {tile.teams} {tile.unit}s")


def _mma_of_registers(op: ir.Operation, sums: RegisterTile, target: Gpu) -> None:
    a, b = _registers(op, op.operands[1], OPERAND), _shared(op, op.operands[2], slots=False)
    _operand(op, a, target)
    warpgroups, across = sums.unit == WARPGROUP, "across" in op.attributes
    unit = target.warpgroup if warpgroups else target.matrix
    assert unit is not None and target.matrix is not None
    columns, k = (b.columns, b.rows) if across else (b.rows, b.columns)
    (parts, rows, width), (_, own, depth) = sums.shape, a.shape
    _want((rows, width, depth) == (own, columns, k), op, _differ((rows, width), (own, depth), (columns, k)))
    _want((a.teams[0], a.teams[1]) == (sums.teams[0], parts), op, "A's k is not shared as the sums' parts are")
    _want(not b.blocks and a.unit == sums.unit, op, "B is rows of BF16 numbers, and A its team's")
    _want(bool(b.swizzle) == warpgroups, op, f"{sums.unit}s do not read lines that lie so")
    _want(width % (sums.teams[1] * unit.columns) == 0, op, f"a member's columns are no whole {unit.columns}")
    _want(not across or target.matrix.result_as_left, op, f"instructions of {target} take no B across")
    if warpgroups:
        assert target.warpgroup is not None
        members = sums.teams[1] * parts
        _want(b.rows % (members * unit.rows // 4) == 0, op, f"{members} members cannot share {b.rows} lines")
        _want(width // sums.teams[1] <= target.warpgroup.most_columns, op, "too wide")


def _alike(op: ir.Operation, result: RegisterTile, rows: RegisterTile) -> None:
    """Rows of those who have a register tile."""
    sums = result.layout == SUMS
    members = result.shape[0] * (result.teams[1] if sums else 1)
    of = (members, result.shape[1], result.teams[0], result.unit)
    _want((*rows.shape, rows.teams[0], rows.unit) == of and len(rows.shape) == 2, op, "the rows are other members'")
    _want(not sums or 1 in (result.shape[0], result.teams[1]), op, "members lie along columns, or share out k")


def _reduce(op: ir.Operation, target: Gpu) -> None:
    whole, rows = _registers(op, op.operands[0], SUMS, SHARES), _registers(op, op.results[0], ROWS, SHARES)
    _alike(op, whole, rows)


def _broadcast(op: ir.Operation, target: Gpu) -> None:
    rows, whole = _registers(op, op.operands[0], ROWS), _registers(op, op.results[0], SUMS, SHARES)
    _alike(op, whole, rows)


def _over_members(op: ir.Operation, target: Gpu) -> None:
    rows = _registers(op, op.operands[0], ROWS)
    _want(rows.type == op.results[0].type, op, "its result has another type")


def _mask(op: ir.Operation, target: Gpu) -> None:
    scores, least = _registers(op, op.operands[0], SUMS), defining_op(op.operands[4])
    _want(scores.shape[0] == 1 and op.results[0].type == op.operands[0].type, op, "scores have one part, and keep it")
    _want(least is not None and least.name == "tile.visible", op, "what all rows see is a tile.visible's")
    _want(ir.IntegerAttr(least.attributes["rows"]).value == scores.shape[1], op, "it is of other rows")


def _weights(op: ir.Operation, target: Gpu) -> None:
    """Of scores, all of one type, at a block's rows."""
    scores = [_registers(op, value, SUMS) for value in list(op.operands)[4:]]
    _want(bool(scores) and scores[0].shape[0] == scores[0].teams[1] == 1, op, "scores have one part, and one member")
    same = {str(value.type) for value in (*list(op.operands)[4:], *op.results)}
    _want(len(same) == 1, op, "scores and weights are of one type")
    whole = defining_op(op.operands[0]), defining_op(op.operands[1])
    _want(all(one is not None for one in whole), op, "its rows are the block's")


def _clear(op: ir.Operation, target: Gpu) -> None:
    tile = _shared(op, op.operands[0], slots=False)
    _want(tile.swizzle == SWIZZLE, op, "it is of lines that bulk copies have brought")


def _as_operand(op: ir.Operation, target: Gpu) -> None:
    sums, operand = _registers(op, op.operands[0], SUMS), _registers(op, op.results[0], OPERAND)
    _operand(op, operand, target)
    same = sums.shape[1:] == operand.shape[1:] and (sums.teams, sums.unit) == (operand.teams, operand.unit)
    _want(same and sums.shape[0] == 1 and operand.shape[0] <= 2, op, "the operand is another's")


def _limit(op: ir.Operation, target: Gpu) -> None:
    source = defining_op(op.operands[0])
    _want(source is not None and source.name == "tile.view", op, "it is of a view")
    _want(op.operands[0].type == op.results[0].type, op, "its result has another type")


def _map(op: ir.Operation, target: Gpu) -> None:
    """Element by element: MLIR wants operands of one type; shares of rows are only added, and multiplied by rows."""
    tile = RegisterTile.of(op.results[0].type)
    if tile is None:
        return
    _want(tile.layout not in (PATCHES, OPERAND), op, f"{tile.layout} are no numbers of {op.name}")
    if tile.layout == SHARES and op.name != "arith.addf":
        made = [defining_op(value) for value in list(op.operands)[:2]]
        rows = any(one is not None and one.name == "tile.broadcast" for one in made)
        _want(op.name in ("arith.mulf", "math.fma") and rows, op, "shares of rows are added, and multiplied by rows")


def _constant(op: ir.Operation, target: Gpu) -> None:
    tile = RegisterTile.of(op.results[0].type)
    if tile is not None:
        value = ir.FloatAttr(ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()).value
        _want(tile.layout != SHARES or value == 0, op, "each lane would have a share of it")


def _settle(op: ir.Operation, target: Gpu) -> None:
    sums = _registers(op, op.operands[0], SUMS)
    _want(op.results[0].type == op.operands[0].type, op, "its result has another type")
    _want(sums.unit == WARPGROUP, op, "only warpgroups multiply later")


def _add_parts(op: ir.Operation, target: Gpu) -> None:
    sums, total = _registers(op, op.operands[0], SUMS), _registers(op, op.results[0], SPREAD)
    _want(sums.shape[1:] == total.shape and sums.dtype == total.dtype, op, "the total has another type")


def _store(op: ir.Operation, target: Gpu) -> None:
    tile = _registers(op, op.operands[0], SUMS, SPREAD, ROWS, ROW)
    _want(tile.layout != SUMS or tile.shape[0] == 1, op, "its sums are still in parts")
    product = defining_op(op.operands[1])
    stands = tile.layout in (ROWS, ROW) or product.name in ("linalg.contract", "linalg.generic")
    _want(product is not None and stands, op, "it wants the product that it stands for")
    beside = list(op.operands)[5:]
    alike = all(value.type == op.operands[0].type for value in beside)
    _want(alike, op, "sums of the kernel's other products lie as these do")
    if "product" in product.parent.attributes:
        found = [each for each in operations(product.block) if each.name == "linalg.contract"]
        _want(len(found) == 1 + len(beside) and product == found[0], op, "it wants the sums of each product")


MAPS = {
    "arith": ("addf", "subf", "mulf", "divf", "maxnumf", "negf"),
    "math": ("exp2", "log", "fma"),
}
"""Ops that map register tiles."""

_CHECKS: dict[str, Callable[[ir.Operation, Any], None]] = {
    "tile.view": _view,
    "tile.shared": _memory,
    "tile.ring": _ring,
    "tile.slot": _slot,
    "tile.fill": _fill,
    "tile.wait": _wait,
    "tile.member": _member,
    "tile.release": _release,
    "tile.clear": _clear,
    "tile.weights": _weights,
    "tile.load": _load,
    "tile.reduce_rows": _reduce_rows,
    "tile.put": _put,
    "tile.operand": _lanes,
    "tile.split": _split,
    "tile.mma": _mma,
    "tile.settle": _settle,
    "tile.add_parts": _add_parts,
    "tile.store": _store,
    "tile.reduce": _reduce,
    "tile.broadcast": _broadcast,
    "tile.over_members": _over_members,
    "tile.mask": _mask,
    "tile.as_operand": _as_operand,
    "tile.limit": _limit,
    "tile.team": _team,
    "tile.keep": _of_row,
    "tile.ask": _of_row,
    "arith.constant": _constant,
    **{f"{dialect}.{name}": _map for dialect, names in MAPS.items() for name in names},
}
