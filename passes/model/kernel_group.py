"""Ops of an entry that become one kernel, what they need of each other's, and the order in which they can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lispgpt.base.errors import InternalError
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import VIEWS


@dataclass(eq=False)
class KernelGroup:
    """kind: as in a kernel's attribute `kernel`.  ops: in program order.  needs: every group, however far, whose
    results this one reads, as the bits of their indices.  is_read: whether some group has needed it.  copied: those of
    its ops that every reader of their results has too.  lent: those that it has itself, and readers elsewhere copies
    of, who need what they are made of."""

    kind: str
    index: int
    ops: list = field(default_factory=list)
    needs: int = 0
    is_read: bool = False
    copied: set = field(default_factory=set)
    lent: set = field(default_factory=set)

    @property
    def bit(self) -> int:
        return 1 << self.index

    def depends_on(self, other: KernelGroup) -> bool:
        return bool(self.needs >> other.index & 1)


def add_needs(group: KernelGroup, sources: set[KernelGroup], groups: list[KernelGroup]) -> None:
    """Record that a group, and whatever needs it, needs these and all that they need."""
    added = 0
    for source in sources - {group}:
        added |= source.bit | source.needs
        source.is_read = True
    group.needs |= added
    for other in groups if group.is_read else ():
        if other.depends_on(group):
            other.needs |= added


def in_order(groups: list[KernelGroup]) -> list[KernelGroup]:
    """A topological order that keeps the program's own where it can."""
    done: list[KernelGroup] = []
    placed = 0
    waiting = list(groups)
    while waiting:
        ready = next((g for g in waiting if not g.needs & ~placed), None)
        if ready is None:
            raise InternalError("outline-kernels: kernels depend on each other in a circle")
        waiting.remove(ready)
        placed |= ready.bit
        done.append(ready)
    return done


def into_readers(
    groups: list[KernelGroup], owner: dict, reader_of: Callable[[KernelGroup], KernelGroup | None]
) -> list[KernelGroup]:
    """Move the ops of groups that have such a reader into it."""
    kept = []
    for group in groups:
        reader = reader_of(group)
        if reader is None:
            kept.append(group)
            continue
        reader.ops[:0] = group.ops
        owner.update(dict.fromkeys(group.ops, reader))
        reader.needs |= group.needs
        gone, there = group.bit, reader.bit
        for other in groups:
            if other.needs & gone:
                other.needs = (other.needs & ~gone | there) & ~other.bit
    return kept


def outputs_of(group: KernelGroup) -> list[ir.Value]:
    """The group's values that something outside it reads, through slices too; all that a call gives, which is written
    whether or not it is read."""
    members = set(group.ops) - group.lent
    outputs = []
    for op in group.ops:
        for result in op.results if op not in group.copied | group.lent else ():
            if op.name == "func.call" or any(user not in members for user in users(result, op)):
                outputs.append(result)
    return outputs


def users(value: ir.Value, sibling: ir.Operation) -> set[ir.Operation]:
    """The ops beside `sibling` that read a value, directly or through views."""
    found = set()
    for user in {top_level(use.owner, sibling) for use in value.uses}:
        found |= users(user.results[0], sibling) if user.name in VIEWS else {user}
    return found


def top_level(op: ir.Operation, sibling: ir.Operation) -> ir.Operation:
    """The op beside `sibling` that an op is, or is in."""
    op = op.operation
    while op.block != sibling.block:
        op = op.parent.operation
    return op
