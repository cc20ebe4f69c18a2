"""One form, one op: operands, attributes, regions and successors of any op of any dialect."""

from __future__ import annotations

import re
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, NoReturn

from lispgpt.errors import UserError
from lispgpt.frontend import attributes, functions, linalg, regions, segments
from lispgpt.frontend.environment import Dialects, Environment, did_you_mean
from lispgpt.frontend.forms import Form, Keyword, List, Literal, Map, Symbol, Vector, show
from lispgpt.frontend.values import OpResults, describe
from lispgpt.mlir import create_op, ir

if TYPE_CHECKING:
    from lispgpt.frontend.evaluator import Evaluator

DIALECTS = [
    "acc",
    "affine",
    "amdgpu",
    "arith",
    "arm_neon",
    "arm_sme",
    "arm_sve",
    "async",
    "bufferization",
    "builtin",
    "cf",
    "complex",
    "dlti",
    "emitc",
    "func",
    "gpu",
    "index",
    "irdl",
    "linalg",
    "llvm",
    "math",
    "memref",
    "ml_program",
    "mpi",
    "nvgpu",
    "nvvm",
    "omp",
    "pdl",
    "pdl_interp",
    "ptr",
    "quant",
    "rocdl",
    "scf",
    "shape",
    "shard",
    "smt",
    "sparse_tensor",
    "spirv",
    "tensor",
    "tosa",
    "transform",
    "ub",
    "vcix",
    "vector",
    "wasmssa",
    "x86",
    "xegpu",
    "xevm",
]

_KINDS_OF_TYPES = (
    ("signless-non-zero-bitwidth-integer-like", "an integer (i32, i64, index, …)"),
    ("signless-integer-like", "an integer (i32, i64, index, …)"),
    ("floating-point-like", "a float (f32, f64, …)"),
)
_PLAIN_LINALG = ("linalg.yield", "linalg.index")

# Where a plain number among the operands is an index whatever its neighbours are: the first such position.
_INDEX_FROM = {
    "memref.load": 1, "memref.store": 2, "memref.alloc": 0, "memref.alloca": 0, "memref.dim": 1, "memref.subview": 1,
    "tensor.extract": 1, "tensor.insert": 2, "tensor.dim": 1, "tensor.empty": 0, "tensor.extract_slice": 1,
    "tensor.insert_slice": 2, "vector.load": 1, "vector.store": 2, "vector.transfer_read": 1, "affine.load": 1,
    "affine.store": 2, "vector.transfer_write": 2, "gpu.launch": 0, "scf.parallel": 0, "scf.forall": 0,
    "memref.prefetch": 1, "memref.view": 1, "memref.reinterpret_cast": 1, "affine.apply": 0, "vector.create_mask": 0,
}  # fmt: skip


def full_name(evaluator: Evaluator, symbol: Symbol, environment: Environment) -> str | None:
    """The name of the op that a list's head stands for, aliases replaced; None where it is not a registered op of a
    dialect that the file declares."""
    mark = symbol.mark
    while mark is not None:
        found = _resolve(evaluator, symbol.name, mark.environment.dialects)
        if found is not None:
            return found
        mark = mark.outer
    return _resolve(evaluator, symbol.name, environment.dialects)


def _resolve(evaluator: Evaluator, name: str, dialects: Dialects | None) -> str | None:
    if dialects is None:
        return None
    if name in dialects.ops:
        return dialects.ops[name]
    space, op = _split(name)
    full = f"{dialects.names.get(space)}.{op}"
    known = space in dialects.names and bool(op) and evaluator.context.is_registered_operation(full)
    dialects.ops[name] = full if known else None
    return dialects.ops[name]


def _split(name: str) -> tuple[str, str]:
    """`dialect.op` or `alias/op`; the rest may hold either."""
    match = re.match(r"([^./]+)[./](.+)", name)
    return (match[1], match[2]) if match else (name, "")


def fail_unknown_op(evaluator: Evaluator, symbol: Symbol, environment: Environment) -> NoReturn:
    """Say what is wrong with a name that looks like an op's."""
    dialect, op = _split(symbol.name)
    declared = environment.dialects.names if environment.dialects else {}
    registered = evaluator.context.is_registered_operation
    if dialect not in declared:
        if registered(f"{dialect}.{op}") or dialect in DIALECTS:
            evaluator.fail(f"the dialect `{dialect}` is not declared; write (require-dialect {dialect}) first", symbol)
        hint = did_you_mean(dialect, [*declared, *DIALECTS])
        evaluator.fail(f"there is no dialect `{dialect}`{hint}", symbol)
    full = declared[dialect]
    near = [f"{full}.{op}{s}" for s in ("i", "f", "si", "ui") if registered(f"{full}.{op}{s}")]
    near += [f"{full}.{c}" for c in _one_edit(op) if registered(f"{full}.{c}")]
    near += [f"{d}.{op}" for d in DIALECTS if registered(f"{d}.{op}")]
    hint = " or ".join(f"`{n}`" for n in list(dict.fromkeys(near))[:3])
    evaluator.fail(f"the dialect `{full}` has no op `{op}`" + (f"; did you mean {hint}?" if hint else ""), symbol)


def _one_edit(word: str) -> Many[str]:
    letters = ascii_lowercase + "_."
    splits = [(word[:i], word[i:]) for i in range(len(word) + 1)] if len(word) < 60 else []
    found = [a + b[1:] for a, b in splits if b] + [a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1]
    found += [a + c + b[1:] for a, b in splits if b for c in letters] + [a + c + b for a, b in splits for c in letters]
    return found


@dataclass
class Arguments:
    """The parts of an op's form, evaluated."""

    operands: list[Any] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    regions: list[List] = field(default_factory=list)
    successors: list[ir.Block] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    results: list[ir.Type] | None = None
    attributes: dict[str, ir.Attribute] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)


class Emitter:
    """Turns op forms into ops at the evaluator's insertion point."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._resultless: dict[tuple[str, int, int], bool] = {}
        self._kinds: dict[tuple[str, str, type], int] = {}

    def form(self, name: str, form: List, environment: Environment) -> Any:
        """Emit `(dialect.op {attributes}? operand… region…)`; gives the op's first result."""
        evaluator = self.evaluator
        arguments = self.arguments(name, form, environment)
        operands = self.constants(name, arguments)
        segments.complete(evaluator, name, arguments, operands, form)
        if name == "scf.yield" and self._yields_in_parallel(form):
            return OpResults(name, ())
        count = max(len(arguments.regions), segments.regions_of(name))
        self._check_successors(name, arguments, form)
        attrs = self._fitting(name, operands, arguments, count, form)
        operation = self.create(name, operands, arguments.results, attrs, count, arguments.successors, form)
        if name in ("func.func", "llvm.func"):
            functions.register_op(evaluator, operation, form, environment)
        for position, region in enumerate(arguments.regions):
            regions.fill(evaluator, operation, position, region, environment)
        if name.startswith("linalg.") and count and not arguments.regions:
            linalg.make_body(evaluator, operation, form)
        if name == "scf.forall.in_parallel" and not arguments.regions:
            ir.Block.create_at_start(operation.regions[0], [])
        if operation.name in ("func.func", "gpu.module") and arguments.regions:
            evaluator.verify(operation, form)
        return result_of(operation, name)

    def _check_successors(self, name: str, arguments: Arguments, form: List) -> None:
        if not arguments.successors:
            return
        alone = self._build(name, [], [], {}, 0, [], form, insert=False)
        if not alone.has_trait(ir.IsTerminatorTrait):
            self.evaluator.fail(f"`{name}` does not go on to another block, and ^labels are given", form)

    def _yields_in_parallel(self, form: Form) -> bool:
        """An scf.yield that ends an scf.parallel is the scf.reduce that MLIR has there now."""
        block = self.evaluator.insertion.block
        owner = block.owner
        if owner is None or owner.operation.name != "scf.parallel":
            return False
        if not regions.ends(block):
            self.emit("scf.reduce", [], [], {}, form)
        return True

    def _fitting(
        self, name: str, operands: list[ir.Value], arguments: Arguments, count: int, form: List
    ) -> dict[str, ir.Attribute]:
        """The attributes, those that the op wants in another kind than they were written in that kind."""
        attrs = dict(arguments.attributes)
        for key, value in arguments.attributes.items():
            others = segments.alternatives(self.evaluator, key, value)
            if not others:
                continue
            choice = self._kinds.get((name, key, type(value)))
            if choice is None:
                choice = 0
                for index, candidate in enumerate([value, *others]):
                    if not self._complains(name, operands, arguments, attrs, key, candidate, count, form):
                        choice = index
                        break
                if not name.startswith(("func.", "llvm.mlir", "arith.constant")) and not isinstance(
                    value, ir.StringAttr
                ):
                    self._kinds[name, key, type(value)] = choice
            chosen = [value, *others][choice] if choice <= len(others) else value
            if chosen is None:
                del attrs[key]
            else:
                attrs[key] = chosen
        return attrs

    def _complains(
        self,
        name: str,
        operands: list[ir.Value],
        arguments: Arguments,
        attrs: dict[str, ir.Attribute],
        key: str,
        value: ir.Attribute | None,
        count: int,
        form: List,
    ) -> bool:
        """Whether an op with this attribute of this kind is one that MLIR does not take."""
        tried = {k: v for k, v in attrs.items() if k != key} | ({key: value} if value is not None else {})
        try:
            operation = ir.Operation.create(
                name,
                results=arguments.results or [],
                operands=operands,
                attributes=tried,
                successors=arguments.successors,
                regions=count,
                loc=self.evaluator.location(form),
                ip=False,
            )
        except (ir.MLIRError, ValueError) as error:
            return key in str(error)
        if value is not None and (key not in operation.attributes or operation.attributes[key] != value):
            return True
        try:
            operation.verify()
        except ir.MLIRError as error:
            return f"attribute '{key}'" in str(error)
        return False

    def arguments(self, name: str, form: List, environment: Environment) -> Arguments:
        """Evaluate everything after the op's name."""
        evaluator = self.evaluator
        found = Arguments()
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
        named = "callee" not in found.attributes and isinstance(text, str)
        if named and (isinstance(first, Literal) or text.startswith("@")):
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
            if key_name in ("ins", "outs") and name.startswith("linalg."):
                found.hints[key_name] = self._count(value_form, environment)
            else:
                found.attributes[key_name] = segments.attribute(
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
        evaluator = self.evaluator
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
        if index_from is not None and position >= index_from:
            return evaluator.index
        if name in ("memref.store", "affine.store", "tensor.insert", "vector.store", "vector.insert") and typed:
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

    def constant(self, number: Any, kind: ir.Type, form: Form) -> ir.Value:
        """An arith.constant."""
        evaluator = self.evaluator
        value = attributes.number_attribute(evaluator, number, kind, form)
        return self.emit("arith.constant", [], [kind], {"value": value}, form)

    def promoted(self, value: Any, form: Form) -> ir.Value:
        """An argument of a variadic C function: what C itself would make of a small number."""
        evaluator = self.evaluator
        value = evaluator.ssa(value, form)
        if isinstance(value, (bool, int, float)):
            return self.constant(value, evaluator.f64 if isinstance(value, float) else evaluator.i64, form)
        if not isinstance(value, ir.Value):
            evaluator.fail(f"`{show(form)}` is {describe(value)}, and an argument is wanted", form)
        kind = value.type
        if isinstance(kind, ir.FloatType) and kind.width < 64:
            return self.emit("arith.extf", [value], [evaluator.f64], {}, form)
        if isinstance(kind, ir.IndexType):
            return self.emit("arith.index_cast", [value], [evaluator.i64], {}, form)
        if isinstance(kind, ir.IntegerType) and kind.width < 32:
            op = "arith.extui" if kind.width == 1 else "arith.extsi"
            return self.emit(op, [value], [evaluator.i32], {}, form)
        return value

    def emit(
        self,
        name: str,
        operands: list[ir.Value],
        results: list[ir.Type],
        attrs: dict[str, Any],
        form: Form,
        region_count: int = 0,
    ) -> Any:
        """An op that the evaluator itself builds, well formed by construction; its only result, or the op."""
        evaluator = self.evaluator
        place = evaluator.location(form)
        try:
            operation = create_op(name, operands, results, attrs, region_count, loc=place, ip=evaluator.insertion)
        except IndexError:
            evaluator.fail(f"`{show(form)}` comes after the op that ends its block", form)
        return operation.results[0] if results and not region_count else operation

    def create(
        self,
        name: str,
        operands: list[ir.Value],
        results: list[ir.Type] | None,
        attrs: dict[str, ir.Attribute],
        region_count: int,
        successors: list[ir.Block],
        form: List,
    ) -> Any:
        """An op as the user wrote it; what MLIR would abort on is found here first."""
        evaluator = self.evaluator
        block = evaluator.insertion.block
        if regions.ends(block):
            last = block.operations[len(block.operations) - 1].operation.name
            evaluator.fail(f"`{name}` comes after `{last}`, which ends its block", form)
        if results is None:
            results = self._results(name, operands, attrs, region_count, successors, form)
        operation = self._build(name, operands, results, attrs, region_count, successors, form)
        for key, value in attrs.items():
            if key not in operation.attributes or operation.attributes[key] != value:
                evaluator.fail(f"`{name}` does not take {value} as its attribute `:{key}`", form)
        return operation

    def _build(
        self,
        name: str,
        operands: list[ir.Value],
        results: list[ir.Type],
        attrs: dict[str, ir.Attribute],
        region_count: int,
        successors: list[ir.Block],
        form: Form,
        infer: bool = False,
        insert: bool = True,
    ) -> Any:
        evaluator = self.evaluator
        try:
            return ir.Operation.create(
                name,
                results=None if infer else results,
                operands=operands,
                attributes=attrs,
                successors=successors,
                regions=region_count,
                loc=evaluator.location(form),
                ip=evaluator.insertion if insert else False,
                infer_type=infer,
            )
        except ir.MLIRError as error:
            raise evaluator.diagnosed(error, form) from None
        except (ValueError, TypeError, IndexError) as error:
            evaluator.fail(f"`{name}` cannot be built: {error}", form)

    def _results(
        self,
        name: str,
        operands: list[ir.Value],
        attrs: dict[str, ir.Attribute],
        region_count: int,
        successors: list[ir.Block],
        form: Form,
    ) -> list[ir.Type]:
        """The result types where the form gives none."""
        known = segments.known_results(self.evaluator, name, operands, attrs)
        if known is not None:
            return known
        if name.startswith("linalg."):
            outs = ir.DenseI32ArrayAttr(attrs["operandSegmentSizes"])[1] if "operandSegmentSizes" in attrs else 1
            types = [o.type for o in operands[len(operands) - outs :]] if name not in _PLAIN_LINALG else []
            if types or name == "linalg.yield":
                return [t for t in types if isinstance(t, ir.RankedTensorType)]
        shape = (name, len(operands), region_count)
        resultless = self._resultless.get(shape)
        if resultless is None:
            problem = self._try(name, operands, [], attrs, region_count, successors, form)
            resultless = not re.search(r"requires (one|\d+) result|expected \d+ (or more )?results", problem)
            self._resultless[shape] = resultless
        if resultless:
            return []
        dummy = operands[0].type if operands else self.evaluator.i64
        problem = self._try(name, operands, [dummy], attrs, region_count, successors, form)
        if re.search(r"operand|requires attribute|attribute '|region|successor", problem):
            types = ", ".join(str(operand.type) for operand in operands)
            given = f"; its operands are {types}" if "operand" in problem and types and "found" not in problem else ""
            self.evaluator.fail(f"`{name}`: {_in_words(problem)}{given}", form)
        operation = None
        try:
            operation = self._build(name, operands, [], attrs, region_count, successors, form, infer=True)
        except UserError as error:
            if "does not support type inference" in error.message:
                self.evaluator.fail(f"`{name}` needs :result, its result type: ({name} {{:result T}} …)", form)
            raise
        types = [r.type for r in operation.results]
        operation.erase()
        return types

    def _try(
        self,
        name: str,
        operands: list[ir.Value],
        results: list[ir.Type],
        attrs: dict[str, ir.Attribute],
        region_count: int,
        successors: list[ir.Block],
        form: Form,
    ) -> str:
        """What the verifier says of an op made just to ask; empty where it has nothing to say."""
        operation = self._build(name, operands, results, attrs, region_count, successors, form)
        try:
            operation.verify()
        except ir.MLIRError as error:
            return error.error_diagnostics[0].message if error.error_diagnostics else str(error)
        finally:
            operation.erase()
        return ""


def result_of(operation: Any, name: str) -> Any:
    """An op as a value: its only result, or all of them."""
    results = operation.results
    return results[0] if len(results) == 1 else OpResults(name, results)


def _is_number_type(kind: ir.Type) -> bool:
    return isinstance(kind, (ir.IntegerType, ir.IndexType, ir.FloatType))


def _in_words(message: str) -> str:
    """MLIR's message without the op's name, and with its names of kinds of types spelled out."""
    message = re.sub(r"^'[\w.]+' op ", "", message)
    for kind, words in _KINDS_OF_TYPES:
        message = message.replace(kind, words)
    return re.sub(r"operand #(\d+)", lambda m: f"operand {int(m[1]) + 1}", message)
