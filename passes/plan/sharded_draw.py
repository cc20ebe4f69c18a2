"""The draw of a token in a sharded launch: the rule of lib/sampling.lisp, by exchangers, each of a block's logits.

Clocks are made while the head is multiplied.  Then all blocks tell each other the winners of their races and know that
of all.  Whether it is among the most probable tokens that top-k leaves, and what these weigh, is found in a list of
them that all blocks have (sharded_likely.py).  Where there is none, as top-p or min-p alone cut, a round of telling
says how many tokens, of which mass, are more probable than the winner, and who wins among those, who is next where the
winner is cut off.  The mass of a top-k without a list is only sought where top-p cuts, too, and only until it is known
on which side of top-p's share of it the winner lies.

Every exchanger adds up the same numbers in the same order, so that all come to the same token.
"""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.words import Word, again, either, greater, lesser, real, word
from lispgpt.passes.plan.sharded_choice import LOWEST, NOBODY, is_number, rank_of, value_of
from lispgpt.passes.plan.sharded_likely import FAR, Likely
from lispgpt.passes.plan.sharded_races import Race, Races, beats, largest, smallest, sum_across

LEAST = -3.0e38


class Draw(Races):
    def choose(self, round_: Word) -> list[Word]:
        """(the token, or -1 where the largest logit is no number; the number of the next round)."""
        (own,) = self.over([word(LOWEST)], lambda x, _, __, rank: [greater(rank, rank_of(x))], races=False)
        rank, likely = largest(own), Likely(self)
        self.top, floor = value_of(greater(rank, word(LOWEST + 1))), likely.floor(own)

        def race(x: Word, token: Word, pace: Word, mass: Word, first: Word, count: Word, *best: Word) -> list[Word]:
            first = lesser(first, (rank_of(x) == rank).where(token, NOBODY))
            count = likely.hold(floor, rank_of(x), token, pace, count)
            return [mass + self.weight(x), first, count, *Race(*best).joined(self.race(x, token, pace)).words]

        mass, first, count, *best = self.over([real(0.0), word(NOBODY), word(0), *Race.none().words], race)
        won = Race(*best).across()
        behind = likely.leave(rank, floor, count, round_)
        told = self.told(round_, [rank, *won.words, sum_across(mass), smallest(first), *behind])
        high = word(LOWEST)
        for inside, words in told:
            high = greater(high, inside.where(words[0], LOWEST))
        high = largest(high)
        self.top = value_of(greater(high, word(LOWEST + 1)))
        mass, winner, first = real(0.0), Race.none(), word(NOBODY)
        for inside, (top, time, token, its, sum_, its_first, *_) in told:
            first = lesser(first, (inside & (top == high)).where(its_first, NOBODY))
            share = inside.where(self.weight(value_of(top)), 0.0)
            mass = mass + share * sum_.bits()
            winner = winner.joined(Race(inside.where(share * time.bits(), -1.0), token, its))
        self.total, winner = sum_across(mass), winner.across()
        known = is_number(high)
        cuts = (self.k < self.vocab) | (self.p < 1.0) | (self.least > 0.0)
        cut = known & cuts & (winner.token != smallest(first))  # which nothing cuts off
        ranks = [[inside.where(rank, LOWEST) for rank in (words[0], *words[6:])] for inside, words in told]

        def within() -> list[Word]:
            return self._within(winner, likely, likely.gather(ranks, round_), round_ + 1)

        return either(cut, "rr", within, lambda: [known.where(winner.token, -1), round_ + 1])

    # ---- cuts

    def _within(self, winner: Race, likely: Likely, listed: Word, round_: Word) -> list[Word]:
        """The first winner in the set that is left, and the next round."""

        def look(rank: Word, token: Word, round_: Word) -> tuple[Word, list[Word]]:
            count, mass, *following, after = either(
                listed > 0,
                "rffrrr",
                lambda: [*likely.above(rank, token, listed), round_],
                lambda: [*self._above(rank, token, round_), round_ + 1],
            )
            weight = self.weight(value_of(rank))
            kept = (count < self.k) & (weight >= self.least)

            inside, after = either(
                kept,
                "rr",
                lambda: self._in_nucleus(rank, weight, count, mass, listed, likely, after),
                lambda: [word(0), after],
            )
            left, race = inside == 0, Race(*following)
            return left, [left.where(race.rank, rank), left.where(race.token, token), after]

        _, token, round_ = again([winner.rank, winner.token, round_], look)
        return [token, round_]

    def _above(self, rank: Word, token: Word, round_: Word) -> list[Word]:
        """How many tokens are more probable than one, their mass, and the winner among them."""

        def tally(x: Word, other: Word, pace: Word, count: Word, mass: Word, *best: Word) -> list[Word]:
            more = beats(rank_of(x), other, rank, token)
            race = Race(*best).joined(self.race(x, other, pace, more))
            return [count + more.where(word(1), 0), mass + more.where(self.weight(x), 0.0), *race.words]

        count, mass, *best = self.over([word(0), real(0.0), *Race.none().words], tally)
        own = Race(*best).across()
        told = self.told(round_, [sum_across(count), sum_across(mass), *own.words])
        count, mass, winner = word(0), real(0.0), Race.none()
        for inside, (n, m, time, other, its) in told:
            count, mass = count + inside.where(n, 0), mass + inside.where(m.bits(), 0.0)
            winner = winner.joined(Race(inside.where(time.bits(), -1.0), other, its))
        return [sum_across(count), sum_across(mass), *winner.across().words]

    def _in_nucleus(
        self, rank: Word, weight: Word, count: Word, mass: Word, listed: Word, likely: Likely, round_: Word
    ) -> list[Word]:
        """Whether what is above one token is less than top-p of what top-k leaves, 1 or 0; and the next round."""
        both = (self.k < self.vocab) & (self.p < 1.0)

        def share() -> list[Word]:
            least = mass + weight  # which top-k leaves at least: mostly enough to know
            (all_,) = either(mass < self.p * least, "f", lambda: [least], lambda: [likely.mass(listed, self.k)])
            return [(mass < self.p * all_).where(word(1), 0), round_]

        def of_both() -> list[Word]:
            return either(listed > 0, "rr", share, lambda: self._in_share(rank, weight, count, mass, round_))

        alone = (mass < self.p * self.total).where(word(1), 0)
        return either(both, "rr", of_both, lambda: [alone, round_])

    def _in_share(self, rank: Word, weight: Word, count: Word, mass: Word, round_: Word) -> list[Word]:
        """The same where the mass of the top-k is not known: that of some tokens, fewer than k, which lie at a rank of
        `beyond` or above, and of others that lie from `low` on below them."""

        def narrow(low: Word, beyond: Word, some: Word, known: Word, _: Word, round_: Word) -> tuple[Word, list[Word]]:
            rest = (self.k - some).as_real("arith.sitofp")
            smallest = known + rest * self.weight(value_of(low))
            largest = known + rest * self.weight(value_of(beyond - 1))
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
            its, weight = rank_of(x), self.weight(x)
            reach = [its >= p for p in pivots]
            counts = [n + r.where(word(1), 0) for n, r in zip(sums[:3], reach, strict=True)]
            return [*counts, *(m + r.where(weight, 0.0) for m, r in zip(sums[3:], reach, strict=True))]

        sums = self.over([word(0)] * 3 + [real(0.0)] * 3, tally, races=False)
        told = self.told(round_, [sum_across(s) for s in sums])
        for i, pivot in enumerate(pivots):
            count, mass = word(0), real(0.0)
            for inside, words in told:
                count, mass = count + inside.where(words[i], 0), mass + inside.where(words[3 + i].bits(), 0.0)
            count, mass = sum_across(count), sum_across(mass)
            fewer, more = (count <= self.k) & (pivot < beyond), (count >= self.k) & (pivot > low)
            beyond, some, known = fewer.where(pivot, beyond), fewer.where(count, some), fewer.where(mass, known)
            low = more.where(pivot, low)
        return [low, beyond, some, known, round_ + 1]
