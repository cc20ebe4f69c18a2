"""The two kinds of weights in a clustered launch: BF16, and whole numbers with scales (packed_weights.py).

Of both a lane has four words of BF16 in each step of 16 of the depth, a `Fragment`, as a matrix instruction takes them;
but packed ones of rows may be multiplied as they are, two steps at once (products.py).
Numbers that share a scale are summed up first, and the sums multiplied by it: that of the one or the two of a tile's
rows whose sums a lane has.  What is read as an Iterable here may be loaded while it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import added, fused, real, word
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import LINE
from lispgpt.passes.decode_step.packed_weights import LANE, STEP, PackedWeights
from lispgpt.passes.targets import ptx

Fragment = list[Number]
Scale = list[Number]
"""Of some neighbouring steps: for one of a lane's rows or for both."""


@dataclass(frozen=True)
class Weights:
    """BF16, in lines of 64 of a row, whose 16 bytes are swapped as tensor maps do; they have no scales."""

    launch: Launch

    def shared(self, steps: int, multiple: int) -> tuple[int, int]:
        """(how many of so many steps, whose first one's number is a multiple of these and of `multiple`, have one
        scale; how many scales there are)."""
        return steps, 0

    def row_places(self, start: Number, first: Number | int, count: int, multiple: int) -> list[Number]:
        """Where a lane's weights of some steps, whose first one's number is a multiple of `multiple`, lie in a chunk of
        8 rows, of which it has one along the first or the second half of the depth."""
        line = 8 * 2 * LINE
        if not isinstance(first, int) and multiple % 4 == 0:
            start, first = start + (first // 4) * line, 0
        lines, rest = divmod(self.launch.layout.width // 32, 4)
        row, half, late = self.launch.lane % 8, (self.launch.lane // 8) & 1, self.launch.lane // 16
        start = start + half * (lines * line) + row * (2 * LINE)
        late = late + half * (2 * rest) if rest else late
        if isinstance(first, int):
            turns = [_swizzled(late + 2 * i, row, line if rest else 0) for i in range(4)]
            return [start + turns[(first + i) % 4] + (first + i) // 4 * line for i in range(count)]
        return [start + _swizzled(first * 2 + late + 2 * i, row, line) for i in range(count)]

    def column_place(self, start: Number, step: Number | int, tile: Number, row: Number) -> Number:
        """Where a lane's weights of a step and a tile of 16 rows lie in a chunk of 64 columns.  row: the lane's among
        the chunk's."""
        number = self.launch.lane // 16 + step * 2
        return start + row * (2 * LINE) + ((number ^ (row % 8)) << 4)

    def load(self, place: Number) -> Fragment:
        return ptx.load_matrices(place)

    def row_scales(self, start: Number, first: Number | int, count: int, halves: Sequence[Number]) -> Iterator[Scale]:
        """A lane's row's in a chunk of 8 rows, for some steps, along halves of the depth that start there."""
        return iter(())

    def column_scales(self, start: Number, step: Number | int, tile: Number) -> Iterator[Scale]:
        """A lane's two rows' of a tile in a chunk of 64 columns, from a step on which has others than that before."""
        return iter(())

    def chains(self, most: int, totals: Sequence[Number] = ()) -> list[list[Number]]:
        """Sums that begin with totals, or with zeros: so many, at most, which do not wait for each other."""
        return [list(totals) or [real(0.0)] * 4, *([real(0.0)] * 4 for _ in range(most - 1))]

    def add(
        self,
        chains: list[list[Number]],
        weights: Iterable[Fragment],
        right: Sequence[Fragment],
        scales: Iterable[Scale],
    ) -> list[list[Number]]:
        """Chains to which the products of some steps, from an even number on, are added."""
        chains = list(chains)
        for step, (a, other) in enumerate(zip(weights, right, strict=True)):
            chains[step % len(chains)] = ptx.multiply(a, other, chains[step % len(chains)])
        return chains

    def sums(
        self,
        weights: Iterable[Fragment],
        right: Sequence[Fragment],
        scales: Iterable[Scale],
        totals: Sequence[Number] = (),
        most: int = 4,
    ) -> list[Number]:
        """Totals, or zeros, and the products of some steps, in so many chains at most."""
        return total(self.add(self.chains(min(most, len(right)), totals), weights, right, scales))


@dataclass(frozen=True)
class ScaledWeights(Weights):
    """Packed, in the order in which lanes read them."""

    packed: PackedWeights

    def shared(self, steps: int, multiple: int) -> tuple[int, int]:
        each = self.packed.steps_of(steps, multiple)
        return each, steps // each

    def row_places(self, start: Number, first: Number | int, count: int, multiple: int) -> list[Number]:
        return [start + self.launch.lane * LANE + (first + i) * STEP for i in range(count)]

    def column_place(self, start: Number, step: Number | int, tile: Number, row: Number) -> Number:
        return start + tile * (LINE // 16 * STEP) + step * STEP + self.launch.lane * LANE

    def load(self, place: Number) -> Fragment:
        return PackedWeights.widened(PackedWeights.load_numbers(place))

    def row_scales(self, start: Number, first: Number | int, count: int, halves: Sequence[Number]) -> Iterator[Scale]:
        each, _ = self.shared(count, self.launch.layout.width // 32)
        for i in range(0, count, each):
            grains = [(half + (first + i) * 16) // self.packed.grain for half in halves]
            yield [self.packed.scale(start, grain, self.launch.lane // 4) for grain in grains]

    def column_scales(self, start: Number, step: Number | int, tile: Number) -> Iterator[Scale]:
        grain = word(step) * 16 // self.packed.grain
        yield [self.packed.scale(start, grain, tile * 16 + self.launch.lane // 4 + more) for more in (0, 8)]

    def chains(self, most: int, totals: Sequence[Number] = ()) -> list[list[Number]]:
        return super().chains(1, totals)

    def add(
        self,
        chains: list[list[Number]],
        weights: Iterable[Fragment],
        right: Sequence[Fragment],
        scales: Iterable[Scale],
    ) -> list[list[Number]]:
        weights, scales, (totals,) = list(weights), list(scales), chains
        each = len(weights) // len(scales)
        for number, scale in enumerate(scales):
            here = slice(number * each, (number + 1) * each)
            found = total(super().add(super().chains(min(2, each)), weights[here], right[here], ()))
            four = [s for s in scale for _ in range(4 // len(scale))]
            totals = [fused(x, s, before) for x, s, before in zip(found, four, totals, strict=True)]
        return [totals]


def weights_of(launch: Launch, name: str) -> Weights:
    """Those of a product, by its name in the layout."""
    packed = launch.layout.packed.get(name)
    return Weights(launch) if packed is None else ScaledWeights(launch, packed)


def total(chains: Sequence[list[Number]]) -> list[Number]:
    """Chains, added up."""
    return list(map(added, zip(*chains, strict=True)))


def _swizzled(number: Number, row: Number, line: int) -> Number:
    """Where the number-th 16 bytes of a row lie, from its first line on; line: bytes between lines, 0 where there is
    one."""
    within = ((number % 8) ^ row) << 4
    return (number // 8) * line + within if line else within
