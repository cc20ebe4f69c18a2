"""Products of a sharded launch by warps: weights of a ring's chunks in registers before the other side is there.

The stream comes as three bf16 parts of each number, which fill columns of a matrix instruction.  In a product of rows,
8 of them at once, both halves of the depth take part: rows 0 to 7 of an instruction are these rows along its first
half, rows 8 to 15 the same along the second.  Its norm's weights go through the same instructions before the stream is
there: what the norm adds and subtracts is put in order afterwards (see sharded_finish.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, each, either, real, when, word
from lispgpt.passes.plan.packed_weights import PackedWeights
from lispgpt.passes.plan.sharded_chain import NormWeights
from lispgpt.passes.plan.sharded_launch import Launch
from lispgpt.passes.plan.sharded_layout import LINE, MULTIPLIERS
from lispgpt.passes.plan.sharded_norm_sums import norm_sum
from lispgpt.passes.plan.sharded_scales import (
    Fragments,
    Scales,
    packed_places,
    row_scales,
    scaled_sums,
    with_scales,
    without_scales,
)
from lispgpt.passes.plan.sharded_sharing import WARPS, Sharing

AT_ONCE = 8
"""Steps whose weights and other side are read together where they are not held."""
QUAD = 32
"""Bytes of an operand's four numbers that a lane has in a step: two words for each part, and two zeros."""


@dataclass
class Loaded:
    """A warp's share of a product, with its weights, or the addresses where they are still to be loaded from.  works:
    whether it has one, where not all warps have.  scales: where weights have some."""

    sharing: Sharing
    tile: Word
    slice: Word
    works: Word | None
    weights: Sequence[list[Word] | Word]
    scales: Scales = ()


Source = tuple[NormWeights, Word, str, Word]
"""Of a product of rows: its norm, the layer, where its sums go, and which run of the launch it is."""


class Products:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.group, self.part = launch.lane // 4, launch.lane % 4

    def share_out(self, sharing: Sharing) -> tuple[Word, Word | None]:
        """(a warp's number among those that work, whether it does)."""
        if sharing.workers == WARPS:
            return self.launch.warp, None
        return self.launch.warp % sharing.workers, self.launch.warp < sharing.workers

    def release(self, slot: Word, count: int) -> None:
        c.fence_copies()
        c.warp_barrier()
        when(self.launch.lane == 0, lambda: c.arrive(self.launch.empty(slot), count))

    def load_where(self, works: Word | None, steps: int, load: Callable[[], Fragments]) -> Fragments:
        """Weights of so many steps by a warp that works; who has no share of a chunk may not touch its slot either, as
        nobody waits for it to have done so."""
        if works is None:
            return load()
        count = 4 * steps
        found = either(works, "r" * count, lambda: [w for a in load() for w in a], lambda: [word(0)] * count)
        return [found[i : i + 4] for i in range(0, count, 4)]

    # ---- products of rows

    def load_rows(self, chunk: Word, sharing: Sharing, source: Source, packed: PackedWeights | None = None) -> Loaded:
        """The chunk-th chunk and those behind it, each 8 rows; in a launch's first run also what does not change."""
        launch, layout = self.launch, self.launch.layout
        number, works = self.share_out(sharing)
        tile, part = number // sharing.slices, number % sharing.slices
        first = part * sharing.steps

        def load() -> Fragments:
            slot, parity = launch.slot(chunk + tile)
            c.wait(launch.full(slot), parity)
            base = launch.start + slot * layout.chunk
            if packed is None:
                weights = list(map(c.load_matrices, self._places(base, first, sharing)))
            else:
                weights = list(map(packed.load, packed_places(self.launch, base, first, sharing.steps)))
                weights = with_scales(weights, row_scales(self.launch, packed, base, first, sharing.steps, each_))
            self.release(slot, layout.arrivals // sharing.slices)
            return weights

        each_, count = self._shared(packed, sharing)
        found = self.load_where(works, sharing.steps + -(-count // 4), load)
        weights, scales = without_scales(found, sharing.steps, count)
        loaded = Loaded(sharing, tile, part, works, weights, [[scale] * 4 for scale in scales])
        self._fix(loaded, first, source)
        return loaded

    def _shared(self, packed: PackedWeights | None, sharing: Sharing) -> tuple[int, int]:
        """(how many steps of a slice share scales, how many scales these are)."""
        if packed is None:
            return 1, 0
        each_ = packed.steps_of(self.launch.layout.width // 32, sharing.steps)
        return each_, sharing.steps // each_

    def _places(self, start: Word, first: Word, sharing: Sharing) -> list[Word]:
        if sharing.steps % 4 == 0:
            return self.row_places(start + (first // 4) * (16 * LINE), 0, sharing.steps)
        return self.row_places(start, first, sharing.steps)

    def walk_rows(self, chunk: Word, sharing: Sharing, source: Source, packed: PackedWeights | None = None) -> None:
        """Multiply the chunk-th chunk and those behind it, some at a time, by the stream, and leave sums.

        Every warp waits for every chunk, so that it sees every phase of their barriers."""
        launch, layout = self.launch, self.launch.layout
        number, works = self.share_out(sharing)
        tile, part = number // sharing.slices, number % sharing.slices
        first = part * sharing.steps

        def some(turn: Word) -> None:
            start = chunk + turn * sharing.tiles
            slots = [launch.slot(start + i) for i in range(sharing.tiles)]
            for slot, parity in slots:
                c.wait(launch.full(slot), parity)
            mine = launch.slot(start + tile)[0] if sharing.tiles > 1 else slots[0][0]
            base, scales = launch.start + mine * layout.chunk, list[list[Word]]()
            if packed is None:
                places = self._places(base, first, sharing)
            else:
                places = packed_places(self.launch, base, first, sharing.steps)
                each_, _ = self._shared(packed, sharing)
                scales = [[scale] * 4 for scale in row_scales(self.launch, packed, base, first, sharing.steps, each_)]
            load = c.load_matrices if packed is None else packed.load
            parts = [range(i, min(i + AT_ONCE, sharing.steps)) for i in range(0, sharing.steps, AT_ONCE)]
            totals = [real(0.0)] * 4
            for part_ in parts:
                weights = [load(places[i]) for i in part_]
                own = scales[part_.start // each_ : -(-part_.stop // each_)] if packed is not None else []
                totals = self._stream_sums(weights, first + part_.start, totals, own)
            loaded = Loaded(sharing, turn * sharing.tiles + tile, part, works, places, scales)
            self._fix(loaded, first, source, load)
            for slot, _ in slots:
                self.release(slot, 1)
            self._leave_rows(loaded, totals, source[2])

        each(0, sharing.all // sharing.tiles, some)

    def _fix(
        self, loaded: Loaded, first: Word, source: Source, load: Callable[[Word], list[Word]] = c.load_matrices
    ) -> None:
        if source[0].centred or source[0].beta is not None:
            when(source[3] == 0, lambda: self._fixed_sums(loaded, first, source, load))

    def _fixed_sums(self, loaded: Loaded, first: Word, source: Source, load: Callable[[Word], list[Word]]) -> None:
        """Leave sums of gamma and beta for the finisher."""
        norm, layer, sums, _ = source
        rows = loaded.sharing.slices * 8 * loaded.sharing.all
        fixed = norm_sum(self.launch, norm, layer, first, loaded.weights, loaded.scales, load)
        kind = (self.part == 0).where(word(1), 2)
        place = self._sum_place(loaded, sums) + kind * (4 * rows)
        self.when_works((self.part & 1) == 0, loaded.works, lambda: c.store_words(place, [fixed]))

    def split_up(self, source: str, name: str, count: int) -> None:
        """By all warps that multiply: so many numbers that ranks have sent, as parts for the instructions."""
        launch = self.launch

        def pair(number: Word) -> None:
            values = c.load_reals(launch.place(source) + number * 8, 2)
            to = launch.place(name) + place_of_pair(number)
            for i, part in enumerate(c.split(*values)):
                c.store_words(to + 8 * i, [part])

        first, threads = launch.warp * 32 + launch.lane, 32 * WARPS
        for start in range(0, count // 2, threads):
            number = first + start
            if start + threads <= count // 2:
                pair(number)
            else:
                when(number < count // 2, partial(pair, number))
        c.meet(MULTIPLIERS, threads)

    def row_places(self, start: Word, first: Word | int, count: int) -> list[Word]:
        """The addresses of a lane's row for some steps: of 8 rows, along the first and the second half of the depth."""
        line = 8 * 2 * LINE
        lines, rest = divmod(self.launch.layout.width // 32, 4)
        row, half, late = self.launch.lane % 8, (self.launch.lane // 8) & 1, self.launch.lane // 16
        start = start + half * (lines * line) + row * (2 * LINE)
        late = late + half * (2 * rest) if rest else late
        if isinstance(first, int):
            turns = [_swizzled(late + 2 * i, row, line if rest else 0) for i in range(4)]
            return [start + turns[(first + i) % 4] + (first + i) // 4 * line for i in range(count)]
        return [start + _swizzled(first * 2 + late + 2 * i, row, line) for i in range(count)]

    def across_halves(self, totals: list[Word]) -> Word:
        """Of the stream: four columns, a part each, of either half's rows: a row's sum."""
        own = (self.part < 2).where(totals[0] + totals[1], totals[2] + totals[3])
        own = own + own.from_lane(1)
        return own + own.from_lane(2)

    def operand(self, name: str, first: Word | int, count: int) -> list[list[Word]]:
        """What a lane has of an operand along both halves of its depth, from a step on."""
        half, part = self.group // 4, self.group & 3
        start = self.launch.place(name) + (half * (self.launch.layout.width // 8) + self.part) * QUAD + part * 8
        start = start + first * (4 * QUAD)
        return [c.load_words(start + 4 * QUAD * step, 2) for step in range(count)]

    def rows(self, loaded: Loaded, sums: str) -> None:
        """Multiply by the stream, and leave sums for the finisher."""
        weights, first = [w for w in loaded.weights if isinstance(w, list)], loaded.slice * loaded.sharing.steps
        totals = self._stream_sums(weights, first, [real(0.0)] * 4, loaded.scales)
        self._leave_rows(loaded, totals, sums)

    def _leave_rows(self, loaded: Loaded, totals: list[Word], sums: str) -> None:
        own = self.across_halves(totals)
        place = self._sum_place(loaded, sums)
        self.when_works(self.part == 0, loaded.works, lambda: c.store_words(place, [own]))

    def _sum_place(self, loaded: Loaded, sums: str) -> Word:
        """Where a lane's row's sum goes."""
        rows = 8 * loaded.sharing.all
        return self.launch.place(sums) + (loaded.slice * rows + loaded.tile * 8 + self.group) * 4

    def when_works(self, condition: Word, works: Word | None, body: Callable[[], None]) -> None:
        if works is not None:
            condition = condition & works
        when(condition, body)

    def _stream_sums(self, weights: Fragments, first: Word, totals: list[Word], scales: Scales) -> list[Word]:
        """Two chains of instructions, which do not wait for each other."""
        right = self.operand("x", first, len(weights))
        if scales:
            return scaled_sums(weights, right, scales, totals)
        chains = [totals, [real(0.0)] * 4]
        for step, a in enumerate(weights):
            chains[step % 2] = c.multiply(a, right[step], chains[step % 2])
        return [x + y for x, y in zip(*chains, strict=True)]


def place_of_pair(number: Word) -> Word:
    """Where two neighbouring numbers' first parts lie in an operand."""
    return ((number // 8) * 4 + number % 4) * QUAD + ((number // 4) & 1) * 4


def _swizzled(number: Word, row: Word, line: int) -> Word:
    """Where the number-th 16 bytes of a row lie, from its first line on; line: bytes between lines, 0 where there is
    one."""
    within = ((number % 8) ^ row) << 4
    return (number // 8) * line + within if line else within
