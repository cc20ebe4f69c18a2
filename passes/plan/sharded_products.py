"""Products of rows in a sharded launch, 8 of a weight's rows along all of the stream, and what those of columns
(sharded_columns.py) have in common with them.

Warps have their weights in registers before the stream is there, where the layout holds a layer; otherwise they walk
through the ring's chunks when it is.  The stream comes as three bf16 parts of each number, which fill columns of a
matrix instruction.  In a product of rows, 8 of them at once, both halves of the depth take part: rows 0 to 7 of an
instruction are these rows along its first half, rows 8 to 15 the same along the second.  Its norm's weights go through
the same instructions before the stream is there: what the norm adds and subtracts is put in order afterwards (see
sharded_finish.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, each, either, real, when, word
from lispgpt.passes.plan.sharded_chain import NormWeights
from lispgpt.passes.plan.sharded_launch import Launch
from lispgpt.passes.plan.sharded_norm_sums import norm_sum
from lispgpt.passes.plan.sharded_sharing import WARPS, Sharing
from lispgpt.passes.plan.sharded_weights import Fragment, Scale, Weights

AT_ONCE = 8
"""Steps whose weights and other side are read together where they are not held."""
QUAD = 32
"""Bytes of the stream's four numbers that a lane has in a step: two words for each part, and two zeros."""
PAIR = 16
"""Bytes of two neighbouring numbers of a cluster's operands: a word for each part, and a zero."""


@dataclass
class Loaded:
    """A warp's share of a product, with its weights' numbers and scales, which may be loaded while they are read.
    works: whether it has a share, where not all warps have."""

    weights: Weights
    sharing: Sharing
    tile: Word
    slice: Word
    works: Word | None
    numbers: Iterable[Fragment]
    scales: Sequence[Scale] = ()


Numbers = tuple[list[Fragment], list[Scale]]
"""What is loaded of weights: for each step, and for each that has other scales than those before."""
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

    def load_where(
        self, works: Word | None, steps: int, scales: tuple[int, int], load: Callable[[], Numbers]
    ) -> Numbers:
        """What a warp that works loads: the numbers of so many steps, and so many scales, each of so many rows; who has
        no share of a chunk may not touch its slot either, as nobody waits for it to have done so."""
        if works is None:
            return load()
        count, rows = scales
        end = 4 * steps

        def words() -> list[Word]:
            numbers, found = load()
            return [w for a in numbers for w in a] + [s.bits() for scale in found for s in scale]

        kinds = "r" * (end + count * rows)
        found = either(works, kinds, words, lambda: [word(0)] * len(kinds))
        reals = [w.bits() for w in found[end:]]
        return _in_parts(found[:end], 4), _in_parts(reals, rows)

    # ---- products of rows

    def load_rows(self, chunk: Word, sharing: Sharing, source: Source, weights: Weights) -> Loaded:
        """The chunk-th chunk and those behind it, each 8 rows; in a launch's first run also what does not change."""
        launch, layout = self.launch, self.launch.layout
        number, works = self.share_out(sharing)
        tile, part = number // sharing.slices, number % sharing.slices
        first = part * sharing.steps

        def load() -> Numbers:
            slot, parity = launch.slot(chunk + tile)
            c.wait(launch.full(slot), parity)
            base = launch.start + slot * layout.chunk
            numbers = list(map(weights.load, weights.row_places(base, first, sharing.steps)))
            scales = list(weights.row_scales(base, first, sharing.steps))
            self.release(slot, layout.arrivals // sharing.slices)
            return numbers, scales

        _, count = weights.shared(sharing.steps, layout.width // 32)
        loaded = Loaded(weights, sharing, tile, part, works, *self.load_where(works, sharing.steps, (count, 1), load))
        self._fix(loaded, first, source)
        return loaded

    def walk_rows(self, chunk: Word, sharing: Sharing, source: Source, weights: Weights) -> None:
        """Multiply the chunk-th chunk and those behind it, some at a time, by the stream, and leave sums.

        Every warp waits for every chunk, so that it sees every phase of their barriers."""
        launch, layout = self.launch, self.launch.layout
        number, works = self.share_out(sharing)
        tile, part = number // sharing.slices, number % sharing.slices
        first, steps = part * sharing.steps, sharing.steps

        def some(turn: Word) -> None:
            start = chunk + turn * sharing.tiles
            slots = [launch.slot(start + i) for i in range(sharing.tiles)]
            for slot, parity in slots:
                c.wait(launch.full(slot), parity)
            mine = launch.slot(start + tile)[0] if sharing.tiles > 1 else slots[0][0]
            base = launch.start + mine * layout.chunk
            places = weights.row_places(base, first, steps)
            scales = list(weights.row_scales(base, first, steps))
            totals = [real(0.0)] * 4
            for begin in range(0, steps, AT_ONCE):
                end = min(begin + AT_ONCE, steps)
                numbers = list(map(weights.load, places[begin:end]))
                own = scales[begin * len(scales) // steps : -(-end * len(scales) // steps)]
                totals = weights.sums(numbers, self.operand(first + begin, end - begin), own, totals)
            numbers_ = map(weights.load, places)
            loaded = Loaded(weights, sharing, turn * sharing.tiles + tile, part, works, numbers_, scales)
            self._fix(loaded, first, source)
            for slot, _ in slots:
                self.release(slot, 1)
            self._leave_rows(loaded, totals, source[2])

        each(0, sharing.all // sharing.tiles, some)

    def _fix(self, loaded: Loaded, first: Word, source: Source) -> None:
        if source[0].centred or source[0].beta is not None:
            when(source[3] == 0, lambda: self._fixed_sums(loaded, first, source))

    def _fixed_sums(self, loaded: Loaded, first: Word, source: Source) -> None:
        """Leave sums of gamma and beta for the finisher."""
        norm, layer, sums, _ = source
        rows = loaded.sharing.slices * 8 * loaded.sharing.all
        fixed = norm_sum(self.launch, norm, layer, first, loaded.numbers, loaded.scales, loaded.sharing.steps)
        kind = (self.part == 0).where(word(1), 2)
        place = self._sum_place(loaded, sums) + kind * (4 * rows)
        self.when_works((self.part & 1) == 0, loaded.works, lambda: c.store_words(place, [fixed]))

    def across_halves(self, totals: list[Word]) -> Word:
        """Of the stream: four columns, a part each, of either half's rows: a row's sum."""
        return self.across_parts((self.part < 2).where(totals[0] + totals[1], totals[2] + totals[3]))

    @staticmethod
    def across_parts(own: Word) -> Word:
        """The sum of a row's four lanes."""
        own = own + own.from_lane(1)
        return own + own.from_lane(2)

    def operand(self, first: Word | int, count: int) -> list[list[Word]]:
        """What a lane has of the stream along both halves of its depth, from a step on."""
        half, part = self.group // 4, self.group & 3
        start = self.launch.place("x") + (half * (self.launch.layout.width // 8) + self.part) * QUAD + part * 8
        start = start + first * (4 * QUAD)
        return [c.load_words(start + 4 * QUAD * step, 2) for step in range(count)]

    def rows(self, loaded: Loaded, sums: str) -> None:
        """Multiply by the stream, and leave sums for the finisher."""
        numbers, steps = list(loaded.numbers), loaded.sharing.steps
        right = self.operand(loaded.slice * steps, steps)
        totals = loaded.weights.sums(numbers, right, loaded.scales)
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


def parts_of_pair(one: Word, other: Word) -> list[Word]:
    """The words of two neighbouring numbers of a cluster's operand."""
    return [*c.split(one, other), word(0)]


def place_of_pair(number: Word) -> Word:
    """Where two neighbouring numbers' first parts lie in the stream."""
    return ((number // 8) * 4 + number % 4) * QUAD + ((number // 4) & 1) * 4


def _in_parts(words: list[Word], size: int) -> list[list[Word]]:
    return [words[i : i + size] for i in range(0, len(words), size)]
