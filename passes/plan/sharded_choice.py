"""The choice of the largest logit in a sharded launch: every block tells its largest, and those that go on read all.

Logits are ordered as integers, a NaN above all; of equals the first token is taken (see lib/chunks.lisp).
"""

from __future__ import annotations

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, greater, lesser, real, when, word
from lispgpt.passes.plan.sharded_launch import Launch
from lispgpt.passes.plan.sharded_layout import WARPS

LOWEST, INFINITE, NOT_A_NUMBER, NOBODY = -2139095041, 0x7F800000, 0x7FFFFFFF, 0x7FFFFFFF


def rank_of(value: Word) -> Word:
    """A number in the order of reals, both zeros equal."""
    bits = (value + real(0.0)).bits()
    flipped = bits ^ (bits.signed_shift(31) & 0x7FFFFFFF)
    return (value != value).where(word(NOT_A_NUMBER), flipped)


def better(best: tuple[Word, Word], other: tuple[Word, Word]) -> tuple[Word, Word]:
    """The larger rank, of equals the lower token."""
    top = greater(best[0], other[0])
    first = (best[0] == top).where(best[1], NOBODY)
    second = (other[0] == top).where(other[1], NOBODY)
    return top, lesser(first, second)


def across(best: tuple[Word, Word], distances: tuple[int, ...] = (16, 8, 4, 2, 1)) -> tuple[Word, Word]:
    for distance in distances:
        best = better(best, (best[0].from_lane(distance), best[1].from_lane(distance)))
    return best


def tell(launch: Launch, run: Word) -> None:
    """By the exchanger: this block's best of its warps' bests.  run: one more than the number of runs before."""
    lane = (launch.lane < WARPS).where(launch.lane, 0)
    rank, token = c.load_words(launch.place("best") + lane * 8, 2)
    rank, token = across((rank, token))
    to = c.pointer(launch.exchange, launch.block * 16 + launch.layout.lines["best"])
    when(launch.lane == 0, lambda: c.store_line(to, [rank, token, run, word(0)]))


def choose(launch: Launch, run: Word) -> tuple[Word, Word]:
    """By a warp: (the token to go on with, what the run's result is), once all blocks have told."""
    blocks = launch.layout.blocks
    best: tuple[Word, Word] | None = None
    pointers = []
    for first in range(0, blocks, 32):
        number = launch.lane + first
        if first + 32 > blocks:
            number = (number < blocks).where(number, 0)
        pointers.append(c.pointer(launch.exchange, number * 16 + launch.layout.lines["best"]))
    for words in c.await_lines(pointers, lambda found: found[2] ^ run):
        one = (words[0], words[1])
        best = one if best is None else better(best, one)
    assert best is not None
    c.warp_barrier()
    rank, token = across(best)
    known = ((rank > LOWEST).where(word(1), 0) & (rank < INFINITE).where(word(1), 0)) == 1
    result = known.where(token, -1)
    return known.where(token, 0), result
