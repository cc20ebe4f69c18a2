"""Which values of a kernel differ between the threads of its block, and how the threads lie in vectors.

A group is a run of threads along x whose values are the lanes of one vector.  What is the same for all threads is there
once; what differs from group to group alone is a number for each; the rest is a vector for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import nested_operations, operations

UNIFORM, GROUP, LANE = range(3)
MOST_LANES, FEWEST_LANES = 32, 4
MOST_OPS = 6000
"""A kernel's ops, times its groups: what is written out for each group takes time to compile."""

ACROSS = {"gpu.barrier", "gpu.all_reduce"}
"""Ops that all threads of a block meet at."""

WITHIN = {"gpu.shuffle", "gpu.rotate", "gpu.subgroup_broadcast", "gpu.subgroup_reduce"}
"""Ops that the threads of a subgroup meet at."""

SHAPED = {"memref.load", "memref.store", "memref.alloca", "memref.dim", "scf.for", "scf.if", "scf.yield", "func.return"}
PLACES = {"gpu.thread_id", "gpu.block_id", "gpu.block_dim", "gpu.grid_dim", "gpu.lane_id", "gpu.subgroup_id"}
PLACES |= {"gpu.subgroup_size", "gpu.num_subgroups", "gpu.global_id"}
WORKGROUP = "#gpu.address_space<workgroup>"


class NotInLanes(Exception):
    """A kernel whose threads do not go in step, or that has ops without vectors."""


@dataclass(frozen=True)
class Lanes:
    """The threads of a block [x y z] in groups of `width` threads along x."""

    block: tuple[int, int, int]
    width: int
    subgroup: int

    @staticmethod
    def of(block: list[int], subgroup: int) -> Lanes:
        x, y, z = block
        width = x if x <= MOST_LANES else next((n for n in (32, 16, 8, 4) if x % n == 0), 0)
        if width < FEWEST_LANES:
            raise NotInLanes
        return Lanes((x, y, z), width, subgroup)

    @property
    def threads(self) -> int:
        x, y, z = self.block
        return x * y * z

    @property
    def count(self) -> int:
        """How many groups there are."""
        return self.threads // self.width

    def place(self, group: int) -> tuple[int, int, int]:
        """x, y and z of a group's first thread."""
        x, y, _ = self.block
        first = group * self.width
        return first % x, first // x % y, first // (x * y)

    @property
    def are_subgroups(self) -> bool:
        """Whether each group is a subgroup."""
        return self.width == self.subgroup or self.threads == self.width < self.subgroup


def levels_of(kernel: ir.Operation, lanes: Lanes) -> dict[ir.Value, int]:
    """How each value of a kernel differs; NotInLanes where the kernel cannot go in lanes."""
    ops = list(nested_operations(kernel))
    if len(ops) * lanes.count > MOST_OPS or not all(map(_is_known, ops)):
        raise NotInLanes
    levels: dict[ir.Value, int] = {}
    before = -1
    while before != sum(levels.values()):
        before = sum(levels.values())
        for op in ops:
            _spread(op, lanes, levels)
    for op in ops:
        _check(op, levels, lanes)
    return levels


def _is_known(op: ir.Operation) -> bool:
    if op.name == "memref.alloca":
        return WORKGROUP in str(op.results[0].type)
    if op.name in ("memref.load", "memref.store"):
        kind = op.operands[op.name == "memref.store"].type
        identity = ir.AffineMap.get_identity(len(kind.shape))
        return kind.has_static_shape and kind.affine_map == identity and str(kind.element_type) != "i1"
    if op.name in SHAPED | PLACES | ACROSS | WITHIN:
        return True
    scalars = all(_is_scalar(v.type) for v in (*op.operands, *op.results))
    return scalars and op.name.split(".")[0] in ("arith", "math") and not len(op.regions) and len(op.results) == 1


def _is_scalar(kind: ir.Type) -> bool:
    return isinstance(kind, (ir.IntegerType, ir.FloatType, ir.IndexType))


def axis_of(op: ir.Operation) -> str:
    return str(op.attributes["dimension"]).split("<dim ")[1][0]


def _spread(op: ir.Operation, lanes: Lanes, levels: dict[ir.Value, int]) -> None:
    """Raise the levels of what an op gives to those of what it takes."""
    given = max((levels.get(v, UNIFORM) for v in op.operands), default=UNIFORM)
    if op.name == "scf.for":
        _spread_loop(op, levels)
        return
    if op.name == "scf.if":
        for i, result in enumerate(op.results):
            ends = [operations(region.blocks[0])[-1].operands[i] for region in op.regions]
            own = max(levels.get(op.operands[0], UNIFORM), *(levels.get(v, UNIFORM) for v in ends))
            _raise(result, own, levels)
        return
    if op.name in PLACES:
        given = _level_of_place(op, lanes)
    elif op.name in WITHIN:
        given = LANE
    elif op.name == "gpu.all_reduce":
        given = UNIFORM
    for result in op.results:
        _raise(result, given, levels)


def _raise(value: ir.Value, level: int, levels: dict[ir.Value, int]) -> None:
    levels[value] = max(level, levels.get(value, UNIFORM))


def _level_of_place(op: ir.Operation, lanes: Lanes) -> int:
    if op.name == "gpu.lane_id" or (op.name in ("gpu.thread_id", "gpu.global_id") and axis_of(op) == "x"):
        return LANE
    moves = op.name in ("gpu.subgroup_id", "gpu.thread_id", "gpu.global_id")
    return GROUP if moves and lanes.count > 1 else UNIFORM


def _spread_loop(op: ir.Operation, levels: dict[ir.Value, int]) -> None:
    starts, block = list(op.operands)[3:], op.regions[0].blocks[0]
    bounds = bounds_level(op, levels)
    _raise(block.arguments[0], bounds, levels)
    ends = operations(block)[-1].operands
    for start, argument, end, result in zip(starts, list(block.arguments)[1:], ends, op.results, strict=True):
        level = max(bounds, *(levels.get(v, UNIFORM) for v in (start, end)))
        _raise(argument, level, levels)
        _raise(result, level, levels)


def bounds_level(loop: ir.Operation, levels: dict[ir.Value, int]) -> int:
    return max(levels.get(v, UNIFORM) for v in list(loop.operands)[:3])


def _check(op: ir.Operation, levels: dict[ir.Value, int], lanes: Lanes) -> None:
    """NotInLanes where threads part ways ahead of an op that they meet at."""
    if op.name in WITHIN and not lanes.are_subgroups:
        raise NotInLanes
    if op.name == "scf.for":
        level = bounds_level(op, levels)
        if not isinstance(op.operands[0].type, ir.IndexType):
            raise NotInLanes
    elif op.name == "scf.if":
        level = levels.get(op.operands[0], UNIFORM)
    else:
        return
    met = {inner.name for inner in nested_operations(op)}
    if (level >= GROUP and met & ACROSS) or (level == LANE and met & WITHIN):
        raise NotInLanes


def permutation(op: ir.Operation, lanes: Lanes, distance: int, width: int) -> Iterator[tuple[int, bool]]:
    """For each lane of gpu.shuffle, by a known distance and width, where it reads and whether it may."""
    mode = str(op.attributes["mode"]).split("<shuffle_mode ")[1].rstrip(">")
    for lane in range(lanes.width):
        segment = lane - lane % width
        source = {"xor": lane ^ distance, "up": lane - distance, "down": lane + distance, "idx": segment + distance}[
            mode
        ]
        valid = 0 <= source - segment < width and source < lanes.width
        yield (source if valid else lane), valid


def attribute_of(op: ir.Operation, key: str) -> int:
    """An integer attribute; 0 where it is missing."""
    return ir.IntegerAttr(op.attributes[key]).value if key in op.attributes else 0
