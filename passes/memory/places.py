"""Where an entry's tensors are in memory: states change in place, and what is still to be read of them is copied away.

A value of a state that was made elsewhere is copied in before the first op that reads it, in the order of the changes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import VIEWS, defining_op
from lispgpt.passes.memory.kernel_buffers import byte_size, copy_kernel, memref_of
from lispgpt.passes.recognise.placements import first_element


@dataclass(frozen=True)
class BufferPlace:
    """Bytes of an entry's argument or of an allocation; `offset` is only for arguments."""

    buffer: ir.Value
    offset: int

    def overlaps(self, nbytes: int, other: BufferPlace, other_nbytes: int) -> bool:
        """Whether so many bytes from here on and from there on have some in common."""
        apart = self.offset + nbytes <= other.offset or other.offset + other_nbytes <= self.offset
        return self.buffer == other.buffer and not apart


@dataclass(frozen=True)
class _Update:
    """A part of a state that is still to be copied in.  new: the whole state afterwards."""

    source: ir.Value
    place: BufferPlace
    new: ir.Value


class Places:
    """What is known while the ops of an entry are rewritten in their order.

    now: the position of the op that is being rewritten, of `positions`.  places: of all values so far, views included.
    versions: how many changes each has behind it, of all that its buffer goes through.  results: the values that the
    entry gives beside its states.
    """

    def __init__(self, module: ir.Module, ops: list[ir.Operation], results: Collection[ir.Value]) -> None:
        self.module, self.results = module, results
        self.now = 0
        self.positions = {op: position for position, op in enumerate(ops)}
        self.places: dict[ir.Value, BufferPlace] = {}
        self.versions: dict[ir.Value, int] = {}
        self.changes: dict[ir.Value, int] = {}
        self.waiting: list[_Update] = []

    def __getitem__(self, value: ir.Value) -> BufferPlace:
        return self.places[value]

    def put(self, value: ir.Value, place: BufferPlace, version: int) -> None:
        """Say where a value is, and so its views, which ops further on may take."""
        self.places[value], self.versions[value] = place, version
        self.changes[place.buffer] = max(version, self.changes.get(place.buffer, 0))
        for use in value.uses:
            op = use.owner.operation
            if op.name in VIEWS:
                moved = slice_offset(op, value.type) if op.name == "tensor.extract_slice" else 0
                self.put(op.results[0], BufferPlace(place.buffer, place.offset + moved), version)

    def change(self, value: ir.Value, place: BufferPlace) -> None:
        """Say that a value is what its buffer holds after one more change."""
        self.put(value, place, self.changes[place.buffer] + 1)

    def insert(self, op: ir.Operation) -> None:
        """A tensor.insert_slice: its result is where the whole was, once the part is there."""
        source, whole = op.operands
        target = self.places[whole]
        place = BufferPlace(target.buffer, target.offset + slice_offset(op, whole.type))
        self.change(op.results[0], target)
        if self.places[source] != place:
            self.waiting.append(_Update(source, place, op.results[0]))

    def finish(self, pairs: list[tuple[ir.Value, BufferPlace]], held: Collection[ir.Value]) -> None:
        """Bring what the entry returns to where it is wanted: results before states, of which they may be old parts."""
        for value, place in pairs:
            if place.buffer not in held:
                self.before_reading([value])
                self._copy(value, place)
        self._update(len(self.waiting))
        moved = [(v, place) for v, place in pairs if place.buffer in held and self.places[v] != place]
        changing = {place.buffer for _, place in moved}
        for value, _ in moved:
            if self.places[value].buffer in changing:
                self.put(value, self._elsewhere(value), 0)
        for value, place in moved:
            self._copy(value, place)

    def before_reading(self, values: list[ir.Value]) -> None:
        """Bring states up to date where something is about to read what updates made of them."""
        read = [(self.places[value].buffer, self.versions[value]) for value in values]
        wanted = [
            number
            for number, update in enumerate(self.waiting)
            if any(update.place.buffer == buffer and self.versions[update.new] <= version for buffer, version in read)
        ]
        self._update(wanted[-1] + 1 if wanted else 0)

    def before_changing(self, value: ir.Value) -> BufferPlace:
        """Copy away what others are still to read, the value too, where a kernel is about to change it in place; the
        place."""
        buffer = self.places[value].buffer
        waiting = [i for i, update in enumerate(self.waiting) if update.place.buffer == buffer]
        self._update(waiting[-1] + 1 if waiting else 0)
        place = self.places[value]
        self._save(place, byte_size(value.type), self.changes[place.buffer] + 1, value)
        return place

    def _update(self, count: int) -> None:
        for _ in range(count):
            update = self.waiting[0]
            self._save(update.place, byte_size(update.source.type), self.versions[update.new])
            self._copy(update.source, update.place)
            del self.waiting[0]

    def _save(self, place: BufferPlace, nbytes: int, version: int, changing: ir.Value | None = None) -> None:
        """Copy away what is still to be read of older values that meet these bytes.

        changing: what the call at hand changes in place, which that call itself reads there.
        """
        for value, where in list(self.places.items()):
            older = where.buffer == place.buffer and self.versions[value] < version
            if older and where.overlaps(byte_size(value.type), place, nbytes):
                itself = changing is not None and value == changing
                if self._is_read(value, self.now + itself):
                    self.places[value] = self._elsewhere(value)

    def _is_read(self, value: ir.Value, start: int) -> bool:
        """Whether a kernel, an update or a result, from an op's position on, reads this value as it is."""
        if any(update.source == value for update in self.waiting):
            return True
        for use in value.uses:
            op = use.owner.operation
            if self.positions[op] >= start and (
                op.name == "func.call"
                or (op.name == "tensor.insert_slice" and use.operand_number == 0)
                or (op.name == "func.return" and value in self.results)
            ):
                return True
        return False

    def _elsewhere(self, value: ir.Value) -> BufferPlace:
        """A copy of a value in memory of its own."""
        place = BufferPlace(b.allocated(memref_of(value.type)), 0)
        self._copy(value, place)
        return place

    def _copy(self, value: ir.Value, place: BufferPlace) -> None:
        """Call a kernel that copies a value to a place, unless it is there."""
        if self.places[value] == place:
            return
        views = [self.view(self.places[value], value.type), self.view(place, value.type)]
        b.call(copy_kernel(self.module, value.type), views)

    def view(self, place: BufferPlace, type_: ir.Type) -> ir.Value:
        if defining_op(place.buffer) is not None and place.buffer.type == memref_of(type_):
            return place.buffer
        return b.emit("memref.view", [place.buffer, b.as_value(place.offset)], [memref_of(type_)])


def slice_offset(op: ir.Operation, whole: ir.Type) -> int:
    """The byte offset of a contiguous static slice in a tensor of type `whole`."""
    return find_dtype(str(whole.element_type)).nbytes(first_element(op, whole.shape))
