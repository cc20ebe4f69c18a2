"""Moments of a row by groups of its columns: made beside what makes the row, and put together by what reads them.

A row's groups have their sums, and the sums of their squared distances from their own means (or of their squares):
numbers that threads make of what they have in registers, and of which anybody makes the whole row's without a loss of
digits (Chan, Golub and LeVeque: "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.linalg_ops import elementwise, filled, generic, reduce
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import defining_op, shape_of
from lispgpt.passes.recognise.row_norms import Norm

BESIDE, MOMENT = "beside", "moment"
"""Of ops: that the kernel which makes what they read makes their results, too; which moment a reduction is."""
SUM, SQUARES, DEVIATIONS = "sum", "squares", "deviations"


@dataclass(frozen=True)
class Moments:
    """Of `source`, [rows, columns], by `group` columns, each [rows, columns / group] in f32: `sums`, where means are
    subtracted, and `squares`, sums of squares or, beside sums, of squared distances from the group's mean."""

    source: ir.Value
    group: int
    sums: ir.Value | None
    squares: ir.Value


def make_moments(source: ir.Value, group: int, centred: bool) -> Moments:
    """The ops for them at the current place."""
    rows, columns = shape_of(source)
    shape = [rows, columns // group, group]
    groups = create_op(
        "tensor.expand_shape",
        [source],
        [ir.RankedTensorType.get(shape, b.f32())],
        {
            "reassociation": ir.ArrayAttr.get([_whole(0), _whole(1, 2)]),
            "static_output_shape": ir.DenseI64ArrayAttr.get(shape),
        },
    ).results[0]
    if not centred:
        return Moments(source, group, None, _reduced(_squared(groups), SQUARES))
    sums = _reduced(groups, SUM)
    maps = [ir.AffineMap.get_identity(3), _leading(3, 2), ir.AffineMap.get_identity(3)]
    empty = b.emit("tensor.empty", [], [groups.type])

    def distance(values: Sequence[ir.Value]) -> ir.Value:
        return b.binary("arith.subf", values[0], _times(values[1], 1 / group))

    distances = _beside(generic([groups, sums], empty, maps, [], distance))
    return Moments(source, group, sums, _reduced(_squared(distances), DEVIATIONS))


def row_statistics(moments: Moments, norm: Norm) -> tuple[ir.Value | None, ir.Value]:
    """(mean, or None where none is subtracted; what rows are scaled by), [rows] each, for every kernel of its own."""
    rows, columns = shape_of(moments.source)
    vector = ir.RankedTensorType.get([rows], b.f32())
    mean, squares = None, moments.squares
    if moments.sums is not None:
        total = _total(moments.sums)
        mean = _inline(elementwise([total], vector, lambda number: _times(number, 1 / columns)))
        maps = [ir.AffineMap.get_identity(2), ir.AffineMap.get_identity(2), _leading(2, 1)]
        given, empty = [moments.sums, moments.squares, mean], b.emit("tensor.empty", [], [moments.sums.type])

        def whole(values: Sequence[ir.Value]) -> ir.Value:
            own, within, mean, *_ = values
            away = b.binary("arith.subf", _times(own, 1 / moments.group), mean)
            return b.emit("math.fma", [_times(away, moments.group), away, within], [b.f32()])

        squares = _inline(generic(given, empty, [*maps, maps[0]], [], whole))

    def scale(number: ir.Value) -> ir.Value:
        shifted = b.binary("arith.addf", _times(number, 1 / columns), b.constant(norm.epsilon, b.f32()))
        return b.emit("math.rsqrt", [shifted], [b.f32()])

    return mean, _inline(elementwise([_total(squares)], vector, scale))


def moment_of(tensor: ir.Value) -> str | None:
    """Which moment a tensor that a kernel computes is; None: none."""
    op = defining_op(tensor)
    return ir.StringAttr(op.attributes[MOMENT]).value if op is not None and MOMENT in op.attributes else None


def find_moments(results: Sequence[tuple[ir.Value, ir.Value]]) -> Moments | None:
    """Those among a kernel's results, (tensor, its buffer), with the buffers of sums and squares in their places; None
    where there are none, or of several sources."""
    found = {kind: (tensor, buffer) for tensor, buffer in results if (kind := moment_of(tensor)) is not None}
    if not found or len(found) != sum(moment_of(tensor) is not None for tensor, _ in results):
        return None
    kind = DEVIATIONS if DEVIATIONS in found else SQUARES
    if set(found) != ({SUM, DEVIATIONS} if kind == DEVIATIONS else {SQUARES}):
        return None
    squares, buffer = found[kind]
    groups = defining_op(defining_op(squares).operands[0]).operands[0]
    if kind == DEVIATIONS:
        groups = defining_op(groups).operands[0]
    sums = found[SUM][1] if kind == DEVIATIONS else None
    return Moments(defining_op(groups).operands[0], shape_of(groups)[-1], sums, buffer)


def _reduced(groups: ir.Value, moment: str) -> ir.Value:
    """The sums of groups' columns, made beside them."""
    start = filled(shape_of(groups)[:-1], b.f32(), 0.0)
    found = _beside(reduce(groups, start, 2, lambda values: b.binary("arith.addf", *values)))
    defining_op(found).attributes[MOMENT] = ir.StringAttr.get(moment)
    return found


def _squared(groups: ir.Value) -> ir.Value:
    return _beside(elementwise([groups], groups.type, lambda number: b.binary("arith.mulf", number, number)))


def _total(groups: ir.Value) -> ir.Value:
    start = filled(shape_of(groups)[:-1], b.f32(), 0.0)
    return _inline(reduce(groups, start, 1, lambda values: b.binary("arith.addf", *values)))


def _times(number: ir.Value, factor: float) -> ir.Value:
    return b.binary("arith.mulf", number, b.constant(factor, b.f32()))


def _leading(rank: int, count: int) -> ir.AffineMap:
    """From the loops over a shape to the first of its indices."""
    return ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(d) for d in range(count)])


def _whole(*dimensions: int) -> ir.Attribute:
    index = ir.IntegerType.get_signless(64)
    return ir.ArrayAttr.get([ir.IntegerAttr.get(index, d) for d in dimensions])


def _beside(value: ir.Value) -> ir.Value:
    defining_op(value).attributes[BESIDE] = ir.UnitAttr.get()
    return value


def _inline(value: ir.Value) -> ir.Value:
    defining_op(value).attributes["inline"] = ir.UnitAttr.get()
    return value
