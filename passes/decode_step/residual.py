"""The residual stream of a launch: each block has all of it, each thread that multiplies some columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import added, both, chosen, given, lesser, real, when, word
from lispgpt.passes.decode_step.chain import NormWeights, Product
from lispgpt.passes.decode_step.fixed_point_sums import lacks, value_of_sum
from lispgpt.passes.decode_step.launch import Launch, added_to, copied, embedded, lanes, moments_of, preload
from lispgpt.passes.decode_step.layout import SUBGROUPS
from lispgpt.passes.targets import ptx


@dataclass(frozen=True)
class Piece:
    """Neighbouring columns of a sequence, a thread's.  number: of all such of a sequence; another thread's where this
    one has none.  works: whether it has one; None: all threads have."""

    sequence: Number
    number: Number
    column: Number
    works: Number | None


class Residual:
    """By all threads of the subgroups that multiply.  kinds: of a thread's numbers."""

    def __init__(self, launch: Launch) -> None:
        self.launch, layout, subgroup = launch, launch.layout, launch.subgroup
        self.each, parts = layout.piece, layout.residual_parts
        groups = max(1, SUBGROUPS // parts)
        self.steps = (groups, 0) if parts <= SUBGROUPS else (0, SUBGROUPS)  # of sequences, and of parts of them
        self.first = (subgroup // parts, subgroup % parts) if parts <= SUBGROUPS else (word(0), subgroup)
        turns = -(-layout.sequences // groups) if parts <= SUBGROUPS else -(-parts // SUBGROUPS)
        some = groups * turns > layout.sequences or groups * parts < SUBGROUPS or parts > SUBGROUPS
        self.pieces = [self._piece(self._number(turn), some) for turn in range(turns)]
        self.kinds = "f" * (self.each * turns)

    def _number(self, turn: Number | int) -> tuple[Number, Number]:
        """A subgroup's sequence and part of it in its turn; past the last where it has none."""
        (sequence, part), (more, later) = self.first, self.steps
        return sequence + turn * more if more else sequence, part + turn * later if later else part

    def _piece(self, number: tuple[Number, Number], some: bool) -> Piece:
        """some: whether the sequence or the part may be none."""
        layout, count = self.launch.layout, self.launch.layout.width // self.each
        (sequence, part), works = number, None
        place = part * 32 + self.launch.lane
        if some or layout.residual_parts * 32 > count:
            works = (place < count) & (sequence < layout.sequences)
            place, sequence = lesser(place, word(count - 1)), lesser(sequence, word(layout.sequences - 1))
        return Piece(sequence, place, place * self.each, works)

    # ---- what it is made of

    def of_tokens(self, run: Number) -> list[Number]:
        """Ahead of all layers, once tokens are known."""
        launch = self.launch
        made = copied(launch, launch.chain.embedding, 0)
        return [w for p in self.pieces for w in embedded(launch, made, p.sequence, p.column, run, self.each)]

    # ---- for whom it is

    def by_pieces(self, numbers: Sequence[Number]) -> list[tuple[Piece, list[Number]]]:
        starts = range(0, len(numbers), self.each)
        return [(p, list(numbers[i : i + self.each])) for p, i in zip(self.pieces, starts, strict=True)]

    def weights(self, norm: NormWeights, layer: Number | int) -> list[list[Number]]:
        """A norm's gamma and beta, if any, of a thread's columns."""
        found = []
        for series in norm.series:
            memory = self.launch.view(series, layer, ir.MemRefType.get([self.launch.layout.width], b.f32()))
            found.append([w for p in self.pieces for w in lanes(b.load(memory, [p.column.index()], self.each))])
        return found

    def normed(self, numbers: Sequence[Number], norm: NormWeights, weights: Sequence[Sequence[Number]]) -> list[Number]:
        """weights: what `weights` has found."""
        self.leave_moments(numbers)
        self.launch.synchronize()
        sequence = lesser(self.launch.lane, word(self.launch.layout.sequences - 1))
        moments, made, (gamma, *beta) = self.moments(norm, sequence), list[Number](), weights
        for piece, own in self.by_pieces(numbers):
            one = self.launch.layout.sequences == 1
            mean, factor = moments if one else (value.of_lane(piece.sequence) for value in moments)
            made += [(x - mean if norm.centred else x) * factor for x in own]
        made = [x * g for x, g in zip(made, gamma, strict=True)]
        return [x + y for x, y in zip(made, beta[0], strict=True)] if beta else made

    def leave_moments(self, numbers: Sequence[Number]) -> None:
        """The sums of a subgroup's numbers of each piece, and of their squares."""
        launch, layout, sums = self.launch, self.launch.layout, list[Number]()
        for piece, own in self.by_pieces(numbers):
            for total in (added(own), added([x * x for x in own])):
                sums.append(chosen(piece.works, total, 0.0))
        turn, value, leaves = shared_sums(launch.lane, sums)
        sequence, part = self._number(turn >> 1)
        place = launch.place("statistics") + ((sequence * layout.residual_parts + part) * 2 + (turn & 1)) * 4
        there = (sequence < layout.sequences) & (part < layout.residual_parts)
        when(leaves & there, lambda: ptx.store_words(place, [value]))

    def moments(self, norm: NormWeights, sequence: Number) -> tuple[Number, Number]:
        """(mean, 1 / deviation) of a sequence, once all subgroups have left theirs."""
        count = self.launch.layout.residual_parts
        start = self.launch.place("statistics") + sequence * (8 * count)
        sums = zip(*(ptx.load_reals(start + 8 * i, 2) for i in range(count)), strict=True)
        total, square = map(added, sums)
        return moments_of(self.launch, total, square, norm.centred, norm.epsilon)


class OneResidual(Residual):
    """Of one sequence.  What clusters add to it, they add to sums in memory that all blocks share, one for each column.
    A thread asks for those of its columns until all clusters have added, and goes on with the bits that all other
    blocks go on with.  A layer has two additions, and each its own sums.  Those are added to again a layer later, by a
    cluster that has read the other addition's, to which all clusters have added since they read these."""

    def before(self) -> list[list[Number]]:
        """What earlier launches have left in the sums of both additions."""
        return [[h for p in self.pieces for h in ptx.load_line(self._line("seen", number, p))] for number in (0, 1)]

    def keep(self, seen: Sequence[Sequence[Number]]) -> None:
        """By one block, behind the last run: the same for the next launch."""
        with given(self.launch.block == 0):
            for number, halves in enumerate(seen):
                for piece, own in self.by_pieces(halves):
                    when(piece.works, partial(ptx.store_halves, self._line("seen", number, piece), own))

    def added(
        self, number: int, product: Product, layer: Number, x: Sequence[Number], seen: Sequence[Number], since: Number
    ) -> tuple[list[Number], list[Number]]:
        """(the residual stream with what all clusters add by this product, what is read of the sums).  number: 0 or 1,
        of a layer's addition.  since: the clock when this block had made its part."""
        launch = self.launch
        made = copied(launch, product, layer)
        at = [[0, piece.column.index()] for piece in self.pieces]
        for index in at:
            preload(made, index, 2)

        def wanting(line: int, halves: list[Number]) -> Number:
            parts = launch.layout.layer_clusters
            return lacks(halves[0], seen[2 * line], parts) | lacks(halves[1], seen[2 * line + 1], parts)

        ptx.pause_until(since, launch.layout.pause)
        lines = ptx.await_halves([self._line("sums", number, piece) for piece in self.pieces], wanting)
        ptx.subgroup_barrier()
        found = []
        for index, line, (_, before), (_, own) in zip(at, lines, self.by_pieces(seen), self.by_pieces(x), strict=True):
            found += added_to(made, product, index, list(map(value_of_sum, line, before)), own)
        return found, [half for line in lines for half in line]

    def _line(self, name: str, number: int, piece: Piece) -> ir.Value:
        """Of a piece's sums of an addition, or of what they were before."""
        layout = self.launch.layout
        return ptx.pointer(self.launch.exchange, piece.number * 16 + (layout.lines[name] + number * 8 * layout.width))

    # ---- clusters without layers

    def leave(self, run: Number, numbers: Sequence[Number]) -> None:
        """By the first cluster, each rank its columns."""
        launch, count = self.launch, self.launch.layout.columns // 2
        for piece, own in self.by_pieces(numbers):
            here = both(piece.number // count == launch.rank, piece.works)
            line = [*own, self._mark(run), word(0)]
            when(both(here, launch.cluster == 0), partial(ptx.store_line, self._line("final", 0, piece), line))

    def final(self, run: Number) -> list[Number]:
        """The residual stream behind all layers, as the first cluster leaves it: one subgroup asks whether it is there,
        as long as layers go on, whose exchanges it would be in the way of otherwise."""
        mark, places = self._mark(run), [self._line("final", 0, piece) for piece in self.pieces]

        def wanting(words: list[Number]) -> Number:
            return words[2] ^ mark

        when(self.launch.subgroup == 0, lambda: ptx.await_lines(places[:1], wanting))
        self.launch.synchronize()
        lines = ptx.await_lines(places, wanting)
        ptx.subgroup_barrier()
        return [w.bits() for line in lines for w in line[:2]]

    def _mark(self, run: Number) -> Number:
        """Which no run before has had at the place."""
        return self.launch.before + run + 1


def shared_sums(lane: Number, values: list[Number]) -> tuple[Number, Number, Number]:
    """Some numbers, each added up across a subgroup's lanes, which share the sums out: (the number of a lane's, its
    sum, whether it is the first lane that has it)."""
    number, distance = word(0), 16
    while len(values) & (len(values) - 1):  # so that no two lanes that share have the same number
        values = [*values, real(0.0)]
    while len(values) > 1:
        half, upper = len(values) // 2, (lane & distance) != 0
        kept = [upper.where(y, x) for x, y in zip(values[:half], values[half:], strict=True)]
        given = [upper.where(x, y) for x, y in zip(values[:half], values[half:], strict=True)]
        values = [x + y.from_lane(distance) for x, y in zip(kept, given, strict=True)]
        number, distance = number + upper.where(word(half), 0), distance // 2
    (value,), first = values, (lane & (2 * distance - 1)) == 0
    while distance:
        value, distance = value + value.from_lane(distance), distance // 2
    return number, value, first
