"""What ops want beside their operands: the sizes of groups of operands, and result types that follow from them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.op_facts import facts
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.numbers import number_attribute
from lispgpt.language.ops import signatures
from lispgpt.language.ops.arguments import Arguments
from lispgpt.language.ops.function_table import Functions
from lispgpt.language.reader.forms import Form, Vector, head_name

_DYNAMIC = -(1 << 63)


def complete(evaluator: Evaluator, name: str, arguments: Arguments, operands: list[ir.Value], form: Form) -> None:
    """Work out operandSegmentSizes, and what else the operands settle."""
    attrs = arguments.attributes
    if name == "llvm.call":
        _complete_call(evaluator, attrs)
    if name == "llvm.func":
        _foreign_type(evaluator, attrs, form)
    if name == "llvm.mlir.global":
        _type_value(evaluator, attrs, form)
    if name in ("affine.load", "affine.store") and operands and "map" not in attrs:
        rank = len(operands) - (1 if name == "affine.load" else 2)
        attrs["map"] = ir.AffineMapAttr.get(ir.AffineMap.get_identity(max(rank, 0)))
    given = attrs.get("operandSegmentSizes")
    if given is not None:
        if name == "gpu.launch" and isinstance(given, ir.DenseI32ArrayAttr) and len(given) == 11:
            attrs["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([*given, 0])
        elif isinstance(given, ir.ArrayAttr):
            numbers = [m.value for m in given if isinstance(m, ir.IntegerAttr)]
            attrs["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(numbers)
        sizes = attrs["operandSegmentSizes"]
        if not isinstance(sizes, ir.DenseI32ArrayAttr):
            evaluator.site.fail("operandSegmentSizes is written array<i32: 1, 2>", form)
        if sum(sizes) != len(operands) or any(size < 0 for size in sizes):
            evaluator.site.fail(f"operandSegmentSizes counts other than the {len(operands)} operands of `{name}`", form)
        return
    sizes = _group_sizes(evaluator, name, arguments, operands)
    if sizes is None:
        return
    if any(size < 0 for size in sizes) or sum(sizes) != len(operands):
        wanted = "the grid's x y z, then the block's x y z" if name == "gpu.launch" else f"groups of {sizes}"
        evaluator.site.fail(f"`{name}` cannot have {len(operands)} operands here; it wants {wanted}", form)
    attrs["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes)


def _complete_call(evaluator: Evaluator, attrs: dict[str, ir.Attribute]) -> None:
    attrs.setdefault("op_bundle_sizes", ir.DenseI32ArrayAttr.get([]))
    callee = attrs.get("callee")
    known = evaluator.states.of(Functions).get(ir.FlatSymbolRefAttr(callee).value) if _is_reference(callee) else None
    if known is not None and known.foreign and signatures.parts_of(known.type)[2]:
        attrs.setdefault("var_callee_type", ir.TypeAttr.get(known.type))


def _foreign_type(evaluator: Evaluator, attrs: dict[str, ir.Attribute], form: Form) -> None:
    """An llvm.func's type written as `(-> [T …] [R])` is LLVM's type of that shape; external where nothing is said.

    Lispier's `:vararg_ true` makes it variadic.
    """
    kind, said = attrs.get("function_type"), attrs.pop("vararg_", None)
    variadic = isinstance(said, ir.BoolAttr) and said.value
    attrs.setdefault("linkage", ir.Attribute.parse("#llvm.linkage<external>"))
    if isinstance(kind, ir.TypeAttr) and isinstance(kind.value, ir.FunctionType):
        inputs, results = list(kind.value.inputs), list(kind.value.results)
        if len(results) > 1:
            evaluator.site.fail(f"an `llvm.func` has at most one result, and this one {len(results)}", form)
        attrs["function_type"] = ir.TypeAttr.get(signatures.foreign_type(evaluator, inputs, results, variadic, form))


def _type_value(evaluator: Evaluator, attrs: dict[str, ir.Attribute], form: Form) -> None:
    """A global's plain number takes the global's type."""
    value, kind = attrs.get("value"), attrs.get("global_type")
    if kind is None or not isinstance(value, (ir.IntegerAttr, ir.FloatAttr)):
        return
    if isinstance(kind, ir.TypeAttr) and isinstance(kind.value, (ir.IntegerType, ir.FloatType)):
        attrs["value"] = number_attribute(evaluator.site, value.value, kind.value, form)


def _is_reference(value: ir.Attribute | None) -> bool:
    return isinstance(value, ir.FlatSymbolRefAttr)


def known_results(
    evaluator: Evaluator, name: str, operands: list[ir.Value], attrs: dict[str, ir.Attribute]
) -> list[ir.Type] | None:
    """The result types of ops whose results follow from a callee or from what a loop starts with."""
    if name in ("func.call", "llvm.call") and _is_reference(attrs.get("callee")):
        known = evaluator.states.of(Functions).get(ir.FlatSymbolRefAttr(attrs["callee"]).value)
        return signatures.parts_of(known.type)[1] if known is not None else None
    if name == "scf.for" and len(operands) >= 3:
        return [operand.type for operand in operands[3:]]
    if name == "scf.parallel" and "operandSegmentSizes" in attrs:
        count = ir.DenseI32ArrayAttr(attrs["operandSegmentSizes"])[3]
        return [operand.type for operand in operands[len(operands) - count :]]
    if name == "affine.load" and operands and isinstance(operands[0].type, ir.MemRefType):
        return [operands[0].type.element_type]
    return [] if facts(name).resultless else None


def _group_sizes(evaluator: Evaluator, name: str, arguments: Arguments, operands: list[ir.Value]) -> list[int] | None:
    """The sizes of an op's groups of operands; None where it has no groups, or none that are known."""
    known = facts(name)
    if name in _SIZES:
        return _SIZES[name](evaluator, arguments, operands)
    if known.groups is not None:
        rest = len(operands) - sum(size for size in known.groups if size > 0)
        return [rest if size < 0 else size for size in known.groups]
    if known.slice_of is not None:
        return _slice(known.slice_of, arguments, operands)
    return _linalg(arguments, operands) if known.destination and known.regions else None


def _linalg(arguments: Arguments, operands: list[ir.Value]) -> list[int]:
    count = len(operands)
    outs = arguments.hints.get("outs")
    ins = arguments.hints.get("ins")
    if outs is None:
        outs = count - ins if ins is not None else min(count, 1)
    return [count - outs if ins is None else ins, outs]


def _branches(evaluator: Evaluator, arguments: Arguments, operands: list[ir.Value]) -> list[int]:
    bounds = [*arguments.groups, len(operands)]
    first = bounds[0] if arguments.groups else len(operands)
    groups = [end - start for start, end in pairwise(bounds)] if arguments.groups else []
    return [first, *groups, *[0] * (2 - len(groups))]


def _switch(evaluator: Evaluator, arguments: Arguments, operands: list[ir.Value]) -> list[int]:
    _, default, *cases = _branches(evaluator, arguments, operands)
    count = max(len(arguments.successors) - 1, 0)
    arguments.attributes.setdefault("case_operand_segments", ir.DenseI32ArrayAttr.get(cases[:count]))
    return [1, default, sum(cases)]


def _parallel(evaluator: Evaluator, arguments: Arguments, operands: list[ir.Value]) -> list[int]:
    rank = len(operands) // 3
    starts = len(arguments.results or [])
    if arguments.regions:
        block = next((item for item in arguments.regions[0].items if head_name(item) == "block"), None)
        vector = next((i for i in getattr(block, "items", ()) if isinstance(i, Vector)), None)
        rank = len(vector.items) if vector is not None else rank
    else:
        rank = (len(operands) - starts) // 3
    return [rank, rank, rank, len(operands) - 3 * rank]


def _launch(evaluator: Evaluator, arguments: Arguments, operands: list[ir.Value]) -> list[int]:
    shared = 1 if len(operands) in (7, 10) else 0
    cluster = 1 if len(operands) >= 9 else 0
    return [0, 1, 1, 1, 1, 1, 1, cluster, cluster, cluster, shared, 0]


def _launch_func(evaluator: Evaluator, arguments: Arguments, operands: list[ir.Value]) -> list[int]:
    """Tokens, grid, block, cluster, bytes of shared memory, and what the kernel takes: its type settles the rest."""
    tokens = sum(str(operand.type) == "!gpu.async.token" for operand in operands)
    wanted = _kernel_inputs(evaluator, arguments.attributes.get("kernel"))
    rest = len(operands) - tokens - 6
    extra = 0 if wanted is None else rest - wanted
    cluster = 1 if extra >= 3 else 0
    return [tokens, *[1] * 6, *[cluster] * 3, extra - 3 * cluster, rest - extra, 0]


def _kernel_inputs(evaluator: Evaluator, kernel: ir.Attribute | None) -> int | None:
    """How many operands the kernel of a nested symbol takes; None where the module has no such kernel yet."""
    if not isinstance(kernel, ir.SymbolRefAttr):
        return None
    found: Any = evaluator.builder.module.operation
    for name in kernel.value:
        inside = found.regions[0].blocks[0].operations
        named = [op.operation for op in inside if "sym_name" in op.operation.attributes]
        found = next((op for op in named if ir.StringAttr(op.attributes["sym_name"]).value == name), None)
        if found is None or not found.regions or not list(found.regions[0].blocks):
            return None
    return len(ir.TypeAttr(found.attributes["function_type"]).value.inputs)


def _slice(leading: int, arguments: Arguments, operands: list[ir.Value]) -> list[int]:
    """Ops with offsets, sizes and strides: the dynamic ones are operands, all of them where no attribute is given."""
    attrs = arguments.attributes
    rank = (len(operands) - leading) // 3
    groups = []
    for key in ("static_offsets", "static_sizes", "static_strides"):
        given = attrs.get(key)
        if given is None:
            groups.append(rank)
            attrs[key] = ir.DenseI64ArrayAttr.get([_DYNAMIC] * rank)
            continue
        if isinstance(given, ir.ArrayAttr) and all(isinstance(m, ir.IntegerAttr) for m in given):
            given = attrs[key] = ir.DenseI64ArrayAttr.get([ir.IntegerAttr(m).value for m in given])
        groups.append(sum(n == _DYNAMIC for n in given) if isinstance(given, ir.DenseI64ArrayAttr) else 0)
    return [*[1] * leading, *groups]


def _transfer(arguments: Arguments, memory: ir.Value, vectors: list[ir.Type]) -> None:
    """A transfer's map and bounds where they are not written: the last dimensions, and nothing promised."""
    if vectors and isinstance(vectors[0], ir.VectorType) and isinstance(memory.type, ir.ShapedType):
        rank, size = len(memory.type.shape), len(vectors[0].shape)
        if size <= rank:
            minor = ir.AffineMapAttr.get(ir.AffineMap.get_minor_identity(rank, size))
            arguments.attributes.setdefault("permutation_map", minor)
        promised = ir.ArrayAttr.get([ir.BoolAttr.get(False)] * size)
        arguments.attributes.setdefault("in_bounds", promised)


def _transfer_read(evaluator: Evaluator, arguments: Arguments, operands: list[ir.Value]) -> list[int]:
    if operands:
        _transfer(arguments, operands[0], arguments.results or [])
    rank = len(operands[0].type.shape) if operands and isinstance(operands[0].type, ir.ShapedType) else 0
    return [1, rank, 1, len(operands) - rank - 2]


def _transfer_write(evaluator: Evaluator, arguments: Arguments, operands: list[ir.Value]) -> list[int]:
    if len(operands) > 1:
        _transfer(arguments, operands[1], [operands[0].type])
    rank = len(operands[1].type.shape) if len(operands) > 1 and isinstance(operands[1].type, ir.ShapedType) else 0
    return [1, 1, rank, len(operands) - rank - 2]


def _forall(evaluator: Evaluator, arguments: Arguments, operands: list[ir.Value]) -> list[int]:
    attrs = arguments.attributes
    bounds = attrs.pop("bounds", None)
    if isinstance(bounds, ir.ArrayAttr):
        numbers = [m.value for m in bounds if isinstance(m, ir.IntegerAttr)]
        attrs.setdefault("staticLowerBound", ir.DenseI64ArrayAttr.get([0] * len(numbers)))
        attrs.setdefault("staticUpperBound", ir.DenseI64ArrayAttr.get(numbers))
        attrs.setdefault("staticStep", ir.DenseI64ArrayAttr.get([1] * len(numbers)))
    return [0, 0, 0, len(operands)]


def _affine_for(evaluator: Evaluator, arguments: Arguments, operands: list[ir.Value]) -> list[int]:
    attrs = arguments.attributes
    counts = []
    for plain, key in (("lower_bound", "lowerBoundMap"), ("upper_bound", "upperBoundMap")):
        bound = attrs.pop(plain, attrs.get(key))
        if isinstance(bound, ir.IntegerAttr):
            bound = ir.AffineMapAttr.get(ir.AffineMap.get_constant(bound.value))
        if not isinstance(bound, ir.AffineMapAttr):
            evaluator.site.fail(f"`affine.for` wants a number or an affine_map<…> as its :{plain}", arguments.place)
        attrs[key] = bound
        counts.append(bound.value.n_inputs)
    step = attrs.get("step", ir.IntegerAttr.get(evaluator.builder.index, 1))
    if isinstance(step, ir.IntegerAttr):
        attrs["step"] = ir.IntegerAttr.get(evaluator.builder.index, step.value)
    return [*counts, len(operands) - sum(counts)]


_SIZES: dict[str, Callable[[Evaluator, Arguments, list[ir.Value]], list[int]]] = {
    "cf.cond_br": _branches,
    "llvm.cond_br": _branches,
    "cf.switch": _switch,
    "scf.parallel": _parallel,
    "scf.forall": _forall,
    "affine.for": _affine_for,
    "gpu.launch": _launch,
    "gpu.launch_func": _launch_func,
    "vector.transfer_read": _transfer_read,
    "vector.transfer_write": _transfer_write,
}
