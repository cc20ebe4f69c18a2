"""Numbers that loops and branches of an entry give to what is behind them: tensors of no dimension instead.

Before:  %t, %s = scf.for … iter_args(%a = %x, %c = %z) -> (tensor<4xf32>, f32) { …  scf.yield %b, %d }
After:   %i = tensor.from_elements %z : tensor<f32>
         %t, %r = scf.for … iter_args(%a = %x, %u = %i) -> (tensor<4xf32>, tensor<f32>) {
           %c = tensor.extract %u[]  …  %w = tensor.from_elements %d  scf.yield %b, %w }
         %s = tensor.extract %r[]

So that what makes them is a kernel, and what reads them another: between kernels are tensors only.
"""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import operations

LOOPS = ("scf.for", "scf.while", "scf.if")


def put_numbers_in_tensors(entry: ir.Operation, every: bool = False) -> None:
    """Rewrite every loop and branch of an entry's own block that gives a number which something uses.  every: counted
    loops that carry any."""
    for op in operations(entry.regions[0].blocks[0]):
        if op.name in LOOPS:
            used = [i for i, r in enumerate(op.results) if not isinstance(r.type, ir.RankedTensorType)]
            if not every or op.name != "scf.for":
                used = [i for i in used if list(op.results[i].uses)]
            tensors = any(isinstance(r.type, ir.RankedTensorType) for r in op.results)
            if used and (op.name != "scf.if" or tensors):
                _rewrite(op, used)


def _rewrite(op: ir.Operation, used: Sequence[int]) -> None:
    types = [_tensor_of(r.type) if i in used else r.type for i, r in enumerate(op.results)]
    before = {"scf.for": 3, "scf.if": 1, "scf.while": 0}[op.name]
    operands = list(op.operands)
    if op.name == "scf.for":
        with ir.InsertionPoint(op), op.location:
            for i in used:
                operands[before + i] = _into(operands[before + i])
    attributes = {name: op.attributes[name] for name in op.attributes}
    with ir.InsertionPoint(op), op.location:
        made = create_op(op.name, operands, types, attributes, regions=len(op.regions))
    for old, new in zip(op.regions, made.regions, strict=True):
        for block in list(old.blocks):
            block.append_to(new)
    for region in made.regions:
        if len(region.blocks):
            _rewrite_block(made.name, region.blocks[0], used, first=region == made.regions[0])
    with ir.InsertionPoint(op), op.location:
        for i, (old, new) in enumerate(zip(op.results, made.results, strict=True)):
            old.replace_all_uses_with(_out_of(new, old.type) if i in used else new)
    op.erase()


def _rewrite_block(name: str, block: ir.Block, used: Sequence[int], first: bool) -> None:
    """What a body takes and yields; of a while's two regions the results are the first's condition operands and the
    second's arguments."""
    if name == "scf.for" or (name == "scf.while" and not first):
        arguments = list(block.arguments)[1 if name == "scf.for" else 0 :]
        with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
            for i in used:
                argument, kind = arguments[i], arguments[i].type
                uses = [(use.owner.operation, use.operand_number) for use in argument.uses]
                argument.set_type(_tensor_of(kind))
                number = _out_of(argument, kind)
                for user, place in uses:
                    user.operands[place] = number
    end = operations(block)[-1]
    if end.name == "scf.condition" or name != "scf.while":
        start = 1 if end.name == "scf.condition" else 0
        with ir.InsertionPoint(end), end.location:
            for i in used:
                end.operands[start + i] = _into(end.operands[start + i])


def _tensor_of(kind: ir.Type) -> ir.Type:
    """Of no dimension; an index is held in 64 bits."""
    return ir.RankedTensorType.get([], ir.IntegerType.get_signless(64) if isinstance(kind, ir.IndexType) else kind)


def _into(number: ir.Value) -> ir.Value:
    kind = _tensor_of(number.type)
    if isinstance(number.type, ir.IndexType):
        number = create_op("arith.index_cast", [number], [kind.element_type]).results[0]
    return create_op("tensor.from_elements", [number], [kind]).results[0]


def _out_of(tensor: ir.Value, kind: ir.Type) -> ir.Value:
    number = create_op("tensor.extract", [tensor], [tensor.type.element_type]).results[0]
    return create_op("arith.index_cast", [number], [kind]).results[0] if number.type != kind else number
