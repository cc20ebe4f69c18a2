"""drop-empty: tensors without elements are made and read by nothing.

Before:                                                 After:
  %s = linalg.reduce {addf} ins(%x : tensor<4x0xf32>)
       outs(%zeros : tensor<4xf32>)                       %zeros in its place
  %r = scf.for %i = 0 to 0 iter_args(%h = %start)         %start in its place
  %y = tensor.insert_slice %part into %z                  %z in its place, where the part is tensor<0x3xf32>
  %t = linalg.generic … -> tensor<0x3xf32>                %t = tensor.empty() : tensor<0x3xf32>

What is combined of nothing is what the op begins with: sums are 0, products 1.

Requires: entries on tensors.
Ensures: no op of an entry's has a tensor without elements, and no loop of its own has no rounds.  What else an entry
gives, tensors without elements, is in its attribute `unmade`, by names and types; `gives` has the names of all that it
gives beside states and weights, in their order.  UserError at the form where an element is read of a tensor that has
none.
"""

from __future__ import annotations

from math import prod
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.diagnostics import users_span
from lispgpt.ir.mlir import attribute, create_op, ir
from lispgpt.ir.structure import (
    entry_arguments,
    entry_functions,
    entry_results,
    nested_operations,
    operations,
    retype,
    trip_count,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.states import UNPLACED

UNMADE, ORDER = "unmade", "gives"

AROUND = ("scf.for", "scf.if")
"""Ops on tensors that hold others, whose yields are what they give."""


class DropEmpty(Pass):
    starts_from = (UNPLACED,)

    def run(self, module: ir.Module, target: object) -> None:
        for entry in entry_functions(module):
            _drop(entry.regions[0].blocks[0])
            _return_rest(entry)


def is_empty(type_: Any) -> bool:
    """Whether a type is of tensors that have no elements."""
    return isinstance(type_, ir.RankedTensorType) and prod(type_.shape) == 0


def _drop(block: ir.Block) -> None:
    """Drop what makes or reads tensors without elements, of a block on tensors."""
    for op in operations(block):
        if op.name == "scf.for" and not trip_count(op):
            _replace(op, list(op.operands)[3:])
        elif op.name in AROUND:
            kept = _without_empty(op)
            for region in kept.regions if kept is not None else ():
                for inside in region.blocks:
                    _drop(inside)
        elif op.name != "tensor.empty" and not _is_terminator(op):
            _drop_op(op)


def _drop_op(op: ir.Operation) -> None:
    some = any(is_empty(value.type) for value in op.operands)
    if op.name.startswith("linalg.") and some:
        _replace(op, list(op.operands)[len(op.operands) - len(op.results) :])
    elif op.name == "tensor.insert_slice" and is_empty(op.operands[0].type):
        _replace(op, [op.operands[1]])
    elif len(op.results) and all(is_empty(result.type) for result in op.results):
        with ir.InsertionPoint(op), op.location:
            _replace(op, [_nothing(result.type) for result in op.results])
    elif op.name == "tensor.concat" and some:
        parts = [value for value in op.operands if not is_empty(value.type)]
        with ir.InsertionPoint(op), op.location:
            joined = create_op("tensor.concat", parts, [op.results[0].type], {"dim": op.attributes["dim"]})
        _replace(op, list(joined.results))
    else:
        for reader in (op, *nested_operations(op)):
            kinds = [value.type for value in reader.operands if is_empty(value.type)]
            if kinds:
                message = f"this reads of {kinds[0]}, which has no elements ({reader.name})"
                raise UserError(message, users_span(reader.location))


def _without_empty(op: ir.Operation) -> ir.Operation | None:
    """A loop or branch that neither carries nor gives tensors without elements, in the place of one that may; None
    where nothing is left that it gives."""
    kept = [not is_empty(result.type) for result in op.results]
    if all(kept):
        return op
    first = len(op.operands) - len(kept) if op.name == "scf.for" else len(op.operands)
    given = [value for number, value in enumerate(op.operands) if number < first or kept[number - first]]
    types = [result.type for result, keeps in zip(op.results, kept, strict=True) if keeps]
    with ir.InsertionPoint(op), op.location:
        nothing = [None if keeps else _nothing(result.type) for result, keeps in zip(op.results, kept, strict=True)]
        made = create_op(op.name, given, types, regions=len(op.regions))
    for old, new in zip(op.regions, made.regions, strict=True):
        for block in list(old.blocks):
            _take_out(block, kept, op.name == "scf.for")
            block.append_to(new)
    results = iter(made.results)
    _replace(op, [next(results) if keeps else value for keeps, value in zip(kept, nothing, strict=True)])
    if not types:
        made.erase()
        return None
    return made


def _take_out(block: ir.Block, kept: list[bool], carries: bool) -> None:
    """Have a body yield what is kept alone and, of a loop, take no more."""
    end = operations(block)[-1]
    with ir.InsertionPoint(end), end.location:
        create_op(end.name, [value for value, keeps in zip(end.operands, kept, strict=True) if keeps])
    end.erase()
    for number, keeps in reversed(list(enumerate(kept if carries else ()))):
        if not keeps:
            argument = block.arguments[1 + number]
            with ir.InsertionPoint.at_block_begin(block):
                argument.replace_all_uses_with(_nothing(argument.type))
            block.erase_argument(1 + number)


def _return_rest(entry: ir.Operation) -> None:
    """Have an entry return what has elements, and its attribute `unmade` say what else it gives."""
    results = entry_results(entry)
    kept = {name: value for name, value in results.items() if not is_empty(value.type)}
    if len(kept) == len(results):
        return
    end = operations(entry.regions[0].blocks[0])[-1]
    with ir.InsertionPoint(end), end.location:
        create_op("func.return", list(kept.values()))
    end.erase()
    entry.attributes["results"] = attribute(list(kept))
    given = entry_arguments(entry)
    unmade = {n: ir.TypeAttr.get(v.type) for n, v in results.items() if n not in kept and n not in given}
    entry.attributes[UNMADE] = ir.DictAttr.get(unmade)
    entry.attributes[ORDER] = attribute([name for name in results if name not in given])
    retype(entry, [value.type for value in kept.values()])


def _nothing(type_: ir.Type) -> ir.Value:
    return b.emit("tensor.empty", [], [type_])


def _is_terminator(op: ir.Operation) -> bool:
    return op.name in ("func.return", "scf.yield")


def _replace(op: ir.Operation, values: list[ir.Value]) -> None:
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
