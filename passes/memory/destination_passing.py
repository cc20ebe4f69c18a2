"""destination-passing: turn tensors that cross kernels into buffers that the caller names.

Before:                                               After:
  func.func private @k(%x: tensor<4xf32>)               func.func private @k(%x: memref<4xf32>, %out: memref<4xf32>) {
      -> tensor<4xf32> {                                  %t = bufferization.to_tensor %x restrict
    %y = …                                                %y = …
    return %y                                             bufferization.materialize_in_destination %y in … %out
  }                                                     }
  func.func @entry(%a: tensor<4xf32>)                   func.func @entry(%a: memref<16xi8>, %r: memref<16xi8>) {
      -> tensor<4xf32> {                                  %x = memref.view %a[%c0]   %o = memref.view %r[%c0]
    %r = call @k(%a)  return %r                           call @k(%x, %o)            return

Requires: what outline-kernels ensures.
Ensures: an entry's arguments are byte buffers, `types` gives the tensor type each one holds, `arguments` is extended by
"result:NAME" for each result, where its parts are made if it is put together from such; intermediates are memref.alloc,
of bytes where kernels make or read parts of one; kernels return nothing, and a tied result, as what a collective makes
is, is written in its argument.  `access` says for each of a kernel's arguments whether a launch reads it, writes all of
it, or changes it (see ir/access.py).  States change in place: a new value that was made elsewhere is copied in by a
kernel of its own, before the first kernel that reads it; what is still to be read of the old one is copied away first.
"""

from __future__ import annotations

from lispgpt.base.errors import InternalError
from lispgpt.ir import build as b
from lispgpt.ir.collectives import REDUCING, collective_functions, collective_of, to_memory
from lispgpt.ir.loops import loop_functions, loop_to_memory
from lispgpt.ir.mlir import attribute, create_op, ir
from lispgpt.ir.structure import (
    VIEWS,
    callee_of,
    defining_op,
    entry_functions,
    integers,
    kernel_functions,
    operations,
    retype,
    strings,
    symbol_of,
    viewed,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.memory.kernel_buffers import byte_array, byte_size, memref_of, rewrite_kernel
from lispgpt.passes.memory.places import BufferPlace, Places, slice_offset
from lispgpt.passes.states import OUTLINED, UNPLACED


class DestinationPassing(Pass):
    starts_from = (OUTLINED, UNPLACED)

    def run(self, module: ir.Module, target: object) -> None:
        tied = {symbol_of(f): integers(f.attributes["tied"]) for f in kernel_functions(module)}
        for kernel in kernel_functions(module):
            rewrite_kernel(kernel)
        for name, collective in collective_functions(module).items():
            tied[name] = to_memory(collective, memref_of)
        for name, loop in loop_functions(module).items():
            tied[name] = loop_to_memory(loop, memref_of)
        for entry in entry_functions(module):
            _Entry(entry, module).rewrite(tied)


class _Entry:
    """Rewrites one entry from tensors to buffers, op by op.

    destinations: where results are wanted.  assembled: tensors put together from parts, each by its first insertion's
    result; parts: where each belongs; sliced: what is read in parts, or reshaped; memory: the bytes of those tensors.
    """

    def __init__(self, entry: ir.Operation, module: ir.Module) -> None:
        self.entry, self.module = entry, module
        self.ops = operations(entry.regions[0].blocks[0])
        self.destinations: dict[ir.Value, BufferPlace] = {}
        self.places = Places(module, self.ops, self.destinations)
        self.assembled: dict[ir.Value, ir.Value] = {}
        self.parts: dict[ir.Value, tuple[ir.Value, int]] = {}
        self.memory: dict[ir.Value, ir.Value] = {}
        self.sliced: set[ir.Value] = set()

    def rewrite(self, tied: dict[str, list[int]]) -> None:
        entry, ops, places = self.entry, self.ops, self.places
        block = entry.regions[0].blocks[0]
        terminator = ops[-1]
        names, results = strings(entry.attributes["arguments"]), strings(entry.attributes["results"])
        extra = [(n, v) for n, v in zip(results, terminator.operands, strict=True) if n not in names]
        old = list(block.arguments)
        types = [a.type for a in old] + [v.type for _, v in extra]
        new = [block.add_argument(byte_array(byte_size(t)), ir.Location.unknown()) for t in types]
        for argument, buffer in zip(old, new, strict=False):
            places.put(argument, BufferPlace(buffer, 0), 0)
        self.destinations |= {v: BufferPlace(new[len(old) + i], 0) for i, (_, v) in enumerate(extra)}
        names += [n for n, _ in extra]
        self._find_assembled(ops)
        wholes = ((whole, place) for whole, place in self.destinations.items() if whole in self.assembled)
        self.memory |= {self.assembled[whole]: place.buffer for whole, place in wholes}
        self._look_through(ops)
        self._find_sliced(ops, tied)
        with ir.InsertionPoint(terminator):
            for places.now, op in enumerate(ops[:-1]):
                with op.location:
                    self._rewrite_op(op, tied)
            places.now = len(ops) - 1
            wanted = [BufferPlace(new[names.index(name)], 0) for name in results]
            places.finish(list(zip(terminator.operands, wanted, strict=True)), set(new[: len(old)]))
            create_op("func.return")
        for op in reversed(ops):
            op.erase()
        for _ in old:
            block.erase_argument(0)
        entry.attributes["arguments"], entry.attributes["types"] = attribute(names), attribute(types)
        retype(entry)

    def _find_assembled(self, ops: list[ir.Operation]) -> None:
        """Find the tensors that are put together from parts, each named by the first insertion's result, and where in
        them (in bytes) the parts are to be made."""
        for op in (op for op in ops if op.name == "tensor.insert_slice"):
            part, whole = op.operands
            before = defining_op(whole)
            if before is not None and before.name == "tensor.empty":
                self.assembled[op.results[0]] = op.results[0]
            elif whole in self.assembled:
                self.assembled[op.results[0]] = self.assembled[whole]
            else:
                continue
            self.parts.setdefault(part, (self.assembled[op.results[0]], slice_offset(op, whole.type)))

    def _find_sliced(self, ops: list[ir.Operation], tied: dict[str, list[int]]) -> None:
        """Find what is read in parts or by another shape, and what becomes that by being changed in place."""
        for op in reversed(ops):
            if op.name == "tensor.extract_slice":
                self.sliced.add(viewed(op.operands[0]))
            elif op.name == "func.call":
                self.sliced |= {whole for v in op.operands if (whole := viewed(v)).type != v.type}
                ties = zip(op.results, tied[callee_of(op)], strict=True)
                self.sliced |= {viewed(op.operands[i]) for result, i in ties if i >= 0 and result in self.sliced}

    def _look_through(self, ops: list[ir.Operation]) -> None:
        """Have what a collective changes in place be made where its result is wanted."""
        collectives = collective_functions(self.module)
        for op in reversed(ops):
            if collective_of(op, collectives) in REDUCING:
                for source, result in zip(op.operands, op.results, strict=True):
                    if result in self.destinations:
                        self.destinations.setdefault(source, self.destinations[result])
                    if result in self.parts:
                        self.parts.setdefault(source, self.parts[result])

    def _memory_of(self, assembled: ir.Value) -> ir.Value:
        """The bytes that a tensor is in which is put together, or of which there are slices."""
        if assembled not in self.memory:
            self.memory[assembled] = b.allocated(byte_array(byte_size(assembled.type)))
        return self.memory[assembled]

    def _rewrite_op(self, op: ir.Operation, tied: dict[str, list[int]]) -> None:
        if op.name == "func.call":
            self._rewrite_call(op, tied)
        elif op.name == "tensor.insert_slice":
            if op.results[0] in self.assembled and self.assembled[op.results[0]] == op.results[0]:
                self.places.put(op.operands[1], BufferPlace(self._memory_of(op.results[0]), 0), 0)
            self.places.insert(op)
        elif op.name not in (*VIEWS, "arith.constant", "tensor.empty"):
            raise InternalError(f"destination-passing: {op.name} stands outside every kernel")

    def _rewrite_call(self, op: ir.Operation, tied: dict[str, list[int]]) -> None:
        callee = callee_of(op)
        if not all(isinstance(operand.type, ir.RankedTensorType) for operand in op.operands):
            raise InternalError(
                f"destination-passing: @{callee} gets a number from another kernel, which only tensors cross"
            )
        places = self.places
        places.before_reading(list(op.operands))
        changed = {i: places.before_changing(op.operands[i]) for i in tied[callee] if i >= 0}
        arguments = [places.view(changed.get(i, places[v]), v.type) for i, v in enumerate(op.operands)]
        for result, argument in zip(op.results, tied[callee], strict=True):
            if argument >= 0:
                places.change(result, changed[argument])
                continue
            place = self._place_for(result)
            places.put(result, place, 0)
            arguments.append(places.view(place, result.type))
        b.call(callee, arguments)

    def _place_for(self, result: ir.Value) -> BufferPlace:
        """Where a kernel is to make a result."""
        if result in self.destinations:
            return self.destinations[result]
        if result in self.parts:
            assembled, offset = self.parts[result]
            return BufferPlace(self._memory_of(assembled), offset)
        if result in self.sliced:
            return BufferPlace(self._memory_of(result), 0)
        return BufferPlace(b.allocated(memref_of(result.type)), 0)
