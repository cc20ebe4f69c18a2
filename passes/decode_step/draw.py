"""The draw of a token in a clustered launch: the rule of lib/sampling.lisp, by exchangers, each of a block's logits.

Clocks are made while the lm head is multiplied.  Then all blocks publish the winners of their races and their most
probable tokens (candidates.py), and know the winner of all.  Whether it is among the most probable ones that top-k,
top-p and min-p leave, and who is next where it is not, is found among those tokens, as far as these are all that are as
probable; where they are not, a round of publishing says how many tokens, of which mass, are more probable than the
winner, and who wins among those.  The mass of a top-k is only sought where top-p cuts, too, and only until it is known
on which side of top-p's share of it the winner lies.

Every exchanger adds up the same numbers in the same order, so that all come to the same token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import again, each, either, greater, lesser, real, when, word
from lispgpt.passes.decode_step.candidates import Candidates, publish
from lispgpt.passes.decode_step.exponential_clocks import exponential, philox
from lispgpt.passes.decode_step.largest_logit import LOWEST, is_number, rank_of, value_of
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import RACES, TWO_ROLES
from lispgpt.passes.decode_step.races import EACH, Race, Races, beats, sum_across
from lispgpt.passes.targets import ptx

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

        def quad(number: Number) -> None:
            counter = [self.launch.row_of_lm_head(number * EACH) // EACH, draw, stream, word(0)]
            paces = [real(1.0) / exponential(bits) for bits in philox(counter, key)]
            ptx.store_words(self.launch.place("paces") + number * (4 * EACH), paces)

        each(self.launch.lane, self.rows // EACH, quad, 32)
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
            return [count + more.where(word(1), 0), mass + more.where(self.weight(x), 0.0), *race.words]

        count, mass, *best = self.over([word(0), real(0.0), *Race.none().words], tally)
        own = Race(*best).across()
        published = self.all_gathered(round_, [sum_across(count), sum_across(mass), *own.words])
        count, mass, winner = word(0), real(0.0), Race.none()
        for inside, (n, m, time, other, its) in published:
            count, mass = count + inside.where(n, 0), mass + inside.where(m.bits(), 0.0)
            winner = winner.joined(Race(inside.where(time.bits(), -1.0), other, its))
        return [sum_across(count), sum_across(mass), *winner.across().words]

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
