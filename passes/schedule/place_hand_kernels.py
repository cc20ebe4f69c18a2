"""place-hand-kernels: kernels written by hand take the place of the calls of them.

Before:                                                  After:
  func.func private @row_softmax(%x: tensor<4x8xf32>)      func.func private @row_softmax(%x: memref<4x8xf32>,
      -> tensor<4x8xf32> attributes {hand} {                   %out: memref<4x8xf32>)
    %m = bufferization.to_buffer %x                            attributes {kernel = "hand", grid, block, …} {
    %y = memref.alloc()                                      %row = gpu.block_id x
    gpu.launch blocks(%row, …) threads(%lane, …) {           %lane = gpu.thread_id x
      … %m … %y … }                                          … %x … %out …
    %t = bufferization.to_tensor %y   return %t }            return }
  func.func private @generic_4x8(%x: memref, %out: memref)
      attributes {kernel = "generic"} {
    … %r = call @row_softmax(%t) … }

Requires: what destination-passing ensures; a `hand` function launches once, on a grid of constants.
Ensures: no `hand` function is left, and the kernels that were calls of one are called by its name.  Workgroup memory is
memref.alloca.  On GPUs, functions of f32 are instructions of the chip, and a kernel that may start early waits for the
one ahead of it.
"""

from __future__ import annotations

from lispgpt.base.errors import InternalError, UserError
from lispgpt.ir import build as b
from lispgpt.ir.access import unsaid_writes
from lispgpt.ir.diagnostics import span_of
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    RESHAPES,
    callee_of,
    clone_with,
    defining_op,
    entry_functions,
    everything_in,
    kernel_functions,
    operations,
    symbol_of,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.expand import expand
from lispgpt.passes.kernels.kernel import set_launch
from lispgpt.passes.targets import Gpu, Target

PLACES = ("block_id", "thread_id", "grid_dim", "block_dim")


class PlaceHandKernels(Pass):
    def run(self, module: ir.Module, target: Target) -> None:
        hands = {
            symbol_of(op): op for op in operations(module.body) if op.name == "func.func" and "hand" in op.attributes
        }
        if not hands:
            return
        names: dict[str, str] = {}
        for kernel in kernel_functions(module):
            call = next((op for op in operations(kernel.regions[0].blocks[0]) if op.name == "func.call"), None)
            if call is not None:
                hand = hands[callee_of(call)]
                _place(kernel, call, hand, target)
                names[symbol_of(kernel)] = symbol_of(hand)
        for op in hands.values():
            op.erase()
        _rename(module, names)


def _place(kernel: ir.Operation, call: ir.Operation, hand: ir.Operation, target: Target) -> None:
    """Replace a kernel's body by that of the launch in a hand-written function."""
    old = operations(kernel.regions[0].blocks[0])
    body = operations(hand.regions[0].blocks[0])
    launch = next((op for op in body if op.name == "gpu.launch"), None)
    if launch is None:
        raise UserError(f"the kernel {symbol_of(hand)} writes nothing")
    with ir.InsertionPoint(old[-1]), call.location:
        if isinstance(target, Gpu):
            target.dependency_passed_on()
        values = _arguments(call, body)
        values |= _places(launch)
        region = launch.regions[0]
        if len(region.blocks) != 1:
            raise UserError("a kernel that a model calls has structured control flow: scf, and not cf")
        for op in [*(op for op in body if op.name == "arith.constant"), *operations(region.blocks[0])[:-1]]:
            clone_with(op, values)
    for op in reversed(old[:-1]):
        op.erase()
    if isinstance(target, Gpu):
        _expand_math(kernel, target)
    for _, op in unsaid_writes(kernel):
        raise UserError(
            f"the kernel {symbol_of(hand)} stores to a tensor that its launch gives it to read: give it (output …) to "
            "store to, or, where what is there is to change, (in-place …)",
            span_of(op.location),
        )
    sizes = [ir.IntegerAttr(defining_op(v).attributes["value"]).value for v in list(launch.operands)[:6]]
    set_launch(kernel, sizes[:3], sizes[3:])
    kernel.attributes["kernel"] = ir.StringAttr.get("hand")
    for name in ("means", "numbers"):
        if name in hand.attributes:
            kernel.attributes[name] = hand.attributes[name]


def _arguments(call: ir.Operation, body: list[ir.Operation]) -> dict[ir.Value, ir.Value]:
    """The kernel's own memory for each memref that the launch uses."""
    values: dict[ir.Value, ir.Value] = {}
    for op in body:
        if op.name == "bufferization.to_buffer":
            values[op.results[0]] = _memory(call.operands[ir.BlockArgument(op.operands[0]).arg_number])
    for result, returned in zip(call.results, body[-1].operands, strict=True):
        uses = [use.owner.operation for use in result.uses]
        if len(uses) != 1 or uses[0].name != "bufferization.materialize_in_destination":
            raise UserError("every result of a launch on tensors has to be used")
        values[defining_op(returned).operands[0]] = uses[0].operands[1]
    return values


def _memory(tensor: ir.Value) -> ir.Value:
    """The memref that a tensor is the contents of, in the tensor's shape."""
    op = defining_op(tensor)
    if op.name == "bufferization.to_tensor":
        return op.operands[0]
    if op.name not in RESHAPES:
        raise InternalError(f"place-hand-kernels: {op.name} makes an argument of a hand-written kernel")
    source = _memory(op.operands[0])
    kind = ir.MemRefType.get(tensor.type.shape, tensor.type.element_type)
    attributes = {key: op.attributes[key] for key in ("reassociation", "static_output_shape") if key in op.attributes}
    return create_op(op.name.replace("tensor", "memref"), [source], [kind], attributes).results[0]


def _places(launch: ir.Operation) -> dict[ir.Value, ir.Value]:
    """Ops for the arguments of a launch's block: ids and sizes, then workgroup memory."""
    index = ir.IndexType.get()
    arguments = list(launch.regions[0].blocks[0].arguments)
    values: dict[ir.Value, ir.Value] = {}
    for number, argument in enumerate(arguments[:12]):
        if not list(argument.uses):
            continue
        kind, axis = PLACES[number // 3], "xyz"[number % 3]
        if number >= 6:
            size = defining_op(launch.operands[number - 6]).attributes["value"]
            values[argument] = create_op("arith.constant", [], [index], {"value": size}).results[0]
        else:
            dimension = {"dimension": ir.Attribute.parse(f"#gpu<dim {axis}>")}
            values[argument] = create_op(f"gpu.{kind}", [], [index], dimension).results[0]
    for argument in arguments[12:]:
        values[argument] = b.allocated(argument.type, "memref.alloca")
    return values


def _expand_math(kernel: ir.Operation, target: Gpu) -> None:
    """Functions of f32 in terms of the chip's own instructions: it has no library to call."""
    for op in everything_in(kernel):
        if op.name.startswith("math.") and b.element_of(op.results[0].type) == b.f32():
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(expand(op.name, list(op.operands), target, op.results[0].type))
            op.erase()


def _rename(module: ir.Module, names: dict[str, str]) -> None:
    """Give kernels the names of what was written by hand, in their calls too."""
    taken = {
        symbol_of(op) for op in operations(module.body) if "sym_name" in op.attributes and symbol_of(op) not in names
    }
    final: dict[str, str] = {}
    for kernel in kernel_functions(module):
        old = symbol_of(kernel)
        if old in names:
            stem = names[old]
            new = next(n for n in (f"{stem}{i or ''}" for i in range(len(names) + 1)) if n not in taken)
            taken.add(new)
            final[old] = new
            kernel.attributes["sym_name"] = ir.StringAttr.get(new)
    for entry in entry_functions(module):
        for op in operations(entry.regions[0].blocks[0]):
            if op.name == "func.call" and callee_of(op) in final:
                callee = final[callee_of(op)]
                op.attributes["callee"] = ir.FlatSymbolRefAttr.get(callee)
