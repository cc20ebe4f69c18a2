"""What is made of rows' sums in a launch of several sequences: queries, keys and values, and hidden units.

A thread has a row of a sequence, whose norm comes behind the sums.  What is beside them in its result, such as a bias,
it loads ahead of them.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import either, if_there, lesser, real, when, word
from lispgpt.passes.decode_step.batch_launch import THREADS
from lispgpt.passes.decode_step.batch_norms import DeferredNorm
from lispgpt.passes.decode_step.batch_products import TextProducts
from lispgpt.passes.decode_step.launch import Copied, finished, preload
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
        self, stack: ExitStack, products: TextProducts, norm: DeferredNorm, sharing: Sharing, count: int
    ) -> None:
        self.launch, self.products, self.norm, self.of = products.launch, products, norm, norm.products
        self.sharing, self.count = sharing, count
        self.made = [stack.enter_context(finished(self.launch, one, norm.layer)) for one in self.of]
        total, self.rows = count * self.launch.layout.sequences, []
        first = self.launch.subgroup * 32 + self.launch.lane
        for turn in range(-(-total // THREADS)):
            number = first + turn * THREADS
            there = None if (turn + 1) * THREADS <= total else number < total
            number = number if there is None else lesser(number, word(total - 1))
            sequence, row = number // count, number % count
            column = lesser(self.column(row), word(self.of[0].rows - 1))
            fixed = [norm.load(one, column) for one in self.of]
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
            value = _behind(made, row.place, self.norm.normed(total, row.sequence, row.fixed[number]))
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
        norm = DeferredNorm(launch, launch.chain.norms[0], layer, [launch.chain.qkv])
        super().__init__(stack, products, norm, layout.qkv, 8 * layout.qkv_tiles)

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
        norm = DeferredNorm(launch, launch.chain.norms[1], layer, launch.chain.gate_up)
        super().__init__(stack, products, norm, layout.up, layout.hidden_rows)

    def column(self, row: Number) -> Number:
        layout = self.launch.layout
        return self.launch.cluster * layout.hidden + self.launch.rank * layout.hidden_rows + row

    def leave(self) -> None:
        launch = self.launch
        for one in self.rows:
            number = one.sequence * launch.layout.hidden + launch.rank * launch.layout.hidden_rows + (one.row & -4)
            quad = launch.of_neighbours([self._finished(one)], 4)
            if_there(one.there, partial(launch.send, "units", [(number * 4, quad)], 4))


def _behind(made: Copied, place: list[ir.Value], total: Number) -> Number:
    """What the ops behind one product make of a sum."""
    made.hold_product(total.value, place)
    with made.reader.scope():
        return Number(made.reader.read(made.result, place))
