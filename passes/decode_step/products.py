"""A block's products of one sequence: whose share of them a subgroup has, and weights that wait in its registers.

Subgroups have their weights in registers before the other side is there, where the layout holds a layer; otherwise they
walk through the ring's chunks when it is.

Products of rows have chunks of 8 of a weight's rows, along all of the residual stream.  Both halves of the depth take
part at once: rows 0 to 7 of an instruction are these rows along the residual stream's first half, rows 8 to 15 the same
along the second.  A `RowOperand` says what fills an instruction's columns: BF16 parts of the residual stream, or, for
packed weights of long blocks, whole numbers, so that matrix instructions multiply these weights as they are.  What the
norm of the residual stream adds and subtracts is put in order afterwards (see rows.py).

Products of columns sum over what a cluster has, for a rank's columns of the residual stream.  A chunk is 64 of a
weight's columns for all of the rank's rows, 16 of which are a matrix instruction's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import both, either, fused, given, greater, lesser, loop, real, turns, when, word
from lispgpt.passes.decode_step.launch import Launch, over_lanes
from lispgpt.passes.decode_step.layout import LINE, SHARED_UNIT, SUBGROUPS, Sharing
from lispgpt.passes.decode_step.packed_weights import PackedWeights
from lispgpt.passes.decode_step.residual import Residual
from lispgpt.passes.decode_step.weights import Fragment, Scale, ScaledWeights, Weights, total, weights_of
from lispgpt.passes.targets import ptx

PAIR = 16
"""Bytes of two neighbouring numbers of a cluster's operands: a word for each part, and a zero."""
LINE_STEPS = LINE // 16
Numbers = tuple[list[Fragment], list[Scale]]
"""What is loaded of weights: for each step or two, and for each that has other scales than those before."""
Sums = list[list[Number]]
"""A lane's, in chains that do not wait for each other."""
Read = tuple[Number, int, Number | None]
"""A slot of the ring that a subgroup has read, the number of arrivals that this counts as, whether there is one."""


@dataclass
class Held:
    """A subgroup's share of a product.  slice: of the depth.  tiles: of rows.  works: whether it has a share, where not
    all subgroups have.  numbers: of each tile and step, or of two steps; scales: of all.  read: what it has read."""

    sharing: Sharing
    slice: Number
    tiles: list[Number]
    works: Number | None
    numbers: list[list[Fragment]]
    scales: list[Scale]
    read: list[Read]


class Products:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.group, self.part = launch.lane // 4, launch.lane % 4

    def share_out(self, sharing: Sharing) -> tuple[Number, Number | None]:
        """(a subgroup's number among those that work, whether it does)."""
        if sharing.workers == SUBGROUPS:
            return self.launch.subgroup, None
        return self.launch.subgroup % sharing.workers, self.launch.subgroup < sharing.workers

    def hold(
        self, sharing: Sharing, part: Number, tiles: list[Number], load: Callable[[], Numbers], read: list[Read],
        fragments: int, scales: tuple[int, int] = (0, 1),
    ) -> Held:  # fmt: skip
        """What a subgroup that works loads: so many fragments of each tile, and so many scales, each of so many rows.
        Who has no share of a chunk may not touch its slot either, as nobody waits for it to have done so."""
        _, works = self.share_out(sharing)
        (count, rows), end = scales, 4 * fragments * len(tiles)

        def words() -> list[Number]:
            numbers, found = load()
            return [w for a in numbers for w in a] + [s.bits() for scale in found for s in scale]

        if works is None:
            numbers, found = load()
        else:
            kinds = "r" * (end + count * rows)
            all_ = either(works, kinds, words, lambda: [word(0)] * len(kinds))
            numbers, found = _in_parts(all_[:end], 4), _in_parts([w.bits() for w in all_[end:]], rows)
        read = [(slot, n, both(works, there)) for slot, n, there in read]
        return Held(sharing, part, tiles, works, _in_parts(numbers, fragments), found, read)

    def load_columns(self, chunk: Number, sharing: Sharing, weights: Weights) -> Held:
        """The chunk-th chunk and those behind it, each 64 columns of the rank's rows."""
        launch, layout = self.launch, self.launch.layout
        number, _ = self.share_out(sharing)
        tiles, first = tiles_of(number % sharing.tiles, sharing), number // sharing.tiles * sharing.steps
        rows = [self.row_of(tile) for tile in tiles]
        each, count = weights.shared(sharing.steps, LINE_STEPS)
        starts = range(0, sharing.steps, LINE_STEPS)
        slots = [launch.slot(chunk + (first + start) // LINE_STEPS) for start in starts]

        def load() -> Numbers:
            found: list[list[Fragment]] = [[] for _ in tiles]
            scales: list[Scale] = []
            for start, (slot, parity) in zip(starts, slots, strict=True):
                ptx.wait(launch.full(slot), parity)
                base = launch.start + slot * layout.chunk
                for step in range(start, min(start + LINE_STEPS, sharing.steps)):
                    within = (first + step) % LINE_STEPS
                    for tile, row, mine in zip(tiles, rows, found, strict=True):
                        mine.append(weights.load(weights.column_place(base, within, tile, row)))
                        scales += weights.column_scales(base, within, tile) if step % each == 0 else []
            return [a for mine in found for a in mine], scales

        read: list[Read] = [(slot, layout.arrivals // layout.readers(sharing), None) for slot, _ in slots]
        return self.hold(sharing, number // sharing.tiles, tiles, load, read, sharing.steps, (count, 2))

    def row_of(self, tile: Number) -> Number:
        """A lane's row of a rank's tile of 16, one that is there."""
        row, columns = tile * 16 + self.launch.lane % 16, self.launch.layout.columns
        return lesser(row, word(columns - 1)) if columns % 16 else row

    def release(self, *held: Held) -> None:
        """Let what comes next take the place of weights that are in registers now."""
        with self.launch.once_read():
            for slot, count, there in (one for mine in held for one in mine.read):
                when(there, partial(ptx.arrive, self.launch.empty(slot), count))

    def free(self, slot: Number) -> None:
        """Let what comes next take the place of a slot that a subgroup has read, as one of all."""
        with self.launch.once_read():
            ptx.arrive(self.launch.empty(slot), 1)

    @staticmethod
    def across_parts(own: Number) -> Number:
        """The sum of a row's four lanes."""
        return over_lanes([own], (1, 2))[0]


class RingProduct(ABC):
    """A product whose weights come by way of the ring.  sums: the place where they are left."""

    def __init__(self, products: Products, sharing: Sharing, sums: str) -> None:
        self.products, self.sharing, self.sums, self.launch = products, sharing, sums, products.launch

    def prepare(self, chunk: Number) -> None:
        """chunk: the first one's number in the ring.  Load its weights and those behind it, where they are held."""
        self.chunk = chunk
        if self.launch.layout.whole:
            self.held = self._load()
            self.products.release(self.held)

    def multiply(self) -> None:
        """Multiply by the other side, which is there, and leave sums."""
        if self.launch.layout.whole:
            self._multiply_held()
        else:
            self._walk()

    @abstractmethod
    def _load(self) -> Held:
        """A subgroup's share of the weights."""

    @abstractmethod
    def _multiply_held(self) -> None:
        """Multiply what has been loaded."""

    @abstractmethod
    def _walk(self) -> None:
        """Multiply chunks as they come."""


def tiles_of(group: Number, sharing: Sharing) -> list[Number]:
    """A subgroup's, of those that each group of subgroups has."""
    turns = sharing.all // sharing.tiles
    return [word(i) if sharing.tiles == 1 else group + i * sharing.tiles for i in range(turns)]


def parts_of_pair(one: Number, other: Number) -> list[Number]:
    """The words of two neighbouring numbers of a cluster's operand."""
    return [*ptx.split(one, other), word(0)]


def _in_parts(found: list[Any], size: int) -> list[list[Any]]:
    return [found[i : i + size] for i in range(0, len(found), size)]


QUAD = 32
"""Bytes of the residual stream's four numbers that a lane has in a step: two words for each part, and two zeros."""
CHAINS = 4
"""Of sums that do not wait for each other, at most."""


class RowOperand:
    """In three parts of BF16: four columns of an instruction for each half of the depth.

    words: of the operand that a lane has for a step, at most.  together: steps of a `Fragment`.  rows: that a lane has
    scales of."""

    words, together, rows = 2, 1, 2

    def __init__(self, products: Products, weights: Weights) -> None:
        self.products, self.weights, self.launch = products, weights, products.launch

    def put(self, residual: Residual, values: Sequence[Number]) -> None:
        """By all threads that multiply, each its columns: to be read once they have met."""
        for piece, own in residual.by_pieces(values):
            number = piece.number
            place = self.launch.place("x") + ((number // 8) * 4 + number % 4) * QUAD + ((number // 4) & 1) * 4
            for k, part in enumerate(ptx.split(*own)):
                when(piece.works, partial(ptx.store_words, place + 8 * k, [part]))

    def operand(self, first: Number | int, count: int, multiple: int) -> list[Fragment]:
        """What a lane has of so many steps from a step on, whose number is a multiple of such."""
        half, part = self.products.group // 4, self.products.group & 3
        start = self.launch.place("x") + (half * (self.launch.layout.width // 8) + self.products.part) * QUAD + part * 8
        start = start + first * (4 * QUAD)
        return [ptx.load_words(start + 4 * QUAD * step, 2) for step in range(count)]

    def load(self, base: Number, first: Number | int, count: int, multiple: int) -> Iterator[Fragment]:
        """A lane's weights of such steps in a chunk, loaded one by one as they are asked for."""
        return map(self.weights.load, self.weights.row_places(base, first, count, multiple))

    def scales(self, base: Number, first: Number | int, count: int) -> Iterator[Scale]:
        """Its rows' scales, each of as many of these steps."""
        return self.weights.row_scales(base, first, count, [word(0), word(self.launch.layout.width // 2)])

    def count_scales(self, steps: int) -> int:
        """How many there are."""
        return self.weights.shared(steps, self.launch.layout.width // 32)[1]

    def none(self, steps: int) -> Sums:
        """A lane's sums of nothing, to which products of so many steps are to be added."""
        return self.weights.chains(min(CHAINS, steps))

    def add(
        self, weights: Iterable[Fragment], operand: Sequence[Fragment], scales: Sequence[Scale], before: Sums
    ) -> Sums:
        """A lane's sums with these products."""
        return self.weights.add(before, weights, operand, scales)

    def whole(self, sums: Sums) -> Number:
        """A row's sum, of its lanes': four columns, a part each, of either half's rows."""
        first, other, *later = total(sums)
        return self.products.across_parts((self.products.part < 2).where(first + other, later[0] + later[1]))


OCTET = 32
"""Bytes of eight numbers, four of either step: two words for each digit."""
BASE = 256.0
BITS, BIAS, LEAST = 30, 127, 30
"""How many bits below the largest number's power of two numbers have; of a real's exponent; and the least exponent of
the largest number with which neither factor leaves a real's range."""
NEITHER = 255
"""The exponent of what is no number, or infinite."""
LATE = 4
"""Lanes from the one that has two numbers to the one that has those 8 further, in the same step."""
DEEP = 32
"""Numbers along the depth of an instruction."""


class Int8Digits(RowOperand):
    """A lane's operand has its digit's two words of each instruction's numbers, and what these count as."""

    words, together, rows = 2, 2, 1

    def put(self, residual: Residual, values: Sequence[Number]) -> None:
        launch = self.launch
        for piece, own in residual.by_pieces(values):
            size = greater(*(value.bits() & 0x7FFFFFFF for value in own))
            exponent = greater(ptx.over_lanes("max", size) >> 23, word(LEAST))
            factor = ((2 * BIAS + BITS - 1 - exponent) << 23).bits()
            numbers = [_digits(value * factor) for value in own]
            theirs = [number.from_lane(LATE) for number in numbers]
            late = (piece.number // LATE) & 1
            step, quad = piece.number // 8, piece.number % 4
            to = launch.place("digits") + ((step // 2) * 4 + quad) * OCTET + (step & 1) * 4 + late * 16
            for number, digit in enumerate(_words(late == 1, numbers, theirs)):
                when(piece.works, partial(ptx.store_words, to + 8 * number, [digit]))
            unit = (exponent == NEITHER).where(real(float("nan")), ((exponent - (BITS - 1)) << 23).bits())
            place = launch.place("units") + piece.number * 2 // SHARED_UNIT * 4
            when(both(launch.lane == 0, piece.works), partial(ptx.store_words, place, [unit]))

    def operand(self, first: Number | int, count: int, multiple: int) -> list[Fragment]:
        width = self.launch.layout.width
        half, digit = self.products.group // 4, self.products.group & 3
        start = self.launch.place("digits") + (half * (width // 16) + self.products.part) * OCTET
        start = start + first * (2 * OCTET) + digit * 8
        each = 2 if multiple % 4 == 0 and width % (2 * SHARED_UNIT) == 0 else 1
        found = []
        for i in range(count // 2):
            if i % each == 0:
                column = (self.products.part // 2) * (width // 2) + (first * (DEEP // 2) + i * DEEP)
                (unit,) = ptx.load_reals(self.launch.place("units") + column // SHARED_UNIT * 4, 1)
            found.append([*ptx.load_words(start + i * (4 * OCTET), 2), unit])
        return found

    def load(self, base: Number, first: Number | int, count: int, multiple: int) -> Iterator[Fragment]:
        places = self.weights.row_places(base, first, count, multiple)
        for one, other in zip(places[::2], places[1::2], strict=True):
            yield [*PackedWeights.load_numbers(one), *PackedWeights.load_numbers(other)]

    def scales(self, base: Number, first: Number | int, count: int) -> Iterator[Scale]:
        half = (self.products.part < 2).where(word(0), self.launch.layout.width // 2)
        return self.weights.row_scales(base, first, count, [half])

    def none(self, steps: int) -> Sums:
        return [[real(0.0)]]

    def add(
        self, weights: Iterable[Fragment], operand: Sequence[Fragment], scales: Sequence[Scale], before: Sums
    ) -> Sums:
        ((total,),), each, sums = before, len(operand) // len(scales), [word(0)] * 4
        for i, (rows, (*digits, unit)) in enumerate(zip(weights, operand, strict=True)):
            sums = ptx.multiply_whole(rows, digits, sums)
            if (i + 1) % each == 0 or operand[i + 1][2] is not unit:
                low, high = ((self.products.part < 2).where(sums[k], sums[2 + k]) for k in (0, 1))
                both = fused(high.as_real("arith.sitofp"), real(BASE), low.as_real("arith.sitofp"))
                total, sums = fused(both, scales[i // each][0] * unit, total), [word(0)] * 4
        return [[total]]

    def whole(self, sums: Sums) -> Number:
        """A lane's columns are the first two digits or the last two."""
        factor = ((self.products.part & 1) == 0).where(real(1.0), BASE * BASE)
        return self.products.across_parts(sums[0][0] * factor)


def _digits(value: Number) -> Number:
    """A real as a whole number, each byte of which is a digit with a sign."""
    return (ptx.rounded(value, 32) + 0x00808080) ^ 0x00808080


def _words(late: Number, own: Sequence[Number], theirs: Sequence[Number]) -> list[Number]:
    """The first two digits' words of four numbers, or in a thread that has the later two of these the last two's."""
    kind = late.where(word(0x3726), 0x5140)
    first, second = (ptx.bytes_of(a, other, kind) for a, other in zip(own, theirs, strict=True))
    return [ptx.bytes_of(first, second, word(selector)) for selector in (0x5410, 0x7632)]


AT_ONCE = 8
"""Steps whose weights and other side are read together where they are not held."""


def operand_of(products: Products, name: str) -> RowOperand:
    """The residual stream as a product takes it, by the product's name in the layout."""
    weights = weights_of(products.launch, name)
    return (Int8Digits if products.launch.layout.as_digits(name) else RowOperand)(products, weights)


class RowProducts(RingProduct):
    """A product of the residual stream, which leaves sums for the finisher.  name: its own in the layout."""

    def __init__(self, products: Products, name: str, sharing: Sharing, sums: str) -> None:
        super().__init__(products, sharing, sums)
        self.operand = operand_of(products, name)

    def _multiply_held(self) -> None:
        operand, held, steps = self.operand, self.held, self.sharing.steps
        right = operand.operand(held.slice * steps, steps, steps)
        totals = operand.add(held.numbers[0], right, held.scales, operand.none(steps))
        self._leave(held.tiles[0], held.slice, held.works, totals)

    def _load(self) -> Held:
        launch, layout, operand, steps = self.launch, self.launch.layout, self.operand, self.sharing.steps
        tile, part, _ = self._own()
        slot, parity = launch.slot(self.chunk + tile)

        def load() -> Numbers:
            ptx.wait(launch.full(slot), parity)
            base, first = launch.start + slot * layout.chunk, part * steps
            return list(operand.load(base, first, steps, steps)), list(operand.scales(base, first, steps))

        read: list[Read] = [(slot, layout.arrivals // self.sharing.slices, None)]
        scales = operand.count_scales(steps), operand.rows
        return self.products.hold(self.sharing, part, [tile], load, read, steps // operand.together, scales)

    def _own(self) -> tuple[Number, Number, Number | None]:
        """A subgroup's tile, its slice of the depth, and whether it has a share."""
        number, works = self.products.share_out(self.sharing)
        return number // self.sharing.slices, number % self.sharing.slices, works

    def _walk(self) -> None:
        """Some chunks at a time.  Every subgroup waits for every chunk, so that it sees every phase of their
        barriers."""
        launch, layout, operand, sharing = self.launch, self.launch.layout, self.operand, self.sharing
        (tile, part, works), steps = self._own(), sharing.steps
        first = part * steps
        with turns(0, sharing.all // sharing.tiles) as turn:
            start = self.chunk + turn * sharing.tiles
            slots = [launch.slot(start + i) for i in range(sharing.tiles)]
            for slot, parity in slots:
                ptx.wait(launch.full(slot), parity)
            mine = launch.slot(start + tile)[0] if sharing.tiles > 1 else slots[0][0]
            base = launch.start + mine * layout.chunk
            scales = list(operand.scales(base, first, steps))
            totals = operand.none(steps)
            for begin in range(0, steps, AT_ONCE):
                end = min(begin + AT_ONCE, steps)
                some_of_it = (first + begin, end - begin, gcd(steps, AT_ONCE))
                numbers = list(operand.load(base, *some_of_it))
                own = scales[begin * len(scales) // steps : -(-end * len(scales) // steps)]
                right = operand.operand(*some_of_it)
                totals = operand.add(numbers, right, own, totals)
            for slot, _ in slots:
                self.products.free(slot)
            self._leave(turn * sharing.tiles + tile, part, works, totals)

    def _leave(self, tile: Number, part: Number, works: Number | None, totals: Sums) -> None:
        own = self.operand.whole(totals)
        row = part * (8 * self.sharing.all) + tile * 8 + self.products.group
        place = self.launch.place(self.sums) + row * 4
        when(both(self.products.part == 0, works), lambda: ptx.store_words(place, [own]))


class ColumnProducts(RingProduct):
    """A product that sums over what the cluster has at `source`, and leaves sums for the exchanger.  name: its own in
    the layout.  count: of its chunks."""

    def __init__(self, products: Products, name: str, sharing: Sharing, count: int, source: str, sums: str) -> None:
        super().__init__(products, sharing, sums)
        self.count, self.source, self.group, self.part = count, source, products.group, products.part
        self.weights = weights_of(products.launch, name)

    @property
    def packed(self) -> bool:
        """Whether its weights are whole numbers, of which BF16 takes long to make."""
        return isinstance(self.weights, ScaledWeights)

    def _multiply_held(self) -> None:
        held, steps = self.held, self.sharing.steps
        x = self.weights.sums(held.numbers[0], self._operand(held.slice * steps, steps), held.scales)
        row = held.slice * self.launch.layout.sum_columns + held.tiles[0] * 16 + self.group
        self._leave(row, x, held.works)

    def _load(self) -> Held:
        return self.products.load_columns(self.chunk, self.sharing, self.weights)

    def _walk(self) -> None:
        """A subgroup has some tiles of rows in all chunks."""
        launch, layout = self.launch, self.launch.layout
        tiles = layout.out_projection.all
        mine = [launch.subgroup + first for first in range(0, tiles, SUBGROUPS)]
        works = [None if SUBGROUPS * (i + 1) <= tiles else tile < tiles for i, tile in enumerate(mine)]

        def one(number: Number, *totals: Number) -> list[Number]:
            slot, parity = launch.slot(self.chunk + number)
            ptx.wait(launch.full(slot), parity)
            base = launch.start + slot * layout.chunk
            right = self._operand(number * (LINE_STEPS), LINE_STEPS)
            found: list[Number] = []
            for i, (tile, there) in enumerate(zip(mine, works, strict=True)):
                before = list(totals[4 * i : 4 * i + 4])
                multiply = partial(self._tile, base, tile, right, before)
                found += either(there, "ffff", multiply, partial(list, before))
            self.products.free(slot)
            return found

        totals = loop(0, self.count, [real(0.0)] * (4 * len(mine)), one)
        for i, (tile, there) in enumerate(zip(mine, works, strict=True)):
            self._leave(tile * 16 + self.group, totals[4 * i : 4 * i + 4], there)

    def _tile(self, base: Number, tile: Number, right: list[Fragment], totals: list[Number]) -> list[Number]:
        row, steps, weights = self.products.row_of(tile), len(right), self.weights
        numbers = [weights.load(weights.column_place(base, step, tile, row)) for step in range(steps)]
        each_, _ = weights.shared(steps, steps)
        scales = (s for step in range(0, steps, each_) for s in weights.column_scales(base, step, tile))
        return weights.sums(numbers, right, scales, totals, 1)

    def _operand(self, first: Number, count: int) -> list[Fragment]:
        start = self.launch.place(self.source) + self.part * PAIR + (self.group & 3) * 4 + first * (8 * PAIR)
        pairs = [start + step * (8 * PAIR) for step in range(count)]
        return [[ptx.load_words(pair + late, 1)[0] for late in (0, 4 * PAIR)] for pair in pairs]

    def _leave(self, row: Number, x: list[Number], works: Number | None) -> None:
        """Sums of the parts' columns, of a lane's two rows."""
        place = self.launch.place(self.sums) + row * 4
        first, second = (value + value.from_lane(1) for value in [x[0] + x[1], x[2] + x[3]])
        with given(both(self.part == 0, works)):
            ptx.store_words(place, [first])
            ptx.store_words(place + 32, [second])
