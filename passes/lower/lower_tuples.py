"""lower-tuples: tuples become structs, which LLVM has.

Before:  func.func @f(%a: i32, %b: f32) -> tuple<i32, f32>
         %t = builtin.unrealized_conversion_cast %a, %b : i32, f32 to tuple<i32, f32>
         %x = builtin.unrealized_conversion_cast %t : tuple<i32, f32> to i32
After:   func.func @f(%a: i32, %b: f32) -> !llvm.struct<(i32, f32)>
         %t = llvm.insertvalue %b, (llvm.insertvalue %a, %undef[0])[1]
         %x = llvm.extractvalue %t[0]

No upstream op makes or reads a tuple, so programs write casts: from all elements to the tuple; from the tuple to all of
them, or to one type, which is the first element of that type.  Elements are numbers, pointers and tuples of such; an
index is an i64 in the struct.
Ensures: no value of a tuple type is left.  UserError: another element, a cast to a type that no element has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.ir.diagnostics import span_of
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import everything_in
from lispgpt.passes.base import Pass

CAST = "builtin.unrealized_conversion_cast"


class LowerTuples(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        if "tuple<" not in str(module):
            return
        everything = everything_in(module.operation)
        casts = [_Cast(op, _types(op.operands), _types(op.results)) for op in everything if op.name == CAST]
        for op in everything:
            _change_types(op)
        for cast in casts:
            if any(isinstance(kind, ir.TupleType) for kind in (*cast.takes, *cast.gives)):
                cast.lower()


@dataclass(frozen=True)
class _Cast:
    """A cast with the types that it had with tuples in them."""

    op: ir.Operation
    takes: list[ir.Type]
    gives: list[ir.Type]

    def lower(self) -> None:
        results = list(self.op.results)
        if len(results) == 1 and isinstance(self.gives[0], ir.TupleType):
            results[0].replace_all_uses_with(self._made(self.gives[0]))
        else:
            for position, (result, kind) in enumerate(zip(results, self.gives, strict=True)):
                result.replace_all_uses_with(self._element(position, kind))
        self.op.erase()

    def _made(self, kind: ir.Type) -> ir.Value:
        if self.takes != _elements(kind):
            given = ", ".join(map(str, self.takes))
            raise UserError(f"a {kind} is made of its elements, and this is of {given}", span_of(self.op.location))
        whole = self._create("llvm.mlir.undef", [], _lowered(kind, self.op))
        for position, element in enumerate(self.op.operands):
            if isinstance(element.type, ir.IndexType):
                element = self._create("arith.index_cast", [element], ir.IntegerType.get_signless(64))
            whole = self._create("llvm.insertvalue", [whole, element], whole.type, position)
        return whole

    def _element(self, position: int, kind: ir.Type) -> ir.Value:
        """The element of a type: the one at a position where the cast gives all, else the first of that type."""
        elements = _elements(self.takes[0])
        if len(self.gives) != len(elements) and kind in elements:
            position = elements.index(kind)
        if position >= len(elements) or elements[position] != kind:
            raise UserError(f"{self.takes[0]} has no element of type {kind} there", span_of(self.op.location))
        stored = _changed(kind, self.op)
        if isinstance(kind, ir.IndexType):
            stored = ir.IntegerType.get_signless(64)
        value = self._create("llvm.extractvalue", [self.op.operands[0]], stored, position)
        return self._create("arith.index_cast", [value], kind) if isinstance(kind, ir.IndexType) else value

    def _create(self, name: str, operands: list[ir.Value], kind: ir.Type, position: int | None = None) -> ir.Value:
        where = {} if position is None else {"position": [position]}
        place = ir.InsertionPoint(self.op)
        return create_op(name, operands, [kind], where, loc=self.op.location, ip=place).results[0]


def _types(values: Any) -> list[ir.Type]:
    return [value.type for value in values]


def _change_types(op: ir.Operation) -> None:
    """Replace tuples among the types of an op's results and blocks, and in a function's type."""
    values = [*op.results, *(argument for region in op.regions for block in region for argument in block.arguments)]
    for value in values:
        if isinstance(value.type, ir.TupleType):
            value.set_type(_lowered(value.type, op))
    if op.name == "func.func":
        written = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        inputs, results = ([_changed(kind, op) for kind in kinds] for kinds in (written.inputs, written.results))
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))


def _changed(kind: ir.Type, op: ir.Operation) -> ir.Type:
    return _lowered(kind, op) if isinstance(kind, ir.TupleType) else kind


def _lowered(kind: ir.Type, op: ir.Operation) -> ir.Type:
    """The type in a struct."""
    if isinstance(kind, ir.TupleType):
        members = ", ".join(str(_lowered(element, op)) for element in _elements(kind))
        return ir.Type.parse(f"!llvm.struct<({members})>")
    if isinstance(kind, ir.IndexType):
        return ir.IntegerType.get_signless(64)
    if isinstance(kind, (ir.IntegerType, ir.FloatType, ir.VectorType)) or str(kind).startswith("!llvm."):
        return kind
    raise UserError(f"a tuple of {kind} has no counterpart in LLVM", span_of(op.location))


def _elements(kind: ir.Type) -> list[ir.Type]:
    tuple_ = ir.TupleType(kind)
    return [tuple_.get_type(position) for position in range(tuple_.num_types)]
