"""What is made of the sums of rows of products that read a norm of the residual stream: queries, keys and values, and
hidden units.

A product has been given x·gamma: with sums S of its weights with that, G with gamma and B with beta, the product of the
normed residual stream is (S - mean · G) / deviation + B.  A thread has a row of a sequence, or several.  What is beside
sums in its result, such as a bias, it loads ahead of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import both, lesser, when, word
from lispgpt.passes.decode_step.chain import NormWeights, Product
from lispgpt.passes.decode_step.launch import Launch, copied, dealt, preload
from lispgpt.passes.decode_step.layout import RANKS
from lispgpt.passes.decode_step.products import PAIR, parts_of_pair
from lispgpt.passes.targets import ptx


@dataclass(frozen=True)
class Row:
    """A thread's.  row: among the block's of one product.  place: of its result.  fixed: what its norm has of each
    product's row.  there: whether it is one; None: it is."""

    row: Number
    sequence: Number
    place: list[Index]
    fixed: list[list[Number]]
    there: Number | None


class Rows:
    """Results of products that a block has so many rows of each.  thread: this one's number among so many."""

    def __init__(
        self, launch: Launch, layer: Number, norm: NormWeights, of: Sequence[Product], count: int,
        thread: Number, threads: int,
    ) -> None:  # fmt: skip
        self.launch, self.norm, self.of, self.count, self.rows = launch, norm, of, count, list[Row]()
        self.made = [copied(self.launch, one, layer) for one in of]
        total = count * launch.layout.sequences
        for number, there in dealt(thread, threads, total):
            sequence, row = (number // count, number % count) if total > count else (word(0), number)
            column = lesser(self.column(row), word(of[0].rows - 1))
            fixed = [_norm_sums(launch, one, layer, column) for one in of]
            self.rows.append(Row(row, sequence, [launch.row_of(sequence), column.index()], fixed, there))
            for made in self.made:
                preload(made, self.rows[-1].place, 1)

    def column(self, row: Number) -> Number:
        """Which of the product's rows a block's is."""
        raise NotImplementedError

    def leave(self, sum_of: Callable[[Row, int], Number], moments: Callable[[Row], tuple[Number, Number]]) -> None:
        """What the ops behind the products make of their sums, for ranks.  sum_of: a row's of a product, by its
        number.  moments: (mean, 1 / deviation) of the residual stream."""
        for row in self.rows:
            value = word(0)
            for number, (made, product) in enumerate(zip(self.made, self.of, strict=True)):
                if number:
                    assert product.residual_stream is not None
                    made.hold(product.residual_stream, value.value, row.place)
                total = _normed(self.norm, sum_of(row, number), row.fixed[number], *moments(row))
                made.hold_product(total.value, row.place)
                with made.reader.scope():
                    value = Number(made.reader.read(made.result, row.place))
            self.send(row, value)

    def send(self, row: Row, value: Number) -> None:
        raise NotImplementedError


class Queries(Rows):
    """Queries, keys and values; of several sequences for the rank that has the sequence."""

    def __init__(self, launch: Launch, layer: Number, thread: Number, threads: int) -> None:
        chain, count = launch.chain, 8 * launch.layout.qkv_tiles
        super().__init__(launch, layer, chain.norms[0], [chain.qkv], count, thread, threads)

    def _number(self, row: Number) -> Number:
        """Of a cluster's rows."""
        return (row // 8) * (8 * RANKS) + self.launch.rank * 8 + row % 8

    def column(self, row: Number) -> Number:
        return self.launch.row_of_heads(self._number(row))

    def send(self, row: Row, value: Number) -> None:
        launch, number = self.launch, self._number(row.row)
        inside, four = number < launch.layout.head_rows, launch.of_neighbours([value], 4)
        if launch.layout.sequences == 1:
            when(both(inside, row.there), partial(launch.send, "own", [((number & -4) * 4, four)], 4))
            return
        remote = launch.remote(row.sequence)
        to, barrier = remote + number * 4 + launch.layout.at["own"], remote + launch.layout.barrier["own"]
        when(both(both(inside, row.there), launch.lane % 4 == 0), partial(ptx.send, to, four, barrier))


class HiddenUnits(Rows):
    """Hidden units, for all ranks; of one sequence as parts of the next product's operand."""

    def __init__(self, launch: Launch, layer: Number, thread: Number, threads: int) -> None:
        chain, count = launch.chain, launch.layout.hidden_rows
        super().__init__(launch, layer, chain.norms[1], chain.gate_up, count, thread, threads)

    def column(self, row: Number) -> Number:
        return self.launch.cluster * self.launch.layout.hidden + self.launch.rank * self.count + row

    def send(self, row: Row, value: Number) -> None:
        launch, own = self.launch, self.launch.rank * self.count + row.row
        if launch.layout.sequences == 1:
            pair = own // 2 * PAIR, parts_of_pair(*launch.of_neighbours([value], 2))
            when(row.there, partial(launch.send, "hidden_units", [pair], 2))
            return
        number = row.sequence * launch.layout.hidden + (own & -4)
        four = launch.of_neighbours([value], 4)
        when(row.there, partial(launch.send, "hidden_units", [(number * 4, four)], 4))


def _norm_sums(launch: Launch, product: Product, layer: Number, row: Number) -> list[Number]:
    """Sums of the norm's weights along a product's row; none where the norm has no need of them."""
    found = next(((number, one) for number, one in launch.layout.sums_at.items() if one.product is product), None)
    if found is None:
        return []
    number, sums = found
    flat = ir.MemRefType.get([sums.nbytes // 4], b.f32())
    memory = b.emit("memref.view", [launch.memories[number], b.as_value(0)], [flat])
    first = layer * (len(sums.norm.series) * sums.product.rows) + row
    return [Number(b.load(memory, [(first + i * sums.product.rows).index()], 1)) for i in range(len(sums.norm.series))]


def _normed(norm: NormWeights, total: Number, sums: Sequence[Number], mean: Number, factor: Number) -> Number:
    """A row's result.  total: its sum.  sums: what `_norm_sums` has found."""
    total = total - mean * sums[0] if norm.centred else total
    return factor * total if norm.beta is None else factor * total + sums[1]
