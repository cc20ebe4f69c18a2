"""divide-kernels: kernels that no special schedule took become kernels of one costly op each.

Before:                                              After:
  func.func private @a_8(%q, %k, %v, %out)             func.func private @a_8_part1(%q, %k, %a) {kernel = "contraction"}
      {kernel = "attention"} {                         func.func private @a_8_part2(%a, %b)     {kernel = "rows"}
    %s = linalg.contract ins(%q, %k) …                 func.func private @a_8_part3(%b, %v, %out)
    %w = linalg.softmax ins(%s) …                      func.func @entry(…) {
    %y = linalg.contract ins(%w, %v) … }                 %a = memref.alloc()   call @a_8_part1(%q, %k, %a)   …

Costly is what has loops of its own: what reads an element of it would do all of its work again.  Elementwise ops stay
with the op that alone reads them, or that they alone read.  Loops over tensors that need the whole of what earlier
rounds made, and were not outlined, are unrolled, and a softmax over another dimension than the last is taken apart.

Requires: what destination-passing ensures, and no arena yet.  Ensures: the same; the kernels that it makes have a kind,
so that special schedules can look at them again, and their `work`.
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.access import set_access, tensor_access
from lispgpt.ir.linalg_ops import elementwise_copy
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    captured_values,
    clone_with,
    defining_op,
    operations,
    retype,
    unscheduled_kernels,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import calls_of
from lispgpt.passes.kernels.refusal import note_refusal, refusals
from lispgpt.passes.memory.kernel_buffers import memref_of
from lispgpt.passes.model.kernel_groups import is_inline, root_kind
from lispgpt.passes.model.kernel_work import kernel_work, record_work
from lispgpt.passes.model.pointwise_loops import is_pointwise, rounds_of
from lispgpt.passes.schedule.kernel_parts import KernelParts
from lispgpt.passes.schedule.softmax_parts import take_apart_softmax


@dataclass(frozen=True)
class DivideKernels(Pass):
    """rounds: of a loop that is unrolled, at most."""

    rounds: int = 64

    def run(self, module: ir.Module, target: object) -> None:
        for kernel in unscheduled_kernels(module):
            unroll_loops(kernel, self.rounds)
            take_apart_softmax(kernel)
            _compute_outputs(kernel)
            parts = KernelParts(kernel)
            if len(parts.roots) > 1:
                _divide(module, kernel, parts)


def _compute_outputs(kernel: ir.Operation) -> None:
    """Have every result be what an op computes, and not a view, a constant or an argument: parts are of such ops."""
    for op in operations(kernel.regions[0].blocks[0]):
        if op.name != "bufferization.materialize_in_destination":
            continue
        made = defining_op(op.operands[0])
        if made is None or made.name == "bufferization.to_tensor" or is_inline(made):
            with ir.InsertionPoint(op), op.location:
                op.operands[0] = elementwise_copy(op.operands[0])


def _divide(module: ir.Module, kernel: ir.Operation, parts: KernelParts) -> None:
    """Put a function for each part before the kernel, call them where it was called, and erase it."""
    homes = parts.homes()
    late = parts.reads_what_changed(homes)
    copied = [(tensor, buffer) for tensor, buffer in parts.outputs if buffer in late]
    homes = {v: kept for v, buffers in homes.items() if (kept := [x for x in buffers if x not in late])}
    made = [_Part(kernel, parts, homes, root, number) for number, root in enumerate(parts.roots, 1)]
    made += [_Copy(kernel, parts, homes, tensor, buffer) for tensor, buffer in copied]
    memory = list(dict.fromkeys(v for part in made for v in part.used if isinstance(v.type, ir.RankedTensorType)))
    arguments = list(kernel.regions[0].blocks[0].arguments)
    for call in calls_of(module, kernel):
        with ir.InsertionPoint(call), call.location:
            places: dict[ir.Value, ir.Value] = dict(zip(arguments, call.operands, strict=True))
            places |= {value: b.allocated(memref_of(value.type)) for value in memory}
            for part in made:
                b.call(part.name, [places[v] for v in part.used])
        call.erase()
    kernel.erase()


class _Part:
    """The function of one root.  used: what it is called with, as the kernel's arguments and, for memory that the
    kernel had not, the tensors that are in it."""

    def __init__(
        self,
        kernel: ir.Operation,
        parts: KernelParts,
        homes: dict[ir.Value, list[ir.Value]],
        root: ir.Operation,
        number: int,
    ) -> None:
        self.parts, self.homes = parts, homes
        self.used: list[ir.Value] = []
        self.tensors: dict[ir.Value, ir.Value] = {}
        self.name = f"{ir.StringAttr(kernel.attributes['sym_name']).value}_part{number}"
        self.kind = self.kind_of(root)
        self._function(kernel, root.location)
        self.fill(root)
        self._finish(kernel)

    def kind_of(self, root: ir.Operation) -> str:
        return root_kind(self.parts.costly.get(root, root))

    def _function(self, kernel: ir.Operation, where: ir.Location) -> None:
        with ir.InsertionPoint(kernel), where:
            self.function = b.private_function(self.name, kernel=self.kind)
        self.body = self.function.regions[0].blocks.append()

    def fill(self, root: ir.Operation) -> None:
        copy = self._copy(root)
        for old, new in zip(root.results, copy.results, strict=True):
            if list(old.uses):
                for place in self.homes.get(old, [old]):
                    self.write(new, self._argument(place))

    def write(self, tensor: ir.Value, memory: ir.Value) -> None:
        flags = {"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()}
        with ir.InsertionPoint(self.body):
            create_op("bufferization.materialize_in_destination", [tensor, memory], [], flags)

    def _argument(self, place: ir.Value) -> ir.Value:
        """The function's argument for one of the kernel's, or for the memory of a tensor."""
        if place not in self.used:
            self.used.append(place)
            self.body.add_argument(memref_of(place.type), ir.Location.unknown())
        return self.body.arguments[self.used.index(place)]

    def bring(self, value: ir.Value) -> ir.Value:
        """A value of the kernel's body in the part's: read from memory, or computed again."""
        if value in self.tensors:
            return self.tensors[value]
        op = defining_op(value)
        if value in self.parts.buffers or op in self.parts.roots:
            place = self.parts.buffers[value] if value in self.parts.buffers else self.homes.get(value, [value])[0]
            self.tensors[value] = self._read(self._argument(place), value.type)
        else:
            self.tensors.update(zip(op.results, self._copy(op).results, strict=True))
        return self.tensors[value]

    def _read(self, memory: ir.Value, type_: ir.Type) -> ir.Value:
        flags = {"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()}
        with ir.InsertionPoint(self.body):
            return create_op("bufferization.to_tensor", [memory], [type_], flags).results[0]

    def _copy(self, op: ir.Operation) -> ir.Operation:
        for value in (*op.operands, *captured_values(op)):
            self.bring(value)
        with ir.InsertionPoint(self.body):
            return clone_with(op, self.tensors)

    def _finish(self, kernel: ir.Operation) -> None:
        with ir.InsertionPoint(self.body):
            create_op("func.return")
        retype(self.function)
        self.function.attributes["tied"] = ir.ArrayAttr.get([])
        set_access(self.function, tensor_access(self.function))
        record_work(self.function, kernel_work(self.function))
        for reason in refusals(kernel):
            note_refusal(self.function, reason)


class _Copy(_Part):
    """Puts a value into a state of which an earlier part wanted the old value."""

    def __init__(
        self, kernel: ir.Operation, parts: KernelParts, homes: dict, tensor: ir.Value, buffer: ir.Value
    ) -> None:
        self.tensor, self.buffer = tensor, buffer
        super().__init__(
            kernel, parts, homes, defining_op(tensor), len(parts.roots) + 1 + parts.outputs.index((tensor, buffer))
        )

    def kind_of(self, root: ir.Operation) -> str:
        return "rows"

    def fill(self, root: ir.Operation) -> None:
        source = self.bring(self.tensor)
        with ir.InsertionPoint(self.body):
            copy = elementwise_copy(source)
        self.write(copy, self._argument(self.buffer))


# ---- loops whose rounds need the whole of what earlier rounds made


def unroll_loops(kernel: ir.Operation, most_rounds: int) -> None:
    """Write out every such loop in a kernel's body that has a known number of rounds, and at most so many."""
    again = True
    while again:
        again = False
        for op in operations(kernel.regions[0].blocks[0]):
            rounds = rounds_of(op) if op.name == "scf.for" and len(op.results) else None
            if rounds is not None and len(rounds) <= most_rounds and not is_pointwise(op):
                with op.location:
                    _unroll(op, rounds)
                again = True


def _unroll(loop: ir.Operation, rounds: range) -> None:
    block = loop.regions[0].blocks[0]
    counter, *carried = block.arguments
    values = list(loop.operands)[3:]
    for number in rounds:
        with ir.InsertionPoint(loop):
            known = {counter: b.constant(number, counter.type), **dict(zip(carried, values, strict=True))}
            *ops, terminator = operations(block)
            for op in ops:
                clone_with(op, known)
        values = [known.get(v, v) for v in terminator.operands]
    for result, value in zip(loop.results, values, strict=True):
        result.replace_all_uses_with(value)
    loop.erase()
