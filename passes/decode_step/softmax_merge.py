"""How parts of attention over some positions are joined: of a block's subgroups, then of a cluster's ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import each, either, fused, greater, if_there, when, word
from lispgpt.passes.decode_step.attention import LOWEST
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import RANKS
from lispgpt.passes.decode_step.products import PAIR, parts_of_pair
from lispgpt.passes.kernels.expand import exp2
from lispgpt.passes.targets import ptx

FEW = 4
"""Subgroups whose parts are joined where no others have any."""


def merge(launch: Launch, position: Number, receive: Number) -> None:
    """By the finisher: join the block's parts of each head, publish it to all ranks, and join theirs to the heads'
    results.

    receive: the parity of the phase in which theirs are there.
    """
    _for_heads(launch, lambda head: _publish(launch, position, head))
    ptx.wait(launch.barrier("merged"), receive)
    _for_heads(launch, lambda head: _whole(launch, head))


def _for_heads(launch: Launch, body: Callable[[Number], None]) -> None:
    if launch.layout.each == 1:
        body(word(0))
    else:
        each(0, launch.layout.each, body)


def pairs_of(launch: Launch) -> tuple[list[Number], list[Number | None]]:
    """(first numbers of pairs that a lane has of a head, whether there are such, where not all lanes have them)."""
    depth = launch.layout.depth
    firsts = range(0, depth, 64)
    at = [launch.lane * 2 + first for first in firsts]
    there = [None if first + 64 <= depth else number < depth for first, number in zip(firsts, at, strict=True)]
    return [n if t is None else t.where(n, 0) for n, t in zip(at, there, strict=True)], there


def _publish(launch: Launch, position: Number, head: Number) -> None:
    """Of one head."""
    layout, lane = launch.layout, launch.lane
    at, there = pairs_of(launch)
    top, total, *numbers = join_parts(launch, launch.past(position), launch.owns(position), head, at)
    to = (head * RANKS + launch.rank) * layout.part
    for i, (number, inside) in enumerate(zip(at, there, strict=True)):
        pair = numbers[2 * i : 2 * i + 2]
        four = to + (number - lane % 2 * 2) * 4, launch.of_neighbours(pair, 2)
        if_there(inside, partial(launch.send, "merged", [four], 2))

    def end() -> None:
        remote = launch.remote(lane)
        place = to + (layout.at["merged"] + 4 * layout.depth)
        ptx.send(remote + place, [top, total], remote + layout.barrier["merged"])

    when(lane < RANKS, end)


def join_parts(launch: Launch, count: Number, owns: Number | None, head: Number, at: Sequence[Number]) -> list[Number]:
    """A block's subgroups' parts of one head, over so many earlier positions, and that of the row's own key, where the
    block has it (None: it does): the largest score, the sum below it, and a lane's numbers."""
    layout = launch.layout
    first = launch.place("parts") + head * ((layout.head_subgroups + 1) * layout.part)

    def join(subgroups: range) -> list[Number]:
        places = [first + w * layout.part for w in (*subgroups, layout.head_subgroups)]
        ends = [ptx.load_reals(place + 4 * layout.depth, 2) for place in places]
        numbers = [[w for n in at for w in ptx.load_reals(place + n * 4, 2)] for place in places]
        if owns is not None:
            last_top, last_total = ends[-1]
            ends[-1] = [owns.where(last_top, LOWEST), owns.where(last_total, 0.0)]
            numbers[-1] = [owns.where(n, 0.0) for n in numbers[-1]]
        return _joined(launch, ends, numbers)

    if layout.head_subgroups <= FEW:
        return join(range(layout.head_subgroups))
    few = count <= FEW * (32 // layout.row_lanes)
    kinds = "f" * (2 + 2 * len(at))
    return either(few, kinds, lambda: join(range(FEW)), lambda: join(range(layout.head_subgroups)))


def _whole(launch: Launch, head: Number) -> None:
    """One head's result, as an operand."""
    layout = launch.layout
    at, there = pairs_of(launch)
    first = launch.place("merged") + head * (RANKS * layout.part)
    mine = [first + i * layout.part for i in range(RANKS)]
    ends = [ptx.load_reals(m + 4 * layout.depth, 2) for m in mine]
    numbers = [[w for n in at for w in ptx.load_reals(m + n * 4, 2)] for m in mine]
    _, total, *sums = _joined(launch, ends, numbers)
    whole = Number(b.intrinsic(launch.target.intrinsics["reciprocal"], [total.value], b.f32()))
    for i, (number, inside) in enumerate(zip(at, there, strict=True)):
        pair = (head * layout.depth + number) // 2
        both = [s * whole for s in sums[2 * i : 2 * i + 2]]
        to = launch.place("attended") + pair * PAIR
        if_there(inside, partial(ptx.store_words, to, parts_of_pair(*both)))


def _joined(launch: Launch, ends: list[list[Number]], numbers: list[list[Number]]) -> list[Number]:
    top = _largest([one for one, _ in ends])
    factors = [Number(exp2((one - top).value, launch.target)) for one, _ in ends]
    total, sums = factors[0] * ends[0][1], [factors[0] * n for n in numbers[0]]
    for factor, (_, part), own in zip(factors[1:], ends[1:], numbers[1:], strict=True):
        total = fused(factor, part, total)
        sums = [fused(factor, n, s) for n, s in zip(own, sums, strict=True)]
    return [top, total, *sums]


def _largest(numbers: list[Number]) -> Number:
    half = len(numbers) // 2
    return greater(_largest(numbers[:half]), _largest(numbers[half:])) if half else numbers[0]
