"""One form, one op: `(dialect.op {attributes}? operand… region…)` for any op of any dialect."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.op_facts import facts
from lispgpt.language.core.environment import MISSING, Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import OpResults, Special
from lispgpt.language.ops import linalg, op_names, regions, segments, wide
from lispgpt.language.ops.arguments import Arguments, collect
from lispgpt.language.ops.function_table import register_op
from lispgpt.language.ops.op_creation import Draft, OpCreator
from lispgpt.language.reader.forms import Form, List, Symbol


class Emitter(OpCreator):
    """Turns op forms into ops."""

    def form(self, name: str, form: List, environment: Environment) -> Any:
        """Emit an op from its form; gives the op's first result."""
        evaluator = self.evaluator
        arguments = collect(evaluator, name, form, environment)
        operands = self.constants(name, arguments)
        segments.complete(evaluator, name, arguments, operands, form)
        if evaluator.builder.wide:
            widened = wide.made(evaluator.builder, name, operands, arguments.results, form)
            if widened is not None:
                return widened
        if name == "scf.yield" and self._yields_in_parallel(form):
            return OpResults(name, ())
        count = max(len(arguments.regions), facts(name).regions)
        draft = Draft(name, form, operands, arguments.results, arguments.attributes, count, arguments.successors)
        operation = self.create(draft)
        if name in ("func.func", "llvm.func"):
            register_op(evaluator, operation, form, environment)
        for position, region in enumerate(arguments.regions):
            regions.fill(evaluator, operation, position, region, environment)
        if facts(name).body and count and not arguments.regions:
            linalg.make_body(evaluator, operation, form)
        linalg.check_elements(evaluator, operation, form)
        if name == "scf.forall.in_parallel" and not arguments.regions:
            ir.Block.create_at_start(operation.regions[0], [])
        if name == "gpu.module":
            evaluator.builder.module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
        if name in ("func.func", "gpu.module") and arguments.regions:
            evaluator.site.verify(operation, form)
        return result_of(operation, name)

    def _yields_in_parallel(self, form: Form) -> bool:
        """An scf.yield that ends an scf.parallel is the scf.reduce that MLIR has there now."""
        block = self.evaluator.builder.insertion.block
        owner = block.owner
        if owner is None or owner.operation.name != "scf.parallel":
            return False
        if not regions.ends(block):
            self.evaluator.builder.emit("scf.reduce", [], [], {}, form)
        return True

    def constants(self, name: str, arguments: Arguments) -> list[ir.Value]:
        """The operands with numbers made into constants of the type that the op or their neighbours ask for."""
        if all(isinstance(o, ir.Value) for o in arguments.operands):
            return arguments.operands
        typed = [o.type for o in arguments.operands if isinstance(o, ir.Value)]
        index_from = facts(name).index_from
        made: list[ir.Value] = []
        for position, (operand, form) in enumerate(zip(arguments.operands, arguments.forms, strict=True)):
            if not isinstance(operand, ir.Value):
                operand = self.evaluator.builder.constant(
                    operand, self._wanted(name, position, index_from, typed, arguments, operand), form
                )
            made.append(operand)
        return made

    def _wanted(
        self, name: str, position: int, index_from: int | None, typed: list[ir.Type], arguments: Arguments, number: Any
    ) -> ir.Type:
        evaluator = self.evaluator
        if index_from is not None and position >= index_from and not isinstance(number, float):
            return evaluator.builder.index
        if facts(name).element_operands and typed:
            shaped = typed[0]
            return shaped.element_type if isinstance(shaped, ir.ShapedType) else shaped
        if name == "scf.for" and position < 3:
            return (
                typed[0] if typed and isinstance(typed[0], (ir.IntegerType, ir.IndexType)) else evaluator.builder.index
            )
        if name == "linalg.fill" and typed and isinstance(typed[0], ir.ShapedType):
            return typed[0].element_type
        scalars = [t for t in typed if not isinstance(t, (ir.MemRefType, ir.UnrankedMemRefType))]
        if scalars and (isinstance(scalars[0], ir.ShapedType) or _is_number_type(scalars[0])):
            return scalars[0]
        results = arguments.results or []
        if results and _is_number_type(results[0]) and not name.startswith(("arith.cmp", "func.call", "llvm.call")):
            return results[0]
        return evaluator.builder.f64 if isinstance(number, float) else evaluator.builder.i64


def head(evaluator: Evaluator, symbol: Symbol, environment: Environment) -> Any:
    """What a list's head stands for that is an op's name: a form that emits the op."""
    name = op_names.full_name(evaluator, symbol, environment)
    if name is None:
        return MISSING
    return Special(name, lambda evaluator, form, scope: Emitter(evaluator).form(name, form, scope))


def result_of(operation: Any, name: str) -> Any:
    """An op as a value: its only result, or all of them."""
    results = operation.results
    return results[0] if len(results) == 1 else OpResults(name, results)


def _is_number_type(kind: ir.Type) -> bool:
    return isinstance(kind, (ir.IntegerType, ir.IndexType, ir.FloatType))
