"""Races of a sharded launch's tokens: clocks of a block's own, and what all blocks tell each other about theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.clocks import exponential, philox
from lispgpt.passes.kernels.expand import exp2
from lispgpt.passes.kernels.words import Word, each, loop, real, when, word
from lispgpt.passes.plan.sharded_choice import LOWEST, NOBODY, rank_of
from lispgpt.passes.plan.sharded_launch import Launch

EACH = 4
"""Neighbours that share one number of the generator."""


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


def across(combine: Callable[[Word, Word], Word], value: Word) -> Word:
    for distance in (16, 8, 4, 2, 1):
        value = combine(value, value.from_lane(distance))
    return value


def sum_across(value: Word) -> Word:
    return across(Word.__add__, value)


def beats(rank: Word, token: Word, other_rank: Word, other: Word) -> Word:
    """Whether one token is more probable than another, of equals the lower."""
    return (rank > other_rank) | ((rank == other_rank) & (token < other))


class Races:
    """Of one sequence, by a warp.  Its numbers of rounds go on from launch to launch."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.vocab = launch, launch.chain.vocab
        self.rows, self.first = launch.heads * 8, launch.first_head * 8
        self.top = real(0.0)
        self.round = word(b.load(launch.exchange, [1], 1))

    def prepare(self, position: Word) -> None:
        """Take the settings, and leave the paces of the block's clocks: what a weight is multiplied by to race."""
        settings = self.launch.chain.settings
        assert settings is not None
        memory = self.launch.view(settings, 0, ir.MemRefType.get([8], b.i32()))
        words = [word(b.load(memory, [i], 1)) for i in range(8)]
        self.scale, self.k, self.p, self.least = words[0].bits(), words[1], words[2].bits(), words[7].bits()
        self.key, self.stream, draw = words[3:5], words[5], position + words[6]

        def quad(number: Word) -> None:
            counter = [(self.first >> 2) + number, draw, self.stream, word(0)]
            paces = [real(1.0) / exponential(bits) for bits in philox(counter, self.key)]
            c.store_words(self.launch.place("paces") + number * (4 * EACH), paces)

        each(self.launch.lane, self.rows // EACH, quad, 32)
        c.warp_barrier()

    def over(self, inits: Sequence[Word], body: Callable[..., Sequence[Word]], races: bool = True) -> list[Word]:
        """body(logit, token, pace, *carried) for a lane's share of the block's tokens; -infinity for what is none.
        races: whether it wants paces.  Neighbours come together, so that what is done to one does not wait for others.
        """

        def turn(number: Word, *carried: Word) -> Sequence[Word]:
            row = (self.launch.lane + number * 32) * EACH
            there = row < self.rows
            place = there.where(row, 0) * 4
            found = c.load_reals(self.launch.place("logits") + place, EACH)
            paces = c.load_reals(self.launch.place("paces") + place, EACH) if races else [real(0.0)] * EACH
            state: Sequence[Word] = carried
            for i, (x, pace) in enumerate(zip(found, paces, strict=True)):
                token = self.first + row + i
                state = body((there & (token < self.vocab)).where(x, float("-inf")), token, pace, *state)
            return state

        turn_rows = 32 * EACH
        return loop(0, (self.rows + (turn_rows - 1)) // turn_rows, inits, turn)

    def weight(self, x: Word) -> Word:
        return Word(exp2(((x - self.top) * self.scale).value, self.launch.target))

    def race(self, x: Word, token: Word, pace: Word, where: Word | None = None) -> Race:
        time = self.weight(x) * pace
        return Race(time if where is None else where.where(time, -1.0), token, rank_of(x))

    # ---- what all blocks tell each other

    def lines(self, round_: Word) -> Word:
        """Where what blocks tell in a round lies."""
        return (round_ & 1) * (32 * self.launch.layout.blocks) + self.launch.layout.lines["draws"]

    def told(self, round_: Word, words: Sequence[Word]) -> list[tuple[Word, list[Word]]]:
        """Tell six words; for each of a lane's blocks, whether it is one, and its six."""
        launch = self.launch
        tag, bits = round_ + 1, [w.bits() if w.is_real else w for w in words]
        start = self.lines(round_)

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
