"""What is made of rows' sums in a launch of several sequences: queries, keys and values, and hidden units.

A thread has a row of a sequence, whose norm comes behind the sums.  What is beside them in its result, such as a bias,
it loads ahead of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import either, if_there, lesser, real, when, word
from lispgpt.passes.decode_step.batch_launch import THREADS
from lispgpt.passes.decode_step.batch_products import TextProducts
from lispgpt.passes.decode_step.chain import NormWeights, Product
from lispgpt.passes.decode_step.deferred_norms import load_sums, normed
from lispgpt.passes.decode_step.launch import finished, preload
from lispgpt.passes.decode_step.layout import RANKS
from lispgpt.passes.decode_step.sharing import Sharing
from lispgpt.passes.targets import ptx


@dataclass(frozen=True)
class _Row:
    """A thread's, among its block's of one product.  place: of its result.  fixed: what its norm has of each product's
    row.  there: whether it is one."""

    row: Number
    sequence: Number
    place: list[ir.Value]
    fixed: list[list[Number]]
    there: Number | None


class Rows:
    """Results of products that a block has so many rows of each."""

    def __init__(
        self,
        stack: ExitStack,
        products: TextProducts,
        layer: Number,
        norm: NormWeights,
        of: Sequence[Product],
        sharing: Sharing,
        count: int,
    ) -> None:
        self.launch, self.products, self.norm, self.of = products.launch, products, norm, of
        self.sharing, self.count = sharing, count
        self.made = [stack.enter_context(finished(self.launch, one, layer)) for one in of]
        total, self.rows = count * self.launch.layout.sequences, []
        first = self.launch.subgroup * 32 + self.launch.lane
        for turn in range(-(-total // THREADS)):
            number = first + turn * THREADS
            there = None if (turn + 1) * THREADS <= total else number < total
            number = number if there is None else lesser(number, word(total - 1))
            sequence, row = number // count, number % count
            column = lesser(self.column(row), word(self.of[0].rows - 1))
            fixed = [load_sums(self.launch, one, layer, column) for one in of]
            self.rows.append(_Row(row, sequence, [sequence.index(), column.index()], fixed, there))
            for made in self.made:
                preload(made, self.rows[-1].place, 1)

    def column(self, row: Number) -> Number:
        """Which of the product's rows a block's is."""
        raise NotImplementedError

    def _finished(self, row: _Row) -> Number:
        """What the ops behind the products make of their sums."""
        value = word(0)
        for number, made in enumerate(self.made):
            if number:
                before = self.of[number].residual_stream
                assert before is not None
                made.hold(before, value.value, row.place)
            (total,) = self._sum(row, number)
            moments = ptx.load_reals(self.launch.moments_place(row.sequence), 2)
            made.hold_product(normed(self.norm, total, row.fixed[number], *moments).value, row.place)
            with made.reader.scope():
                value = Number(made.reader.read(made.result, row.place))
        return value

    def _sum(self, row: _Row, number: int) -> list[Number]:
        """Of a product.  A thread that has no row may not ask for one: sums of the next product take their place once
        what is made of these is there."""
        ask = partial(self.products.sum_of, self.sharing, row.sequence, row.row + number * self.count, 1)
        return ask() if row.there is None else either(row.there, "f", ask, lambda: [real(0.0)])


class Queries(Rows):
    """Queries, keys and values, for the rank that has the sequence."""

    def __init__(self, stack: ExitStack, products: TextProducts, layer: Number) -> None:
        launch, layout = products.launch, products.launch.layout
        norm, of = launch.chain.norms[0], [launch.chain.qkv]
        super().__init__(stack, products, layer, norm, of, layout.qkv, 8 * layout.qkv_tiles)

    def _number(self, row: Number) -> Number:
        """Of a cluster's rows."""
        return (row // 8) * (8 * RANKS) + self.launch.rank * 8 + row % 8

    def column(self, row: Number) -> Number:
        return self.launch.row_of_heads(self._number(row))

    def leave(self) -> None:
        layout = self.launch.layout
        for one in self.rows:
            number = self._number(one.row)
            inside = number < layout.head_rows
            inside = inside if one.there is None else inside & one.there
            remote = self.launch.remote(one.sequence)
            four = self.launch.of_neighbours([self._finished(one)], 4)
            to, barrier = remote + number * 4 + layout.at["own"], remote + layout.barrier["own"]
            when(inside & (self.launch.lane % 4 == 0), partial(ptx.send, to, four, barrier))


class HiddenUnits(Rows):
    """Hidden units, for all ranks."""

    def __init__(self, stack: ExitStack, products: TextProducts, layer: Number) -> None:
        launch, layout = products.launch, products.launch.layout
        norm, of = launch.chain.norms[1], launch.chain.gate_up
        super().__init__(stack, products, layer, norm, of, layout.up, layout.hidden_rows)

    def column(self, row: Number) -> Number:
        layout = self.launch.layout
        return self.launch.cluster * layout.hidden + self.launch.rank * layout.hidden_rows + row

    def leave(self) -> None:
        launch = self.launch
        for one in self.rows:
            number = one.sequence * launch.layout.hidden + launch.rank * launch.layout.hidden_rows + (one.row & -4)
            quad = launch.of_neighbours([self._finished(one)], 4)
            if_there(one.there, partial(launch.send, "units", [(number * 4, quad)], 4))
