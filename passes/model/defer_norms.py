"""defer-norms: norms of rows that products make, for other products, are put off until behind these.

Before:                                          After:
  %x = … contract(%a, %u) + residual               %x = … contract(%a, %u) + residual
  %n = layer norm of %x with gamma, beta           %g = %x · gamma;  moments of %x by groups of columns, beside it
  %s = contract(%n, %w)                            %t = contract(%g, %w)
  %y = %s + bias                                   %y = (%t - mean · gamma w) · scale + (beta w + bias)

Requires: entries on tensors, and what contract-products ensures.
Ensures: where the target multiplies BF16 by warpgroups, a norm whose rows a product of many rows makes, by itself or
with elementwise ops behind it, and that only products of many rows with BF16 weights read, needs no kernel: the kernel
that makes the rows multiplies them by gamma and makes their moments (see row_moments), and those that read them scale
and shift sums.  Products of gamma and beta with weights are made `once` for all runs.  Errors are those of sums of
x · gamma beside what is left of them: (1 + |mean| / deviation) times as large as of normalised rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.linalg_ops import contract, elementwise, filled, generic
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    entry_arguments,
    entry_functions,
    indexing_maps,
    is_elementwise,
    operations,
    shape_of,
    viewed,
)
from lispgpt.passes.base import Pass, or_zero
from lispgpt.passes.model.row_moments import Moments, make_moments, row_statistics
from lispgpt.passes.model.weight_recipes import ONCE
from lispgpt.passes.recognise.find_gradients import is_product
from lispgpt.passes.recognise.row_norms import Norm, norm_of
from lispgpt.passes.states import UNPLACED
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.warpgroup_tiles import Shape, group_of_tile


@dataclass(frozen=True)
class DeferNorms(Pass):
    """rows, most_rows: the fewest and most of products to treat this way; 0: leave all norms as they are.  With more, a
    kernel of a norm's own takes less time than what it spares other kernels.  group: columns of a row whose moments are
    made together; 0: those of the tile that the product which makes them should have."""

    starts_from = (UNPLACED,)

    rows: int = or_zero(32)
    most_rows: int = or_zero(128)
    group: int = 0

    def run(self, module: ir.Module, target: object) -> None:
        if not isinstance(target, Gpu) or target.warpgroup is None or target.copies is None or not self.rows:
            return
        for entry in entry_functions(module):
            weights = {value for name, value in entry_arguments(entry).items() if name.startswith("weight:")}
            ops = operations(entry.regions[0].blocks[0])
            for rows, products in _normalised(ops, weights, range(self.rows, self.most_rows + 1)).items():
                norm = norm_of(rows)
                maker = None if norm is None else _maker(norm.source, self.rows)
                if norm is not None and maker is not None:
                    group = self.group or group_of_tile(_shape(maker, norm.source), target)
                    if group and shape_of(norm.source)[1] % group == 0:
                        _defer(rows, norm, group, products)


def _normalised(
    ops: Sequence[ir.Operation], weights: set[ir.Value], counts: range
) -> dict[ir.Value, list[ir.Operation]]:
    """What only products with weights read that have so many rows of it, and these products."""
    found: dict[ir.Value, list[ir.Operation]] = {}
    for op in ops:
        if _is_linear(op, weights, counts):
            found.setdefault(op.operands[0], []).append(op)
    return {value: products for value, products in found.items() if len(products) == len(list(value.uses))}


def _is_linear(op: ir.Operation, weights: set[ir.Value], counts: range) -> bool:
    """Whether an op multiplies so many rows in F32 by the rows of a weight in BF16."""
    if not is_product(op):
        return False
    left, right, result = (dim_positions(map_) for map_ in indexing_maps(op))
    plain = len(left) == len(right) == 2 and left[1] == right[1] and result == [left[0], right[0]]
    if not plain or shape_of(op.operands[0])[0] not in counts or op.operands[0].type.element_type != b.f32():
        return False
    return op.operands[1].type.element_type == ir.BF16Type.get() and viewed(op.operands[1]) in weights


def _maker(value: ir.Value, least: int) -> ir.Operation | None:
    """The product of `least` rows of which, and of other tensors of its shape, elementwise ops make a value."""
    op = defining_op(value)
    if op is None or shape_of(value)[0] < least:
        return None
    if is_product(op):
        extents = [dim_positions(map_) for map_ in indexing_maps(op)]
        return op if extents[2] == [extents[0][0], extents[1][0]] and _is_short(op.operands[1]) else None
    return next((maker for operand in _beside(op) if (maker := _maker(operand, least)) is not None), None)


def _is_short(value: ir.Value) -> bool:
    return bool(value.type.element_type == ir.BF16Type.get())


def _beside(op: ir.Operation) -> Iterator[ir.Value]:
    """What an elementwise op that does nothing else reads at its own points."""
    if not is_elementwise(op) or len(op.results) != 1:
        return
    for operand, map_ in zip(list(op.operands)[:-1], indexing_maps(op), strict=False):
        if dim_positions(map_) == list(range(map_.n_dims)) and shape_of(operand) == shape_of(op.results[0]):
            yield operand


def _shape(maker: ir.Operation, rows: ir.Value) -> Shape:
    """What the product that makes rows is to its tiles: it stores these, and two parts of what others multiply."""
    (count, columns), (inner, *_) = shape_of(rows), reversed(shape_of(maker.operands[1]))
    left = 2 if _is_short(maker.operands[0]) else 4
    return Shape(count, columns, inner, left, 8, results=3, stored=True)


def _defer(rows: ir.Value, norm: Norm, group: int, products: Sequence[ir.Operation]) -> None:
    """Have products read what a norm scales instead of the rows that it makes."""
    made = defining_op(rows)
    with ir.InsertionPoint(made), made.location:
        maps = [_along(0, 1), _along(1), _along(0, 1)]
        empty = b.emit("tensor.empty", [], [norm.source.type])
        scaled = generic([norm.source, norm.gamma], empty, maps, [], lambda v: b.binary("arith.mulf", v[0], v[1]))
        moments = make_moments(norm.source, group, norm.centred)
    for product in products:
        bias = None if norm.beta is None else _bias_of(product)
        with ir.InsertionPoint(product if bias is None else bias), product.location:
            _Deferred(norm, moments, product, bias).replace(scaled)


@dataclass(frozen=True)
class _Deferred:
    """A product of normalised rows, to become one of rows that are not.  bias: what alone reads it and adds a bias to
    it, which becomes one with the shift that beta makes."""

    norm: Norm
    moments: Moments
    product: ir.Operation
    bias: ir.Operation | None

    def replace(self, rows: ir.Value) -> None:
        """Have it multiply these; what it made is made of its sums."""
        result, weights = self.product.results[0], self.product.operands[1]
        slope = _of_weights(self.norm.gamma, weights) if self.norm.centred else None
        shift = None if self.norm.beta is None else _of_weights(self.norm.beta, weights)
        if self.bias is not None and shift is not None:
            result, given = self.bias.results[0], [self.bias.operands[1], shift]
            shift = _once(elementwise(given, shift.type, lambda x, y: b.binary("arith.addf", x, y)))
        mean, scale = row_statistics(self.moments, self.norm)
        product = self.product.clone()
        product.operands[0] = rows
        sums = product.results[0]
        given, maps = [sums, scale], [_along(0, 1), _along(0)]
        if mean is not None and slope is not None:
            given, maps = [*given, mean, slope], [*maps, _along(0), _along(1)]
        if shift is not None:
            given, maps = [*given, shift], [*maps, _along(1)]

        def body(values: Sequence[ir.Value]) -> ir.Value:
            total, scale, *others = values[:-1]
            if mean is not None:
                total = b.binary("arith.subf", total, b.binary("arith.mulf", others[0], others[1]))
            total = b.binary("arith.mulf", total, scale)
            return total if shift is None else b.binary("arith.addf", total, others[-1])

        empty = b.emit("tensor.empty", [], [sums.type])
        result.replace_all_uses_with(generic(given, empty, [*maps, _along(0, 1)], [], body))


def _bias_of(product: ir.Operation) -> ir.Operation | None:
    """The op that alone reads a product and adds a vector of an entry's, the same to all rows."""
    uses = [use.owner.operation for use in product.results[0].uses]
    op = uses[0] if len(uses) == 1 else None
    if op is None or not is_elementwise(op) or len(op.operands) != 3 or op.operands[0] != product.results[0]:
        return None
    names = [inner.name for inner in operations(op.regions[0].blocks[0])]
    maps = [dim_positions(map_) for map_ in indexing_maps(op)]
    block = op.regions[0].blocks[0]
    added = set(operations(block)[0].operands) == set(list(block.arguments)[:2])
    same = names == ["arith.addf", "linalg.yield"] and maps == [[0, 1], [1], [0, 1]] and added
    return op if same and op.results[0].type == product.results[0].type and _is_ready(op.operands[1]) else None


def _is_ready(value: ir.Value) -> bool:
    """Whether a value is an entry's argument, or a view of one."""
    return defining_op(viewed(value)) is None


def _of_weights(vector: ir.Value, weights: ir.Value) -> ir.Value:
    """The sums of weights' rows times a vector over their columns, made once."""

    def body(values: Sequence[ir.Value]) -> ir.Value:
        return b.binary("arith.addf", values[2], b.binary("arith.mulf", b.extend(values[0]), b.extend(values[1])))

    start = filled(shape_of(weights)[:1], b.f32(), 0.0)
    return _once(contract(weights, vector, start, [_along(0, 1), _along(1), _along(0)], body))


def _along(*dimensions: int) -> ir.AffineMap:
    """From the loops over rows and columns to an index of these."""
    return ir.AffineMap.get(2, 0, [ir.AffineExpr.get_dim(d) for d in dimensions])


def _once(value: ir.Value) -> ir.Value:
    defining_op(value).attributes[ONCE] = ir.UnitAttr.get()
    return value
