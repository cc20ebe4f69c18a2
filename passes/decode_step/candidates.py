"""The most probable tokens of a clustered launch's draw: of a subgroup, of a block, and of all blocks.

Once the lm head is multiplied each subgroup takes some of the block's logits: who wins the race among these, their
mass, and the most probable ones.  The exchanger makes the block's of them, and publishes to all blocks its race and its
most probable tokens, a line each, with a rank that no other token of the block exceeds.  The subgroups that multiply
bring all blocks' lines to memory.  Tokens above the largest of those ranks are all among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import repeat

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import added, greater, lesser, real, when, word
from lispgpt.passes.decode_step.largest_logit import LOWEST, NOBODY, rank_of, value_of
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import GATHERED, RACES, RESIDUAL_STREAM, TWO_ROLES
from lispgpt.passes.decode_step.races import Race, Races, beats, largest, smallest, sum_across
from lispgpt.passes.decode_step.sharing import SUBGROUPS, THREADS
from lispgpt.passes.targets import ptx

OF_SUBGROUP = 2
"""Of a subgroup's tokens, that may be among the block's most probable."""
HEAT, BEST, ENTRY, LINE = 16, 32, 12, 16
"""Bytes of a subgroup's race, of its most probable tokens, of a token that is gathered, and of a line that blocks
publish."""
OF_RACE = 2
"""Lines that a block publishes of its race."""
PAUSE = 900
"""Clocks until lines are first asked for, in whose way who asks too early is."""


def lines_of(launch: Launch, round_: Number) -> Number:
    """Where blocks publish a round's lines: bytes from the start of what is exchanged.  Rounds take turns: who
    publishes one has gathered the one ahead from all, who had then read the one ahead of that."""
    layout = launch.layout
    return (round_ & 1) * (layout.published_of_race * layout.blocks) + layout.lines["races"]


class Heats:
    """By the subgroups that multiply."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    def emit(self) -> None:
        launch = self.launch
        ptx.wait_at(RACES, TWO_ROLES)
        round_, scale = ptx.load_words(launch.place("round"), 2)
        races = Races(launch, scale.bits())
        rows = [
            (launch.lane + i * 32) * SUBGROUPS + launch.subgroup
            for i in range(-(-launch.layout.lm_head_share.rows // THREADS))
        ]
        own = [races.take(row) for row in rows]
        ranks = [rank_of(x) for x, *_ in own]
        top = largest(reduce(greater, ranks))
        races.begin_at(top)
        race = reduce(Race.joined, (races.race(x, token, pace) for x, token, pace in own)).across()
        mass = sum_across(reduce(Number.__add__, (races.weight(x) for x, *_ in own)))
        best = self._best(ranks, rows, top)
        heat, place = launch.place("heats") + launch.subgroup * HEAT, launch.place("tops") + launch.subgroup * BEST

        def store() -> None:
            ptx.store_words(heat, [race.time, race.token, race.rank, mass])
            for i in range(0, len(best), 2):
                ptx.store_words(place + 4 * i, best[i : i + 2])

        when(launch.lane == 0, store)
        ptx.arrive_at(RESIDUAL_STREAM, TWO_ROLES)
        self._hear(round_)

    @staticmethod
    def _best(ranks: Sequence[Number], rows: Sequence[Number], top: Number) -> list[Number]:
        """The subgroup's most probable: each one's rank and row, and the next one's rank."""
        found = [top]
        for _ in range(OF_SUBGROUP):
            those = [(rank == found[-1]).where(row, NOBODY) for rank, row in zip(ranks, rows, strict=True)]
            first = smallest(reduce(lesser, those))
            ranks = [(row == first).where(LOWEST - 1, rank) for rank, row in zip(ranks, rows, strict=True)]
            found += [first, largest(reduce(greater, ranks))]
        return [*found, word(0)]

    def _hear(self, round_: Number) -> None:
        """Bring all blocks' most probable tokens to memory."""
        launch, layout, thread = self.launch, self.launch.layout, self.launch.subgroup * 32 + self.launch.lane
        began, start = ptx.clock(), lines_of(launch, round_)
        count = layout.entries * layout.blocks
        numbers = [lesser(thread + first, word(count - 1)) for first in range(0, count, THREADS)]
        pointers = []
        for number in numbers:
            place = number // layout.entries * layout.published_of_race + number % layout.entries * LINE
            pointers.append(ptx.pointer(launch.exchange, start + (place + OF_RACE * LINE)))
        ptx.pause_until(began, PAUSE)
        lines = ptx.await_lines(pointers, lambda line: line[2] ^ (round_ + 1))
        ptx.subgroup_barrier()
        for number, (rank, token, _, pace) in zip(numbers, lines, strict=True):
            for i, one in enumerate((rank, token, pace)):
                ptx.store_words(launch.place("gathered") + number * ENTRY + 4 * i, [one])
        ptx.arrive_at(GATHERED, TWO_ROLES)


def publish(races: Races, round_: Number) -> None:
    """By the exchanger: what the block's subgroups have found, to all blocks."""
    launch, layout = races.launch, races.launch.layout
    lane, inside = launch.lane, launch.lane < SUBGROUPS
    subgroup = inside.where(lane, 0)
    time, token, rank, mass = ptx.load_words(launch.place("heats") + subgroup * HEAT, 4)
    (top,) = ptx.load_words(launch.place("tops") + subgroup * BEST, 1)
    (next_,) = ptx.load_words(launch.place("tops") + subgroup * BEST + OF_SUBGROUP * 8, 1)
    high = largest(top)
    races.begin_at(high)
    share = inside.where(races.weight(value_of(top)), 0.0)
    won = Race(inside.where(share * time.bits(), -1.0), token, rank).across()
    all_ = sum_across(share * mass.bits())
    one = lesser(lane, word(OF_SUBGROUP * SUBGROUPS - 1))
    own, row = ptx.load_words(launch.place("tops") + one // OF_SUBGROUP * BEST + one % OF_SUBGROUP * 8, 2)
    all_tops = [ptx.load_words(launch.place("tops") + number * BEST, 4) for number in range(SUBGROUPS)]
    pairs = [words[i : i + 2] for words in all_tops for i in range(0, 2 * OF_SUBGROUP, 2)]
    before = added([beats(pair[0], pair[1], own, row).where(word(1), 0) for pair in pairs])
    published = (lane < OF_SUBGROUP * SUBGROUPS) & (before < layout.entries)
    left = ((lane < OF_SUBGROUP * SUBGROUPS) & (before >= layout.entries)).where(own, LOWEST)
    bound = largest(greater(left, inside.where(next_, LOWEST)))
    start, tag = lines_of(launch, round_) + launch.block * layout.published_of_race, round_ + 1
    _, its, pace = races.take(row)

    def publish_token() -> None:
        line = [own, (own > LOWEST).where(its, NOBODY), tag, pace]
        ptx.store_line(ptx.pointer(launch.exchange, start + before * LINE + OF_RACE * LINE), line)

    def publish_race() -> None:
        for i, line in enumerate(([won.time, won.token, tag, won.rank], [all_, bound, tag, high])):
            ptx.store_line(ptx.pointer(launch.exchange, start + i * LINE), line)

    when(published, publish_token)
    when(lane == 0, publish_race)


class Candidates:
    """By the exchanger: all blocks' race, and their most probable tokens.

    winner, total: of the race of all, and all tokens' mass.  high: the most probable token's rank.  bound: no token
    that is not gathered is more probable than that."""

    def __init__(self, races: Races, round_: Number) -> None:
        self.races, self.launch = races, races.launch
        self.count = self.launch.layout.entries * self.launch.layout.blocks
        pitch = self.launch.layout.published_of_race
        published, high = races.gathered(lines_of(self.launch, round_), pitch, OF_RACE, round_ + 1), word(LOWEST)
        for inside, (*_, top) in published:
            high = greater(high, inside.where(top, LOWEST))
        self.high, bound = largest(high), word(LOWEST)
        races.begin_at(self.high)
        mass, winner = real(0.0), Race.none()
        for inside, (time, token, rank, sum_, its, top) in published:
            share = inside.where(races.weight(value_of(top)), 0.0)
            mass, bound = mass + share * sum_.bits(), greater(bound, inside.where(its, LOWEST))
            winner = winner.joined(Race(inside.where(share * time.bits(), -1.0), token, rank))
        self.total, self.winner, self.bound = sum_across(mass), winner.across(), largest(bound)
        ptx.wait_at(GATHERED, TWO_ROLES)

    def take(self) -> tuple[Number, Number, Race]:
        """Take a lane's share of the tokens that are gathered; returns the most probable one, how many are above the
        bound, and who wins among these."""
        numbers = [self.launch.lane + first for first in range(0, self.count, 32)]
        there = [number < self.count for number in numbers]
        places = [self.launch.place("gathered") + n * ENTRY for n in map(Number.where, there, numbers, repeat(0))]
        words = [[ptx.load_words(place + 4 * i, 1)[0] for i in range(3)] for place in places]
        ranks = [inside.where(rank, LOWEST) for inside, (rank, *_) in zip(there, words, strict=True)]
        self.weights = [self.races.weight(value_of(rank)) for rank in ranks]
        times = [weight * pace.bits() for weight, (*_, pace) in zip(self.weights, words, strict=True)]
        self.clocks = [Race(time, token, rank) for time, (_, token, _), rank in zip(times, words, ranks, strict=True)]
        first = reduce(lesser, [(one.rank == self.high).where(one.token, NOBODY) for one in self.clocks])
        above = [one.rank > self.bound for one in self.clocks]
        return smallest(first), _count(above), self._winner(above)

    def above(self, rank: Number, token: Number) -> list[Number]:
        """How many are more probable than one that is above the bound, their mass, and the winner among them."""
        more = [beats(one.rank, one.token, rank, token) for one in self.clocks]
        return [_count(more), self._mass(more), *self._winner(more).words]

    def reaching(self, pivots: Sequence[Number]) -> list[Number]:
        """How many reach each of some ranks above the bound, and the mass of these."""
        reach = [[one.rank >= pivot for one in self.clocks] for pivot in pivots]
        return [*map(_count, reach), *map(self._mass, reach)]

    def _mass(self, those: Sequence[Number]) -> Number:
        return sum_across(added([that.where(weight, 0.0) for that, weight in zip(those, self.weights, strict=True)]))

    def _winner(self, those: Sequence[Number]) -> Race:
        races = [Race(that.where(one.time, -1.0), *one.words[1:]) for that, one in zip(those, self.clocks, strict=True)]
        while len(races) > 1:
            pairs = zip(races[::2], races[1::2], strict=False)
            races = [one.joined(other) for one, other in pairs] + races[len(races) & -2 :]
        return races[0].across()


def _count(those: Sequence[Number]) -> Number:
    return sum_across(added([that.where(word(1), 0) for that in those]))
