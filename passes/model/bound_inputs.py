"""bound-inputs: write down which whole numbers an entry may be given where they say what is read or written.

Before: func.func @embed(%tokens: tensor<4xi32>, %table: tensor<10x8xf32>) attributes {entry = "embed", …} {
          … %row = arith.index_cast %token : i32 to index
            tensor.extract %table[%row, %column]
After:  … attributes {bounds = [{first = 0, input = "tokens", last = 9}], entry = "embed", …}

Requires: entries on tensors, before kernels are outlined.  Ensures: `bounds` of entries that read, take or put anything
at an index that is an element of an input, plus or minus a number, or the larger of it and a number (labels below 0,
which do not count, may stay): the session refuses others before the entry runs,
which costs kernels nothing.  A bound is of all of the input, or of the part with `offsets` and `sizes`.  Indices that
are made in any other way, or read only where a condition holds, are held to their tensor's range (see held_indices),
unless they are proven to be within it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from lispgpt.ir.index_ranges import indices_of, is_conditional
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    RESHAPES,
    constant_number,
    defining_op,
    entry_arguments,
    entry_functions,
    everything_in,
    integers,
    is_elementwise,
    loop_extents,
    operations,
    shape_of,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.model.held_indices import hold_indices

CASTS = ("arith.index_cast", "arith.extsi", "arith.trunci")
LEAST = -(1 << 31)


@dataclass(frozen=True)
class Part:
    """Elements of an input, which lie at offsets there, plus a shift; whole: all elements, in any shape.

    floor: the index is never below it, whatever the element is.
    """

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    whole: bool
    shift: int = 0
    floor: int | None = None

    def limits(self, last: int) -> tuple[int, int] | None:
        """What elements may be where indices go up to `last`; None where no such bound holds an index to its range."""
        if self.floor is None:
            return -self.shift, last - self.shift
        return (LEAST, last - self.shift) if 0 <= self.floor <= last else None


class BoundInputs(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        for entry in entry_functions(module):
            bounds: dict[Part, tuple[int, int]] = {}
            arguments = {value: name for name, value in entry_arguments(entry).items() if name.startswith("input:")}
            for op in everything_in(entry):
                for number, last in indices_of(op):
                    part = _part(op.operands[number], arguments)
                    limits = None if part is None or is_conditional(op) else part.limits(last)
                    if part is not None and limits is not None:
                        own = replace(part, shift=0, floor=None)
                        least, most = bounds.get(own, limits)
                        bounds[own] = (max(least, limits[0]), min(most, limits[1]))
            hold_indices(entry, partial(_is_checked, arguments))
            if bounds:
                entry.attributes["bounds"] = ir.ArrayAttr.get([_attribute(*each) for each in bounds.items()])


def _attribute(part: Part, limits: tuple[int, int]) -> ir.Attribute:
    i64 = ir.IntegerType.get_signless(64)
    first, last = (ir.IntegerAttr.get(i64, limit) for limit in limits)
    fields: dict[str, ir.Attribute] = {"input": ir.StringAttr.get(part.name), "first": first, "last": last}
    if not part.whole:
        fields["offsets"], fields["sizes"] = (ir.DenseI64ArrayAttr.get(list(n)) for n in (part.offsets, part.sizes))
    return ir.DictAttr.get(fields)


def _is_checked(arguments: dict[ir.Value, str], op: ir.Operation, index: ir.Value) -> bool:
    part = _part(index, arguments)
    lasts = [last for number, last in indices_of(op) if op.operands[number] == index]
    bounded = part is not None and all(part.limits(last) for last in lasts)
    return bounded and not is_conditional(op)


def _part(index: ir.Value, arguments: dict[ir.Value, str]) -> Part | None:
    """The elements of an input that an index is; None for any other index."""
    op = defining_op(index)
    if op is None:
        owner = index.owner.owner.operation if isinstance(index.owner, ir.Block) else None
        if owner is None or owner.name != "linalg.generic":
            return None
        number = ir.BlockArgument(index).arg_number
        return _tensor(owner.operands[number], arguments)
    if op.name in CASTS:
        return _part(op.operands[0], arguments)
    if op.name == "arith.maxsi":
        one, other = op.operands
        least, part = constant_number(other), _part(one, arguments)
        return None if least is None or part is None or part.floor is not None else replace(part, floor=least)
    if op.name in ("arith.addi", "arith.subi"):
        one, other = op.operands
        if op.name == "arith.addi" and constant_number(other) is None:
            one, other = other, one
        more, part = constant_number(other), _part(one, arguments)
        if more is None or part is None:
            return None
        more = more if op.name == "arith.addi" else -more
        return replace(part, shift=part.shift + more, floor=None if part.floor is None else part.floor + more)
    return _extracted(op, arguments) if op.name == "tensor.extract" else None


def _extracted(op: ir.Operation, arguments: dict[ir.Value, str]) -> Part | None:
    """Of an element that is read by loops over all of a tensor, that tensor; by constants, the element."""
    part = _tensor(op.operands[0], arguments)
    indices, extents = list(op.operands)[1:], shape_of(op.operands[0])
    each_once = len(set(indices)) == len(indices) and [_extent(index) for index in indices] == list(extents)
    if part is None or each_once:
        return part
    constants = [constant_number(index) for index in indices]
    if op.operands[0] not in arguments or None in constants:
        return None
    return Part(part.name, tuple(n for n in constants if n is not None), (1,) * len(indices), False)


def _extent(index: ir.Value) -> int | None:
    """How far a loop's counter runs from 0; None for any other index."""
    op = defining_op(index)
    if op is not None:
        counter = op.name == "linalg.index"
        return loop_extents(op.parent.operation)[ir.IntegerAttr(op.attributes["dim"]).value] if counter else None
    loop = index.owner.owner.operation
    if loop.name != "scf.for" or ir.BlockArgument(index).arg_number:
        return None
    start, stop, step = (constant_number(value) for value in list(loop.operands)[:3])
    return stop if start == 0 and step == 1 else None


def _tensor(value: ir.Value, arguments: dict[ir.Value, str]) -> Part | None:
    """The elements of an input that a tensor has, each of them."""
    op = defining_op(value)
    if op is None:
        name, shape = arguments.get(value, ":").partition(":")[2], shape_of(value)
        return Part(name, (0,) * len(shape), shape, True) if name else None
    if op.name in RESHAPES:
        return _tensor(op.operands[0], arguments)
    if op.name == "linalg.generic" and is_elementwise(op):
        return _part(operations(op.regions[0].blocks[0])[-1].operands[0], arguments)
    if op.name == "tensor.extract_slice" and op.operands[0] in arguments and len(op.operands) == 1:
        offsets, sizes, strides = (integers(op.attributes[f"static_{n}"]) for n in ("offsets", "sizes", "strides"))
        name = arguments[op.operands[0]].partition(":")[2]
        return Part(name, tuple(offsets), tuple(sizes), False) if set(strides) == {1} else None
    return None
