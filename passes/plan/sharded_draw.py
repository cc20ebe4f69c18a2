"""The draw of a token in a sharded launch: the rule of lib/sampling.lisp, by exchangers, each of a
block's logits.

Clocks are made while the head is multiplied.  Then all blocks tell each other the winners of their races and know that
of all.  Where top-k, top-p or min-p cut, a round of telling says how many tokens, of which mass, are more probable than
the winner, and who wins among those, who is next where the winner is cut off.  The mass of the top-k is only sought
where both cut, and only until it is known on which side of top-p's share of it the winner lies.

Every exchanger adds up the same numbers in the same order, so that all come to the same token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.clocks import exponential, philox
from lispgpt.passes.kernels.expand import exp2
from lispgpt.passes.kernels.words import Word, again, each, either, greater, lesser, loop, real, when, word
from lispgpt.passes.plan.sharded_choice import INFINITE, LOWEST, NOBODY, rank_of, value_of
from lispgpt.passes.plan.sharded_launch import Launch

EACH = 4
"""Neighbours that share one number of the generator."""
FAR = 40.0
"""What is less probable than the most probable by so many powers of two is looked at last."""
LEAST = -3.0e38


@dataclass(frozen=True)
class Race:
    """The sooner a clock rings, the larger `time`; the token, of equals the lowest, and its logit's rank."""

    time: Word
    token: Word
    rank: Word

    @staticmethod
    def none() -> Race:
        return Race(real(-1.0), word(NOBODY), word(LOWEST))

    @property
    def words(self) -> list[Word]:
        return [self.time, self.token, self.rank]

    def joined(self, other: Race) -> Race:
        wins = (other.time > self.time) | ((other.time == self.time) & (other.token < self.token))
        return Race(*(wins.where(y, x) for x, y in zip(self.words, other.words, strict=True)))

    def across(self) -> Race:
        found = self
        for distance in (16, 8, 4, 2, 1):
            found = found.joined(Race(*(w.from_lane(distance) for w in found.words)))
        return found


def _across(combine: Callable[[Word, Word], Word], value: Word) -> Word:
    for distance in (16, 8, 4, 2, 1):
        value = combine(value, value.from_lane(distance))
    return value


def _total(value: Word) -> Word:
    return _across(Word.__add__, value)


class Draw:
    """Of one sequence, by a warp.  Its numbers of rounds go on from launch to launch."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.vocab = launch, launch.chain.vocab
        self.rows, self.first = launch.heads * 8, launch.first_head * 8
        self.top = real(0.0)
        self.round = word(b.load(launch.exchange, [1], 1))

    # ---- a block's tokens

    def prepare(self, position: Word) -> None:
        """Take the settings, and leave the block's clocks."""
        settings = self.launch.chain.settings
        assert settings is not None
        memory = self.launch.view(settings, 0, ir.MemRefType.get([8], b.i32()))
        words = [word(b.load(memory, [i], 1)) for i in range(8)]
        self.scale, self.k, self.p, self.least = words[0].bits(), words[1], words[2].bits(), words[7].bits()
        self.key, self.stream, draw = words[3:5], words[5], position + words[6]

        def quad(number: Word) -> None:
            counter = [(self.first >> 2) + number, draw, self.stream, word(0)]
            clocks = [exponential(bits) for bits in philox(counter, self.key)]
            c.store_words(self.launch.place("clocks") + number * (4 * EACH), clocks)

        each(self.launch.lane, self.rows // EACH, quad, 32)
        c.warp_barrier()

    def _over(self, inits: Sequence[Word], body: Callable[..., Sequence[Word]]) -> list[Word]:
        """body(logit, token, place, *carried) for a lane's share of the block's tokens; -infinity for what is none."""

        def turn(number: Word, *carried: Word) -> Sequence[Word]:
            row = self.launch.lane + number * 32
            inside = (row < self.rows) & (self.first + row < self.vocab)
            place = inside.where(row, 0) * 4
            x = inside.where(c.load_reals(self.launch.place("logits") + place, 1)[0], float("-inf"))
            return body(x, self.first + row, place, *carried)

        return loop(0, (self.rows + 31) // 32, inits, turn)

    def _weight(self, x: Word) -> Word:
        return Word(exp2(((x - self.top) * self.scale).value, self.launch.target))

    def _race(self, x: Word, token: Word, place: Word, where: Word | None = None) -> Race:
        time = self._weight(x) / c.load_reals(self.launch.place("clocks") + place, 1)[0]
        return Race(time if where is None else where.where(time, -1.0), token, rank_of(x))

    # ---- what all blocks tell each other

    def _told(self, round_: Word, words: Sequence[Word]) -> list[tuple[Word, list[Word]]]:
        """Tell six words; for each of a lane's blocks, whether it is one, and its six."""
        launch = self.launch
        tag, bits = round_ + 1, [w.bits() if w.is_real else w for w in words]
        start = (round_ & 1) * (32 * launch.layout.blocks) + launch.layout.lines["draws"]

        def store() -> None:
            for i in range(2):
                line = [*bits[3 * i : 3 * i + 2], tag, bits[3 * i + 2]]
                c.store_line(c.pointer(launch.exchange, start + launch.block * 32 + 16 * i), line)

        when(launch.lane == 0, store)
        there, pointers = [], []
        for first in range(0, launch.layout.blocks, 32):
            number = launch.lane + first
            there.append(number < launch.layout.blocks)
            place = start + there[-1].where(number, 0) * 32
            pointers += [c.pointer(launch.exchange, place), c.pointer(launch.exchange, place + 16)]
        lines = c.await_lines(pointers, lambda found: found[2] ^ tag)
        c.warp_barrier()
        both = [[*one[:2], one[3], *other[:2], other[3]] for one, other in zip(lines[::2], lines[1::2], strict=True)]
        return list(zip(there, both, strict=True))

    def choose(self, round_: Word) -> list[Word]:
        """(the token, or -1 where the largest logit is no number; the number of the next round)."""
        rank = _across(greater, self._over([word(LOWEST)], lambda x, t, p, rank: [greater(rank, rank_of(x))])[0])
        self.top = value_of(greater(rank, word(LOWEST + 1)))

        def race(x: Word, token: Word, place: Word, mass: Word, likely: Word, *best: Word) -> list[Word]:
            likely = lesser(likely, (rank_of(x) == rank).where(token, NOBODY))
            return [mass + self._weight(x), likely, *Race(*best).joined(self._race(x, token, place)).words]

        mass, likely, *best = self._over([real(0.0), word(NOBODY), *Race.none().words], race)
        own = Race(*best).across()
        told = self._told(round_, [rank, own.time, own.token, own.rank, _total(mass), _across(lesser, likely)])
        high = word(LOWEST)
        for inside, words in told:
            high = greater(high, inside.where(words[0], LOWEST))
        high = _across(greater, high)
        self.top = value_of(greater(high, word(LOWEST + 1)))
        total, winner, likely = real(0.0), Race.none(), word(NOBODY)
        for inside, (top, time, token, its, sum_, best_) in told:
            likely = lesser(likely, (inside & (top == high)).where(best_, NOBODY))
            share = inside.where(self._weight(value_of(top)), 0.0)
            total = total + share * sum_.bits()
            winner = winner.joined(Race(inside.where(share * time.bits(), -1.0), token, its))
        self.total, winner = _total(total), winner.across()
        known = (high > LOWEST) & (high < INFINITE)
        cuts = (self.k < self.vocab) | (self.p < 1.0) | (self.least > 0.0)
        cut = known & cuts & (winner.token != _across(lesser, likely))  # which nothing cuts off
        first = known.where(winner.token, -1)
        return either(cut, "rr", lambda: self._within(winner, round_ + 1), lambda: [first, round_ + 1])

    # ---- cuts

    def _within(self, winner: Race, round_: Word) -> list[Word]:
        """The first winner in the set that is left, and the next round."""

        def look(rank: Word, token: Word, round_: Word) -> tuple[Word, list[Word]]:
            count, mass, following = self._above(rank, token, round_)
            weight = self._weight(value_of(rank))
            kept = (count < self.k) & (weight >= self.least)
            inside, after = either(
                kept,
                "rr",
                lambda: self._in_nucleus(rank, weight, count, mass, round_ + 1),
                lambda: [word(0), round_ + 1],
            )
            left = inside == 0
            return left, [left.where(following.rank, rank), left.where(following.token, token), after]

        _, token, round_ = again([winner.rank, winner.token, round_], look)
        return [token, round_]

    def _above(self, rank: Word, token: Word, round_: Word) -> tuple[Word, Word, Race]:
        """(how many tokens are more probable than one, their mass, the winner among them)."""

        def tally(x: Word, other: Word, place: Word, count: Word, mass: Word, *best: Word) -> list[Word]:
            its = rank_of(x)
            more = (its > rank) | ((its == rank) & (other < token))
            race = Race(*best).joined(self._race(x, other, place, more))
            return [count + more.where(word(1), 0), mass + more.where(self._weight(x), 0.0), *race.words]

        count, mass, *best = self._over([word(0), real(0.0), *Race.none().words], tally)
        own = Race(*best).across()
        told = self._told(round_, [_total(count), _total(mass), *own.words, word(0)])
        count, mass, winner = word(0), real(0.0), Race.none()
        for inside, (n, m, time, other, its, _) in told:
            count, mass = count + inside.where(n, 0), mass + inside.where(m.bits(), 0.0)
            winner = winner.joined(Race(inside.where(time.bits(), -1.0), other, its))
        return _total(count), _total(mass), winner.across()

    def _in_nucleus(self, rank: Word, weight: Word, count: Word, mass: Word, round_: Word) -> list[Word]:
        """Whether what is above one token is less than top-p of what top-k leaves, 1 or 0; and the next round."""
        both = (self.k < self.vocab) & (self.p < 1.0)
        alone = (mass < self.p * self.total).where(word(1), 0)
        return either(both, "rr", lambda: self._in_share(rank, weight, count, mass, round_), lambda: [alone, round_])

    def _in_share(self, rank: Word, weight: Word, count: Word, mass: Word, round_: Word) -> list[Word]:
        """The same where the mass of the top-k is not known: that of some tokens, fewer than k, which lie at a rank of
        `beyond` or above, and of others that lie from `low` on below them."""

        def narrow(low: Word, beyond: Word, some: Word, known: Word, _: Word, round_: Word) -> tuple[Word, list[Word]]:
            rest = Word(b.emit("arith.sitofp", [(self.k - some).value], [b.f32()]))
            smallest = known + rest * self._weight(value_of(low))
            largest = known + rest * self._weight(value_of(beyond - 1))
            inside = mass < self.p * smallest
            open_ = (inside | (mass >= self.p * largest)) == Word(b.constant(0, ir.IntegerType.get_signless(1)))
            state = either(
                open_, "rrrfr", lambda: self._narrowed(low, beyond, some, known, round_),
                lambda: [low, beyond, some, known, round_],
            )  # fmt: skip
            return open_, [*state[:4], inside.where(word(1), 0), state[4]]

        state = [word(LOWEST), rank + 1, count + 1, mass + weight, word(0), round_]
        *_, inside, round_ = again(state, narrow)
        return [inside, round_]

    def _narrowed(self, low: Word, beyond: Word, some: Word, known: Word, round_: Word) -> list[Word]:
        """By counts at three ranks between: in the midst, and where weights lie apart."""
        upper = value_of(beyond - 1)
        lower = greater(greater(value_of(low), self.top - real(FAR) / self.scale), real(LEAST))
        gap = greater(upper - lower, real(0.0))
        pivots = [rank_of(upper - gap * 0.25), rank_of(upper - gap * 0.5), low + ((beyond - low) >> 1)]
        pivots = [greater(low + 1, lesser(p, beyond - 1)) for p in pivots]

        def tally(x: Word, _: Word, __: Word, *sums: Word) -> list[Word]:
            its, weight = rank_of(x), self._weight(x)
            reach = [its >= p for p in pivots]
            counts = [n + r.where(word(1), 0) for n, r in zip(sums[:3], reach, strict=True)]
            return [*counts, *(m + r.where(weight, 0.0) for m, r in zip(sums[3:], reach, strict=True))]

        sums = self._over([word(0)] * 3 + [real(0.0)] * 3, tally)
        told = self._told(round_, [_total(s) for s in sums])
        for i, pivot in enumerate(pivots):
            count, mass = word(0), real(0.0)
            for inside, words in told:
                count, mass = count + inside.where(words[i], 0), mass + inside.where(words[3 + i].bits(), 0.0)
            count, mass = _total(count), _total(mass)
            fewer, more = (count <= self.k) & (pivot < beyond), (count >= self.k) & (pivot > low)
            beyond, some, known = fewer.where(pivot, beyond), fewer.where(count, some), fewer.where(mass, known)
            low = more.where(pivot, low)
        return [low, beyond, some, known, round_ + 1]
