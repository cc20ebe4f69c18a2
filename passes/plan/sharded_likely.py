"""The most probable tokens of a sharded launch's draw, in a list that all blocks have.

As many blocks as top-k asks for have a token as probable as the least of their most probable ones, so that tokens below
that are not among the k most probable: the others are few.  Their bound is sought by halves, from what blocks have told
of their most probable tokens.  Each block leaves those of its tokens that reach it, and tells how many these are; then
each copies all of them to its own memory.  Where a block has more than fit, there is no list.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, each, either, greater, lesser, loop, real, when, word
from lispgpt.passes.plan.sharded_choice import value_of
from lispgpt.passes.plan.sharded_layout import LISTED, LISTED_OF_BLOCK
from lispgpt.passes.plan.sharded_races import Race, Races, across, beats, sum_across

FAR = 40.0
"""What is less probable than the most probable by so many powers of two is looked at last."""
HALVINGS = 7
"""Of the range in which the bound is sought: to a third of a power of two."""
AT_ONCE = 3
"""Tokens of a block that are copied together."""
ENTRY = 16
"""Bytes of an entry: a token's rank, its number, its weight and its time."""


class Likely:
    """tops: the largest logits of a lane's blocks."""

    def __init__(self, races: Races, tops: Sequence[Word]) -> None:
        self.races, self.launch, self.tops = races, races.launch, tops

    def gather(self, round_: Word, k: Word) -> list[Word]:
        """(the length of the list, or 0 where there is none; the next round)."""
        top = self.races.top
        floor = top - real(FAR) / self.races.scale

        def half(_: Word, low: Word, high: Word) -> list[Word]:
            middle = (low + high) * 0.5
            enough = self._reach(middle) >= k
            return [enough.where(middle, low), enough.where(high, middle)]

        low, _ = loop(0, HALVINGS, [floor, top], half)
        return either(self._reach(low) >= k, "rr", lambda: self._copied(low, round_), lambda: [word(0), round_])

    def _reach(self, bound: Word) -> Word:
        """How many blocks have a token that reaches it."""
        found = word(0)
        for top in self.tops:
            found = found + c.count_lanes(top >= bound)
        return found

    def _place(self, block: Word, number: Word) -> Word:
        lines = self.launch.layout.lines["listed"]
        return (block * LISTED_OF_BLOCK + number) * ENTRY + lines

    def _copied(self, bound: Word, round_: Word) -> list[Word]:
        launch, tag = self.launch, round_ + 1
        before = (word(1) << launch.lane) - 1

        def leave(x: Word, token: Word, pace: Word, count: Word) -> list[Word]:
            reaches = x >= bound
            lanes = c.lanes_where(reaches)
            number = count + c.bits_of(lanes & before)
            race = self.races.race(x, token, pace)

            def store() -> None:
                c.store_line(
                    c.pointer(launch.exchange, self._place(launch.block, number)), [race.rank, token, tag, race.time]
                )

            when(reaches & (number < LISTED_OF_BLOCK), store)
            return [count + c.bits_of(lanes)]

        (own,) = self.races.over([word(0)], leave)
        told = self.races.told(round_, [own, *[word(0)] * 5])
        counts = [inside.where(words[0], 0) for inside, words in told]
        most = counts[0]
        for count in counts[1:]:
            most = greater(most, count)
        most, starts, total = across(greater, most), list[Word](), word(0)
        for count in counts:
            first, sum_ = self._ahead(count)
            starts.append(total + first)
            total = total + sum_
        fits = (most <= LISTED_OF_BLOCK) & (total <= LISTED)

        def copy() -> list[Word]:
            each(0, most, partial(self._copy, counts, starts, round_), AT_ONCE)
            c.warp_barrier()
            return [total]

        (listed,) = either(fits, "r", copy, lambda: [word(0)])
        return [listed, tag]

    def _ahead(self, count: Word) -> tuple[Word, Word]:
        """(the sum of the counts of lanes ahead, that of all)."""
        first, all_ = word(0), count
        for distance in (1, 2, 4, 8, 16):
            other = all_.from_lane(distance)
            first = first + ((self.launch.lane & distance) != 0).where(other, 0)
            all_ = all_ + other
        return first, all_

    def _copy(self, counts: Sequence[Word], starts: Sequence[Word], round_: Word, first: Word) -> None:
        """Each block's tokens from the first-th on, where it has so many; instead of others what it has told, which is
        there."""
        launch, tag, pointers, rows = self.launch, round_ + 1, [], []
        for i, (count, start) in enumerate(zip(counts, starts, strict=True)):
            block = lesser(launch.lane + 32 * i, word(launch.layout.blocks - 1))
            for number in (first + more for more in range(AT_ONCE)):
                there = number < count
                place = there.where(self._place(block, number), self.races.lines(round_) + block * 32)
                pointers.append(c.pointer(launch.exchange, place))
                rows.append((there, start + number))
        lines = c.await_lines(pointers, lambda found: found[2] ^ tag)
        for (there, row), (rank, token, _, time) in zip(rows, lines, strict=True):
            weight = self.races.weight(value_of(rank))
            when(there, partial(c.store_words, launch.place("listed") + row * ENTRY, [rank, token, weight, time]))

    def above(self, rank: Word, token: Word, listed: Word) -> list[Word]:
        """How many of them are more probable than a token, their mass, and the winner among them."""

        def one(row: Word, count: Word, mass: Word, *best: Word) -> list[Word]:
            its, other, weight, time = c.load_words(self.launch.place("listed") + row * ENTRY, 4)
            more = beats(its, other, rank, token)
            race = Race(*best).joined(Race(more.where(time.bits(), -1.0), other, its))
            return [count + more.where(word(1), 0), mass + more.where(weight.bits(), 0.0), *race.words]

        inits = [word(0), real(0.0), *Race.none().words]
        count, mass, *best = loop(self.launch.lane, listed, inits, one, 32)
        return [sum_across(count), sum_across(mass), *Race(*best).across().words]

    def mass(self, listed: Word, k: Word) -> Word:
        """Of the k most probable ones."""
        start = self.launch.place("listed")

        def own(row: Word, mass: Word) -> list[Word]:
            rank, token, weight, _ = c.load_words(start + row * ENTRY, 4)

            def other(number: Word, count: Word) -> list[Word]:
                its, theirs = c.load_words(start + number * ENTRY, 2)
                return [count + beats(its, theirs, rank, token).where(word(1), 0)]

            (count,) = loop(0, listed, [word(0)], other)
            return [mass + (count < k).where(weight.bits(), 0.0)]

        return sum_across(loop(self.launch.lane, listed, [real(0.0)], own, 32)[0])
