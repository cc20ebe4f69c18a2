"""A cluster's heads of a clustered launch, as a subgroup reads them: where its queries, keys and values come from.

What the product before has made of the cluster's rows lies in each of its blocks' memories, and what is made ahead of
the layers in each block's own: attention's kernel is read with both in place of its arguments, so that what it does to
queries and keys, such as a rotation, is done in registers by whoever reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, viewed
from lispgpt.ir.threads import each, word
from lispgpt.passes.decode_step.launch import Copied, Launch, lanes
from lispgpt.passes.kernels.attention import bind_cache, own_index, read_operand, read_row
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import Team
from lispgpt.passes.recognise.attention import attention_of
from lispgpt.passes.targets import ptx


class HeadReader:
    """made: attention's kernel for a layer, normed: those that norm its heads' rows.  position: the row's own,
    sequence: which it is."""

    def __init__(
        self, launch: Launch, made: Copied, normed: Sequence[Copied], position: Number, sequence: Number | int = 0
    ) -> None:
        self.launch, self.made, self.normed, self.position, self.sequence = launch, made, normed, position, sequence
        attention, layout = attention_of(made.op), launch.layout
        assert attention is not None
        self.attention, self.heads, self.depth = attention, layout.heads, layout.depth
        self.base = word(0)
        self._bind()

    def _bind(self) -> None:
        launch, made = self.launch, self.made
        for tensor in made.tensors[launch.chain.rows_argument]:
            made.reader.bind(tensor, partial(self._own_columns, made.reader))
        for number, (one, norm) in enumerate(zip(self.normed, launch.chain.head_norms, strict=True)):
            for tensor in one.tensors[norm.source]:
                one.reader.bind(tensor, partial(self._own_columns, one.reader))
            for tensor in one.tensors[norm.gamma] if number in launch.layout.gammas else ():
                one.reader.bind(tensor, partial(self._gamma, one.reader, launch.layout.gammas[number]))
            for tensor in made.tensors[norm.result]:
                made.reader.bind(tensor, partial(self._normed, number))
        for argument, shape in launch.layout.hoisted.items():
            for tensor in made.tensors[argument]:
                made.reader.bind(tensor, partial(self._hoisted, launch.layout.hoisted_at[argument], shape))
        for argument, series in launch.chain.attended.items():
            if series.buffer == launch.chain.positions:
                made.hold(argument, self.position.value)
        bind_cache(self.attention, made.reader)

    def _own_columns(self, reader: Reader, index: Sequence[Index], width: int) -> ir.Value:
        """What the product before has made of the row's columns, of those that are the cluster's."""
        return _loaded(self.launch.place("own") + (word(index[-1]) - self.base) * 4, width, reader.in_step)

    def _hoisted(self, first: int, shape: Sequence[int], index: Sequence[Index], width: int) -> ir.Value:
        number = word(index[0]) if shape[0] > 1 else word(0)
        for i, extent in zip(index[1:], shape[1:], strict=True):
            number = number * extent + word(i)
        return _loaded(self.launch.place("ahead") + first + number * 4, width, self.made.reader.in_step)

    def _gamma(self, reader: Reader, place: int, index: Sequence[Index], width: int) -> ir.Value:
        """The weights of a norm of heads that lie in the block's memory."""
        start = self.launch.place("gammas") + 4 * self.depth * place
        return _loaded(start + word(index[-1]) * 4, width, reader.in_step)

    def _normed(self, number: int, index: Sequence[Index], width: int) -> ir.Value:
        """What a norm makes of a head's row, whose sum a subgroup's lanes find together, once for what is read of one
        head."""
        one, reader = self.normed[number], self.made.reader
        one.reader.team = Team(self.launch.lane.index(), 32, 32, self.launch.subgroup.value)
        factor = defining_op(viewed(one.result)).operands[1]

        def make() -> ir.Value:
            one.reader.bound.pop(factor, None)
            with one.reader.scope(), one.reader.stepping():
                return one.reader.read(factor, index[:-1])

        one.reader.hold(factor, reader.once((factor, "of a head"), make))
        with one.reader.scope(), one.reader.stepping(reader.in_step):
            return one.reader.read(one.result, index, width)

    def place(self, shared: Number, member: Number | int) -> list[Index]:
        """Indices of attention's leading loops: of a cluster's head of keys, and one of its heads of queries."""
        launch, heads, layout = self.launch, self.heads, self.launch.layout
        number = launch.head_of_keys(shared)
        if heads.group > layout.each:
            member = launch.share * layout.each % heads.group + member
        member = word(member)
        return self.heads.place(number.index(), member.index(), self.row)

    @property
    def row(self) -> Index:
        """The number of the sequence's row."""
        return self.sequence if isinstance(self.sequence, int) else self.sequence.index()

    def slot(self, shared: Number, member: Number | int) -> Number:
        """The number of a head among the cluster's."""
        return shared * self.launch.layout.members + member

    def query(self, shared: Number, member: Number | int, column: Number, width: int) -> list[Number]:
        """As f32, as it is made of the cluster's columns."""
        layout, firsts = self.launch.layout, self.heads.firsts
        self.base = self.launch.share * (layout.each * self.depth) + firsts[0]
        reader = self.made.reader
        with reader.scope(), reader.stepping():
            place = self.place(shared, member)
            return lanes(b.extend(read_operand(reader, self.attention.queries, place, 0, column.index(), width)))

    def own_row(self, kind: int, shared: Number, column: Number) -> ir.Value:
        """Two numbers of the row's own key (0) or value (1), as the cache has them."""
        layout, reader = self.launch.layout, self.made.reader
        before = layout.rows_of_kinds[0] + kind * layout.rows_of_kinds[1]
        self.base = self.launch.first_shared * self.depth + (self.heads.firsts[1 + kind] - before)
        with reader.scope(), reader.stepping():
            index = own_index(self.attention, kind, self.place(shared, 0), column.index())
            return read_row(self.attention.writes[kind], reader, self.row, index, 2)

    def members(self, body: Callable[[Number], None]) -> None:
        """For each of the heads that have the subgroup's keys in common."""
        members = self.launch.layout.members
        if members == 1:
            body(word(0))
        else:
            each(0, members, body)

    def part(self, slot: Number) -> Number:
        return slot * ((self.launch.layout.head_subgroups + 1) * self.launch.layout.part)


def _loaded(address: Number, width: int, together: bool) -> ir.Value:
    """So many f32 of a block's memory; together: at an address of as many's size, or of four's."""
    at_once = min(width, 4) if together and width in (2, 4, 8) else 1
    return b.vector_of([w.value for i in range(0, width, at_once) for w in ptx.load_reals(address + 4 * i, at_once)])
