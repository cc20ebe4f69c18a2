"""Products of a sharded launch with several texts: each of a number's three parts is an instruction, its columns texts.

Weights are read once for all texts.  In a product of rows an instruction's columns are up to four texts along both
halves of the depth, or up to eight along one of them, so that each half has an instruction; either way a row's sum is
in rows 0 to 7 along the first half and in rows 8 to 15 along the second.
"""

from __future__ import annotations

from functools import partial

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, lesser, real, word
from lispgpt.passes.plan.sharded_columns import ColumnProducts
from lispgpt.passes.plan.sharded_launch import Launch
from lispgpt.passes.plan.sharded_operands import PARTS, QUAD, part_bytes, step_bytes
from lispgpt.passes.plan.sharded_products import Fragments, Products

TOGETHER = 2
"""Steps whose weights and other sides are read together."""
ACROSS = 4
"""Texts whose columns along both halves of the depth an instruction has room for."""


def products_of(launch: Launch) -> Products:
    return Products(launch) if launch.layout.texts == 1 else TextProducts(launch)


def columns_of(products: Products) -> ColumnProducts:
    return ColumnProducts(products) if products.launch.layout.texts == 1 else TextColumns(products)


class TextProducts(Products):
    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self.texts = launch.layout.texts
        self.halves = 1 if self.texts <= ACROSS else 2

    def column(self, group: Word) -> Word:
        """Bytes of a lane's column from an instruction's first; columns without a text are another's again."""
        return lesser(group, word(self.texts - 1)) * QUAD + self.part * 8

    def zeros(self) -> list[Word]:
        return [real(0.0)] * (4 * PARTS * self.halves)

    def _sides(self, first: Word | int, count: int) -> list[Fragments]:
        """For each step a fragment for each part, or for each half and part."""
        steps = self.launch.layout.width // 32
        group = self.group if self.halves == 2 else self.group & 3
        start = self.launch.place("x") + self.column(group) + first * step_bytes(self.texts)
        if self.halves == 1:
            start = start + (self.group // 4) * (steps * step_bytes(self.texts))
        offsets = [
            half * steps * step_bytes(self.texts) + part * part_bytes(self.texts)
            for half in range(self.halves)
            for part in range(PARTS)
        ]
        return [[c.load_words(start + (step_bytes(self.texts) * i + o), 2) for o in offsets] for i in range(count)]

    def _stream_sums(self, weights: Fragments, first: Word, totals: list[Word]) -> list[Word]:
        for at in range(0, len(weights), TOGETHER):
            now = weights[at : at + TOGETHER]
            for a, sides in zip(now, self._sides(first + at, len(now)), strict=True):
                totals = _multiplied(a, sides, totals)
        return totals

    def head_sums(self, places: list[Word], right: Fragments | None) -> list[Word]:
        totals = self.zeros()
        for at in range(0, len(places), TOGETHER):
            weights = [c.load_matrices(place) for place in places[at : at + TOGETHER]]
            for a, sides in zip(weights, self._sides(at, len(weights)), strict=True):
                totals = _multiplied(a, sides, totals)
        return totals

    def head_totals(self, sums: list[Word]) -> list[Word]:
        return sums

    def results(self, totals: list[Word]) -> list[tuple[Word | int, Word]]:
        sums = _of_parts(totals)
        if self.halves == 2:
            return [(self.part * 2 + i, sums[i] + sums[6 + i]) for i in (0, 1)]
        own = [(self.part < 2).where(sums[i], sums[2 + i]) for i in (0, 1)]
        return [(self.part * 2 + i, value + value.from_lane(2)) for i, value in enumerate(own)]

    def leaves(self, text: Word | int) -> Word:
        return word(text) < self.texts


class TextColumns(ColumnProducts):
    products: TextProducts

    @property
    def words(self) -> int:
        return 4 * PARTS

    def _operand(self, source: str, first: Word, count: int) -> Fragments:
        texts = self.launch.layout.texts
        start = self.launch.place(source) + self.products.column(self.group) + first * step_bytes(texts)
        step, part = step_bytes(texts), part_bytes(texts)
        return [[w for i in range(PARTS) for w in c.load_words(start + (step * n + part * i), 2)] for n in range(count)]

    def _step(self, a: list[Word], right: list[Word], totals: list[Word]) -> list[Word]:
        return _multiplied(a, [right[2 * i : 2 * i + 2] for i in range(PARTS)], totals)

    def _leave(self, place: Word, x: list[Word], works: Word | None) -> None:
        layout = self.launch.layout
        sums = _of_parts(x)
        for i in (0, 1):
            text = self.part * 2 + i
            to = place + text * (4 * layout.sum_columns)
            store = partial(self._store, to, sums[i], sums[2 + i])
            self.products.when_works(text < layout.texts, works, store)

    @staticmethod
    def _store(to: Word, first: Word, second: Word) -> None:
        c.store_words(to, [first])
        c.store_words(to + 32, [second])


def _multiplied(a: list[Word], sides: Fragments, totals: list[Word]) -> list[Word]:
    """Each side's own sums."""
    return [w for i, side in enumerate(sides) for w in c.multiply(a, side, totals[4 * i : 4 * i + 4])]


def _of_parts(totals: list[Word]) -> list[Word]:
    """Four sums, of all parts, for each half."""
    found = []
    for start in range(0, len(totals), 4 * PARTS):
        first, second, third = (totals[start + 4 * i : start + 4 * i + 4] for i in range(PARTS))
        found += [x + (y + z) for x, y, z in zip(first, second, third, strict=True)]
    return found
