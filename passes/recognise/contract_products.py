"""contract-products: every product of an entry as one op, linalg.contract with sums in f32 that start at zero.

Before:                                            After:
  %y = linalg.matmul ins(%a, %b) outs(%start)        %z = linalg.fill ins(0.0) …
                                                     %s = linalg.contract indexing_maps = […] ins(%a, %b) outs(%z)
                                                     %y = linalg.generic ins(%start, %s) { arith.addf }

Takes linalg.matmul, batch_matmul, matvec, vecmat, dot and their kin, and linalg.generic, whose body multiplies two
operands (widened or not) and adds.  An operand that is a transposed or widened tensor becomes that tensor, but in
attention, which is recognised with them.  An index that is summed and stands in one operand alone is summed there
first, by linalg.reduce.  Integers, and products that sum over nothing, stay what they are.

Requires: entries on tensors.  Ensures: what it takes is a linalg.contract that `product_layout` can describe.
"""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir import build as b
from lispgpt.ir.linalg_ops import contract, elementwise, filled, reduce
from lispgpt.ir.mlir import ir
from lispgpt.ir.named_ops import generalized
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    element_type,
    entry_functions,
    indexing_maps,
    integers,
    is_elementwise,
    operations,
    shape_of,
    viewed,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.recognise.find_attention import find_attentions
from lispgpt.passes.recognise.find_gradients import starts_at_zero
from lispgpt.passes.recognise.product_layout import factors_of

FLOATS = ("f32", "bf16", "f16")


class ContractProducts(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        for entry in entry_functions(module):
            ops = operations(entry.regions[0].blocks[0])
            kept = {op for attention in find_attentions(ops) for op in attention.products()}
            for op in ops:
                loops = _loops(op) if op not in kept and _multiplies_and_adds(op) else None
                if loops is not None:
                    with ir.InsertionPoint(op), op.location:
                        _replace(op, loops)


def _multiplies_and_adds(op: ir.Operation) -> bool:
    """Whether an op is a linalg op on two float tensors and a third, whose body is c + a · b, with casts or without."""
    if not op.name.startswith("linalg.") or len(op.operands) != 3 or len(op.results) != 1 or len(op.regions) != 1:
        return False
    if any(not isinstance(o.type, ir.RankedTensorType) or str(o.type.element_type) not in FLOATS for o in op.operands):
        return False
    block = op.regions[0].blocks[0]
    factors = factors_of(block)
    casts = ("arith.extf", "arith.truncf")
    return factors is not None and {viewed(v, casts) for v in factors} == set(list(block.arguments)[:2])


def _loops(op: ir.Operation) -> list[list[int]] | None:
    """For left, right and result the loop of each dimension; None where one is no plain loop, or none is summed."""
    maps = [dim_positions(m) for m in _maps(op)]
    if any(None in loops or len(set(loops)) != len(loops) for loops in maps):
        return None
    summed = set(maps[0] + maps[1]) - set(maps[2])
    shared = set(maps[0]) & set(maps[1]) & summed
    return maps if shared and set(maps[2]) <= set(maps[0] + maps[1]) else None


def _maps(op: ir.Operation) -> list[ir.AffineMap]:
    """The indexing maps, which named ops keep to themselves until they are made generic."""
    if "indexing_maps" in op.attributes:
        return indexing_maps(op)
    with generalized(op) as general:
        return indexing_maps(general)


def _replace(op: ir.Operation, loops: list[list[int]]) -> None:
    operands = list(op.operands)
    for side in (0, 1):
        operands[side], loops[side] = _untransposed(operands[side], loops[side])
    if op.name == "linalg.contract" and starts_at_zero(op) and operands == list(op.operands):
        return
    for side, other in ((0, 1), (1, 0)):
        for dimension in reversed(range(len(loops[side]))):
            if loops[side][dimension] not in {*loops[other], *loops[2]}:
                operands[side] = _summed(operands[side], dimension)
                loops[side] = loops[side][:dimension] + loops[side][dimension + 1 :]
    numbers = {loop: number for number, loop in enumerate(dict.fromkeys(loops[2] + loops[0] + loops[1]))}
    result = contraction(operands[0], operands[1], [[numbers[loop] for loop in group] for group in loops])
    if not (starts_at_zero(op) and op.results[0].type == result.type):
        result = _added(operands[2], result, op.results[0].type)
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _untransposed(tensor: ir.Value, loops: list[int]) -> tuple[ir.Value, list[int]]:
    """What a tensor is only another order or a wider type of, and the loops of its dimensions."""
    op = defining_op(tensor)
    while op is not None:
        order = _order(op)
        if order is None:
            break
        loops, tensor = [loops[d] for d in order], op.operands[0]
        op = defining_op(tensor)
    return tensor, loops


def _order(op: ir.Operation) -> list[int] | None:
    """For each dimension of an op's operand which one of its result it is; None for ops that do more than that."""
    if op.name == "linalg.transpose":
        permutation = integers(op.attributes["permutation"])
        return [permutation.index(d) for d in range(len(permutation))]
    if not is_elementwise(op) or len(op.operands) != 2 or str(element_type(op.operands[0])) not in FLOATS:
        return None
    *ops, last = operations(op.regions[0].blocks[0])
    widens = len(ops) == 1 and ops[0].name == "arith.extf" and last.operands[0] == ops[0].results[0]
    taken = ops[0].operands[0] if widens else last.operands[0]
    order = dim_positions(indexing_maps(op)[0])
    plain = taken == op.regions[0].blocks[0].arguments[0] and (widens or not ops)
    return order if plain and None not in order and sorted(order) == list(range(len(shape_of(op.results[0])))) else None


def contraction(left: ir.Value, right: ir.Value, loops: Sequence[Sequence[int]]) -> ir.Value:
    """A linalg.contract whose dimensions run over these loops, in left, right and result."""
    f32, count = ir.F32Type.get(), 1 + max(max(group, default=0) for group in loops)
    extents = dict(zip([*loops[0], *loops[1]], [*shape_of(left), *shape_of(right)], strict=True))
    start = filled([extents[loop] for loop in loops[2]], f32, 0.0)
    dims = [ir.AffineExpr.get_dim(i) for i in range(count)]
    maps = [ir.AffineMap.get(count, 0, [dims[loop] for loop in group]) for group in loops]

    def body(values: Sequence[ir.Value]) -> ir.Value:
        product = b.binary("arith.mulf", b.extend(values[0]), b.extend(values[1]))
        return b.binary("arith.addf", values[2], product)

    return contract(left, right, start, maps, body)


def _summed(tensor: ir.Value, dimension: int) -> ir.Value:
    """A tensor's sums along one dimension, in f32."""
    shape = list(shape_of(tensor))
    start = filled(shape[:dimension] + shape[dimension + 1 :], b.f32(), 0.0)
    return reduce(tensor, start, dimension, lambda values: b.binary("arith.addf", values[1], b.extend(values[0])))


def _added(start: ir.Value, sums: ir.Value, type_: ir.Type) -> ir.Value:
    """start + sums, rounded to the type's elements where they are narrower."""

    def body(first: ir.Value, second: ir.Value) -> ir.Value:
        return b.shortened(b.binary("arith.addf", b.extend(first), second), type_.element_type)

    return elementwise([start, sums], type_, body)
