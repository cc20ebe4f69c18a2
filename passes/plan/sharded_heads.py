"""Heads of a sharded launch: where their queries, keys and values lie in a product's rows and in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import shape_of
from lispgpt.passes.kernels.attention import own_index, read_operand, read_row
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.model.attention import Attention, attention_of
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class Heads:
    """shared: the leading loop of attention whose numbers are keys' and values' heads; member: that of the queries'
    heads which have these in common; None where it is not longer than 1.  firsts: columns of what attention reads at
    which queries, keys and values of the first head start, where all heads' follow one behind the other."""

    shared: int | None
    member: int | None
    count: int
    group: int
    depth: int
    loops: int
    firsts: tuple[int, int, int] = (0, 0, 0)

    def place(self, shared: Index, member: Index) -> list[Index]:
        """Indices of the leading loops."""
        return [shared if i == self.shared else member if i == self.member else 0 for i in range(self.loops)]


def heads_of(kernel: ir.Operation, argument: int, ahead: Sequence[int], target: Gpu) -> Heads:
    """Heads of attention that reads an argument's columns, and what is made ahead.

    Refused where they lie otherwise.  What is emitted to find out is dropped.
    """
    block = kernel.regions[0].blocks[0]
    attention = attention_of(kernel)
    assert attention is not None
    heads = _loops(attention)
    ops = list(block.operations)
    with ir.InsertionPoint(ops[-1]), kernel.location:
        firsts = _Columns(kernel, attention, heads, argument, ahead, target).firsts()
    for op in reversed(list(block.operations)[len(ops) - 1 : -1]):
        op.operation.erase()
    return Heads(heads.shared, heads.member, heads.count, heads.group, heads.depth, heads.loops, firsts)


def _loops(attention: Attention) -> Heads:
    if attention.own is None or attention.lower is not None or attention.depth != attention.width:
        raise Refused(
            "its attention is not of one sequence's heads, whose keys are as deep as values, over all positions"
        )
    long = {i: extent for i, extent in enumerate(attention.extents) if extent > 1}
    shared = [i for i in long if i in attention.shared]
    members = [i for i in long if i not in attention.shared]
    if len(shared) > 1 or len(members) > 1:
        raise Refused("its attention is not of heads, nor of groups of heads")
    group = long[members[0]] if members else 1
    count = group * (long[shared[0]] if shared else 1)
    loop, member = (found[0] if found else None for found in (shared, members))
    return Heads(loop, member, count, group, attention.depth, len(attention.extents))


class _Columns:
    """Which columns queries, keys and values are made of."""

    def __init__(
        self,
        kernel: ir.Operation,
        attention: Attention,
        heads: Heads,
        argument: int,
        ahead: Sequence[int],
        target: Gpu,
    ) -> None:
        self.attention, self.heads = attention, heads
        self.seen: list[int] = []
        self.reader = Reader(target)
        arguments = list(kernel.regions[0].blocks[0].arguments)
        for op in kernel.regions[0].blocks[0].operations:
            op = op.operation
            if op.name == "bufferization.to_tensor" and op.operands[0] == arguments[argument]:
                self.reader.bind(op.results[0], self._note)
            if op.name == "bufferization.to_tensor" and any(op.operands[0] == arguments[i] for i in ahead):
                self.reader.bind(op.results[0], lambda index, width: b.splat(b.constant(0.0, b.f32()), width))

    def _note(self, index: Sequence[Index], width: int) -> ir.Value:
        if not all(isinstance(i, int) for i in index):
            raise Refused("its queries do not lie in rows")
        self.seen += range(index[-1], index[-1] + width)
        return b.splat(b.constant(0.0, b.f32()), width)

    def _of(self, kind: int, shared: int, member: int, d: int) -> list[int]:
        """The columns that one number of a query, key or value depends on."""
        self.seen = []
        place = self.heads.place(shared, member)
        with self.reader.scope():
            if kind == 0:
                read_operand(self.reader, self.attention.queries, place, 0, d, 1)
            else:
                index = own_index(self.attention, kind - 1, place, d)
                read_row(self.attention.writes[kind - 1], self.reader, 0, index, 1)
        return self.seen

    def firsts(self) -> tuple[int, int, int]:
        heads, depth = self.heads, self.heads.depth
        firsts = []
        for kind in range(3):
            whole = sorted({c for d in range(depth) for c in self._of(kind, 0, 0, d)})
            if whole != list(range(whole[0], whole[0] + depth)) if whole else True:
                raise Refused("its queries, keys and values do not lie one behind the other")
            firsts.append(whole[0])
        for head in range(heads.count):
            shared, member = divmod(head, heads.group)
            for kind in range(3):
                first = firsts[kind] + (head if kind == 0 else shared) * depth
                found = {c for d in (0, depth // 2, depth - 1) for c in self._of(kind, shared, member, d)}
                if not found <= set(range(first, first + depth)):
                    raise Refused("its queries, keys and values do not lie head by head")
            self._check_results(head, shared, member)
        return firsts[0], firsts[1], firsts[2]

    def _check_results(self, head: int, shared: int, member: int) -> None:
        out = self.attention.out
        for d in range(self.heads.depth):
            where = zip(out.index(self.heads.place(shared, member), 0, d), shape_of(out.tensor), strict=True)
            if reduce(lambda total, pair: total * pair[1] + pair[0], where, 0) != head * self.heads.depth + d:
                raise Refused("its attention's results do not lie head by head")
