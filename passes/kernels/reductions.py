"""Sums, maxima and whatever else a linalg op combines over loops of its own, one element of the result at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import dim_positions, element_type, indexing_maps, loop_extents, nested_operations
from lispgpt.passes.kernels.elementwise import Body, Values
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.views import mapped
from lispgpt.passes.targets import Gpu

TOGETHER, FEW_OPS = 16, 4
"""Points of a long sum that a GPU's thread reads ahead of adding the first, where an op does no more than so much."""


@dataclass(frozen=True)
class Loops:
    """A linalg op's loops.  extents: by their numbers.  summed: the numbers of those that its results lack."""

    extents: tuple[int, ...]
    summed: tuple[int, ...]


def loops_of(op: ir.Operation) -> Loops:
    """Raises Refused where results are not written at plain loops' indices, each once."""
    maps = indexing_maps(op)
    known = loop_extents(op)
    if sorted(known) != list(range(maps[0].n_dims)):
        raise Refused("a loop's extent is not a dimension of any operand")
    kinds = ["parallel" in str(kind) for kind in op.attributes["iterator_types"]]
    for map_ in maps[len(maps) - len(op.results) :]:
        plain = all(isinstance(e, (ir.AffineDimExpr, ir.AffineConstantExpr)) for e in map_.results)
        dims = [d for d in dim_positions(map_) if d is not None]
        if not plain or sorted(dims) != [d for d, parallel in enumerate(kinds) if parallel]:
            raise Refused("an op writes an element more than once, or not at a plain index")
    return Loops(
        tuple(known[d] for d in range(len(known))), tuple(d for d, parallel in enumerate(kinds) if not parallel)
    )


def vector_loop(op: ir.Operation, result: int) -> int | None:
    """The loop along which a linalg.generic's result has its neighbours, where a vector of them can be computed from
    vectors and numbers: the op's operands are read along it in their rows, or not at all."""
    maps = indexing_maps(op)
    positions = dim_positions(maps[len(maps) - len(op.results) + result])
    if not positions or positions[-1] is None or any(len(nested.regions) for nested in nested_operations(op)):
        return None
    along = positions[-1]
    for map_ in maps:
        dims = dim_positions(map_)
        if None in dims or dims.count(along) > 1 or (along in dims and dims[-1] != along):
            return None
    last = [dim_positions(m)[-1:] for m in maps[len(maps) - len(op.results) :]]
    return along if all(dims == [along] for dims in last) else None


def reduced(
    reader: Values, op: ir.Operation, number: int, index: Sequence[Index], width: int = 1, along: int | None = None
) -> list[ir.Value]:
    """The elements of all results of a linalg.generic at the loops where result `number` has its element `index`.

    width, along: that many neighbours, along what vector_loop says.
    """
    loops = loops_of(op)
    maps = indexing_maps(op)[len(op.operands) - len(op.results) :]
    at: list[Index] = [0] * len(loops.extents)
    for position, value in zip(dim_positions(maps[number]), index, strict=True):
        if position is not None:
            at[position] = value
    outputs = list(op.operands)[len(op.operands) - len(op.results) :]
    arguments = list(op.regions[0].blocks[0].arguments)[-len(outputs) :]
    if not loops.summed:
        return Body(reader, op, at, width, along=along).results({})
    used = [len(list(a.uses)) > 0 for a in arguments]
    starts = [
        reader.read(o, mapped(m, at), width) if use else b.constant(0, b.with_width(element_type(o), width))
        for o, m, use in zip(outputs, maps, used, strict=True)
    ]
    wide = [b.unshortened(s) for s in starts]

    def point(where: list[Index], carried: Sequence[ir.Value]) -> list[ir.Value]:
        given = dict(zip(arguments, carried, strict=True))
        values = Body(reader, op, where, width, True, along).results(given)
        return [b.unshortened(v) for v in values]

    together = TOGETHER if isinstance(reader.target, Gpu) and len(list(nested_operations(op))) <= FEW_OPS else 1
    totals = nest(reader, loops, at, list(loops.summed), wide, point, together)
    return [b.shortened(t, element_type(o)) for t, o in zip(totals, outputs, strict=True)]


def nest(
    reader: Values,
    loops: Loops,
    at: list[Index],
    dims: list[int],
    carried: Sequence[ir.Value],
    point: Callable[[list[Index], Sequence[ir.Value]], list[ir.Value]],
    together: int = 1,
) -> list[ir.Value]:
    """Loops over `dims`, the first outermost; at every point, point(loop indices, what is carried) carries on.

    together: points of the innermost loop that one of its turns takes, where they divide it.
    """
    if not dims:
        return point(at, carried)
    first, *rest = dims
    each = together if not rest and loops.extents[first] % together == 0 else 1

    def body(i: Index, *values: ir.Value) -> Sequence[ir.Value]:
        with reader.scope():
            for n in range(each):
                where = [*at[:first], b.add(i, n), *at[first + 1 :]]
                values = tuple(nest(reader, loops, where, rest, values, point, together))
        return values

    if loops.extents[first] == 1:
        return nest(reader, loops, [*at[:first], 0, *at[first + 1 :]], rest, carried, point)
    return b.loop(0, loops.extents[first], each, carried, body)
