"""The residual stream of several sequences: a block's subgroups take it, each line of four numbers by a lane, and leave
it for products.

A line comes from the block that has summed it up; the lowest bit of its first number says of which use of its place it
is.  A place is used again two exchanges later: who writes it then has had sums of the exchange between, which all
clusters with layers make of what their blocks have read of the first.  A run's last exchange has a place of its own, as
blocks without layers read no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import if_there, lesser, real, when, word
from lispgpt.passes.decode_step.batch_launch import BatchLaunch
from lispgpt.passes.decode_step.batch_layout import QUADS_OF_TURN
from lispgpt.passes.decode_step.batch_products import TextProducts, both_of, store_parts
from lispgpt.passes.decode_step.chain import NormWeights
from lispgpt.passes.decode_step.launch import Copied, embedded, lanes, moments_of
from lispgpt.passes.decode_step.sharing import SUBGROUPS
from lispgpt.passes.targets import ptx


def marked(line: Sequence[Number], mark: Number) -> list[Number]:
    return [(line[0].bits() & -2) | mark, *line[1:]]


def unmarked(line: Sequence[Number]) -> list[Number]:
    """The numbers of a line, which are the same in every use of its place."""
    return [(line[0] & -2).bits(), *(w.bits() for w in line[1:])]


PAUSE = 2400
"""Clocks between what a block adds to the residual stream and its asking for it.  Measured on an H200, GPT-2 of 124M,
eight sequences: 146 to 152 us a token without, 141 to 149 with 1600, 139 to 144 with 2000, 137 to 143 with 2400, 148 to
151 with 3000."""


@dataclass(frozen=True)
class Summed:
    """The residual stream behind an exchange.  place: which of its three places it has.  mark: the bit that its lines
    have."""

    place: Number
    mark: Number

    @staticmethod
    def of_attention(launch: BatchLaunch, run: Number, layer: Number) -> Summed:
        """run: of all launches'."""
        return Summed(word(0), _odd(run * launch.layout.layers + layer))

    @staticmethod
    def of_layer(launch: BatchLaunch, run: Number, layer: Number) -> Summed:
        """Behind a layer that is not a run's last."""
        return Summed(word(1), _odd(run * (launch.layout.layers - 1) + layer))

    @staticmethod
    def of_run(run: Number) -> Summed:
        """Behind a run's last layer."""
        return Summed(word(2), _odd(run))

    def line(self, launch: BatchLaunch, sequence: Number, quad: Number) -> ir.Value:
        """Where a sequence's line lies."""
        layout = launch.layout
        offset = (
            (self.place * layout.sequences + sequence) * (4 * layout.width)
            + quad * 16
            + layout.lines["residual_stream"]
        )
        return ptx.pointer(launch.exchange, offset)


def _odd(uses: Number) -> Number:
    """The mark of a place that was used so often before."""
    return (uses & 1) ^ 1


def embedding_of(launch: BatchLaunch, made: Copied, sequence: Number, column: Number, run: Number) -> list[Number]:
    """Four numbers of a sequence's residual stream ahead of the layers.  made: the kernel that makes it."""
    token = ptx.load_words(launch.place("tokens") + sequence * 4, 1)[0]
    position = launch.position_of(sequence) + run
    with made.reader.scope():
        return embedded(launch, made, token, position, [sequence.index(), column.index()], 4)


@dataclass(frozen=True)
class _Line:
    """A lane's of a sequence.  works: whether it is its own, where not all are."""

    sequence: Number
    works: Number | None


class ResidualStream:
    """A subgroup's lines of the residual stream: 32 of the same place, its part, of each of its sequences."""

    def __init__(self, products: TextProducts) -> None:
        self.launch, self.products = products.launch, products
        layout, subgroup = self.launch.layout, self.launch.subgroup
        parts, quads = layout.line_parts, layout.width // 4
        self.groups = SUBGROUPS // parts
        self.part, self.group = subgroup % parts, subgroup // parts
        quad = self.part * QUADS_OF_TURN + self.launch.lane
        self.inside = quad < quads if parts * QUADS_OF_TURN > quads else None
        self.quad = quad if self.inside is None else lesser(quad, word(quads - 1))
        some = layout.sequences % self.groups or self.groups * parts < SUBGROUPS
        self.lines = []
        for number in range(-(-layout.sequences // self.groups)):
            sequence = self._text(word(number))
            works = both_of(self.inside, sequence < layout.sequences if some else None)
            self.lines.append(_Line(lesser(sequence, word(layout.sequences - 1)) if some else sequence, works))

    def _text(self, number: Number) -> Number:
        """A subgroup's number-th; none where there are no more."""
        return self.group + number * self.groups

    def embed(self, made: Copied, run: Number) -> list[Number]:
        """Its numbers ahead of the layers."""
        return [w for line in self.lines for w in embedding_of(self.launch, made, line.sequence, self.quad * 4, run)]

    def follow(self, summed: Summed) -> None:
        """Wait for the subgroup's first line, without asking for all others while it is not there."""
        place = summed.line(self.launch, self.lines[0].sequence, self.quad)
        when(self.launch.lane == 0, lambda: ptx.await_lines([place], lambda words: (words[0] ^ summed.mark) & 1))
        ptx.subgroup_barrier()

    def take(self, summed: Summed, since: Number) -> list[Number]:
        """Its numbers behind an exchange.  All blocks ask for all of the residual stream: who asks too early, again and
        again, keeps it from coming.  since: the clock when the block has left its part."""
        ptx.pause_until(since, PAUSE)
        places = [summed.line(self.launch, line.sequence, self.quad) for line in self.lines]
        lines = ptx.await_lines(places, lambda words: (words[0] ^ summed.mark) & 1)
        ptx.subgroup_barrier()
        return [w for line in lines for w in unmarked(line)]

    def weights(self, norm: NormWeights, layer: Number | int) -> list[list[Number]]:
        """What a lane loads of a norm's weights ahead of the residual stream: of gamma and beta its four numbers."""
        series = [norm.gamma] if norm.beta is None else [norm.gamma, norm.beta]
        memories = [self.launch.floats(one, layer) for one in series]
        return [lanes(b.load(memory, [(self.quad * 4).index()], 4)) for memory in memories]

    def leave_scaled(self, numbers: list[Number], norm: NormWeights, weights: list[list[Number]]) -> None:
        """The residual stream times a norm's gamma as an operand, and in each subgroup's memory all sequences' moments,
        which are then at hand behind the product.  weights: what `weights` has found."""
        for i, line in enumerate(self.lines):
            self._leave(line, [value * g for value, g in zip(numbers[4 * i : 4 * i + 4], weights[0], strict=True)])
        self.leave_moments(numbers)
        self.products.wait_at()
        sequence = lesser(self.launch.lane, word(self.launch.layout.sequences - 1))
        ptx.store_words(self.launch.moments_place(sequence), list(moments(self.launch, norm, sequence)))

    def leave_normed(self, numbers: list[Number], norm: NormWeights, weights: list[list[Number]]) -> None:
        """A norm of the residual stream as an operand."""
        gamma, *beta = weights
        self.leave_moments(numbers)
        self.products.wait_at()
        mean, factor = moments(self.launch, norm, lesser(self.launch.lane, word(self.launch.layout.sequences - 1)))
        for i, line in enumerate(self.lines):
            x, own, shift = numbers[4 * i : 4 * i + 4], *(value.of_lane(line.sequence) for value in (factor, mean))
            centred = [value - shift for value in x] if norm.centred else x
            made = [value * own * g for value, g in zip(centred, gamma, strict=True)]
            self._leave(line, [value + y for value, y in zip(made, beta[0], strict=True)] if beta else made)
        self.products.wait_at()

    def _leave(self, line: _Line, made: list[Number]) -> None:
        if_there(line.works, partial(store_parts, self.launch.place("x"), line.sequence, self.quad, made))

    def leave_moments(self, numbers: list[Number]) -> None:
        """The sums of a part's numbers of each sequence, and of their squares."""
        launch, layout, sums = self.launch, self.launch.layout, []
        for x in (numbers[4 * i : 4 * i + 4] for i in range(len(self.lines))):
            for total in ((x[0] + x[1]) + (x[2] + x[3]), (x[0] * x[0] + x[1] * x[1]) + (x[2] * x[2] + x[3] * x[3])):
                sums.append(total if self.inside is None else self.inside.where(total, 0.0))
        number, value, first = sums_across(launch.lane, sums)
        sequence, kind = self._text(number >> 1), number & 1
        place = launch.place("statistics") + ((sequence * layout.line_parts + self.part) * 2 + kind) * 4
        when(first & (sequence < layout.sequences), lambda: ptx.store_words(place, [value]))


def moments(launch: BatchLaunch, norm: NormWeights, sequence: Number) -> tuple[Number, Number]:
    """(mean, 1 / deviation) of a sequence's residual stream, from what subgroups have left."""
    layout = launch.layout
    start = launch.place("statistics") + sequence * (8 * layout.line_parts)
    parts = [ptx.load_reals(start + 8 * i, 2) for i in range(layout.line_parts)]
    total, square = parts[0]
    for one, other in parts[1:]:
        total, square = total + one, square + other
    return moments_of(launch, total, square, norm.centred, norm.epsilon)


def sums_across(lane: Number, values: list[Number]) -> tuple[Number, Number, Number]:
    """Some numbers, each added up across a subgroup's lanes, which share the sums out: (the number of a lane's, its
    sum, whether it is the first lane that has it)."""
    number, distance = word(0), 16
    while len(values) & (len(values) - 1):  # so that no two lanes that share have the same number
        values = [*values, real(0.0)]
    while len(values) > 1:
        half, upper = len(values) // 2, (lane & distance) != 0
        kept = [upper.where(y, x) for x, y in zip(values[:half], values[half:], strict=True)]
        given = [upper.where(x, y) for x, y in zip(values[:half], values[half:], strict=True)]
        values = [x + y.from_lane(distance) for x, y in zip(kept, given, strict=True)]
        number, distance = number + upper.where(word(half), 0), distance // 2
    (value,), first = values, (lane & (2 * distance - 1)) == 0
    while distance:
        value, distance = value + value.from_lane(distance), distance // 2
    return number, value, first
