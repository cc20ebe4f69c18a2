"""plan-arena: place all of an entry's intermediates in one arena, sharing bytes among those that do not live at once.

Before:                                        After:
  func.func @entry(%a: memref<16xi8>) {          func.func @entry(%a: memref<16xi8>, %arena: memref<512xi8>) {
    %x = memref.alloc() : memref<4xf32>            %x = memref.view %arena[%c0]   : … to memref<4xf32>
    %y = memref.alloc() : memref<4xf32>            %y = memref.view %arena[%c256] : … to memref<4xf32>
    %b = memref.alloc() : memref<32xi8>
    %z = memref.view %b[%c16]                      %z = memref.view %arena[%c528]

What devices do together goes on beside the kernels behind it: its memory is free when they do the next thing together.

Requires: what destination-passing ensures.
Ensures: no allocation is left in an entry, whose last argument is "arena:arena".  Every entry's arena has the same
size, so that they can share one; that of a loop's rounds is a part of it, the last operand of the loop's call.
Offsets are multiples of `alignment` bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.collectives import collective_functions, collective_of
from lispgpt.ir.loops import give_scratch, loop_facts, loop_functions
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, entry_functions, operations, symbol_of
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import calls_of
from lispgpt.passes.memory.kernel_buffers import add_argument, byte_array, byte_size
from lispgpt.passes.states import NO_ARENA, PLACED


@dataclass(frozen=True)
class PlanArena(Pass):
    """alignment: bytes."""

    starts_from = (PLACED, NO_ARENA)
    alignment: int = 256

    def run(self, module: ir.Module, target: object) -> None:
        for entry in entry_functions(module):
            if "rounds" in entry.attributes:
                _inside_of_a_loop(module, entry, self.alignment)
        entries = [entry for entry in entry_functions(module) if "rounds" not in entry.attributes]
        known = collective_functions(module)
        layouts = [_layout(entry, self.alignment, known) for entry in entries]
        size = max((size for _, size in layouts), default=0)
        for entry, (offsets, _) in zip(entries, layouts, strict=True):
            _rewrite(entry, offsets, max(size, self.alignment))


def _inside_of_a_loop(module: ir.Module, body: ir.Operation, alignment: int) -> None:
    """Have the rounds of a loop work in memory that its call gets from the entry around it."""
    offsets, size = _layout(body, alignment, collective_functions(module))
    _rewrite(body, offsets, max(size, alignment))
    (loop,) = (f for f in loop_functions(module).values() if loop_facts(f).body == symbol_of(body))
    memory = byte_array(max(size, alignment))
    give_scratch(loop, memory)
    for call in calls_of(module, loop):
        with ir.InsertionPoint(call), call.location:
            b.call(symbol_of(loop), [*call.operands, b.allocated(memory)])
        call.erase()


def _layout(entry: ir.Operation, alignment: int, known: dict[str, ir.Operation]) -> tuple[dict[ir.Operation, int], int]:
    """First fit by order of birth: each allocation's offset, and the size of it all."""
    ops = operations(entry.regions[0].blocks[0])
    position = {op: i for i, op in enumerate(ops)}
    together = [i for i, op in enumerate(ops) if collective_of(op, known) is not None]
    live: list[tuple[int, int, int]] = []
    offsets: dict[ir.Operation, int] = {}
    whole = 0
    for op in ops:
        if op.name != "memref.alloc":
            continue
        uses = [position[user] for user in _users(op.results[0])]
        uses += [next((i for i in together if i > use), len(ops)) for use in uses if use in together]
        size = -(-byte_size(op.results[0].type) // alignment) * alignment
        live = sorted(place for place in live if place[2] >= position[op])
        offset = 0
        for start, end, _ in live:
            if offset + size <= start:
                break
            offset = max(offset, end)
        offsets[op] = offset
        live.append((offset, offset + size, max(uses, default=position[op])))
        whole = max(whole, offset + size)
    return offsets, whole


def _users(memory: ir.Value) -> list[ir.Operation]:
    """The ops that read or write what was allocated; through views, of bytes."""
    found = [use.owner.operation for use in memory.uses]
    return found + [user for view in found if view.name == "memref.view" for user in _users(view.results[0])]


def _rewrite(entry: ir.Operation, offsets: dict[ir.Operation, int], size: int) -> None:
    arena = add_argument(entry, "arena:arena", ir.RankedTensorType.get([size], ir.IntegerType.get_signless(8)))
    for op, offset in offsets.items():
        views = [use.owner.operation for use in op.results[0].uses if use.owner.operation.name == "memref.view"]
        for old in [*views, op]:
            if not any(True for _ in old.results[0].uses):
                old.erase()
                continue
            inner = 0 if old == op else ir.IntegerAttr(defining_op(old.operands[1]).attributes["value"]).value
            with ir.InsertionPoint(old), old.location:
                view = b.emit("memref.view", [arena, b.as_value(offset + inner)], [old.results[0].type])
            old.results[0].replace_all_uses_with(view)
            old.erase()
    _view_bytes(entry)


def _view_bytes(entry: ir.Operation) -> None:
    """Have calls take a view of an argument that is what they want as it is, bytes: what folds views leaves out."""
    arguments = list(entry.regions[0].blocks[0].arguments)
    for call in operations(entry.regions[0].blocks[0]):
        for number, operand in enumerate(call.operands if call.name == "func.call" else ()):
            if operand in arguments:
                with ir.InsertionPoint(call), call.location:
                    call.operands[number] = b.emit("memref.view", [operand, b.as_value(0)], [operand.type])
