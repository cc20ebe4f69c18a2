"""sums-in-registers: a loop that adds to one place in memory keeps the sum in a register until it ends.

Before:  scf.for %k = … {                          After:   %start = memref.load %c[%i, %j]
           …                                                %sum = scf.for %k = … iter_args(%s = %start) {
           %s = memref.load %c[%i, %j]                        …
           %t = arith.addf %s, %p                             %t = arith.addf %s, %p
           memref.store %t, %c[%i, %j] }                      scf.yield %t }
                                                            memref.store %sum, %c[%i, %j]

With unroll=N, N steps of such a loop are done at once, where N divides its extent, so that their loads overlap.

Requires: loops that came from linalg ops, whose outputs no input overlaps.  Only innermost loops are rewritten, where
the last op stores to a place that the loop does not change, the same place is loaded once, nothing else is stored, and
no other load reads the same memref.
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import clone_with, constant_number, everything_in, operations
from lispgpt.passes.base import Pass


@dataclass(frozen=True)
class SumsInRegisters(Pass):
    """unroll: steps of a sum in one round of its loop."""

    unroll: int = 8

    def run(self, module: ir.Module, target: object) -> None:
        for loop in everything_in(module.operation):
            found = _sum(loop) if loop.name == "scf.for" and not len(loop.results) else None
            if found is not None:
                carrying = _carry(loop, *found)
                if self.unroll > 1:
                    _unroll(carrying, self.unroll)


def _sum(loop: ir.Operation) -> tuple[ir.Operation, ir.Operation] | None:
    """The load and the store of a loop that is nothing but a sum."""
    block = loop.regions[0].blocks[0]
    body = operations(block)
    if len(body) < 3 or body[-2].name != "memref.store" or any(len(op.regions) for op in body):
        return None
    store = body[-2]
    _, memref, *place = store.operands
    if any(_inside(v, block) for v in (memref, *place)):
        return None
    loads = [op for op in body if op.name == "memref.load" and op.operands[0] == memref]
    others = [op for op in body if op.name not in ("memref.load", "scf.yield") and not op.name.startswith("arith.")]
    if len(loads) != 1 or list(loads[0].operands)[1:] != place or others != [store]:
        return None
    return loads[0], store


def _inside(value: ir.Value, block: ir.Block) -> bool:
    owner = value.owner
    return owner == block if isinstance(owner, ir.Block) else owner.operation.block == block


def _carry(loop: ir.Operation, load: ir.Operation, store: ir.Operation) -> ir.Operation:
    value, memref, *place = store.operands
    with loop.location, ir.InsertionPoint(loop):
        start = create_op("memref.load", [memref, *place], [value.type]).results[0]
        carrying = create_op("scf.for", [*loop.operands, start], [value.type], regions=1)
    old = loop.regions[0].blocks[0]
    old.append_to(carrying.regions[0])
    carried = old.add_argument(value.type, loop.location)
    load.results[0].replace_all_uses_with(carried)
    load.erase()
    total = store.operands[0]
    store.erase()
    operations(old)[-1].erase()
    with loop.location, ir.InsertionPoint(old):
        create_op("scf.yield", [total])
    with loop.location:
        after = create_op("memref.store", [carrying.results[0], memref, *place], ip=ir.InsertionPoint(loop))
        after.move_after(carrying)
    loop.erase()
    return carrying


def _unroll(loop: ir.Operation, count: int) -> None:
    """Do `count` steps in each round, where the bounds are known and divide."""
    bounds = [constant_number(v) for v in list(loop.operands)[:3]]
    if None in bounds:
        return
    start, stop, step = (bound for bound in bounds if bound is not None)
    if (stop - start) % (step * count):
        return
    block = loop.regions[0].blocks[0]
    index, carried = block.arguments
    *body, terminator = operations(block)
    with loop.location, ir.InsertionPoint(terminator):
        total = terminator.operands[0]
        for number in range(1, count):
            values = {index: b.add(index, number * step), carried: total}
            for op in body:
                clone_with(op, values)
            total = values[terminator.operands[0]]
        terminator.operands[0] = total
    with loop.location, ir.InsertionPoint(loop):
        loop.operands[2] = b.as_value(step * count)
