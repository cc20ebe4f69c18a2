"""One form, one op: `(dialect.op {attributes}? operand… region…)` for any op of any dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.values import OpResults, describe
from lispgpt.language.forms import functions
from lispgpt.language.ops import attributes, kinds, linalg, regions, segments
from lispgpt.language.ops.op_creation import Draft, OpCreator
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Map, Symbol, Vector, show

if TYPE_CHECKING:
    pass

# Where a plain number among the operands is an index whatever its neighbours are: the first such position.
_INDEX_FROM = {
    "memref.load": 1, "memref.store": 2, "memref.alloc": 0, "memref.alloca": 0, "memref.dim": 1,
    "memref.subview": 1, "tensor.extract": 1, "tensor.insert": 2, "tensor.dim": 1, "tensor.empty": 0,
    "tensor.extract_slice": 1, "tensor.insert_slice": 2, "vector.load": 1, "vector.store": 2,
    "vector.transfer_read": 1, "affine.load": 1, "affine.store": 2, "vector.transfer_write": 2, "gpu.launch": 0,
    "scf.parallel": 0, "scf.forall": 0, "memref.prefetch": 1, "memref.atomic_rmw": 2, "memref.view": 1,
    "memref.reinterpret_cast": 1, "affine.apply": 0, "vector.create_mask": 0,
}  # fmt: skip

# Attributes that MLIR prints under another name than it keeps them by; with both, its conversions abort.
_PRINTED = {("gpu.func", "gpu.kernel"): "kernel"}

# Where another number is of the element type of the first shaped operand.
_ELEMENT_OPS = (
    "memref.store", "affine.store", "tensor.insert", "vector.store", "vector.insert", "vector.transfer_read",
)  # fmt: skip


@dataclass
class Arguments:
    """The parts of an op's form, evaluated; place is the form."""

    place: Form
    operands: list[Any] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    regions: list[List] = field(default_factory=list)
    successors: list[ir.Block] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    results: list[ir.Type] | None = None
    attributes: dict[str, ir.Attribute] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)


class Emitter(OpCreator):
    """Turns op forms into ops."""

    def form(self, name: str, form: List, environment: Environment) -> Any:
        """Emit an op from its form; gives the op's first result."""
        evaluator = self.evaluator
        arguments = self.arguments(name, form, environment)
        operands = self.constants(name, arguments)
        segments.complete(evaluator, name, arguments, operands, form)
        if name == "scf.yield" and self._yields_in_parallel(form):
            return OpResults(name, ())
        count = max(len(arguments.regions), segments.regions_of(name))
        draft = Draft(name, form, operands, arguments.results, arguments.attributes, count, arguments.successors)
        operation = self.create(draft)
        if name in ("func.func", "llvm.func"):
            functions.register_op(evaluator, operation, form, environment)
        for position, region in enumerate(arguments.regions):
            regions.fill(evaluator, operation, position, region, environment)
        if name.startswith("linalg.") and count and not arguments.regions:
            linalg.make_body(evaluator, operation, form)
        if name == "scf.forall.in_parallel" and not arguments.regions:
            ir.Block.create_at_start(operation.regions[0], [])
        if name == "gpu.module":
            evaluator.module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
        if name in ("func.func", "gpu.module") and arguments.regions:
            evaluator.verify(operation, form)
        return result_of(operation, name)

    def _yields_in_parallel(self, form: Form) -> bool:
        """An scf.yield that ends an scf.parallel is the scf.reduce that MLIR has there now."""
        block = self.evaluator.insertion.block
        owner = block.owner
        if owner is None or owner.operation.name != "scf.parallel":
            return False
        if not regions.ends(block):
            self.emit("scf.reduce", [], [], {}, form)
        return True

    def arguments(self, name: str, form: List, environment: Environment) -> Arguments:
        """Evaluate everything after the op's name."""
        evaluator = self.evaluator
        found = Arguments(form)
        items = form.items[1:]
        if items and isinstance(items[0], Map):
            self.attributes(name, items[0], environment, found)
            items = items[1:]
        if name in ("func.call", "llvm.call") and items:
            items = self._callee(items, found)
        for item in items:
            if isinstance(item, Symbol) and item.name.startswith("^"):
                found.successors.append(regions.label(evaluator, item))
                found.groups.append(len(found.operands))
            elif regions.is_region(item, environment):
                assert isinstance(item, List)
                found.regions.append(item)
            elif isinstance(item, Vector):
                for member in item.items:
                    self._operand(evaluator.evaluate(member, environment), member, found)
            elif isinstance(item, Map):
                evaluator.fail("attributes `{…}` come first, right after the op's name", item)
            else:
                self._operand(evaluator.evaluate(item, environment), item, found)
        return found

    def _callee(self, items: tuple[Form, ...], found: Arguments) -> tuple[Form, ...]:
        """`(func.call {:result T} "f" a…)`: the name may stand before the operands; its type settles the results."""
        first = items[0] if items else None
        text = first.value if isinstance(first, Literal) else first.name if isinstance(first, Symbol) else None
        if not isinstance(text, str) or "callee" in found.attributes:
            return items
        if isinstance(first, Literal) or text.startswith("@"):
            found.attributes["callee"] = ir.FlatSymbolRefAttr.get(text.removeprefix("@"))
            return items[1:]
        return items

    def _operand(self, value: Any, form: Form, found: Arguments) -> None:
        evaluator = self.evaluator
        value = evaluator.ssa(value, form)
        if isinstance(value, tuple):
            for member in value:
                self._operand(member, form, found)
        elif isinstance(value, (ir.Value, bool, int, float)):
            found.operands.append(value)
            found.forms.append(form)
        else:
            evaluator.fail(f"an operand is an SSA value or a number, and `{show(form)}` is {describe(value)}", form)

    def attributes(self, name: str, form: Map, environment: Environment, found: Arguments) -> None:
        """Evaluate `{:key value …}`."""
        evaluator = self.evaluator
        items = form.items
        pairs: dict[str, Form] = {}
        for index in range(0, len(items), 2):
            key = items[index]
            if not isinstance(key, Keyword):
                evaluator.fail(f"`{show(key)}` stands where a :key is wanted; attributes are {{:key value …}}", key)
            if index + 1 == len(items):
                evaluator.fail(f"`:{key.name}` has no value", key)
            if key.name in pairs:
                evaluator.fail(f"`:{key.name}` is given twice", key)
            pairs[key.name] = items[index + 1]
        for name_of_types in ("result", "results"):
            value_form = pairs.pop(name_of_types, None)
            if value_form is not None:
                value = evaluator.evaluate(value_form, environment)
                many = value if isinstance(value, tuple) else (value,)
                found.results = [attributes.type_of(evaluator, v, value_form) for v in many]
        for key_name, value_form in pairs.items():
            if key_name not in ("result", "resultType") and get_close_matches(key_name, ["result"], cutoff=0.8):
                evaluator.fail(f"`:{key_name}`: did you mean `:result`?", value_form)
            if key_name in ("ins", "outs") and name.startswith("linalg."):
                found.hints[key_name] = self._count(value_form, environment)
            else:
                key_name = _PRINTED.get((name, key_name), key_name)
                found.attributes[key_name] = kinds.attribute(
                    evaluator, name, key_name, value_form, environment, found.results
                )

    def _count(self, form: Form, environment: Environment) -> int:
        value = self.evaluator.single(form, environment)
        if not isinstance(value, int) or value < 0:
            self.evaluator.fail(f"a count of operands is wanted here, and `{show(form)}` is {describe(value)}", form)
        return value

    def constants(self, name: str, arguments: Arguments) -> list[ir.Value]:
        """The operands with numbers made into constants of the type that the op or their neighbours ask for."""
        if all(isinstance(o, ir.Value) for o in arguments.operands):
            return arguments.operands
        typed = [o.type for o in arguments.operands if isinstance(o, ir.Value)]
        index_from = _INDEX_FROM.get(name)
        made: list[ir.Value] = []
        for position, (operand, form) in enumerate(zip(arguments.operands, arguments.forms, strict=True)):
            if not isinstance(operand, ir.Value):
                operand = self.constant(
                    operand, self._wanted(name, position, index_from, typed, arguments, operand), form
                )
            made.append(operand)
        return made

    def _wanted(
        self, name: str, position: int, index_from: int | None, typed: list[ir.Type], arguments: Arguments, number: Any
    ) -> ir.Type:
        evaluator = self.evaluator
        if index_from is not None and position >= index_from and not isinstance(number, float):
            return evaluator.index
        if name in _ELEMENT_OPS and typed:
            shaped = typed[0]
            return shaped.element_type if isinstance(shaped, ir.ShapedType) else shaped
        if name == "scf.for" and position < 3:
            return typed[0] if typed and isinstance(typed[0], (ir.IntegerType, ir.IndexType)) else evaluator.index
        if name == "linalg.fill" and typed and isinstance(typed[0], ir.ShapedType):
            return typed[0].element_type
        scalars = [t for t in typed if not isinstance(t, (ir.MemRefType, ir.UnrankedMemRefType))]
        if scalars and (isinstance(scalars[0], ir.ShapedType) or _is_number_type(scalars[0])):
            return scalars[0]
        results = arguments.results or []
        if results and _is_number_type(results[0]) and not name.startswith(("arith.cmp", "func.call", "llvm.call")):
            return results[0]
        return evaluator.f64 if isinstance(number, float) else evaluator.i64


def result_of(operation: Any, name: str) -> Any:
    """An op as a value: its only result, or all of them."""
    results = operation.results
    return results[0] if len(results) == 1 else OpResults(name, results)


def _is_number_type(kind: ir.Type) -> bool:
    return isinstance(kind, (ir.IntegerType, ir.IndexType, ir.FloatType))
