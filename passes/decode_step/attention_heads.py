"""Heads of a clustered launch: where their queries, keys and values lie in a product's rows and in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import element_type, shape_of
from lispgpt.passes.decode_step.chain import Chain
from lispgpt.passes.kernels.attention import cache_of, own_index, read_operand, read_row
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.recognise.attention import Attention, attention_of
from lispgpt.passes.recognise.row_norms import norm_of
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class Rows:
    """Where keys' and values' rows lie in a layer's cache, in bytes: of the first head's first position, and from a
    position and a head to the next."""

    firsts: tuple[int, int]
    position: int
    head: int


@dataclass(frozen=True)
class Heads:
    """shared: the leading loop of attention whose numbers are keys' and values' heads; member: that of the queries'
    heads which have these in common; sequence: that of several sequences; None where it is not longer than 1.  firsts:
    columns of what attention reads at which queries, keys and values of the first head start, where all heads' follow
    one behind the other.  short: whether a number of the cache has 16 bits, and not 32.  rows: of the cache, where they
    lie at such distances."""

    shared: int | None
    member: int | None
    count: int
    group: int
    depth: int
    loops: int
    short: bool
    sequence: int | None = None
    firsts: tuple[int, int, int] = (0, 0, 0)
    rows: Rows | None = None

    @property
    def item_bytes(self) -> int:
        """Of a number of the cache."""
        return 2 if self.short else 4

    @property
    def row_bytes(self) -> int:
        """Of a row of it."""
        return self.depth * self.item_bytes

    @property
    def kept(self) -> int:
        """Heads of keys and values."""
        return self.count // self.group

    def place(self, shared: Index, member: Index, sequence: Index = 0) -> list[Index]:
        """Indices of the leading loops."""
        of_loops = {self.shared: shared, self.member: member, self.sequence: sequence}
        return [of_loops.get(i, 0) for i in range(self.loops)]


def heads_of(chain: Chain, target: Gpu) -> Heads:
    """Heads of a chain's attention.

    Refused where they lie otherwise.  What is emitted to find out is dropped.
    """
    kernel = chain.attention.kernel
    block = kernel.regions[0].blocks[0]
    attention = attention_of(kernel)
    assert attention is not None
    heads = _loops(attention, chain.sequences)
    ops = list(block.operations)
    with ir.InsertionPoint(ops[-1]), kernel.location:
        firsts = _Columns(chain, attention, heads, target).firsts()
        rows = _rows(chain, attention, heads, target)
    for op in reversed(list(block.operations)[len(ops) - 1 : -1]):
        op.operation.erase()
    return replace(heads, firsts=firsts, rows=rows)


def _rows(chain: Chain, attention: Attention, heads: Heads, target: Gpu) -> Rows | None:
    """None where a row's numbers do not lie side by side, or rows not as far apart for each head and position."""
    reader, seen = Reader(target), [0]
    shape = shape_of(cache_of(attention))
    item = heads.item_bytes

    def note(index: Sequence[Index], width: int) -> ir.Value:
        if not all(isinstance(i, int) for i in index):
            raise Refused("its cache is read at places that depend on more than the position")
        seen[0] = item * reduce(lambda total, pair: total * pair[1] + pair[0], zip(index, shape, strict=True), 0)
        return b.splat(b.constant(0.0, element_type(attention.keys.tensor)), width)

    for tensor in attention.updated:
        reader.bind(tensor, note)
    for argument, series in chain.attention.arguments.items():
        if series.buffer == chain.positions:
            for tensor in tensors_of(chain.attention.kernel, argument):
                reader.bind(tensor, lambda index, width: b.splat(b.constant(0, b.i32()), width))

    def place(kind: int, head: int, position: int, d: int) -> int:
        with reader.scope():
            read_operand(reader, (attention.keys, attention.values)[kind], heads.place(head, 0), position, d, 1)
        return seen[0]

    firsts = place(0, 0, 0, 0), place(1, 0, 0, 0)
    last, end = heads.kept - 1, attention.context - 1
    position = place(0, 0, 1, 0) - firsts[0] if end else 0
    head = place(0, 1, 0, 0) - firsts[0] if last else 0
    for kind, first in enumerate(firsts):
        for h, t, d in ((0, 0, heads.depth - 1), (0, end, 0), (last, 0, 0), (last, end, heads.depth - 1)):
            if place(kind, h, t, d) != first + h * head + t * position + d * item:
                return None
    return Rows(firsts, position, head)


def _loops(attention: Attention, sequences: int) -> Heads:
    if attention.own is None or attention.depth != attention.width:
        raise Refused("its attention is not of heads whose keys, as deep as values, it writes itself")
    sequence = attention.own.sequence if sequences > 1 else None
    if sequences > 1 and (sequence is None or attention.own.each > 1 or attention.extents[sequence] != sequences):
        raise Refused("its sequences do not have a row and a part of the cache each")
    long = {i: extent for i, extent in enumerate(attention.extents) if extent > 1 and i != sequence}
    shared = [i for i in long if i in attention.shared]
    members = [i for i in long if i not in attention.shared]
    if len(shared) > 1 or len(members) > 1:
        raise Refused("its attention is not of heads, nor of groups of heads")
    group = long[members[0]] if members else 1
    count = group * (long[shared[0]] if shared else 1)
    short = b.is_short(attention.keys.tensor.type)
    loop, member = (found[0] if found else None for found in (shared, members))
    return Heads(loop, member, count, group, attention.depth, len(attention.extents), short, sequence)


def tensors_of(kernel: ir.Operation, argument: int) -> list[ir.Value]:
    """An argument's elements in a kernel's body."""
    readers = [use.owner.operation for use in kernel.regions[0].blocks[0].arguments[argument].uses]
    return [op.results[0] for op in readers if op.name == "bufferization.to_tensor"]


class _Columns:
    """Which columns queries, keys and values are made of.  rows: those of each row that is normed."""

    def __init__(self, chain: Chain, attention: Attention, heads: Heads, target: Gpu) -> None:
        self.attention, self.heads, self.sequences = attention, heads, chain.sequences
        self.seen: list[int] = []
        self.rows: dict[tuple[ir.Value | Index, ...], list[int]] = {}
        self.reader = Reader(target)
        for tensor in tensors_of(chain.attention.kernel, chain.rows_argument):
            self.reader.bind(tensor, self._note)
        for theirs in (theirs for ahead in chain.hoisted for theirs in ahead.results.values()):
            for tensor in tensors_of(chain.attention.kernel, theirs):
                self.reader.bind(tensor, lambda index, width: b.splat(b.constant(0.0, b.f32()), width))
        for one in chain.head_norms:
            norm = norm_of(outputs_of(one.kernel)[-1][0])
            assert norm is not None
            for tensor in tensors_of(one.kernel, one.source):
                self.reader.bind(tensor, self._note)
            for tensor in tensors_of(chain.attention.kernel, one.result):
                self.reader.bind(tensor, partial(self._of_row, norm.source))

    def _of_row(self, source: ir.Value, index: Sequence[Index], width: int) -> ir.Value:
        """What a norm's result depends on: all of its row, which is read once."""
        if not all(isinstance(i, int) for i in index):
            raise Refused("its queries do not lie in rows")
        row = (source, *index[:-1])
        if row not in self.rows:
            before, self.seen = self.seen, []
            for d in range(shape_of(source)[-1]):
                self.reader.read(source, [*index[:-1], d])
            self.rows[row], self.seen = self.seen, before
        self.seen += self.rows[row]
        return b.splat(b.constant(0.0, b.f32()), width)

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
        last = self.sequences - 1
        for d in range(self.heads.depth):
            where = zip(out.index(self.heads.place(shared, member, last), 0, d), shape_of(out.tensor), strict=True)
            number = last * self.heads.count + head
            if reduce(lambda total, pair: total * pair[1] + pair[0], where, 0) != number * self.heads.depth + d:
                raise Refused("its attention's results do not lie head by head")
