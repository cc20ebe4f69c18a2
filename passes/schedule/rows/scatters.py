"""Parts of a state that an op replaces in place: which elements a thread writes, and in which order."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, nested_operations, operations, shape_of
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.views import DYNAMIC, slice_numbers, sliced_index
from lispgpt.passes.recognise.cache_writes import is_scatter


@dataclass(frozen=True)
class Update:
    """Parts of `shape`, put into `buffer` by `insert`, one after the other in `loops` (outermost first).

    Parts differ only in where they start, and only along dimensions in which they have one element: so a thread that
    writes the same element of all of them, in order, meets no other thread.  old: what takes a part from where it goes,
    if one is made from it.
    """

    buffer: ir.Value
    insert: ir.Operation
    loops: tuple[ir.Operation, ...]
    old: ir.Operation | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.insert.operands[0])

    @property
    def place(self) -> int:
        """The dimension of the buffer along which parts start where the first number says that is computed."""
        return slice_numbers(self.insert)[0].index(DYNAMIC)

    def write(self, reader: Reader, index: list[Index], width: int = 1) -> None:
        """Write the elements from `index` on of every part."""
        self._within(reader, index, list(self.loops), width)

    def _within(self, reader: Reader, index: list[Index], loops: list[ir.Operation], width: int) -> None:
        if not loops:
            self._put(reader, index, self.where(reader, index), width)
            return
        low, high, step = (reader.index_of(v) for v in list(loops[0].operands)[:3])
        counter = loops[0].regions[0].blocks[0].arguments[0]

        def body(number: Index) -> None:
            with reader.scope():
                reader.indices[counter] = number
                self._within(reader, index, loops[1:], width)

        b.each(low, high, step, body)

    def where(self, reader: Reader, index: list[Index]) -> list[Index]:
        """Where the buffer has an element of the part that the reader's indices say."""
        return sliced_index(self.insert, list(self.insert.operands)[2:], self.shape, index, reader)

    def _put(self, reader: Reader, index: list[Index], where: list[Index], width: int) -> None:
        aligned = reader.target.aligned_rows
        with reader.scope():
            if self.old is not None:
                reader.bind(self.old.results[0], lambda _, width: b.load(self.buffer, where, width, aligned))
            b.store(reader.read(self.insert.operands[0], index, width), self.buffer, where, aligned)


def update_of(tensor: ir.Value, buffer: ir.Value) -> Update | None:
    """How a tensor that goes to `buffer` is what was there with parts replaced; None where it is something else."""
    loops: list[ir.Operation] = []
    op = defining_op(tensor)
    while op is not None and op.name == "scf.for" and len(op.results) == 1:
        loops.append(op)
        block = op.regions[0].blocks[0]
        op = defining_op(operations(block)[-1].operands[0])
    if op is None or op.name != "tensor.insert_slice":
        return None
    state, old = op.operands[1], None
    if len(loops) == 1 and is_scatter(loops[0]):
        users = [use.owner.operation for use in state.uses]
        old = next(user for user in users if user != op)
    for loop in reversed(loops):
        carried = loop.regions[0].blocks[0].arguments[1]
        if state != carried or len(list(carried.uses)) != 1 + (old is not None):
            return None
        state = loop.operands[3]
    home = defining_op(state)
    if home is None or home.name != "bufferization.to_tensor" or home.operands[0] != buffer:
        return None
    if len(list(state.uses)) > 1 or not _apart(op) or any(_has_loop(loop, loops) for loop in loops):
        return None
    return Update(buffer, op, tuple(loops), old)


def _apart(insert: ir.Operation) -> bool:
    offsets, sizes, _ = slice_numbers(insert)
    return all(size == 1 for offset, size in zip(offsets, sizes, strict=True) if offset == DYNAMIC)


def _has_loop(loop: ir.Operation, loops: list[ir.Operation]) -> bool:
    return any(op.name in ("scf.for", "scf.while") and op not in loops for op in nested_operations(loop))
