"""How parts of attention over some positions are joined: of a block's warps, then of a cluster's ranks."""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.expand import exp2
from lispgpt.passes.kernels.words import Word, either, fused, greater, when
from lispgpt.passes.plan.sharded_attention import LOWEST
from lispgpt.passes.plan.sharded_launch import Launch
from lispgpt.passes.plan.sharded_layout import RANKS, WARPS


def merge(launch: Launch, position: Word, receive: Word) -> None:
    """By the finisher: join the block's parts, tell all ranks, and join theirs to the head's result.

    receive: the parity of the phase in which theirs are there.
    """
    layout, lane = launch.layout, launch.lane
    count = (position + (RANKS - 1) - launch.rank) // RANKS
    owns = position % RANKS == launch.rank
    few = count <= 8

    def join(warps: range) -> list[Word]:
        places = [launch.place("parts") + w * layout.part for w in (*warps, WARPS)]
        ends = [c.load_reals(place + 4 * layout.depth, 2) for place in places]
        numbers = [c.load_reals(place + lane * 8, 2) for place in places]
        last_top, last_total = ends[-1]
        ends[-1] = [owns.where(last_top, LOWEST), owns.where(last_total, 0.0)]
        numbers[-1] = [owns.where(n, 0.0) for n in numbers[-1]]
        return _joined(launch, ends, numbers)

    top, total, a, other = either(few, "ffff", lambda: join(range(4)), lambda: join(range(WARPS)))
    place, barrier = layout.at["merged"], layout.barrier["merged"]
    ranks = [launch.remote(i) for i in range(RANKS)]
    four = [a, other, a.from_lane(1), other.from_lane(1)]

    def numbers() -> None:
        for remote in ranks:
            c.send(remote + place + launch.rank * layout.part + lane * 8, four, remote + barrier)

    when((lane & 1) == 0, numbers)

    def end() -> None:
        remote = launch.remote(lane)
        c.send(remote + (place + 4 * layout.depth) + launch.rank * layout.part, [top, total], remote + barrier)

    when(lane < RANKS, end)
    c.wait(launch.barrier("merged"), receive)
    mine = [launch.place("merged") + i * layout.part for i in range(RANKS)]
    ends = [c.load_reals(m + 4 * layout.depth, 2) for m in mine]
    _, total, a, other = _joined(launch, ends, [c.load_reals(m + lane * 8, 2) for m in mine])
    whole = Word(b.intrinsic(launch.target.intrinsics["reciprocal"], [total.value], b.f32()))
    to = launch.place("attended") + (lane // 8) * 128 + (lane % 4) * 32 + ((lane // 4) & 1) * 4
    for number, part in enumerate(c.split(a * whole, other * whole)):
        c.store_words(to + 8 * number, [part])


def _joined(launch: Launch, ends: list[list[Word]], numbers: list[list[Word]]) -> list[Word]:
    top = ends[0][0]
    for one, _ in ends[1:]:
        top = greater(top, one)
    factors = [Word(exp2((one - top).value, launch.target)) for one, _ in ends]
    total, sums = factors[0] * ends[0][1], [factors[0] * n for n in numbers[0]]
    for factor, (_, part), own in zip(factors[1:], ends[1:], numbers[1:], strict=True):
        total = fused(factor, part, total)
        sums = [fused(factor, n, s) for n, s in zip(own, sums, strict=True)]
    return [top, total, *sums]
