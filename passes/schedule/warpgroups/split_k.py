"""Tiles whose k is shared out to blocks: which pieces a worker has, and how sums over some of k become those of all.

A worker hands on a fragment by memory, as its threads hold it, and says so by a signal of the tile; who finishes a tile
waits for the signal, and adds fragments to its own sums in their order, so that results are the same in every run.
Those who finish tiles have the highest numbers: what they wait for has started before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.base.access import READ_WRITE, SCRATCH
from lispgpt.ir import build as b
from lispgpt.ir.access import access_of, set_access
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import callee_of, retype
from lispgpt.passes.kernels.kernel import calls_of
from lispgpt.passes.memory.kernel_buffers import add_argument, byte_array
from lispgpt.passes.schedule.warpgroups.signals import Signals, signal_words
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.shared_steps import SharedSteps
from lispgpt.passes.targets.warpgroup_tiles import Tiling

WIDTH = 4
"""Sums that a thread stores at once."""

SIGNALS = "signals:fragments"


@dataclass(frozen=True)
class TileShare:
    """Of a tile's k, `steps` steps from `first` on.  fragment: the number of the worker's, where it is one; finishes:
    whether it is none."""

    tile: Index
    first: Index
    steps: Index
    fragment: Index
    finishes: ir.Value | None


@dataclass(frozen=True)
class TileShares:
    """shares: who does what.  pair: blocks of a worker, of which this one is number `rank`.  worker: by numbers that
    count down from the last."""

    target: Gpu
    shares: SharedSteps
    pair: int
    worker: Index
    rank: Index

    def count(self) -> Index:
        """The worker's pieces."""
        s, beside = self.shares, self._beside()
        if not s.rest:
            return 1
        last = b.emit("arith.index_castui", [b.less(beside, s.remaining * s.parts)], [ir.IndexType.get()])
        return b.select(self._in_group(), b.as_value(1), b.as_value(b.add(last, s.rounds)))

    def piece(self, number: Index) -> TileShare:
        """The worker's number-th."""
        s = self.shares
        group, tile = b.div(self.worker, s.tiles), b.mod(self.worker, s.tiles)
        finishes = b.less(self.worker, s.tiles)
        mine = TileShare(tile, b.mul(group, s.each), s.each, b.sub(self.worker, s.tiles), finishes)
        if not s.rest:
            return mine
        beside, first = self._beside(), s.groups * s.each
        fragment = b.add(b.add(b.mul(number, s.left), beside), (s.groups - 1) * s.tiles)
        rounds = TileShare(b.add(b.mul(number, s.left), beside), first, s.rest, fragment, finishes)
        part = b.mod(beside, s.parts)
        skipped = b.mul(part, s.part)
        steps = b.at_most(b.sub(s.rest, skipped), s.part)
        tile = b.add(b.div(beside, s.parts), s.rounds * s.left)
        ends = TileShare(tile, b.add(skipped, first), steps, fragment, finishes)
        return _either(self._in_group(), mine, _either(b.less(number, s.rounds), rounds, ends))

    def _in_group(self) -> ir.Value:
        return b.less(self.worker, self.shares.groups * self.shares.tiles)

    def _beside(self) -> Index:
        return b.sub(self.worker, self.shares.groups * self.shares.tiles)

    def hand_on(self, memory: Sequence[ir.Value], piece: TileShare, thread: Index, threads: int, sums: list) -> None:
        """Leave sums as a fragment.  memory: the kernel's for fragments and for signals.  thread: of `threads` that all
        do this."""
        fragments, signals = memory
        at = b.add(b.mul(piece.fragment, self.pair), self.rank)
        for first in range(0, len(sums), WIDTH):
            b.store(b.vector_of(sums[first : first + WIDTH]), fragments, [at, first // WIDTH, thread, 0])
        self.target.team_barrier(threads)
        made = Signals(self.target, signals)
        b.if_then(b.equal(thread, 0), lambda: made.add(self._signal(piece), b.constant(1, b.i32())))

    def add_up(
        self, memory: Sequence[ir.Value], piece: TileShare, thread: Index, threads: int, sums: list[ir.Value]
    ) -> list[ir.Value]:
        """A tile's sums with all of its fragments."""
        fragments, words = memory
        s, signals = self.shares, Signals(self.target, words)
        lone = b.less(piece.tile, s.rounds * s.left)
        count, start = 0, 0
        if s.rest:
            last = b.add(b.mul(b.sub(piece.tile, s.rounds * s.left), s.parts), s.rounds * s.left)
            count = b.select(lone, b.as_value(1), b.as_value(s.parts))
            start = b.add(b.select(lone, b.as_value(piece.tile), b.as_value(last)), (s.groups - 1) * s.tiles)
        taken = partial(signals.take, self._signal(piece), b.add(count, s.groups - 1))
        b.if_then(b.equal(thread, 0), taken)
        self.target.team_barrier(threads)

        def add(fragment: Index, sums: Sequence[ir.Value]) -> list[ir.Value]:
            at, found = b.add(b.mul(fragment, self.pair), self.rank), []
            for first in range(0, len(sums), WIDTH):
                loaded = b.load(fragments, [at, first // WIDTH, thread, 0], WIDTH)
                found += [b.binary("arith.addf", sums[first + i], b.lane_of(loaded, i)) for i in range(WIDTH)]
            return found

        for low, high, each in ((0, s.groups - 1, s.tiles), (0, count, 1)):
            if isinstance(high, int) and high == 0:
                continue
            base = piece.tile if each == s.tiles and high == s.groups - 1 else start

            def one(i: ir.Value, *carried: ir.Value, base: Index = base, each: int = each) -> list[ir.Value]:
                return add(b.add(b.mul(i, each), base), carried)

            sums = b.loop(low, high, 1, sums, one)
        return sums

    def _signal(self, piece: TileShare) -> Index:
        return b.add(b.mul(piece.tile, self.pair), self.rank)


def _either(condition: ir.Value, one: TileShare, other: TileShare) -> TileShare:
    def of(name: str) -> ir.Value:
        return b.select(condition, b.as_value(getattr(one, name)), b.as_value(getattr(other, name)))

    return TileShare(of("tile"), of("first"), of("steps"), of("fragment"), one.finishes)


def lend_memory(module: ir.Module, kernel: ir.Operation, tiling: Tiling, threads: int) -> None:
    """Give a kernel two more arguments, in all calls: room for fragments as threads hold them, and the tiles' signals.

    threads: of a warpgroup.
    """
    shares, pair, every = tiling.shares, tiling.pair, tiling.warpgroups * threads
    assert shares is not None
    sums = tiling.rows * tiling.outputs // every
    room = ir.MemRefType.get([max(1, shares.fragments) * pair, sums // WIDTH, every, WIDTH], b.f32())
    words = ir.MemRefType.get([signal_words(shares.tiles * pair)], b.i32())
    block = kernel.regions[0].blocks[0]
    for call in calls_of(module, kernel):
        with ir.InsertionPoint(call), call.location:
            memory = _signals_of(call.parent.operation, words.shape[0])
            signals = b.emit("memref.view", [memory, b.as_value(0)], [words])
            b.call(callee_of(call), [*call.operands, b.allocated(room), signals])
        call.erase()
    for type_ in (room, words):
        block.add_argument(type_, ir.Location.unknown())
    set_access(kernel, [*access_of(kernel), SCRATCH, READ_WRITE])
    retype(kernel)


def _signals_of(entry: ir.Operation, words: int) -> ir.Value:
    """An entry's memory for signals, which is there once, of as many words as its kernels want at most."""
    wanted = ir.RankedTensorType.get([words], b.i32())
    memory = add_argument(entry, SIGNALS, wanted)
    if memory.type.shape[0] < 4 * words:
        memory.set_type(byte_array(4 * words))
        types = list(entry.attributes["types"])
        types[ir.BlockArgument(memory).arg_number] = ir.TypeAttr.get(wanted)
        entry.attributes["types"] = ir.ArrayAttr.get(types)
        retype(entry)
    return memory
