"""Products of a launch of several sequences: each of a number's three parts is an instruction, whose columns are the
sequences.

Weights are in registers before the other side is there, once for all sequences.  A tile is an instruction's 16 rows: of
a product of rows those of two chunks.  A subgroup has a slice of the depth for one tile or for several, so that few
subgroups read the same of the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import each, given, lesser, real, when, word
from lispgpt.passes.decode_step.batch_layout import (
    MATRIX_BYTES,
    MOST_SEQUENCES,
    OPERAND_PARTS,
    PART_BYTES,
    STEP_BYTES,
    pitch,
)
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import LINE, THREADS, Sharing
from lispgpt.passes.decode_step.products import LINE_STEPS, Held, Numbers, Products, Read, tiles_of
from lispgpt.passes.decode_step.residual import Residual
from lispgpt.passes.decode_step.weights import Fragment, Weights
from lispgpt.passes.targets import ptx

Totals = list[list[Number]]


class BatchProducts(Products):
    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self.weights = Weights(launch)

    # ---- weights

    def load_rows(self, chunk: Number, sharing: Sharing, count: int) -> Held:
        """The chunk-th chunk and those behind it, so many, each 8 rows."""
        launch, layout, lane = self.launch, self.launch.layout, self.launch.lane
        number, _ = self.share_out(sharing)
        part = number % sharing.slices
        tiles = tiles_of(number // sharing.slices, sharing)
        first, odd, arrivals = part * sharing.steps, (lane // 8 & 1) == 1, layout.arrivals // sharing.slices
        pairs = [[launch.slot(chunk + n) for n in (t * 2, lesser(t * 2 + 1, word(count - 1)))] for t in tiles]

        def load() -> Numbers:
            found = []
            for pair in pairs:
                for slot, parity in pair:
                    ptx.wait(launch.full(slot), parity)
                base = launch.start + odd.where(pair[1][0], pair[0][0]) * layout.chunk
                found += [self.weights.load(self._place_of_row(base, first + i)) for i in range(sharing.steps)]
            return found, []

        read: list[Read] = []
        for tile, ((one, _), (other, _)) in zip(tiles, pairs, strict=True):
            there = None if count % 2 == 0 else tile * 2 + 1 < count
            read += [(one, arrivals, None), (other, arrivals, there)]
        return self.hold(sharing, part, tiles, load, read, sharing.steps)

    def _place_of_row(self, base: Number, step: Number) -> Number:
        """Where a lane's weights of a step lie: of its row in a chunk of 8."""
        row, line = self.launch.lane % 8, 8 * 2 * LINE
        return self.weights.column_place(base + step // LINE_STEPS * line, step % LINE_STEPS, word(0), row)

    # ---- operands

    def operands(self, place: Number, step: Number | int, distance: int = 1) -> list[list[Fragment]]:
        """What a lane has of a step of an operand and of another behind it: of each a fragment of each part."""
        lane = self.launch.lane
        half, late = lane // 8 & 1, lane // 16
        within = (lane % 8 ^ half) << 4

        def load(start: Number, step: Number) -> list[Number]:
            return ptx.load_matrices(start + step * STEP_BYTES + (within ^ ((step & 3) << 5)))

        steps = [word(step), word(step) + distance]
        first, second = (load(place + lane // 8 * MATRIX_BYTES, one) for one in steps)
        third = load(place + half * MATRIX_BYTES + 2 * PART_BYTES, late * distance + step)
        return [[a[:2], a[2:], third[2 * i : 2 * i + 2]] for i, a in enumerate((first, second))]

    def leave_sums(self, held: Held, source: str) -> None:
        """Multiply by an operand, and leave each slice's sums."""
        launch, sharing = self.launch, held.sharing
        place, first = launch.place(source), held.slice * sharing.steps
        totals = [self.none() for _ in held.tiles]
        for i in range(0, sharing.steps, 2):
            more = i + 1 < sharing.steps
            for step, parts in enumerate(self.operands(place, first + i, int(more))[: 1 + more]):
                for own, numbers in enumerate(held.numbers):
                    both = zip(parts, totals[own], strict=True)
                    totals[own] = [ptx.multiply(numbers[i + step], part, total) for part, total in both]
        group, column, size = launch.lane // 4, launch.lane % 4 * 2, 4 * pitch(sharing)
        with given(held.works):
            for tile, chains in zip(held.tiles, totals, strict=True):
                to = launch.place("sums") + (tile * 16 + group) * 4 + (held.slice * MOST_SEQUENCES + column) * size
                for number, value in enumerate(added(chains)):
                    ptx.store_words(to + (number % 2 * size + number // 2 * 32), [value])

    @staticmethod
    def none() -> Totals:
        """Chains, one for each part."""
        return [[real(0.0)] * 4 for _ in range(OPERAND_PARTS)]

    def sum_of(self, sharing: Sharing, sequence: Number, number: Number, count: int) -> list[Number]:
        """So many neighbouring numbers of a sequence, summed up over slices."""
        size = 4 * pitch(sharing)
        start = self.launch.place("sums") + sequence * size + number * 4
        own, *parts = (ptx.load_reals(start + i * (MOST_SEQUENCES * size), count) for i in range(sharing.slices))
        for part in parts:
            own = [x + y for x, y in zip(own, part, strict=True)]
        return own

    def split_up(self, source: str, name: str, depth: int) -> None:
        """Numbers that ranks have sent, [sequences, depth] in f32, as parts of an operand.  Parts that ranks send
        instead are half as much again, in words of which two are sent at once: 4 us a step of GPT-2 more on an H200."""
        launch, quads = self.launch, depth // 4

        def quad(number: Number) -> None:
            values = ptx.load_reals(launch.place(source) + number * 16, 4)
            store_parts(launch.place(name), number // quads, number % quads, values)

        for_threads(launch, launch.layout.sequences * quads, quad)
        launch.synchronize()


def store_parts(place: Number, sequence: Number, quad: Number, values: Sequence[Number]) -> None:
    """Four neighbouring numbers of a sequence as parts of an operand: for each step of 16 a matrix of each part's first
    and second half, whose rows, one for a sequence, are changed for each other so that neighbouring steps' lie in
    different banks."""
    step, half = quad // 4, quad // 2 & 1
    row = sequence ^ half ^ ((step & 3) << 1)
    to = place + (step * STEP_BYTES + half * MATRIX_BYTES + row * 16 + (quad & 1) * 8)
    for number, pair in enumerate(zip(ptx.split(*values[:2]), ptx.split(*values[2:]), strict=True)):
        ptx.store_words(to + number * PART_BYTES, pair)


def put(residual: Residual, numbers: Sequence[Number]) -> None:
    """The residual stream, scaled or normed, as an operand."""
    for piece, own in residual.by_pieces(numbers):
        when(piece.works, partial(store_parts, residual.launch.place("x"), piece.sequence, piece.number, own))


def for_threads(launch: Launch, count: int, body: Callable[[Number], None]) -> None:
    """body(number) of so many numbers, each by one of the threads that multiply."""
    turns = -(-count // THREADS)
    if turns > 8:
        each(launch.thread, count, body, THREADS)
        return
    for turn in range(turns):
        number = launch.thread + turn * THREADS
        if (turn + 1) * THREADS <= count:
            body(number)
        else:
            when(number < count, partial(body, number))


def added(chains: Totals) -> list[Number]:
    """The sums of an operand's parts' chains."""
    first, second, third = chains
    return [x + (y + z) for x, y, z in zip(first, second, third, strict=True)]
