"""Tiles for products on warpgroup instructions: which there are, and which should take least time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.shared_steps import SharedSteps, shared_steps

PARTS = 2
"""bf16 numbers that each f32 element of the left operand is: two keep about 16 bits."""

CLOCK = 1.755e9
"""Clocks a second of an H200 while all of its matrix units are busy, as `cost` counts them."""

MOST_STAGES, ENOUGH_STAGES, FEWEST_STAGES = 8, 5, 3
"""Of k that a block holds at once: more bring nothing; with fewer, multiplying waits for what is brought now and then;
and with fewer than these it always does."""

LEAST_OUTPUTS = 16
"""Of a tile."""

SHAPES = ((2, 1, 192), (1, 2, 256), (1, 1, 128))
"""(row_parts, output_parts, most outputs) of tiles that warpgroups can hold in registers beside parts of the left
operand.  One alone is for launches that have a block for each tile: it reads less of shared memory than two."""

SHARED_SHAPES = ((2, 1, 256), (1, 2, 256), (1, 1, 128))
"""The same where the left operand is taken from shared memory."""

WIDENING, WIDENING_OF_ONE = 8.0, 3.0
"""Clocks in which a warpgroup makes a step of k of one of the tile's outputs of weights in blocks, for each BF16 number
that they become; and where one warpgroup multiplies.  Of 3, 5 and 8 these make prompts of 1024 and steps of 64
sequences of a Llama of 1B in Q4_K, Q8_0 and Q6_K the fastest on an H200 (2026)."""

SUMS_AT_ONCE = 4
"""Neighbours that a thread adds up for a cluster."""

MOST_GROUPED = 128
"""Columns of a row whose moments threads make together: each keeps a quarter of them."""

BESIDE_BYTES = 2048
"""Of shared memory that a ring's barriers take, and alignment."""

STAGING_BYTES = 4096
"""For one result of one of a tile's subgroups on its way to memory."""


@dataclass(frozen=True)
class Shape:
    """What a product is to its tiles: extents, the bytes of an element on the left and of all `results` of a sum,
    whether operands are brought in lines of rows and of columns, whether the parts of what has two are stored, so that
    both are multiplied from shared memory, how many products there are, and of weights in blocks, which threads widen,
    how many BF16 numbers they become (0: copies bring what is on the right)."""

    rows: int
    outputs: int
    inner: int
    left_bytes: int = 4
    result_bytes: int = 4
    transposed: tuple[bool, bool] = (False, False)
    results: int = 1
    stored: bool = False
    batches: int = 1
    widened: int = 0

    @property
    def parts(self) -> int:
        return PARTS if self.left_bytes == 4 else 1

    @property
    def products(self) -> int:
        """BF16 products of an element."""
        return len(products_of(self.parts, max(1, self.widened)))

    @property
    def splits_left(self) -> bool:
        """Whether the left operand is split in registers."""
        return self.parts == PARTS and not self.stored


def products_of(left: int, right: int) -> list[tuple[int, int]]:
    """Which parts are multiplied of operands of so many: products of smaller ones are below what the sum of parts keeps
    of a number."""
    most = max(left, right)
    return [(part, other) for part in range(left) for other in range(min(right, most - part))]


@dataclass(frozen=True)
class Tiling:
    """A block's tile, shared by `row_parts` by `output_parts` warpgroups; `splits` blocks share the k of one tile, or
    `pair` blocks with tiles below each other the columns that they need.  shares: how blocks share the k of all tiles,
    where they do."""

    rows: int
    outputs: int
    row_parts: int
    output_parts: int
    splits: int
    pair: int = 1
    shares: SharedSteps | None = None

    @property
    def cluster(self) -> int:
        return self.splits * self.pair

    @property
    def warpgroups(self) -> int:
        return self.row_parts * self.output_parts

    @property
    def columns(self) -> int:
        """Of a warpgroup."""
        return self.outputs // self.output_parts

    def blocks(self, rows: int, outputs: int) -> int:
        row_tiles = -(-rows // (self.rows * self.pair)) * self.pair
        return row_tiles * -(-outputs // self.outputs) * self.splits

    def steps(self, inner: int, step: int) -> int:
        """Of so many of k, that a block has of its tile."""
        return -(-inner // (step * self.splits))

    def stage_bytes(self, shape: Shape, inner: int) -> int:
        return inner * (shape.left_bytes * self.rows + 2 * max(1, shape.widened) * self.outputs)


def tilings(target: Gpu, shape: Shape) -> list[Tiling]:
    """All of SHAPES, whose fewest stages fit in shared memory."""
    unit = target.warpgroup
    assert unit is not None
    step = unit.inner if shape.transposed[1] else unit.columns
    shapes = [
        (row_parts * unit.rows, n, row_parts, output_parts)
        for row_parts, output_parts, most in (SHAPES if shape.splits_left else SHARED_SHAPES)
        for n in range(output_parts * max(step, LEAST_OUTPUTS // output_parts), most + 1, output_parts * step)
    ]
    steps = -(-shape.inner // unit.inner)
    pairs = target.cluster > 1
    clusters = [(n, 1) for n in range(1, target.cluster + 1) if n <= steps] + [(1, 2)] * pairs
    found = [Tiling(*sizes, *cluster) for sizes in shapes for cluster in clusters]
    found += [shared for tiling in found if (shared := _shared(tiling, shape, target))]
    return [t for t in found if _fits(t, shape, target)]


def has_groups(tiling: Tiling, group: int, threads: int) -> bool:
    """Whether each warpgroup's columns are whole groups of so many, or where a cluster adds up, neighbouring threads
    have whole groups, all of them."""
    if tiling.shares is not None:
        return False
    if tiling.splits == 1:
        return tiling.columns % group == 0
    vectors, each = tiling.rows * tiling.outputs // SUMS_AT_ONCE, group // SUMS_AT_ONCE
    share = vectors // tiling.splits
    whole = vectors % tiling.splits == share % (threads * tiling.warpgroups) == 0
    return whole and tiling.outputs % group == group % SUMS_AT_ONCE == 0 and each in (1, 2, 4, 8, 16, 32)


def group_of_tile(shape: Shape, target: Gpu) -> int:
    """Of a product's columns the largest number by which its tile can be told apart into groups; 0 where none can."""
    unit = target.warpgroup
    assert unit is not None
    found = {
        n: min((cost(t, shape, target) for t in tilings(target, shape) if has_groups(t, n, unit.threads)), default=None)
        for n in range(unit.columns * 2, MOST_GROUPED + 1, unit.columns)
        if shape.outputs % n == 0
    }
    costs = {n: time for n, time in found.items() if time is not None}
    least = min(costs.values(), default=0.0)
    return max((n for n, time in costs.items() if time <= 1.01 * least), default=0)


def _shared(tiling: Tiling, shape: Shape, target: Gpu) -> Tiling | None:
    """The same with the k of tiles shared out to pairs of blocks; None where that cannot be."""
    unit = target.warpgroup
    assert unit is not None
    if tiling.pair != 2 or shape.parts == PARTS:
        return None
    tiles = -(-shape.rows // (tiling.rows * tiling.pair)) * -(-shape.outputs // tiling.outputs)
    shares = shared_steps(tiles, target.cores_for(2) // 2, -(-shape.inner // unit.inner))
    return None if shares is None else replace(tiling, shares=shares)


def _fits(tiling: Tiling, shape: Shape, target: Gpu) -> bool:
    """Whether a pair has halves of columns to bring, and the fewest stages fit in shared memory; and, of one warpgroup,
    whether it has one tile, of which blocks have as many steps each."""
    unit = target.warpgroup
    assert unit is not None
    if tiling.warpgroups == 1:
        even = -(-shape.inner // unit.inner) % tiling.splits == 0
        if tiling.pair > 1 or not even or _waves(tiling, shape, target) > 1:
            return False
    granule = unit.inner if shape.transposed[1] else 8
    halves = tiling.pair == 1 or tiling.outputs % (tiling.pair * granule) == 0
    return halves and stages(tiling, shape, target) >= FEWEST_STAGES


def stages(tiling: Tiling, shape: Shape, target: Gpu) -> int:
    """How many steps of k a block's memory holds at once."""
    shared = shares_stages(tiling, shape, target)
    return _stages(tiling, shape, target, 0) if shared else stages_beside_results(tiling, shape, target)


def stages_beside_results(tiling: Tiling, shape: Shape, target: Gpu) -> int:
    """The same where results on their way to memory have room of their own."""
    return _stages(tiling, shape, target, staging_bytes(tiling, shape, target))


def _stages(tiling: Tiling, shape: Shape, target: Gpu, beside: int) -> int:
    unit = target.warpgroup
    assert unit is not None
    room = target.dynamic_shared_bytes - BESIDE_BYTES - beside
    return min(MOST_STAGES, room // tiling.stage_bytes(shape, unit.inner))


def shares_stages(tiling: Tiling, shape: Shape, target: Gpu) -> bool:
    """Whether results take the place of the stages, once a block's only tile is multiplied: where there is no room for
    enough of these beside results, since a warpgroup then has to wait for another one."""
    few = stages_beside_results(tiling, shape, target) < ENOUGH_STAGES
    return few and one_wave(tiling, shape, target)


def one_wave(tiling: Tiling, shape: Shape, target: Gpu) -> bool:
    """Whether there is a block for each tile."""
    if tiling.shares is not None:
        return False
    return tiling.splits > 1 or _waves(tiling, shape, target) == 1


def staging_bytes(tiling: Tiling, shape: Shape, target: Gpu) -> int:
    """What results on their way to memory take."""
    unit = target.warpgroup
    assert unit is not None
    subgroups = tiling.warpgroups * unit.threads // target.subgroup
    return STAGING_BYTES * subgroups * shape.results if tiling.splits == 1 else 0


def _waves(tiling: Tiling, shape: Shape, target: Gpu) -> int:
    """Of blocks that are there at once."""
    return -(-tiling.blocks(shape.rows, shape.outputs) * shape.batches // target.cores_for(tiling.cluster))


def cost(tiling: Tiling, shape: Shape, target: Gpu) -> float:
    """Clock cycles, roughly: for every wave of blocks the steps of k, each the longest of what the matrix units, copies
    from L2 and their latency take, and a tile's results.

    Fitted to 240 products on an H200 (2026), which it tells within 7 %, and where a wave is all to those of a prefill
    of 128 and of 1024 in their place: there splits and pairs take up to 2 us more than alone.  Splits of two tiles of
    bf16 below each other are fitted to 45 products of a prefill of 128 in their place, within 10 %: what each block
    takes is the core on which the launch behind could begin.
    """
    unit, rows, outputs = target.warpgroup, shape.rows, shape.outputs
    assert unit is not None
    waves = _waves(tiling, shape, target)
    area = tiling.rows * tiling.outputs
    multiply = unit.inner * shape.products * area / (0.937 * unit.multiply_adds) * (1 + 8 / tiling.outputs)
    steps = tiling.steps(shape.inner, unit.inner)
    if tiling.warpgroups == 1:
        return _cost_of_one(tiling, shape, target, multiply)
    if tiling.row_parts == 1:  # both warpgroups read all of the left operand
        multiply *= 1.26
    lines = shape.left_bytes * min(tiling.rows, rows) + 2 * min(tiling.outputs, outputs) / tiling.pair
    multiply = max(multiply, WIDENING * shape.widened * tiling.outputs / tiling.pair)
    step = max(multiply, unit.inner * lines / (64 if waves == 1 else 73), 340) + (280 if shape.splits_left else 0)
    if waves == 1:  # each warpgroup reads its part of both operands, 128 bytes a clock
        lines = shape.products * tiling.warpgroups * (unit.rows + tiling.columns)
        step = max(step, 2 * unit.inner * lines / 128 + 60)
    if tiling.splits > 1 and waves == shape.parts == 1 and unit.rows < rows <= 2 * unit.rows:
        blocks = tiling.blocks(rows, outputs) * shape.batches
        return 0.99 * steps * step + 143 * tiling.splits + 0.33 * area + 34.3 * blocks + 1077
    if tiling.splits > 1:
        return waves * (2500 + steps * step + 1180 + 80 * tiling.splits + area * 4 / 8)
    results = 1070 + 0.0168 * area * shape.result_bytes + _apart(tiling, unit.inner)
    if tiling.shares is not None:
        return 4300 + 0.985 * tiling.shares.longest * step + results
    if tiling.pair > 1:  # which has to meet, and spares L2 and power
        return (5500 if waves == 1 else 3300) + waves * (0.985 * steps * step + results)
    return 2500 + waves * (steps * step + results)


def _cost_of_one(tiling: Tiling, shape: Shape, target: Gpu, multiply: float) -> float:
    """The same of a launch of one wave whose tiles one warpgroup multiplies: fitted to 25 products of a prefill of 128
    in their place on an H200 (2026), which it tells apart within 0.7 us, by 0.3 on average.  Each block takes a core on
    which the launch behind could begin; all of them get 8000 bytes a clock from L2.  Infinite where k is split of more
    rows than that, which is for who asks for it."""
    unit, area = target.warpgroup, tiling.rows * tiling.outputs
    assert unit is not None
    blocks = tiling.blocks(shape.rows, shape.outputs) * shape.batches
    steps = tiling.steps(shape.inner, unit.inner)
    nbytes = shape.left_bytes * min(tiling.rows, shape.rows) + 2 * min(tiling.outputs, shape.outputs)
    multiply = max(multiply, WIDENING_OF_ONE * shape.widened * tiling.outputs)
    step = max(multiply + 50, 290, unit.inner * nbytes * blocks / 8000)
    step += 280 if shape.splits_left else 0
    if tiling.splits > 1 and shape.rows > 2 * unit.rows:
        return inf
    if tiling.splits > 1:
        return steps * step + 3300 + 200 * tiling.splits + 0.75 * max(0, area - unit.rows**2) + 8 * blocks
    return steps * step + 900 + 0.0336 * area * shape.result_bytes + _apart(tiling, unit.inner) + 25 * blocks


def _apart(tiling: Tiling, line: int) -> int:
    """Clocks that columns take which are not stored in bulk, where these are lines of so many."""
    return 5 * (tiling.columns % line)
