"""Steps that come again and again: which stretches of a list are rounds of one loop, and numbers told by the round.

A model's layers make the same launches one layer after another, on other parts of the same buffers.  A kernel that runs
them all has the code of one layer, and a loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lispgpt.ir import build as b
from lispgpt.ir.build import Index


@dataclass(frozen=True)
class Stretch:
    """`count` items of a list from `first` on; item i is like item i - period.  The last round may be cut short."""

    first: int
    count: int
    period: int

    @property
    def rounds(self) -> int:
        return -(-self.count // self.period)

    @property
    def last(self) -> int:
        """How many items the last round has."""
        return self.count - (self.rounds - 1) * self.period

    def items(self, position: int) -> list[int]:
        """The numbers of the items at one position of each round that has it."""
        return list(range(self.first + position, self.first + self.count, self.period))


def stretches(items: Sequence[Hashable], start: int = 0) -> list[Stretch]:
    """The list as stretches, one after the other: those that save most first, single rounds between them."""
    best = Stretch(0, len(items), len(items))
    saved = 0
    for period in range(1, len(items) // 2 + 1):
        alike = 0
        for i in range(len(items) - period - 1, -1, -1):
            alike = alike + 1 if items[i] == items[i + period] else 0
            if alike > saved:
                best, saved = Stretch(i, alike + period, period), alike
    if not items:
        return []
    if not saved:
        return [Stretch(start, best.count, best.period)]
    end = best.first + best.count
    before, after = stretches(items[: best.first], start), stretches(items[end:], start + end)
    return [*before, Stretch(start + best.first, best.count, best.period), *after]


def by_round(values: Sequence[int], number: Index) -> Index:
    """values[number], without memory: what rises evenly or takes turns is reckoned, the rest chosen."""
    start = next(i for i in range(len(values)) if _formula(values, i) is not None)
    formula = _formula(values, start)
    assert formula is not None
    first, rise, turn = formula
    last = b.add(b.add(first, b.mul(number, rise)), b.mul(b.mod(number, 2), turn))
    if start == 0:
        return last
    if isinstance(number, int):
        return last if number >= start else by_round(values[:start], number)
    return b.select(b.less(number, start), b.as_value(by_round(values[:start], number)), b.as_value(last))


def _formula(values: Sequence[int], start: int) -> tuple[int, int, int] | None:
    """(a, r, t) so that value i from `start` on is a + r i + t (i mod 2); None where there are none."""
    tail = values[start:]
    if len({after - before for before, after in pairwise(tail)}) <= 1:
        rise = tail[1] - tail[0] if len(tail) > 1 else 0
        return tail[0] - start * rise, rise, 0
    if all(x == y for x, y in zip(tail, tail[2:], strict=False)):
        even, odd = (tail[0], tail[1]) if start % 2 == 0 else (tail[1], tail[0])
        return even, 0, odd - even
    return None
