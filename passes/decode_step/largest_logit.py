"""The choice of the largest logit in a clustered launch: every block publishes its largest, and those that go on read
all.

Logits are ordered as integers, a NaN above all; of equals the first token is taken.  How clearly it wins is published
as lib/sampling.lisp does: how many are as good, and how far the next one below is, in sizes of the parts' largest.  One
block finds that out, the last one, which has no layers to begin with where a block has none.  Runs' places take turns,
as that block may read a run's while others publish the next one's; before they publish the one behind that, it has
published the next one's, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import either, given, greater, lesser, real, when, word
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import SUBGROUPS
from lispgpt.passes.targets import ptx

PAUSE = 450
"""Clocks until blocks are first asked what they have published, in whose way who asks too early is.  GPT-2 of 124M of
int8 on an H200: 63.5 us a token, with 600 64.3; 1 to 2 us more without."""
LOWEST, INFINITE, NOT_A_NUMBER, NOBODY = -2139095041, 0x7F800000, 0x7FFFFFFF, 0x7FFFFFFF


def rank_of(value: Number) -> Number:
    """A number in the order of reals, both zeros equal."""
    return (value != value).where(word(NOT_A_NUMBER), _flip((value + real(0.0)).bits()))


def value_of(rank: Number) -> Number:
    """The number of a rank."""
    return _flip(rank).bits()


def is_number(rank: Number) -> Number:
    """Whether the largest logit is one that can be chosen: neither a NaN nor infinite."""
    return (rank > LOWEST) & (rank < INFINITE)


def _flip(bits: Number) -> Number:
    return bits ^ (bits.signed_shift(31) & 0x7FFFFFFF)


class Best(NamedTuple):
    """Of some logits: the largest's rank, the lowest token that has it, the next rank below, how many have it."""

    rank: Number
    token: Number
    below: Number
    equals: Number

    @staticmethod
    def none() -> Best:
        return Best(word(LOWEST), word(NOBODY), word(LOWEST), word(0))

    def where(self, condition: Number) -> Best:
        """None of these where a condition does not hold."""
        return Best(*(condition.where(x, y) for x, y in zip(self, Best.none(), strict=True)))

    def joined(self, other: Best) -> Best:
        """Of these logits and others."""
        rank = greater(self.rank, other.rank)
        mine, theirs = self.rank == rank, other.rank == rank
        token = lesser(mine.where(self.token, NOBODY), theirs.where(other.token, NOBODY))
        below = greater(mine.where(self.below, self.rank), theirs.where(other.below, other.rank))
        return Best(rank, token, below, mine.where(self.equals, 0) + theirs.where(other.equals, 0))

    def across(self) -> Best:
        """Of a subgroup's lanes."""
        rank = ptx.over_lanes("max", self.rank)
        mine = self.rank == rank
        token = ptx.over_lanes("min", mine.where(self.token, NOBODY))
        below = ptx.over_lanes("max", mine.where(self.below, self.rank))
        return Best(rank, token, below, ptx.over_lanes("add", mine.where(self.equals, 0)))

    def size(self) -> Number:
        """The largest's size as bits, 0 where it is no number."""
        bits = _flip(self.rank) & 0x7FFFFFFF
        return (bits < INFINITE).where(bits, 0)


def publish(launch: Launch, run: Number, sequence: Number | int = 0) -> None:
    """By the exchanger: this block's best of its subgroups' bests.  run: one more than the number of runs before."""
    lane = (launch.lane < SUBGROUPS).where(launch.lane, 0)
    bests = launch.place("best") + sequence * (16 * SUBGROUPS)
    found = Best(*ptx.load_words(bests + lane * 16, 4)).where(launch.lane < SUBGROUPS)
    size = ptx.over_lanes("max", found.size())
    place = _published(launch, run, sequence) + launch.block * 32
    publish_lines(launch, place, [*found.across(), size], run, launch.lane == 0)


@dataclass(frozen=True)
class Choice:
    """token: to go on with.  result: the same, or -1 where the largest is no number.  report: how clearly it wins."""

    token: Number
    result: Number
    report: list[Number]


def _published(launch: Launch, run: Number, sequence: Number | int) -> Number:
    """Where blocks publish a run's bests: bytes from the start of what is exchanged."""
    sequences, blocks = launch.layout.sequences, launch.layout.blocks
    return ((run & 1) * sequences + sequence) * (32 * blocks) + launch.layout.lines["best"]


def publish_lines(launch: Launch, place: Number, words: Sequence[Number], tag: Number, where: Number) -> None:
    """Publish words at a place of what is exchanged, where a lane has them: lines of three, whose third word is a
    tag."""
    bits = [w.bits() if w.is_real else w for w in words]
    bits += [word(0)] * (-len(bits) % 3)
    with given(where):
        for i in range(0, len(bits), 3):
            to = ptx.pointer(launch.exchange, place + 16 * (i // 3))
            ptx.store_line(to, [*bits[i : i + 2], tag, bits[i + 2]])


def gathered(launch: Launch, start: Number, pitch: int, count: int, tag: Number) -> list[tuple[Number, list[Number]]]:
    """By a subgroup: the words of the first lines that all blocks publish, once they have a tag.  For each of a lane's
    blocks: whether it is one, its words.  start: where the first block's lie.  pitch: bytes from a block's to the next
    one's."""
    there, pointers = [], []
    for first in range(0, launch.layout.blocks, 32):
        number = launch.lane + first
        there.append(number < launch.layout.blocks)
        place = start + there[-1].where(number, 0) * pitch
        pointers += [ptx.pointer(launch.exchange, place + 16 * i) for i in range(count)]
    lines = ptx.await_lines(pointers, lambda line: line[2] ^ tag)
    ptx.subgroup_barrier()
    words = [[w for line in lines[i : i + count] for w in (*line[:2], line[3])] for i in range(0, len(lines), count)]
    return list(zip(there, words, strict=True))


def _awaited(launch: Launch, run: Number, sequence: Number | int, count: int) -> list[tuple[Number, list[Number]]]:
    """The same of a run's bests."""
    ptx.pause_until(ptx.clock(), PAUSE)
    return gathered(launch, _published(launch, run, sequence), 32, count, run)


def chosen_before(launch: Launch, run: Number, sequence: Number | int = 0) -> Number:
    """By a subgroup: what the launch's run before this one has chosen; where all blocks have layers, one reports it."""

    def token() -> Number:
        return _choose_token(launch, launch.before + run, sequence)

    if launch.kept and not launch.layout.others:
        return either(launch.reports, "r", lambda: [report(launch, run, sequence)], lambda: [token()])[0]
    return token()


def report(launch: Launch, run: Number, sequence: Number | int = 0) -> Number:
    """The same by the block that leaves that run's results."""
    choice = choose(launch, launch.before + run, sequence)
    when(launch.lane == 0, lambda: leave(launch, choice, run - 1, sequence))
    return choice.token


def _choose_token(launch: Launch, run: Number, sequence: Number | int) -> Number:
    """Once all blocks have published: what to go on with.  run: one more than the number of runs before."""
    best = Best.none()
    for inside, (rank, token, _) in _awaited(launch, run, sequence, 1):
        best = best.joined(Best(rank, token, word(LOWEST), word(0)).where(inside))
    rank = ptx.over_lanes("max", best.rank)
    token = ptx.over_lanes("min", (best.rank == rank).where(best.token, NOBODY))
    return is_number(rank).where(token, 0)


def choose(launch: Launch, run: Number, sequence: Number | int = 0) -> Choice:
    """By a subgroup, once all blocks have published."""
    best, size = Best.none(), word(0)
    for inside, (rank, token, below, equals, wide, _) in _awaited(launch, run, sequence, 2):
        best = best.joined(Best(rank, token, below, equals).where(inside))
        size = greater(size, inside.where(wide, 0))
    best, size = best.across(), ptx.over_lanes("max", size)
    known = is_number(best.rank)
    result = known.where(best.token, -1)
    gap = (value_of(best.rank) - value_of(best.below)) / size.bits()
    return Choice(known.where(best.token, 0), result, [result, best.equals, gap.bits()])


def leave(launch: Launch, choice: Choice, run: Number | None, sequence: Number | int = 0) -> None:
    """By one thread: a run's results for a sequence.  run: where they are kept; None: as the launch's."""
    results = [[choice.result], choice.report][: len(launch.chain.chosen)]
    if run is not None:
        for memory, words in zip(launch.kept, results, strict=True):
            for i, value in enumerate(words):
                b.store(value.value, memory, [run.index(), index_of(sequence, len(words), i)])
        return
    for series, words in zip(launch.chain.chosen, results, strict=True):
        memory = launch.view(series, 0, ir.MemRefType.get([launch.layout.sequences * len(words)], b.i32()))
        for i, value in enumerate(words):
            b.store(value.value, memory, [index_of(sequence, len(words), i)])


def index_of(sequence: Number | int, each: int = 1, number: int = 0) -> Index:
    """Where a sequence's number-th of so many words is."""
    return number if isinstance(sequence, int) else (sequence * each + number).index()


def end(launch: Launch, choice: Choice, last: Number | None, sequence: Number | int = 0) -> None:
    """By the first block: results, and what the next launch starts from.  last: where the last run's are still to be
    kept."""
    with given(launch.lane == 0):
        i32 = ir.MemRefType.get([launch.layout.sequences], b.i32())
        leave(launch, choice, None, sequence)
        for buffer, value in (
            (launch.chain.tokens, choice.token),
            (launch.chain.positions, launch.position_of(sequence) + launch.times),
        ):
            view = b.emit("memref.view", [launch.memories[buffer], b.as_value(0)], [i32])
            b.store(value.value, view, [index_of(sequence)])
        counted = launch.before + launch.times
        if isinstance(sequence, int):
            b.store(counted.value, launch.exchange, [0])
        else:
            when(sequence == 0, lambda: b.store(counted.value, launch.exchange, [0]))
        if launch.kept and last is not None:
            leave(launch, choice, last, sequence)
