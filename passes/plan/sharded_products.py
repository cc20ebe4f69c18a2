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

from lispgpt.ir import build as b
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, each, either, real, when, word
from lispgpt.passes.plan.sharded_chain import NormWeights
from lispgpt.passes.plan.sharded_launch import Launch
from lispgpt.passes.plan.sharded_layout import LINE, MULTIPLIERS, WARPS, Sharing
from lispgpt.passes.plan.sharded_operands import QUAD, part_bytes, place_of_pair

Fragments = list[list[Word]]
AT_ONCE = 8
"""Steps whose weights and other side are read together where they are not held."""


@dataclass
class Loaded:
    """A warp's share of a product, with its weights, or the addresses where they are still to be loaded from.  works:
    whether it has one, where not all warps have."""

    sharing: Sharing
    tile: Word
    slice: Word
    works: Word | None
    weights: Sequence[list[Word] | Word]


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

    def head_sums(self, places: list[Word], right: Fragments | None) -> list[Word]:
        """Of 8 rows, along all of the stream, in chains that do not wait for each other.  right: its operand, where a
        warp has it in registers."""
        chains = [[real(0.0)] * 4 for _ in range(4)]
        for at in range(0, len(places), AT_ONCE):
            now = places[at : at + AT_ONCE]
            sides = right[at : at + AT_ONCE] if right else self.operand("x", at, len(now))
            for step, (place, b_) in enumerate(zip(now, sides, strict=True)):
                chains[step % 4] = c.multiply(c.load_matrices(place), b_, chains[step % 4])
        return [w for chain in chains for w in chain]

    def head_totals(self, sums: list[Word]) -> list[Word]:
        """Of what head_sums has found."""
        chains = [sums[i : i + 4] for i in range(0, 16, 4)]
        return [(w + x) + (y + z) for w, x, y, z in zip(*chains, strict=True)]

    # ---- products of rows

    def load_rows(self, chunk: Word, sharing: Sharing, source: Source) -> Loaded:
        """The chunk-th chunk and those behind it, each 8 rows; in a launch's first run also what does not change."""
        launch, layout = self.launch, self.launch.layout
        number, works = self.share_out(sharing)
        tile, part = number // sharing.slices, number % sharing.slices
        first = part * sharing.steps

        def load() -> Fragments:
            slot, parity = launch.slot(chunk + tile)
            c.wait(launch.full(slot), parity)
            places = self._places(launch.start + slot * layout.chunk, first, sharing)
            weights = list(map(c.load_matrices, places))
            self.release(slot, layout.arrivals // sharing.slices)
            return weights

        loaded = Loaded(sharing, tile, part, works, self.load_where(works, sharing.steps, load))
        self._fix(loaded, first, source)
        return loaded

    def _places(self, start: Word, first: Word, sharing: Sharing) -> list[Word]:
        if sharing.steps % 4 == 0:
            return self.row_places(start + (first // 4) * (16 * LINE), 0, sharing.steps)
        return self.row_places(start, first, sharing.steps)

    def walk_rows(self, chunk: Word, sharing: Sharing, source: Source) -> None:
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
            places = self._places(launch.start + mine * layout.chunk, first, sharing)
            parts = [range(i, min(i + AT_ONCE, sharing.steps)) for i in range(0, sharing.steps, AT_ONCE)]
            totals = self.zeros()
            for part_ in parts:
                weights = [c.load_matrices(places[i]) for i in part_]
                totals = self._stream_sums(weights, first + part_.start, totals)
            loaded = Loaded(sharing, turn * sharing.tiles + tile, part, works, places)
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
        sharing, layout = loaded.sharing, self.launch.layout
        totals = [real(0.0)] * 4
        for step, weights in enumerate(loaded.weights):
            a = weights if isinstance(weights, list) else c.load_matrices(weights)
            for right in self._split_parts(self._norm_parts(norm, layer, first + step)):
                totals = c.multiply(a, right, totals)
        fixed = self._across_pairs(totals)
        texts = layout.texts
        kind = (self.part == 0).where(word(texts), texts + 1)
        place = self._sum_place(loaded, sums) + kind * (4 * sharing.slices * 8 * sharing.all)
        self.when_works((self.part & 1) == 0, loaded.works, lambda: c.store_words(place, [fixed]))

    def split_up(self, source: str, name: str, count: int) -> None:
        """By all warps that multiply: so many numbers of each text that ranks have sent, as parts for the
        instructions."""
        launch, texts, half = self.launch, self.launch.layout.texts, count // 2

        def pair(number: Word) -> None:
            values = c.load_reals(launch.place(source) + number * 8, 2)
            at, text = (number, 0) if texts == 1 else (number % half, number // half)
            to = launch.place(name) + place_of_pair(at, texts, text)
            for i, part in enumerate(c.split(*values)):
                c.store_words(to + part_bytes(texts) * i, [part])

        first, threads = launch.warp * 32 + launch.lane, 32 * WARPS
        for start in range(0, half * texts, threads):
            number = first + start
            if start + threads <= half * texts:
                pair(number)
            else:
                when(number < half * texts, partial(pair, number))
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

    def _norm_parts(self, norm: NormWeights, layer: Word, step: Word) -> list[Word]:
        """Four numbers of gamma (lanes of columns 0 to 3) or beta (4 to 7): of the column's half of the depth."""
        layout = self.launch.layout
        half = (self.group // 2) & 1
        column = half * (layout.width // 2) + step * 16 + self.part * 2

        def read(series: object) -> list[Word]:
            memory = self.launch.floats(series, layer)  # type: ignore[arg-type]
            pairs = [b.load(memory, [(column + more).index()], 2) for more in (0, 8)]
            return [Word(b.lane_of(pair, i)) for pair in pairs for i in (0, 1)]

        gamma = read(norm.gamma)
        if norm.beta is None:
            return [(self.group < 4).where(g, 0.0) for g in gamma]
        beta = read(norm.beta)
        return [(self.group < 4).where(g, a) for g, a in zip(gamma, beta, strict=True)]

    def _split_parts(self, values: list[Word]) -> list[list[Word]]:
        """The parts of four numbers, in two words: the first or the second by the column, then the third or none."""
        pairs = [c.split(*values[i : i + 2]) for i in (0, 2)]
        even = (self.group & 1) == 0
        return [[even.where(p[0], p[1]) for p in pairs], [even.where(p[2], 0) for p in pairs]]

    def _across_pairs(self, totals: list[Word]) -> Word:
        """Of the norm's weights: a lane's columns of its half's rows, and its neighbour's of the other half."""
        own = ((self.part & 1) == 0).where(totals[0] + totals[1], totals[2] + totals[3])
        return own + own.from_lane(1)

    def zeros(self) -> list[Word]:
        """Sums of nothing yet."""
        return [real(0.0)] * 4

    def results(self, totals: list[Word]) -> list[tuple[Word | int, Word]]:
        """(text, a row's sum)."""
        return [(0, self.across_halves(totals))]

    def leaves(self, text: Word | int) -> Word:
        """Whether it is for a lane to leave a text's results."""
        return self.part == 0

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
        weights = [w for w in loaded.weights if isinstance(w, list)]
        totals = self._stream_sums(weights, loaded.slice * loaded.sharing.steps, self.zeros())
        self._leave_rows(loaded, totals, sums)

    def _leave_rows(self, loaded: Loaded, totals: list[Word], sums: str) -> None:
        size = 4 * loaded.sharing.slices * 8 * loaded.sharing.all
        for text, own in self.results(totals):
            place = self._sum_place(loaded, sums) + text * size
            self.when_works(self.leaves(text), loaded.works, partial(c.store_words, place, [own]))

    def _sum_place(self, loaded: Loaded, sums: str) -> Word:
        """Where a lane's row's sum goes."""
        rows = 8 * loaded.sharing.all
        return self.launch.place(sums) + (loaded.slice * rows + loaded.tile * 8 + self.group) * 4

    def when_works(self, condition: Word, works: Word | None, body: Callable[[], None]) -> None:
        if works is not None:
            condition = Word(b.emit("arith.andi", [condition.value, works.value], [condition.value.type]))
        when(condition, body)

    def _stream_sums(self, weights: Fragments, first: Word, totals: list[Word]) -> list[Word]:
        """Two chains of instructions, which do not wait for each other."""
        right = self.operand("x", first, len(weights))
        chains = [totals, [real(0.0)] * 4]
        for step, a in enumerate(weights):
            chains[step % 2] = c.multiply(a, right[step], chains[step % 2])
        return [x + y for x, y in zip(*chains, strict=True)]


def _swizzled(number: Word, row: Word, line: int) -> Word:
    """Where the number-th 16 bytes of a row lie, from its first line on; line: bytes between lines, 0 where there is
    one."""
    within = ((number % 8) ^ row) << 4
    return (number // 8) * line + within if line else within
