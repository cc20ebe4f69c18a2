"""Races of a clustered launch's tokens: clocks of a block's own, and what all blocks publish about theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import greater, loop, real, when, word
from lispgpt.passes.decode_step.largest_logit import LOWEST, NOBODY, gathered, rank_of, value_of
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import PUBLISHED
from lispgpt.passes.kernels.expand import exp2
from lispgpt.passes.targets import ptx

EACH = 4
"""Neighbours that share one number of the generator."""
AT_ONCE = 2
"""Of such neighbours, those that a lane loads together."""


@dataclass(frozen=True)
class Race:
    """The sooner a clock rings, the larger `time`; the token, of equals the lowest, and its logit's rank."""

    time: Number
    token: Number
    rank: Number

    @staticmethod
    def none() -> Race:
        return Race(real(-1.0), word(NOBODY), word(LOWEST))

    @property
    def words(self) -> list[Number]:
        return [self.time, self.token, self.rank]

    def joined(self, other: Race) -> Race:
        wins = (other.time > self.time) | ((other.time == self.time) & (other.token < self.token))
        return Race(*(wins.where(y, x) for x, y in zip(self.words, other.words, strict=True)))

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
    for distance in (16, 8, 4, 2, 1):
        value = value + value.from_lane(distance)
    return value


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
        return Race(time if where is None else where.where(time, -1.0), token, rank_of(x))

    # ---- what all blocks publish

    def all_gathered(self, round_: Number, words: Sequence[Number]) -> list[tuple[Number, list[Number]]]:
        """Tell some words, three in a line; for each of a lane's blocks, whether it is one, and its words."""
        launch = self.launch
        tag, bits = round_ + 1, [w.bits() if w.is_real else w for w in words]
        bits += [word(0)] * (-len(bits) % 3)
        lines = [[*bits[i : i + 2], tag, bits[i + 2]] for i in range(0, len(bits), 3)]
        start = (round_ & 1) * (PUBLISHED * launch.layout.blocks) + launch.layout.lines["draws"]

        def store() -> None:
            for i, line in enumerate(lines):
                ptx.store_line(ptx.pointer(launch.exchange, start + launch.block * PUBLISHED + 16 * i), line)

        when(launch.lane == 0, store)
        found = self.gathered(start, PUBLISHED, len(lines), tag)
        return [(inside, theirs[: len(words)]) for inside, theirs in found]

    def gathered(self, start: Number, pitch: int, count: int, tag: Number) -> list[tuple[Number, list[Number]]]:
        """For each of a lane's blocks, whether it is one, and the words of so many lines that it publishes."""
        found = gathered(self.launch, start, pitch, count, tag)
        return [(inside, [w for line in lines for w in (*line[:2], line[3])]) for inside, lines in found]
