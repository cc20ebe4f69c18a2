"""The most probable tokens of a sharded launch's draw, in a list that all blocks have.

Each block leaves its most probable tokens in order where others can read them, and tells, with what it tells of its
races, how probable the first one is and those behind the first 1, 2, 4, and so on.  So every block knows how many
tokens reach a bound at least.  The bound that k of them reach is sought by halves: tokens below it are not among the k
most probable.  Of every block, each copies the first 1, 2, 4, or so on, behind which none reaches the bound, to its
own memory.  Where a block has not left as many, or all together are more than fit, there is no list.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, each, either, greater, lesser, loop, real, when, word
from lispgpt.passes.plan.sharded_choice import LOWEST, NOBODY, rank_of, value_of
from lispgpt.passes.plan.sharded_layout import LISTED, LISTED_OF_BLOCK
from lispgpt.passes.plan.sharded_races import Race, Races, beats, largest, smallest, sum_across

FAR = 40.0
"""What is less probable than the most probable by so many powers of two is looked at last."""
HALVINGS = 6
"""Of the range in which the bound is sought."""
STEPS = (1, 2, 4, 8, 16, LISTED_OF_BLOCK)
"""Tokens of a block behind which the next one's rank is told."""
SURE = (1, 2, 3, 5)
"""Tokens of a block that reach a bound for sure where the first 1, 2, 3, 4 of the ranks do that it tells."""
HELD = 64
"""Tokens of a block that are put in order, at most."""
LANES = 18
"""A block's tokens are put in order that are at least as probable as the best ones of so many lanes: of some hundred
tokens these are about 26, and hardly ever more than are held."""
TOGETHER = 8
"""Tokens that a lane compares with its own together."""
AT_ONCE = 4
"""Tokens that a lane copies together."""
ENTRY = 16
"""Bytes of an entry: a token's rank, its number, its weight and its time."""


class Likely:
    """Of one draw.  few: whether top-k leaves no more tokens than fit the list."""

    def __init__(self, races: Races) -> None:
        self.races, self.launch = races, races.launch
        self.few = races.k <= LISTED
        start = races.launch.place("listed")
        self.ranks, self.tokens, self.paces, self.sorted = (start + 4 * HELD * i for i in range(4))

    # ---- what a block leaves and tells

    def floor(self, own: Word) -> Word:
        """The rank from which on tokens are held, to be put in order.  own: the largest of a lane's."""

        def found() -> list[Word]:
            reach = word(1)
            for distance in range(1, 32):
                reach = reach + (own.from_lane(distance) >= own).where(word(1), 0)
            return [greater(largest((reach >= LANES).where(own, LOWEST)), word(LOWEST + 1))]

        return either(self.few, "r", found, lambda: [word(NOBODY)])[0]

    def hold(self, floor: Word, rank: Word, token: Word, pace: Word, count: Word) -> Word:
        """How many reach the floor with this one of each lane."""
        reaches = rank >= floor
        lanes = c.lanes_where(reaches)
        number = count + c.bits_of(lanes & ((word(1) << self.launch.lane) - 1))

        def store() -> None:
            for start, value in ((self.ranks, rank), (self.tokens, token), (self.paces, pace)):
                c.store_words(start + number * 4, [value])

        when(reaches & (number < HELD), store)
        return count + c.bits_of(lanes)

    def leave(self, own: Word, floor: Word, reached: Word, round_: Word) -> list[Word]:
        """Put those that are held in order; where others read them go as many as a block leaves, and behind the last
        one what is no token.  Returns the ranks behind STEPS; where tokens that are not held may be more probable, a
        rank that these do not exceed.  own: the block's largest.  reached: how many reach the floor.

        What was left two rounds before, in the same place, nobody reads any more: all have copied it before they told
        anything in the round between, and this block has heard that from all.
        """

        def put() -> list[Word]:
            count = lesser(reached, word(HELD))
            for number in (self.launch.lane + 32 * i for i in range(HELD // 32)):
                for start in (self.ranks, self.sorted):
                    when(number >= count, partial(c.store_words, start + number * 4, [word(LOWEST)]))
            c.warp_barrier()
            each(0, (count > 32).where(word(HELD), 32), partial(self._leave, count, round_), 32)
            c.warp_barrier()
            least = (reached > HELD).where(own, floor - 1)
            return [greater(c.load_words(self.sorted + 4 * step, 1)[0], least) for step in STEPS]

        return either(self.few, "r" * len(STEPS), put, lambda: [word(LOWEST)] * len(STEPS))

    def _leave(self, count: Word, round_: Word, first: Word) -> None:
        """A lane's of 32 that are held.  Of equals the one that is held first comes first."""
        launch, number = self.launch, first + self.launch.lane
        (rank,) = c.load_words(self.ranks + number * 4, 1)

        def ahead(start: Word, found: Word) -> list[Word]:
            places = [self.ranks + (start + i) * 4 for i in range(0, TOGETHER, 4)]
            for i, other in enumerate(other for place in places for other in c.load_words(place, 4)):
                found = found + (other > (start + i < number).where(rank - 1, rank)).where(word(1), 0)
            return [found]

        (place,) = loop(0, count, [word(0)], ahead, TOGETHER)
        there = number < count
        place = there.where(place, number)
        when(there, lambda: c.store_words(self.sorted + place * 4, [rank]))
        token, pace = (c.load_words(start + number * 4, 1)[0] for start in (self.tokens, self.paces))

        def store() -> None:
            line = [rank, there.where(token, NOBODY), round_ + 1, there.where(pace, 0)]
            c.store_line(c.pointer(launch.exchange, self._line(round_, launch.block, place)), line)

        when(place < LISTED_OF_BLOCK, store)

    def _line(self, round_: Word, block: Word, place: Word) -> Word:
        """Where what a block leaves in a round lies."""
        layout = self.launch.layout
        number = ((round_ & 1) * layout.blocks + block) * LISTED_OF_BLOCK + place
        return number * ENTRY + layout.lines["listed"]

    # ---- what all blocks know

    def gather(self, told: Sequence[Sequence[Word]], round_: Word) -> Word:
        """The length of the list, or 0 where there is none.  told: of each of a lane's blocks, its first token's rank
        and those behind STEPS."""
        return either(self.few, "r", lambda: [self._gather(told, self.races.k, round_)], lambda: [word(0)])[0]

    def _gather(self, told: Sequence[Sequence[Word]], k: Word, round_: Word) -> Word:
        high = self.races.top
        low = high - real(FAR) / self.races.scale
        low = (k <= SURE[-1] * self.launch.layout.blocks).where(greater(low, self._shared(told, k)), low)

        def half(_: Word, low: Word, high: Word) -> list[Word]:
            middle = (low + high) * 0.5
            enough = self._reach(told, rank_of(middle)) >= k
            return [enough.where(middle, low), enough.where(high, middle)]

        low, _ = loop(0, HALVINGS, [low, high], half)
        bound = rank_of(low)
        counts = [self._count(ranks, bound) for ranks in told]
        own = reduce(Word.__add__, counts)
        total = sum_across(own)
        found = (self._reach(told, bound) >= k) & (total <= LISTED)
        return either(found, "r", lambda: [self._copied(counts, own, total, round_)], lambda: [word(0)])[0]

    def _shared(self, told: Sequence[Sequence[Word]], k: Word) -> Word:
        """What so many tokens of each block reach, the fewest that are k together."""
        blocks, found = self.launch.layout.blocks, word(NOBODY)
        for i, ranks in enumerate(told):
            rank = ranks[len(SURE) - 1]
            for sure, other in reversed(list(zip(SURE[:-1], ranks[: len(SURE) - 1], strict=True))):
                rank = (k <= sure * blocks).where(other, rank)
            found = lesser(found, (self.launch.lane + 32 * i < blocks).where(rank, NOBODY))
        return value_of(smallest(found))

    def _reach(self, told: Sequence[Sequence[Word]], bound: Word) -> Word:
        """How many tokens reach a bound at least.  A rank that stands for what a block has not held counts as a
        token's: where that reaches the bound there is no list."""
        found = word(0)
        for ranks in told:
            for less, sure, rank in zip((0, *SURE), SURE, ranks, strict=False):
                found = found + (rank >= bound).where(word(sure - less), 0)
        return sum_across(found)

    @staticmethod
    def _count(ranks: Sequence[Word], bound: Word) -> Word:
        """Of a block's tokens, so many behind which none reaches a bound; more than fit where that is not known."""
        first, *others = ranks
        count = word(LISTED + 1)
        for step, rank in reversed(list(zip(STEPS, others, strict=True))):
            count = (rank < bound).where(word(step), count)
        return (first < bound).where(word(0), count)

    def _copied(self, counts: Sequence[Word], own: Word, total: Word, round_: Word) -> Word:
        """The list's length, once it is there.  own: the sum of a lane's counts."""
        launch, start = self.launch, self._ahead(own)
        for i, count in enumerate(counts):
            line = self._line(round_, launch.lane + 32 * i, word(0))

            def name(number: Word, start: Word = start, line: Word = line) -> None:
                c.store_words(launch.place("listed") + (start + number) * ENTRY, [line + number * ENTRY])

            each(0, count, name)
            start = start + count
        c.warp_barrier()
        each(0, total, partial(self._copy, total, round_), 32 * AT_ONCE)
        c.warp_barrier()
        return total

    def _ahead(self, count: Word) -> Word:
        """The sum of the counts of lanes ahead."""
        first, all_ = word(0), count
        for distance in (1, 2, 4, 8, 16):
            other = all_.from_lane(distance)
            first = first + ((self.launch.lane & distance) != 0).where(other, 0)
            all_ = all_ + other
        return first

    def _copy(self, total: Word, round_: Word, first: Word) -> None:
        """Entries of the list from the first-th on, in place of where they are to be read; past the last one, the first
        of these again."""
        launch, rows = self.launch, []
        for i in range(AT_ONCE):
            row = first + launch.lane + 32 * i
            there = row < total
            place = launch.place("listed") + there.where(row, first) * ENTRY
            rows.append((there, place, c.pointer(launch.exchange, c.load_words(place, 1)[0])))
        c.warp_barrier()
        lines = c.await_lines([pointer for *_, pointer in rows], lambda found: found[2] ^ (round_ + 1))
        for (there, place, _), (rank, token, _, pace) in zip(rows, lines, strict=True):
            weight = self.races.weight(value_of(rank))
            when(there, partial(c.store_words, place, [rank, token, weight, weight * pace.bits()]))

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
