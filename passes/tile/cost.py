"""How long a product by tiles should take, of what its blocks bring and multiply, at the chip's rates.

A model, not a measurement: what counts is which of several programs is ahead.  Each block brings its boxes of both
operands from the cache that all cores share, which brings each element from memory once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import shape_of, trip_count
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.copies import WORD, operand_of
from lispgpt.passes.tile.types import A, RegisterTile, register_tile, ring_tiles, shared_tile

CORE_SHARE, CACHE_SHARE = 1.5, 1.3
"""What a core takes from the cache at most, by its part of the memory's rate, and all cores together, by that rate: on
an H200 (2026), where these and START and STEP tell 14 products of few rows within 25 %, by 9 % in the middle."""

MADE, UNPACKED, BUSY = 8, 12, 0.5
"""Operations by which an element is made that is not in memory, and a number of one in a block; and the share of the
rate of vector instructions that is reached."""

LOADED_WORDS, SHIFTED_WORDS, BESIDE_NORM = 12, 20, 6
"""Operations by which lanes load and unpack a number of one in a block, words of 32 bits at a time; where these lie
across words; and more where rows are normed beside it.  By 15 kernels of an H200 (2026)."""

REACHED = 0.87
"""Of the memory's rate, in long copies."""

LANES_SHARE, LANES_HALF, LANES_START, NORM = 4.0, 50e3, 0.4e-6, 0.5e-6
"""Where lanes load to registers: what a core takes at most, by its part of the memory's rate; bytes on their way to it
by which it takes half of that; seconds of a block that nothing overlaps with, and those of its reductions.  Of 412
kernels of 2 to 16 rows on an H200 (2026) these tell the time within 10 %, and the best tiling within 3 %."""

DEEPER, TOGETHER = 0.6, 3
"""What a lane loads at once counts less the more it is: by a power.  What memory and cores take is added so, too, since
neither waits only for the other."""

SPILLED = 3
"""How much longer a kernel takes whose lanes have no room for their sums and what they have loaded, the step that they
multiply and those on their way: twice to four times on an H200 (2026).  What else a lane keeps is found room for: of
160 registers where there are 128 the compiler spills next to nothing, of 176 half a kilobyte."""

ONCE, SHARING, TURNS = 0.1, 28, 3
"""The part of the time beyond that of bytes from memory that is left where lanes load all that they have of k, plain
numbers, before they multiply any of it, in up to so many blocks one behind another: longer by the members that share k
out, over SHARING.  By 180 kernels of 2 to 16 rows on an H200 (2026)."""

START, STEP = 1.8e-6, 0.35e-6
"""Seconds of a block that nothing overlaps with: the first step's way from memory, sums of parts, stores; and what a
step takes beside its bytes."""


@dataclass(frozen=True)
class Work:
    """blocks: of the launch.  each: bytes that one of them brings.  unique: bytes that all bring, each once.
    multiply_adds: of one block, with those of its parts.  steps: of one block.  resident: blocks that share a core.
    others: operations of one block that are no matrix instructions'.  flight: bytes that one block's lanes have on
    their way to registers, where that is where they go.  depth: elements of k of these that one lane's subgroup has.
    reduces: whether blocks reduce rows first.  once: members that share k out where
    their lanes load all that they have of it ahead of the first instruction; 0: they do not."""

    blocks: int
    each: float
    unique: float
    multiply_adds: float
    steps: int = 0
    resident: int = 1
    others: float = 0.0
    flight: float = 0.0
    depth: int = 0
    reduces: bool = False
    once: int = 0


def seconds(work: Work, target: Gpu) -> float | None:
    """None where the chip's rates are not known."""
    rates = target.rates
    if rates is None:
        return None
    memory = REACHED * rates.bandwidth
    busiest = -(-work.blocks // target.cores)
    together = min(busiest, work.resident)
    rate, start = CORE_SHARE * memory / target.cores, START
    if work.flight and target.matrix is not None:
        flight = together * work.flight * (work.depth / target.matrix.block) ** (DEEPER - 1)
        rate, start = LANES_SHARE * memory / target.cores * flight / (flight + LANES_HALF), LANES_START
    core = max(
        busiest * work.each / rate,
        2 * busiest * work.multiply_adds / (REACHED * rates.matrix / target.cores),
        busiest * work.others / (BUSY * rates.vector / target.cores),
    )
    core += (start + work.steps * STEP) * (1 + (busiest - 1) / together)
    if not work.flight:
        return max(core, START + max(work.blocks * work.each / (CACHE_SHARE * memory), work.unique / memory))
    both = core**TOGETHER + (START + work.unique / memory) ** TOGETHER
    both, least = both ** (1 / TOGETHER), work.unique / memory
    if work.once and busiest <= TURNS and not (work.reduces or work.others):
        both = least + (both - least) * min(1.0, ONCE + work.once / SHARING)
    return both + (NORM if work.reduces else 0.0)


def unpacking(dtype: str, reduces: bool) -> int:
    """Operations of lanes by which a number of one in a block becomes one to multiply."""
    whole = find_dtype(dtype).item_bytes % WORD == 0
    return (LOADED_WORDS if whole else SHIFTED_WORDS) + BESIDE_NORM * reduces


def work_of(program: Sequence[ir.Operation], grid: Sequence[int], residency: int) -> Work:
    """What a tile program's blocks do, whose ops these are, of a kernel with such a grid."""
    multiply_adds = others = flight = 0.0
    steps, depth, members, views = 0, 0, 0, {}
    brought: dict[ir.Value, int] = {}
    for op, times in _repeated(program):
        if op.name in ("tile.fill", "tile.load", "tile.operand"):
            view = op.operands[1 if op.name == "tile.fill" else 0]
            operand, (rows, columns) = operand_of(view), _box(op)
            item = b.item_bytes(view.type)
            views[view] = prod(shape_of(view)) * item
            lines = min(rows, operand.extent) * item
            most = lines * operand.layout.extent(operand.layout.sums)  # nothing is read past the end
            brought[view] = min(most, brought.get(view, 0) + times * lines * columns)
            others += MADE * times * rows * columns if operand.is_computed() else 0
            if op.name == "tile.operand":
                ahead = op in program
                flight += lines * columns * ahead
                tile = register_tile(op.results[0])
                depth += tile.shape[-1] * ahead if tile.layout == A else 0
        elif op.name == "tile.mma":
            (parts, rows, columns), *operands = register_tile(op.operands[0]).shape, *list(op.operands)[1:]
            if RegisterTile.of(operands[0].type):
                members = parts
                a, numbers = register_tile(operands[0]), register_tile(operands[1]).shape[0]
                products = max(1 if a.blocks else a.shape[0], numbers)
                multiply_adds += times * rows * columns * parts * a.shape[-1] * products
                normed = any(o.name == "tile.reduce_rows" for o in program)
                others += unpacking(a.blocks, normed) * times * rows * parts * a.shape[-1] if a.blocks else 0
                continue  # no member waits for another
            shared = shared_tile(operands[0])
            products = max(shared.parts, shared_tile(operands[1]).parts)
            multiply_adds += times * rows * columns * shared.numbers * products
            others += UNPACKED * times * rows * shared.numbers if shared.blocks else 0
            steps = max(steps, times)
    each, unique, reduces = (
        sum(brought.values()),
        sum(views.values()),
        any(o.name == "tile.reduce_rows" for o in program),
    )
    once = members if all(op.name != "scf.for" for op in program) else 0
    together = max(1, residency)
    return Work(prod(grid), each, unique, multiply_adds, steps, together, others, flight, depth, reduces, once)


def _repeated(ops: Sequence[ir.Operation], times: int = 1) -> Iterator[tuple[ir.Operation, int]]:
    """Ops, and those in them, with how often each is done."""
    for op in ops:
        yield op, times
        inner = times * trip_count(op) if op.name == "scf.for" else times
        for region in op.regions:
            for block in region.blocks:
                yield from _repeated([each.operation for each in block.operations], inner)


def _box(op: ir.Operation) -> tuple[int, int]:
    """Rows and columns of what an op brings."""
    if op.name in ("tile.load", "tile.operand"):
        tile = register_tile(op.results[0])
        return tile.shape[-2], tile.row_bytes // b.item_bytes(tile.dtype)
    tile = ring_tiles(op.operands[0])[ir.IntegerAttr(op.attributes["member"]).value]
    return tile.rows, tile.columns
