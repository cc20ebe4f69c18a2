"""A block's products: whose share of them a subgroup has, and weights that wait in its registers.

Subgroups have their weights in registers before the other side is there, where the layout holds a layer; otherwise they
walk through the ring's chunks when it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import either, if_there, lesser, word
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import LINE
from lispgpt.passes.decode_step.sharing import SUBGROUPS, Sharing
from lispgpt.passes.decode_step.weights import Fragment, Scale, Weights
from lispgpt.passes.targets import ptx

PAIR = 16
"""Bytes of two neighbouring numbers of a cluster's operands: a word for each part, and a zero."""
LINE_STEPS = LINE // 16
Numbers = tuple[list[Fragment], list[Scale]]
"""What is loaded of weights: for each step or two, and for each that has other scales than those before."""
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
        both = [(slot, n, both_of(works, there)) for slot, n, there in read]
        return Held(sharing, part, tiles, works, _in_parts(numbers, fragments), found, both)

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

        def arrive() -> None:
            for slot, count, there in (one for mine in held for one in mine.read):
                if_there(there, partial(ptx.arrive, self.launch.empty(slot), count))

        self.launch.once_read(arrive)

    def free(self, slot: Number) -> None:
        """Let what comes next take the place of a slot that a subgroup has read, as one of all."""
        self.launch.once_read(lambda: ptx.arrive(self.launch.empty(slot), 1))

    @staticmethod
    def across_parts(own: Number) -> Number:
        """The sum of a row's four lanes."""
        own = own + own.from_lane(1)
        return own + own.from_lane(2)


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


def both_of(one: Number | None, other: Number | None) -> Number | None:
    """Whether both hold; None: one that always does."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _in_parts(found: list[Any], size: int) -> list[list[Any]]:
    return [found[i : i + size] for i in range(0, len(found), size)]
