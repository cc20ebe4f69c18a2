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
"result:NAME" for each result; intermediates are memref.alloc, of bytes where kernels make or read parts of one; kernels
return nothing, and a tied result is written in its argument.  `access` says for each of a kernel's arguments whether a
launch reads it, writes all of it, or changes it (see ir/access.py).  States change in place: a new value that was made
elsewhere is copied in by a kernel of its own, behind the last kernel that reads the old one.
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import InternalError, UserError
from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    defining_op,
    entry_functions,
    integers,
    kernel_functions,
    operations,
    strings,
    symbol_of,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.memory.kernel_buffers import byte_size, copy_kernel, memref_of, rewrite_kernel
from lispgpt.passes.states import OUTLINED, UNPLACED


class DestinationPassing(Pass):
    starts_from = (OUTLINED, UNPLACED)

    def run(self, module: ir.Module, target: object) -> None:
        tied = {symbol_of(f): integers(f.attributes["tied"]) for f in kernel_functions(module)}
        for kernel in kernel_functions(module):
            rewrite_kernel(kernel)
        for entry in entry_functions(module):
            _Entry(entry, module).rewrite(tied)


@dataclass(frozen=True)
class _Place:
    """Bytes of an entry's argument or of an allocation; `offset` is only for arguments."""

    buffer: ir.Value
    offset: int


@dataclass(frozen=True)
class _Update:
    """A part of a state that is still to be copied in.  old, new: the whole state before and after."""

    source: ir.Value
    place: _Place
    old: ir.Value
    new: ir.Value

    def meets(self, place: _Place, nbytes: int) -> bool:
        start, end = place.offset, place.offset + nbytes
        same = place.buffer == self.place.buffer
        return same and start < self.place.offset + byte_size(self.source.type) and self.place.offset < end


class _Entry:
    """Rewrites one entry from tensors to buffers, op by op."""

    def __init__(self, entry: ir.Operation, module: ir.Module) -> None:
        self.entry, self.module = entry, module
        self.places: dict[ir.Value, _Place] = {}
        self.destinations: dict[ir.Value, _Place] = {}
        self.wholes: dict[ir.Value, ir.Value] = {}
        self.waiting: list[_Update] = []
        self.done: list[_Update] = []
        self.assembled: dict[ir.Value, ir.Value] = {}
        self.parts: dict[ir.Value, tuple[ir.Value, int]] = {}
        self.memory: dict[ir.Value, ir.Value] = {}
        self.sliced: set[ir.Value] = set()

    def rewrite(self, tied: dict[str, list[int]]) -> None:
        entry = self.entry
        block = entry.regions[0].blocks[0]
        ops = operations(block)
        terminator = ops[-1]
        names, results = strings(entry.attributes["arguments"]), strings(entry.attributes["results"])
        extra = [(n, v) for n, v in zip(results, terminator.operands, strict=True) if n not in names]
        old = list(block.arguments)
        types = [a.type for a in old] + [v.type for _, v in extra]
        buffers = [ir.MemRefType.get([byte_size(t)], ir.IntegerType.get_signless(8)) for t in types]
        new = [block.add_argument(t, ir.Location.unknown()) for t in buffers]
        self.places = {argument: _Place(buffer, 0) for argument, buffer in zip(old, new, strict=False)}
        self.destinations = {v: _Place(new[len(old) + i], 0) for i, (_, v) in enumerate(extra)}
        names += [n for n, _ in extra]
        self._find_assembled(ops)
        self.sliced = {_viewed(op.operands[0]) for op in ops if op.name == "tensor.extract_slice"}
        with ir.InsertionPoint(terminator):
            for op in ops[:-1]:
                with op.location:
                    self._rewrite_op(op, tied)
            self._update(len(self.waiting))
            for name, value in zip(results, terminator.operands, strict=True):
                self._copy(value, _Place(new[names.index(name)], 0))
            create_op("func.return")
        for op in reversed(ops):
            op.erase()
        for _ in old:
            block.erase_argument(0)
        entry.attributes["arguments"] = ir.ArrayAttr.get([ir.StringAttr.get(n) for n in names])
        entry.attributes["types"] = ir.ArrayAttr.get([ir.TypeAttr.get(t) for t in types])
        entry.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(buffers, []))

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
            self.parts.setdefault(part, (self.assembled[op.results[0]], _slice_offset(op, whole.type)))

    def _memory_of(self, assembled: ir.Value) -> ir.Value:
        """The bytes that a tensor is in which is put together, or of which there are slices."""
        if assembled not in self.memory:
            bytes_ = ir.MemRefType.get([byte_size(assembled.type)], ir.IntegerType.get_signless(8))
            self.memory[assembled] = _allocated(bytes_)
        return self.memory[assembled]

    def _rewrite_op(self, op: ir.Operation, tied: dict[str, list[int]]) -> None:
        if op.name == "func.call":
            self._rewrite_call(op, tied)
        elif op.name == "tensor.extract_slice":
            source = self.places[op.operands[0]]
            self.places[op.results[0]] = _Place(source.buffer, source.offset + _slice_offset(op, op.operands[0].type))
            self.wholes[op.results[0]] = self.wholes.get(op.operands[0], op.operands[0])
        elif op.name == "tensor.insert_slice":
            source, whole = op.operands
            if op.results[0] in self.assembled and self.assembled[op.results[0]] == op.results[0]:
                self.places[whole] = _Place(self._memory_of(op.results[0]), 0)
            target = self.places[whole]
            place = _Place(target.buffer, target.offset + _slice_offset(op, whole.type))
            self.places[op.results[0]] = target
            if self.places[source] != place:
                self.waiting.append(_Update(source, place, whole, op.results[0]))
        elif op.name in ("tensor.expand_shape", "tensor.collapse_shape"):
            self.places[op.results[0]] = self.places[op.operands[0]]
            self.wholes[op.results[0]] = self.wholes.get(op.operands[0], op.operands[0])
        elif op.name not in ("arith.constant", "tensor.empty"):
            raise InternalError(f"destination-passing: {op.name} stands outside every kernel")

    def _rewrite_call(self, op: ir.Operation, tied: dict[str, list[int]]) -> None:
        callee = ir.FlatSymbolRefAttr(op.attributes["callee"])
        for operand in op.operands:
            if not isinstance(operand.type, ir.RankedTensorType):
                raise InternalError(
                    f"destination-passing: {callee} gets a number from another kernel, which only tensors cross"
                )
            self._before_reading(operand)
        arguments = [self._view(self.places[v], v.type) for v in op.operands]
        for result, argument in zip(op.results, tied[callee.value], strict=True):
            if argument >= 0:
                changed = op.operands[argument]
                self.places[result] = self.places[changed]
                self.done.append(_Update(result, self.places[changed], self.wholes.get(changed, changed), result))
                continue
            self.places[result] = place = self._place_for(result)
            arguments.append(self._view(place, result.type))
        create_op("func.call", arguments, [], {"callee": callee})

    def _place_for(self, result: ir.Value) -> _Place:
        """Where a kernel is to make a result."""
        if result in self.destinations:
            return self.destinations[result]
        if result in self.parts:
            assembled, offset = self.parts[result]
            return _Place(self._memory_of(assembled), offset)
        if result in self.sliced:
            return _Place(self._memory_of(result), 0)
        return _Place(_allocated(memref_of(result.type)), 0)

    def _before_reading(self, value: ir.Value) -> None:
        """Bring a state up to date where a kernel is about to read what an update made."""
        whole, place, nbytes = self.wholes.get(value, value), self.places[value], byte_size(value.type)
        newest = [i for i, update in enumerate(self.waiting) if update.new == whole]
        self._update(newest[-1] + 1 if newest else 0)
        if any(update.old == whole and update.meets(place, nbytes) for update in self.done):
            raise UserError("an old value is read after the new one has taken its place: read it before writing it")

    def _update(self, count: int) -> None:
        for update in self.waiting[:count]:
            self._copy(update.source, update.place)
        self.done += self.waiting[:count]
        del self.waiting[:count]

    def _copy(self, value: ir.Value, place: _Place) -> None:
        """Call a kernel that copies a value to a place, unless it is there."""
        if self.places[value] == place:
            return
        callee = {"callee": ir.FlatSymbolRefAttr.get(copy_kernel(self.module, value.type))}
        views = [self._view(self.places[value], value.type), self._view(place, value.type)]
        create_op("func.call", views, [], callee)

    def _view(self, place: _Place, type_: ir.Type) -> ir.Value:
        if defining_op(place.buffer) is not None and place.buffer.type == memref_of(type_):
            return place.buffer
        return b.emit("memref.view", [place.buffer, b.as_value(place.offset)], [memref_of(type_)])


def _allocated(type_: ir.Type) -> ir.Value:
    segments = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}
    return create_op("memref.alloc", [], [type_], segments).results[0]


def _viewed(value: ir.Value) -> ir.Value:
    """What a slice of a value, or of a reshape of it, is a part of."""
    op = defining_op(value)
    while op is not None and op.name in ("tensor.extract_slice", "tensor.expand_shape", "tensor.collapse_shape"):
        value = op.operands[0]
        op = defining_op(value)
    return value


def _slice_offset(op: ir.Operation, whole: ir.Type) -> int:
    """The byte offset of a contiguous static slice in a tensor of type `whole`."""
    offset = 0
    for start, extent in zip(integers(op.attributes["static_offsets"]), whole.shape, strict=True):
        offset = offset * extent + start
    return find_dtype(str(whole.element_type)).nbytes(offset)
