"""What products of a clustered launch have in common: those of rows (row_products.py) and of columns
(column_products.py).

Subgroups have their weights in registers before the other side is there, where the layout holds a layer; otherwise they
walk through the ring's chunks when it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import either, when, word
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.sharing import SUBGROUPS, Sharing
from lispgpt.passes.decode_step.weights import Fragment, Scale
from lispgpt.passes.targets import ptx

PAIR = 16
"""Bytes of two neighbouring numbers of a cluster's operands: a word for each part, and a zero."""


@dataclass
class Loaded:
    """A subgroup's share of a product, with its weights' numbers and scales, which may be loaded while they are read.
    works: whether it has a share, where not all subgroups have."""

    tile: Number
    slice: Number
    works: Number | None
    numbers: Iterable[Fragment]
    scales: Sequence[Scale] = ()


Numbers = tuple[list[Fragment], list[Scale]]
"""What is loaded of weights: for each step or two, and for each that has other scales than those before."""


class Products:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.group, self.part = launch.lane // 4, launch.lane % 4

    def share_out(self, sharing: Sharing) -> tuple[Number, Number | None]:
        """(a subgroup's number among those that work, whether it does)."""
        if sharing.workers == SUBGROUPS:
            return self.launch.subgroup, None
        return self.launch.subgroup % sharing.workers, self.launch.subgroup < sharing.workers

    def release(self, slot: Number, count: int) -> None:
        self.launch.once_read(lambda: ptx.arrive(self.launch.empty(slot), count))

    def load_where(
        self, works: Number | None, fragments: int, scales: tuple[int, int], load: Callable[[], Numbers]
    ) -> Numbers:
        """What a subgroup that works loads: so many fragments, and so many scales, each of so many rows; who has no
        share of a chunk may not touch its slot either, as nobody waits for it to have done so."""
        if works is None:
            return load()
        count, rows = scales
        end = 4 * fragments

        def words() -> list[Number]:
            numbers, found = load()
            return [w for a in numbers for w in a] + [s.bits() for scale in found for s in scale]

        kinds = "r" * (end + count * rows)
        found = either(works, kinds, words, lambda: [word(0)] * len(kinds))
        reals = [w.bits() for w in found[end:]]
        return _in_parts(found[:end], 4), _in_parts(reals, rows)

    @staticmethod
    def across_parts(own: Number) -> Number:
        """The sum of a row's four lanes."""
        own = own + own.from_lane(1)
        return own + own.from_lane(2)

    def when_works(self, condition: Number, works: Number | None, body: Callable[[], None]) -> None:
        if works is not None:
            condition = condition & works
        when(condition, body)


class RingProduct(ABC):
    """A product whose weights come by way of the ring.  sums: the place where they are left."""

    def __init__(self, products: Products, sharing: Sharing, sums: str) -> None:
        self.products, self.sharing, self.sums, self.launch = products, sharing, sums, products.launch

    def prepare(self, chunk: Number) -> None:
        """chunk: the first one's number in the ring.  Load its weights and those behind it, where they are held."""
        self.chunk = chunk
        if self.launch.layout.whole:
            self.loaded = self._load()

    def multiply(self) -> None:
        """Multiply by the other side, which is there, and leave sums."""
        if self.launch.layout.whole:
            self._multiply_loaded()
        else:
            self._walk()

    @abstractmethod
    def _load(self) -> Loaded:
        """A subgroup's share of the weights."""

    @abstractmethod
    def _multiply_loaded(self) -> None:
        """Multiply what has been loaded."""

    @abstractmethod
    def _walk(self) -> None:
        """Multiply chunks as they come."""


def parts_of_pair(one: Number, other: Number) -> list[Number]:
    """The words of two neighbouring numbers of a cluster's operand."""
    return [*ptx.split(one, other), word(0)]


def _in_parts(words: list[Number], size: int) -> list[list[Number]]:
    return [words[i : i + size] for i in range(0, len(words), size)]
