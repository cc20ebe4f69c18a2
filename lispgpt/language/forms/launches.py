"""Launches of kernels on tensors, in entries: a call of a function whose body launches the kernel on memrefs.

func.func private @row_softmax(%x: tensor<4x64xf32>) -> tensor<4x64xf32> attributes {hand} {
  %m = bufferization.to_buffer %x    %y = memref.alloc()
  gpu.launch blocks(…) threads(…) { … %m … %y … }
  %t = bufferization.to_tensor %y    return %t }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import gcd
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import Closure, describe
from lispgpt.language.forms.shapes import is_tensor
from lispgpt.language.forms.tensors import elementwise
from lispgpt.language.reader.forms import Form, Literal, Map, show

Emit = Callable[[Any, Closure, list[Any], list[Any], Form], None]
WIDEST_VECTOR = 16
"""Elements that a kernel loads at once, at most."""

MEMORY_OF_ITS_OWN = ("linalg.", "func.", "scf.")
"""Ops of these dialects make values that stand in memory as they are."""


@dataclass(frozen=True)
class Output:
    """A result of a launch: the tensor type that the kernel writes as a memref."""

    type: ir.Type


@dataclass(frozen=True)
class InPlace:
    """An argument of a launch that is a result too: the kernel finds the tensor in a memref and changes it there."""

    value: ir.Value

    @property
    def type(self) -> ir.Type:
        return self.value.type


@dataclass
class Launches:
    """current: the gpu.launch that is being filled.  in_entry: whether what is evaluated is an entry of a model.
    symbols: the functions of the launches on tensors, by kernel, sizes and what the arguments are."""

    current: Any = None
    in_entry: bool = False
    symbols: dict[Any, str] = field(default_factory=dict)

    @contextmanager
    def inside(self, launch: Any) -> Iterator[None]:
        """While a launch's body is made."""
        outside, self.current = self.current, launch
        try:
            yield
        finally:
            self.current = outside


def on_tensors(
    evaluator: Evaluator, kernel: Closure, sizes: list[Any], arguments: list[Any], form: Form, emit: Emit
) -> Any:
    """Call the kernel's function for these types, which is made at the first such call; gives its results.

    emit: makes the gpu.launch on memrefs.
    """
    launches = evaluator.states.of(Launches)
    if not launches.in_entry:
        evaluator.site.fail(f"outside an entry a kernel takes memrefs, its results too: `{show(form)}`", form)
    outputs = [argument.type for argument in arguments if isinstance(argument, (Output, InPlace))]
    if not outputs:
        evaluator.site.fail(
            "a launch on tensors says what it makes: give (output (type x)) where the kernel writes", form
        )
    for value in [*sizes, *arguments]:
        if isinstance(value, ir.Value) and not is_tensor(value):
            evaluator.site.fail(f"a launch on tensors takes tensors and numbers, and this is {describe(value)}", form)
    arguments = [_whole(evaluator, a, form) if is_tensor(a) else a for a in arguments]
    tensors = [a.value if isinstance(a, InPlace) else a for a in arguments if is_tensor(a) or isinstance(a, InPlace)]
    key = (kernel, tuple(sizes), tuple(_kind(a) for a in arguments))
    symbol = launches.symbols.get(key)
    if symbol is None:
        symbol = launches.symbols[key] = _define(evaluator, kernel, sizes, arguments, form, emit)
    callee = {"callee": ir.FlatSymbolRefAttr.get(symbol)}
    result = evaluator.builder.emit("func.call", tensors, outputs, callee, form)
    return result if len(outputs) == 1 else tuple(result.owner.results)


def _kind(argument: Any) -> Any:
    """What a launch's function is made for."""
    if isinstance(argument, InPlace):
        return "in place", str(argument.type)
    return str(argument.type) if is_tensor(argument) else argument


def _whole(evaluator: Evaluator, value: ir.Value, form: Form) -> ir.Value:
    """A value that stands in memory as it is; a constant, or a part that is not one run of elements, is copied."""
    root = value
    while not isinstance(root.owner, ir.Block) and root.owner.name in ("tensor.expand_shape", "tensor.collapse_shape"):
        root = root.owner.operands[0]
    owner = root.owner
    if isinstance(owner, ir.Block) or (owner.name.startswith(MEMORY_OF_ITS_OWN) and owner.name != "linalg.fill"):
        return value
    if owner.name == "tensor.extract_slice" and root == value and _is_one_run(owner):
        return value
    return elementwise(evaluator, lambda element: element, (value,), form, widen=False)


def _is_one_run(op: ir.Operation) -> bool:
    """Whether a slice is of an entry's argument, and one run of its elements that starts where vectors may."""
    if len(op.operands) != 1 or not isinstance(op.operands[0].owner, ir.Block):
        return False
    parts = ("static_offsets", "static_sizes", "static_strides")
    offsets, sizes, strides = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in parts)
    whole = list(op.operands[0].type.shape)
    partial = [i for i, (size, extent) in enumerate(zip(sizes, whole, strict=True)) if size != extent]
    start = 0
    for offset, extent in zip(offsets, whole, strict=True):
        start = start * extent + offset
    aligned = start % gcd(*list(op.results[0].type.shape)[-1:], WIDEST_VECTOR) == 0
    return aligned and set(strides) == {1} and (not partial or all(size == 1 for size in sizes[: partial[-1]]))


def _define(
    evaluator: Evaluator, kernel: Closure, sizes: list[Any], arguments: list[Any], form: Form, emit: Emit
) -> str:
    """Add the function to the module; its name."""
    builder, place = evaluator.builder, evaluator.site.location(form)
    names = {ir.StringAttr(op.operation.attributes["sym_name"]).value for op in builder.module.body.operations}
    stem = "".join(c if c.isalnum() else "_" for c in kernel.name)
    symbol = next(name for name in (f"{stem}{n or ''}" for n in range(len(names) + 1)) if name not in names)
    inputs = [a.type for a in arguments if is_tensor(a) or isinstance(a, InPlace)]
    outputs = [a.type for a in arguments if isinstance(a, (Output, InPlace))]
    given = [a for a in arguments if is_tensor(a) or isinstance(a, InPlace)]
    tied = [given.index(a) if isinstance(a, InPlace) else -1 for a in arguments if isinstance(a, (Output, InPlace))]
    attributes = {
        "sym_name": ir.StringAttr.get(symbol),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs)),
        "sym_visibility": ir.StringAttr.get("private"),
        "hand": ir.UnitAttr.get(),
        "in_place": ir.DenseI64ArrayAttr.get(tied),
        **_meaning(kernel, arguments),
    }
    with builder.at_module_start():
        function = builder.emit("func.func", [], [], attributes, form, 1)
    block = ir.Block.create_at_start(function.regions[0], inputs, [place] * len(inputs))
    with builder.at(block):
        tensors = iter(block.arguments)
        passed = [next(tensors) if is_tensor(a) or isinstance(a, InPlace) else a for a in arguments]
        memory = [_memory(evaluator, a, form) for a in passed]
        emit(evaluator, kernel, sizes, memory, form)
        results = [
            builder.emit("bufferization.to_tensor", [m], [a.type], {"restrict": ir.UnitAttr.get()}, form)
            for a, m in zip(arguments, memory, strict=True)
            if isinstance(a, (Output, InPlace))
        ]
        builder.emit("func.return", results, [], {}, form)
    evaluator.site.verify(function, form)
    return symbol


def _meaning(kernel: Closure, arguments: list[Any]) -> dict[str, ir.Attribute]:
    """What a kernel says of itself, `{:means "…"}` ahead of its body, and the whole numbers that it is given."""
    said = kernel.body[0]
    if not isinstance(said, Map) or len(said.items) != 2 or show(said.items[0]) != ":means":
        return {}
    numbers = [a for a in arguments if isinstance(a, int)]
    word = said.items[1]
    text = word.value if isinstance(word, Literal) else show(word)
    return {"means": ir.StringAttr.get(str(text)), "numbers": ir.DenseI64ArrayAttr.get(numbers)}


def _memory(evaluator: Evaluator, argument: Any, form: Form) -> Any:
    """What the kernel gets for an argument: a memref for a tensor and for an output."""
    emit = evaluator.builder.emit
    if not isinstance(argument, (Output, ir.Value)):
        return argument
    kind = ir.MemRefType.get(argument.type.shape, argument.type.element_type)
    if isinstance(argument, Output):
        return emit("memref.alloc", [], [kind], {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}, form)
    return emit("bufferization.to_buffer", [argument], [kind], {}, form)
