"""Scalars of a tensor comprehension, computed again in the body of another: what its gradient needs of them.

(if c a b) becomes (select c a b), so that a gradient needs no branch: both are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import captured_values, defining_op, dim_positions, indexing_maps, operations, shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.forms.tensors import Comprehension, generic
from lispgpt.language.reader.forms import Form


def with_branches(ops: Sequence[ir.Operation]) -> Iterator[ir.Operation]:
    """Ops in their order, those in branches before what chooses between them."""
    for op in ops:
        for region in op.regions:
            for child in region.blocks:
                yield from with_branches(operations(child))
        yield op


def ends(op: ir.Operation) -> list[ir.Operation]:
    """What an op's branches yield."""
    return [operations(region.blocks[0])[-1] for region in op.regions if len(region.blocks)]


def within(evaluator: Evaluator, place: ir.Value, extent: int, form: Form) -> ir.Value:
    """An index of a branch that may not be taken, where it is none of the tensor's made one."""
    emit, index = evaluator.builder.emit, evaluator.builder.index
    first, last = (evaluator.builder.constant(n, index, form) for n in (0, extent - 1))
    return emit("arith.minsi", [emit("arith.maxsi", [place, first], [index], {}, form), last], [index], {}, form)


def combined(evaluator: Evaluator, op: ir.Operation, form: Form) -> tuple[str, ir.Value]:
    """The op with which a linalg.reduce adds an element to what it has, and the tensor of what it adds: its operand, or
    what it makes of each of the operand's elements alone.  "several ops" where that depends on what it has."""
    tensor, block = op.operands[0], op.regions[0].blocks[0]
    last = defining_op(operations(block)[-1].operands[0])
    if len(block.arguments) != 2 or last is None or len(last.operands) != 2:
        return "several ops", tensor
    element, total = block.arguments
    others = [value for value in last.operands if value != total]
    if len(others) != 1 or len(list(total.uses)) != 1:
        return "several ops", tensor
    made_by = defining_op(others[0])
    widened = made_by is not None and made_by.name == "arith.extf" and made_by.operands[0] == element
    if others[0] == element or widened:
        return last.name, tensor
    everywhere = tuple(range(len(shape_of(tensor))))

    def compute(made: Comprehension) -> ir.Value:
        clone = Clone(evaluator, op, made, {}, form)
        clone.known[element] = made.read(evaluator, tensor, everywhere, form)
        return clone.value(others[0])

    return last.name, generic(evaluator, shape_of(tensor), compute, form)


def scalars_before(op: ir.Operation, active: set[ir.Value]) -> list[ir.Operation]:
    """The ops that make, of active values, the active scalars which a comprehension's body takes from outside, such as
    the (at s 0) of (* x (at s 0)); each behind those that it needs."""
    found: dict[ir.Operation, None] = {}

    def look(value: ir.Value) -> None:
        maker = defining_op(value)
        if maker is None or value not in active or isinstance(value.type, ir.ShapedType) or maker in found:
            return
        for source in (*maker.operands, *captured_values(maker)):
            look(source)
        found[maker] = None

    for value in captured_values(op):
        look(value)
    return list(found)


class Clone:
    """Values of a body, computed again in another comprehension, whose loops are some of the first's.

    before: ops outside of the body that are computed again as if they were its first ones.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        op: ir.Operation,
        made: Comprehension,
        loops: dict[int, int],
        form: Form,
        before: Sequence[ir.Operation] = (),
    ) -> None:
        self.evaluator, self.op, self.made, self.loops, self.form = evaluator, op, made, loops, form
        self.block = op.regions[0].blocks[0]
        self.known: dict[ir.Value, ir.Value] = {}
        self.inside = set(with_branches([*before, *operations(self.block)]))

    def value(self, value: ir.Value) -> ir.Value:
        if value not in self.known:
            self.known[value] = self._make(value)
        return self.known[value]

    def _make(self, value: ir.Value) -> ir.Value:
        evaluator = self.evaluator
        op = defining_op(value)
        if op is None:
            if value.owner != self.block:
                return value
            number = ir.BlockArgument(value).arg_number
            dims = tuple(self.loops[d] for d in dim_positions(indexing_maps(self.op)[number]))
            return self.made.read(evaluator, self.op.operands[number], dims, self.form)
        if op not in self.inside:
            return value
        if op.name == "scf.if":
            number = ir.OpResult(value).result_number
            both = [self.value(end.operands[number]) for end in ends(op)]
            return evaluator.builder.emit(
                "arith.select", [self.value(op.operands[0]), *both], [value.type], {}, self.form
            )
        if len(op.regions):
            evaluator.site.fail(f"there is no gradient of a `{op.name}` within a tensor", self.form)
        attributes = {name: op.attributes[name] for name in op.attributes}
        if op.name == "linalg.index":
            loop = self.loops[ir.IntegerAttr(op.attributes["dim"]).value]
            attributes["dim"] = ir.IntegerAttr.get(evaluator.builder.i64, loop)
        operands = [self.value(v) for v in op.operands]
        if op.name == "tensor.extract" and op.block not in (self.block, self.op.block):  # it is in a branch
            limits = zip(operands[1:], shape_of(op.operands[0]), strict=True)
            operands[1:] = [within(evaluator, place, extent, self.form) for place, extent in limits]
        made = evaluator.builder.emit(op.name, operands, [r.type for r in op.results], attributes, self.form)
        return made.owner.results[ir.OpResult(value).result_number]
