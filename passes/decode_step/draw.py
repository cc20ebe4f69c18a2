"""The draw of a token in a clustered launch: the rule of lib/sampling.lisp, by exchangers, each of a block's logits.

Clocks are made while the lm head is multiplied.  Once it is, each subgroup takes some of the block's logits: who wins
the race among these, their mass, and the most probable ones.  The exchanger makes the block's of them, and publishes to
all blocks its race and its most probable tokens, a line each, with a rank that no other token of the block exceeds. The
subgroups that multiply bring all blocks' lines to memory.  Tokens above the largest of those ranks are all among them.

So all know the winner of all.  Whether it is among the most probable ones that top-k, top-p and min-p leave, and who is
next where it is not, is found among those tokens, as far as these are all that are as probable; where they are not, a
round of publishing says how many tokens, of which mass, are more probable than the winner, and who wins among those.
The mass of a top-k is only sought where top-p cuts, too, and only until it is known on which side of top-p's share of
it the winner lies.  Every exchanger adds up the same numbers in the same order, so that all come to the same token.

Exponential clocks of tokens are those of lib/chunks.lisp bit for bit: of Philox4x32-10 ("Parallel random numbers: as
easy as 1, 2, 3", Salmon et al. 2011), by the key of a seed and a counter of token, draw and stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import repeat
from typing import NamedTuple

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.threads import (
    added,
    again,
    chosen,
    either,
    fused,
    given,
    greater,
    lesser,
    loop,
    real,
    turns,
    when,
    word,
)
from lispgpt.passes.decode_step.largest_logit import (
    LOWEST,
    NOBODY,
    gathered,
    is_number,
    publish_lines,
    rank_of,
    value_of,
)
from lispgpt.passes.decode_step.launch import Launch, Role, over_lanes
from lispgpt.passes.decode_step.layout import GATHERED, PUBLISHED, RACES, RESIDUAL_STREAM, SUBGROUPS, THREADS, TWO_ROLES
from lispgpt.passes.kernels.expand import exp2
from lispgpt.passes.targets import ptx

FACTORS, KEYS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
ROUNDS, SERIES = 10, (9, 7, 5, 3, 1)


def philox(counter: Sequence[Number], key: Sequence[Number]) -> list[Number]:
    """Four words of random bits, for a counter of four words and a key of two."""
    a, c, d, e = counter
    k, other = key
    for _ in range(ROUNDS):
        (low, high), (low_d, high_d) = _product(a, FACTORS[0]), _product(d, FACTORS[1])
        a, c, d, e = high_d ^ c ^ k, low_d, high ^ e ^ other, low
        k, other = k + _signed(KEYS[0]), other + _signed(KEYS[1])
    return [a, c, d, e]


def _product(a: Number, factor: int) -> tuple[Number, Number]:
    """(lower, upper word) of a product without signs."""
    op = create_op("arith.mului_extended", [a.value, word(_signed(factor)).value], [b.i32()] * 2)
    return Number(op.results[0]), Number(op.results[1])


def _signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


def exponential(bits: Number) -> Number:
    """-ln(1 - u) for u = (bits + 1/2) / 2^32, to a few units in the last place."""
    number = Number(b.emit("arith.uitofp", [bits.value], [b.f32()]))
    u = (number + 0.5) * 2.0**-32
    rest = greater(1.0 - u, real(2.0**-33)).bits()
    n = (rest - 0x3F3504F3).signed_shift(23)
    t = (n == 0).where(0.0 - u, (rest - (n << 23)).bits() - 1.0)
    s = t / (t + 2.0)
    z = s * s
    series = real(1.0 / SERIES[0])
    for odd in SERIES[1:]:
        series = fused(series, z, real(1.0 / odd))
    whole = Number(b.emit("arith.sitofp", [n.value], [b.f32()]))
    return 0.0 - fused(whole, real(0.6931471805599453), s * 2.0 * series)


EACH = 4
"""Neighbours that share one number of the generator."""
AT_ONCE = 2
"""Of such neighbours, those that a lane loads together."""


class Race(NamedTuple):
    """The sooner a clock rings, the larger `time`; the token, of equals the lowest, and its logit's rank."""

    time: Number
    token: Number
    rank: Number

    @staticmethod
    def none() -> Race:
        return Race(real(-1.0), word(NOBODY), word(LOWEST))

    def joined(self, other: Race) -> Race:
        wins = (other.time > self.time) | ((other.time == self.time) & (other.token < self.token))
        return Race(*(wins.where(y, x) for x, y in zip(self, other, strict=True)))

    def across(self) -> Race:
        """Of a subgroup's lanes, each of which has tokens of its own.  Times are ordered as their bits are."""
        time = largest(self.time.bits())
        token = smallest((self.time.bits() == time).where(self.token, NOBODY))
        rank = largest(((self.time.bits() == time) & (self.token == token)).where(self.rank, LOWEST))
        return Race(time.bits(), token, rank)


def largest(number: Number) -> Number:
    """Of a subgroup's signed integers."""
    return ptx.over_lanes("max", number)


def smallest(number: Number) -> Number:
    return ptx.over_lanes("min", number)


def sum_across(value: Number) -> Number:
    if not value.is_real:
        return ptx.over_lanes("add", value)
    return over_lanes([value])[0]


def beats(rank: Number, token: Number, other_rank: Number, other: Number) -> Number:
    """Whether one token is more probable than another, of equals the lower."""
    return (rank > other_rank) | ((rank == other_rank) & (token < other))


class Races:
    """Of one sequence, by a subgroup.  scale: what a logit less `top`, that of the most probable token that is known
    of, is multiplied by in its weight's exponent."""

    def __init__(self, launch: Launch, scale: Number) -> None:
        self.launch, self.vocab, self.scale = launch, launch.chain.vocab, scale
        self.rows = launch.heads * 8
        self.top = real(0.0)

    def take(self, row: Number) -> tuple[Number, Number, Number]:
        """A row's logit, token and pace; -infinity and 0 for what is no token."""
        there, token = row < self.rows, self.launch.row_of_lm_head(row)
        place = there.where(row, 0) * 4
        (x,), (pace,) = (ptx.load_reals(self.launch.place(name) + place, 1) for name in ("logits", "paces"))
        there = there & (token < self.vocab)
        return there.where(x, float("-inf")), token, there.where(pace, 0.0)

    def over(self, inits: Sequence[Number], body: Callable[..., Sequence[Number]], races: bool = True) -> list[Number]:
        """body(logit, token, pace, *carried) for a lane's share of the block's tokens; -infinity for what is none.
        races: whether it wants paces.  Neighbours come together, so that what is done to one does not wait for others.
        """

        def load(row: Number) -> tuple[Number, Number, list[Number], list[Number]]:
            there = row < self.rows
            place = there.where(row, 0) * 4
            paces = ptx.load_reals(self.launch.place("paces") + place, EACH) if races else [real(0.0)] * EACH
            return row, there, ptx.load_reals(self.launch.place("logits") + place, EACH), paces

        def turn(number: Number, *carried: Number) -> Sequence[Number]:
            state: Sequence[Number] = carried
            first = self.launch.lane + number * (32 * AT_ONCE)
            for row, there, found, paces in [load((first + 32 * i) * EACH) for i in range(AT_ONCE)]:
                own = self.launch.row_of_lm_head(row)
                for i, (x, pace) in enumerate(zip(found, paces, strict=True)):
                    token = own + i
                    state = body((there & (token < self.vocab)).where(x, float("-inf")), token, pace, *state)
            return state

        turn_rows = 32 * EACH * AT_ONCE
        return loop(0, (self.rows + (turn_rows - 1)) // turn_rows, inits, turn)

    def begin_at(self, rank: Number) -> None:
        """Take that rank's logit, the largest that is known of, for `top`."""
        self.top = value_of(greater(rank, word(LOWEST + 1)))

    def weight(self, x: Number) -> Number:
        return Number(exp2(((x - self.top) * self.scale).value, self.launch.target))

    def race(self, x: Number, token: Number, pace: Number, where: Number | None = None) -> Race:
        time = self.weight(x) * pace
        return Race(chosen(where, time, -1.0), token, rank_of(x))

    # ---- what all blocks publish

    def all_gathered(self, round_: Number, words: Sequence[Number]) -> list[tuple[Number, list[Number]]]:
        """Tell some words, three in a line; for each of a lane's blocks, whether it is one, and its words."""
        launch, tag = self.launch, round_ + 1
        start = (round_ & 1) * (PUBLISHED * launch.layout.blocks) + launch.layout.lines["draws"]
        publish_lines(launch, start + launch.block * PUBLISHED, words, tag, launch.lane == 0)
        found = gathered(launch, start, PUBLISHED, -(-len(words) // 3), tag)
        return [(inside, theirs[: len(words)]) for inside, theirs in found]


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


class Heats(Role):
    """By the subgroups that multiply."""

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
        with given(launch.lane == 0):
            ptx.store_words(heat, [race.time, race.token, race.rank, mass])
            for i in range(0, len(best), 2):
                ptx.store_words(place + 4 * i, best[i : i + 2])
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
    line = start + before * LINE + OF_RACE * LINE
    publish_lines(launch, line, [own, (own > LOWEST).where(its, NOBODY), pace], tag, published)
    publish_lines(launch, start, [*won, all_, bound, high], tag, lane == 0)


class Candidates:
    """By the exchanger: all blocks' race, and their most probable tokens.

    winner, total: of the race of all, and all tokens' mass.  high: the most probable token's rank.  bound: no token
    that is not gathered is more probable than that."""

    def __init__(self, races: Races, round_: Number) -> None:
        self.races, self.launch = races, races.launch
        self.count = self.launch.layout.entries * self.launch.layout.blocks
        pitch = self.launch.layout.published_of_race
        published, high = gathered(self.launch, lines_of(self.launch, round_), pitch, OF_RACE, round_ + 1), word(LOWEST)
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
        return [_count(more), self._mass(more), *self._winner(more)]

    def reaching(self, pivots: Sequence[Number]) -> list[Number]:
        """How many reach each of some ranks above the bound, and the mass of these."""
        reach = [[one.rank >= pivot for one in self.clocks] for pivot in pivots]
        return [*map(_count, reach), *map(self._mass, reach)]

    def _mass(self, those: Sequence[Number]) -> Number:
        return sum_across(added([that.where(weight, 0.0) for that, weight in zip(those, self.weights, strict=True)]))

    def _winner(self, those: Sequence[Number]) -> Race:
        races = [Race(that.where(one.time, -1.0), *one[1:]) for that, one in zip(those, self.clocks, strict=True)]
        while len(races) > 1:
            pairs = zip(races[::2], races[1::2], strict=False)
            races = [one.joined(other) for one, other in pairs] + races[len(races) & -2 :]
        return races[0].across()


def _count(those: Sequence[Number]) -> Number:
    return sum_across(added([that.where(word(1), 0) for that in those]))


FAR = 40.0
"""What is less probable than the most probable by so many powers of two is looked at last."""
LEAST = -3.0e38


@dataclass(frozen=True)
class _Share:
    """A token by its rank, of what weight, how many are more probable, their mass; what is gathered, and whether all
    that top-k leaves are."""

    rank: Number
    weight: Number
    count: Number
    mass: Number
    found: Candidates
    enough: Number


class Draw(Races):
    """By exchangers.  Their numbers of rounds go on from launch to launch."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch, real(0.0))
        self.round = word(b.load(launch.exchange, [1], 1))

    def prepare(self, position: Number, round_: Number) -> None:
        """Take the settings, leave the paces of the block's clocks, and say to subgroups that multiply that they are
        there: what a weight is multiplied by to race."""
        settings = self.launch.chain.settings
        assert settings is not None
        memory = self.launch.view(settings, 0, ir.MemRefType.get([8], b.i32()))
        words = [word(b.load(memory, [i], 1)) for i in range(8)]
        self.scale, self.k, self.p, self.least = words[0].bits(), words[1], words[2].bits(), words[7].bits()
        key, stream, draw = words[3:5], words[5], position + words[6]
        with turns(self.launch.lane, self.rows // EACH, 32) as number:
            counter = [self.launch.row_of_lm_head(number * EACH) // EACH, draw, stream, word(0)]
            paces = [real(1.0) / exponential(bits) for bits in philox(counter, key)]
            ptx.store_words(self.launch.place("paces") + number * (4 * EACH), paces)
        when(self.launch.lane == 0, lambda: ptx.store_words(self.launch.place("round"), [round_, words[0]]))
        ptx.arrive_at(RACES, TWO_ROLES)

    def choose(self, round_: Number) -> list[Number]:
        """(the token, or -1 where the largest logit is no number; the number of the next round)."""
        publish(self, round_)
        found = Candidates(self, round_)
        self.total, winner, known = found.total, found.winner, is_number(found.high)
        cuts = (self.k < self.vocab) | (self.p < 1.0) | (self.least > 0.0)

        def within() -> list[Number]:
            first, sure, best = found.take()
            # Nothing cuts off the first one; and enough of the others are more probable than what is not gathered.
            enough = sure >= self.k
            next_ = enough & (winner.rank <= found.bound)
            rank, token = next_.where(best.rank, winner.rank), next_.where(best.token, winner.token)

            def left() -> list[Number]:
                return self._left(rank, token, found, enough, round_ + 1)

            return either(winner.token != first, "rr", left, lambda: [winner.token, round_ + 1])

        return either(known & cuts, "rr", within, lambda: [known.where(winner.token, -1), round_ + 1])

    # ---- cuts

    def _left(self, rank: Number, token: Number, found: Candidates, enough: Number, round_: Number) -> list[Number]:
        """The first winner in the set that is left, from one on, and the next round.  enough: whether all that top-k
        leaves are above the bound."""

        def look(rank: Number, token: Number, round_: Number) -> tuple[Number, list[Number]]:
            count, mass, *following, after = either(
                rank > found.bound,
                "rffrrr",
                lambda: [*found.above(rank, token), round_],
                lambda: [*self._above(rank, token, round_), round_ + 1],
            )
            weight = self.weight(value_of(rank))
            kept, share = (count < self.k) & (weight >= self.least), _Share(rank, weight, count, mass, found, enough)
            inside, after = either(kept, "rr", lambda: self._in_nucleus(share, after), lambda: [word(0), after])
            left, race = inside == 0, Race(*following)
            return left, [left.where(race.rank, rank), left.where(race.token, token), after]

        _, token, round_ = again([rank, token, round_], look)
        return [token, round_]

    def _above(self, rank: Number, token: Number, round_: Number) -> list[Number]:
        """How many tokens are more probable than one, their mass, and the winner among them."""

        def tally(x: Number, other: Number, pace: Number, count: Number, mass: Number, *best: Number) -> list[Number]:
            more = beats(rank_of(x), other, rank, token)
            race = Race(*best).joined(self.race(x, other, pace, more))
            return [count + more.where(word(1), 0), mass + more.where(self.weight(x), 0.0), *race]

        count, mass, *best = self.over([word(0), real(0.0), *Race.none()], tally)
        own = Race(*best).across()
        published = self.all_gathered(round_, [sum_across(count), sum_across(mass), *own])
        count, mass, winner = word(0), real(0.0), Race.none()
        for inside, (n, m, time, other, its) in published:
            count, mass = count + inside.where(n, 0), mass + inside.where(m.bits(), 0.0)
            winner = winner.joined(Race(inside.where(time.bits(), -1.0), other, its))
        return [sum_across(count), sum_across(mass), *winner.across()]

    def _in_nucleus(self, share: _Share, round_: Number) -> list[Number]:
        """Whether what is above one token is less than top-p of what top-k leaves, 1 or 0; and the next round."""
        both = (self.k < self.vocab) & (self.p < 1.0)
        all_ = both.where(share.mass + share.weight, self.total)  # which top-k leaves at least: mostly enough to know
        inside = (share.mass < self.p * all_).where(word(1), 0)
        return either(both & (inside == 0), "rr", lambda: self._in_share(share, round_), lambda: [inside, round_])

    def _in_share(self, share: _Share, round_: Number) -> list[Number]:
        """The same where the mass of the top-k is not known: that of some tokens, fewer than k, which lie at a rank of
        `beyond` or above, and of others that lie from `low` on below them."""

        def narrow(
            low: Number, beyond: Number, some: Number, known: Number, _: Number, round_: Number
        ) -> tuple[Number, list[Number]]:
            rest = (self.k - some).as_real("arith.sitofp")
            smallest = known + rest * self.weight(value_of(low))
            largest = known + rest * self.weight(value_of(beyond - 1))
            inside = share.mass < self.p * smallest
            open_ = (inside | (share.mass >= self.p * largest)) == Number(b.constant(0, ir.IntegerType.get_signless(1)))
            state = either(
                open_, "rrrfr", lambda: self._narrowed(low, beyond, some, known, share, round_),
                lambda: [low, beyond, some, known, round_],
            )  # fmt: skip
            return open_, [*state[:4], inside.where(word(1), 0), state[4]]

        low = share.enough.where(share.found.bound + 1, LOWEST)
        begun = [low, share.rank + 1, share.count + 1, share.mass + share.weight, word(0), round_]
        *_, inside, round_ = again(begun, narrow)
        return [inside, round_]

    def _narrowed(
        self, low: Number, beyond: Number, some: Number, known: Number, share: _Share, round_: Number
    ) -> list[Number]:
        """By counts at three ranks between: in the midst, and where weights lie apart."""
        upper = value_of(beyond - 1)
        lower = greater(greater(value_of(low), self.top - real(FAR) / self.scale), real(LEAST))
        gap = greater(upper - lower, real(0.0))
        pivots = [rank_of(upper - gap * 0.25), rank_of(upper - gap * 0.5), low + ((beyond - low) >> 1)]
        pivots = [greater(low + 1, lesser(p, beyond - 1)) for p in pivots]
        *sums, round_ = either(
            share.enough,
            "rrrfffr",
            lambda: [*share.found.reaching(pivots), round_],
            lambda: [*self._reaching(pivots, round_), round_ + 1],
        )
        for pivot, count, mass in zip(pivots, sums[:3], sums[3:], strict=True):
            fewer, more = (count <= self.k) & (pivot < beyond), (count >= self.k) & (pivot > low)
            beyond, some, known = fewer.where(pivot, beyond), fewer.where(count, some), fewer.where(mass, known)
            low = more.where(pivot, low)
        return [low, beyond, some, known, round_]

    def _reaching(self, pivots: Sequence[Number], round_: Number) -> list[Number]:
        """How many tokens reach each of some ranks, and their mass, by a round of publishing."""

        def one(x: Number, _: Number, __: Number, *sums: Number) -> list[Number]:
            its, weight, count = rank_of(x), self.weight(x), len(pivots)
            reach = [its >= pivot for pivot in pivots]
            counts = [n + r.where(word(1), 0) for n, r in zip(sums[:count], reach, strict=True)]
            return [*counts, *(m + r.where(weight, 0.0) for m, r in zip(sums[count:], reach, strict=True))]

        sums = self.over([word(0)] * len(pivots) + [real(0.0)] * len(pivots), one, races=False)
        published, half = self.all_gathered(round_, [sum_across(s) for s in sums]), len(pivots)
        counts = [[inside.where(words[i], 0) for inside, words in published] for i in range(half)]
        masses = [[inside.where(words[half + i].bits(), 0.0) for inside, words in published] for i in range(half)]
        return [sum_across(reduce(Number.__add__, own)) for own in counts + masses]
