"""`kernel` forms: GPU kernels written by hand on the gpu dialect, and their launches."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core import parameters
from lispgpt.language.core.environment import Environment, did_you_mean
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin, special
from lispgpt.language.core.values import Closure, OpResults, describe, items_of
from lispgpt.language.forms import launches
from lispgpt.language.forms.shapes import as_index, is_tensor
from lispgpt.language.ops import regions
from lispgpt.language.reader.forms import Form, List, Symbol, Vector, show

CAPABILITIES = {"subgroup-size": 32, "vector-bytes": 16, "shared-bytes": 48 * 1024, "max-threads": 1024, "cores": 64}
CAPABILITIES |= {"lane-registers": 0, "runs-ahead": 0, "narrow-caches": 0}
"""What a kernel may ask of the chip, with what nearly every chip has; lane-registers: 32-bit ones that a lane has at
most, 0 where what it holds is in memory anyway; runs-ahead: 1 where an entry can be run again and again without the
host; narrow-caches: 1 where keys and values of 16 bits are read faster than those of 32."""


@dataclass
class Chip:
    """What the program is compiled for, as far as kernels ask."""

    capabilities: dict[str, int] = field(default_factory=CAPABILITIES.copy)


_MOST_BLOCKS = 1 << 31
_MOST_ELEMENTS = 1 << 40
_IDS = ("block-id", "thread-id", "grid-size", "block-size")


@special("kernel", 2, None)
def _kernel(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(kernel name [x out] body…)`: a compile-time function that `launch` runs on every thread."""
    name = form.items[1]
    if not isinstance(name, Symbol):
        evaluator.site.fail("`kernel` wants a name: (kernel name [x out] body)", name)
    taken = parameters.parse_parameters(evaluator.site, form.items[2], "kernel")
    environment.define(name, Closure(name.name, taken, form.items[3:], environment.capture(), form))
    return None


@special("launch", 3, None)
def _launch(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(launch k [gx gy gz] [bx by bz] a…)`: a kernel on a grid of blocks of threads; y and z default to 1.

    On memrefs it emits gpu.launch with the kernel inlined, so that it is made anew for the types that it is launched
    with.  In an entry it takes tensors, and `(output T)` for each result: see `launches`.
    """
    kernel = evaluator.single(form.items[1], environment)
    if not isinstance(kernel, Closure):
        evaluator.site.fail(f"`launch` wants a kernel, and got {describe(kernel)}", form.items[1])
    chip, launching = evaluator.states.of(Chip), evaluator.states.of(launches.Launches)
    if launching.current is not None:
        evaluator.site.fail("a kernel launches no other kernel; a function made with defn can be called in one", form)
    sizes = [size for item in form.items[2:4] for size in _three(evaluator, item, environment)]
    threads, most = sizes[3:], chip.capabilities["max-threads"]
    if all(isinstance(size, int) for size in threads) and prod(threads) > most:
        evaluator.site.fail(
            f"a block has at most {most} threads on this target, and this one {prod(threads)}", form.items[3]
        )
    arguments = [evaluator.ssa(evaluator.evaluate(item, environment), item) for item in form.items[4:]]
    if any(isinstance(argument, (launches.Output, launches.InPlace)) or is_tensor(argument) for argument in arguments):
        return launches.on_tensors(evaluator, kernel, sizes, arguments, form, _emit)
    _emit(evaluator, kernel, sizes, arguments, form)
    return OpResults("launch", ())


def _emit(evaluator: Evaluator, kernel: Closure, sizes: list[Any], arguments: list[Any], form: Form) -> None:
    """A gpu.launch of the kernel on memrefs and numbers."""
    operands = [as_index(evaluator, size, form) for size in sizes]
    segments = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0])}
    operation = evaluator.builder.emit("gpu.launch", operands, [], segments, form, 1)
    place = evaluator.site.location(form)
    block = ir.Block.create_at_start(operation.regions[0], [evaluator.builder.index] * 12, [place] * 12)
    with evaluator.states.of(launches.Launches).inside(operation), evaluator.builder.at(block):
        evaluator.call(kernel, arguments, form)
        if not regions.ends(block):
            evaluator.builder.emit("gpu.terminator", [], [], {}, form)


@builtin("output", 1, 1)
def _output(evaluator: Evaluator, form: Form, kind: Any) -> Any:
    """`(output (type x))`: where a launch on tensors writes a result of that type."""
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        evaluator.site.fail(
            f"`output` wants a tensor type of sizes known while compiling, and got {describe(kind)}", form
        )
    return launches.Output(kind)


@builtin("in-place", 1, 1)
def _in_place(evaluator: Evaluator, form: Form, value: Any) -> Any:
    """`(in-place x)`: an input or state of the entry, or a part of one, that a launch on tensors changes where it is;
    the launch gives it as it is then."""
    if not is_tensor(value):
        evaluator.site.fail(f"`in-place` wants a tensor, and got {describe(value)}", form)
    return launches.InPlace(value)


@builtin("tensor-type", 2, 2)
def _tensor_type(evaluator: Evaluator, form: Form, sizes: Any, dtype: Any) -> Any:
    """`(tensor-type [n m] f32)`"""
    listed = items_of(sizes)
    extents = (None,) if listed is None else listed
    known = all(isinstance(n, int) and 0 <= n < _MOST_ELEMENTS for n in extents)
    if not known or prod(extents) >= _MOST_ELEMENTS or not isinstance(dtype, (ir.IntegerType, ir.FloatType)):
        message = "`tensor-type` wants sizes known while compiling and a number's type: (tensor-type [n m] f32)"
        evaluator.site.fail(message, form)
    return ir.RankedTensorType.get(list(extents), dtype, loc=evaluator.builder.unknown)


def _three(evaluator: Evaluator, form: Form, environment: Environment) -> list[Any]:
    sizes = items_of(evaluator.evaluate(form, environment)) if isinstance(form, Vector) else None
    if sizes is None or not 1 <= len(sizes) <= 3:
        evaluator.site.fail(f"`{show(form)}` stands where sizes are wanted, like [x y z]", form)
    for size in sizes:
        if isinstance(size, int) and not 0 < size < _MOST_BLOCKS:
            evaluator.site.fail(f"a grid and a block have sizes from 1 to {_MOST_BLOCKS - 1}, and this is {size}", form)
    return [*sizes, *[1] * (3 - len(sizes))]


def _define_id(name: str, first: int) -> None:
    @special(name, 1, 1)
    def run(evaluator: Evaluator, form: List, environment: Environment) -> Any:
        axis = form.items[1]
        position = "xyz".find(axis.name) if isinstance(axis, Symbol) and len(axis.name) == 1 else -1
        if position < 0:
            evaluator.site.fail(f"`{name}` wants x, y or z, and got `{show(axis)}`", axis)
        return _launched(evaluator, form).regions[0].blocks[0].arguments[first + position]


for _position, _name in enumerate(_IDS):
    _define_id(_name, 3 * _position)


def _launched(evaluator: Evaluator, form: Form) -> Any:
    launched = evaluator.states.of(launches.Launches).current
    if launched is None:
        evaluator.site.fail(f"`{show(form)}` has a meaning inside a kernel only", form)
    return launched


@builtin("shared", 2, 2)
def _shared(evaluator: Evaluator, form: Form, shape: Any, dtype: Any) -> Any:
    """`(shared [n m] f32)`: memory that the threads of a block share."""
    operation = _launched(evaluator, form)
    sizes = items_of(shape)
    if sizes is None or not all(isinstance(size, int) and size > 0 for size in sizes):
        evaluator.site.fail(
            f"`shared` wants sizes known while compiling, like [32 32], and got {describe(shape)}", form
        )
    if not isinstance(dtype, (ir.IntegerType, ir.FloatType, ir.IndexType)):
        evaluator.site.fail(f"`shared` wants a number's type second, and got {describe(dtype)}", form)
    block = operation.regions[0].blocks[0]
    there = [argument.type for argument in list(block.arguments)[12:]]
    used = sum(prod(kind.shape) * _bytes(kind.element_type) for kind in there) + prod(sizes) * _bytes(dtype)
    most = evaluator.states.of(Chip).capabilities["shared-bytes"]
    if used > most:
        evaluator.site.fail(
            f"the threads of a block share at most {most} bytes on this target, and this makes {used}", form
        )
    kind = ir.MemRefType.get(list(sizes), dtype, memory_space=ir.Attribute.parse("#gpu.address_space<workgroup>"))
    operation.attributes["workgroup_attributions"] = ir.IntegerAttr.get(evaluator.builder.i64, len(there) + 1)
    return block.add_argument(kind, evaluator.site.location(form))


def _bytes(dtype: ir.Type) -> int:
    return 8 if isinstance(dtype, ir.IndexType) else (dtype.width + 7) // 8


@special("capability", 1, 1)
def _capability(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(capability subgroup-size)`: a number that the target decides, known while compiling."""
    name = form.items[1]
    capabilities = evaluator.states.of(Chip).capabilities
    if not isinstance(name, Symbol) or name.name not in capabilities:
        hint = did_you_mean(show(name), capabilities, f"; there are {', '.join(capabilities)}")
        evaluator.site.fail(f"there is no capability `{show(name)}`{hint}", name)
    return capabilities[name.name]
