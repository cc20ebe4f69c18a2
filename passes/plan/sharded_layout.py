"""How a chain is shared among clusters: who has which rows and columns, in which steps, and where it lies in memory.

A cluster's blocks are its ranks.  Cluster c of the first `layer_clusters` has one head and hidden // layer_clusters
hidden units; what rank r has of a product of its rows is 1/8 of them, of one that sums over them 1/8 of the stream's
columns.  Weights come in chunks of one size: 8 rows of all columns, or 64 columns of a rank's rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import lcm

from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.plan.sharded_chain import Chain

RANKS, WARPS, LINE = 8, 12, 64
"""Blocks of a cluster, warps of a block that multiply, and bf16 of a line that bulk copies bring."""
MOST_TURNS = 6
"""How many positions' keys and values a lane has a part of."""
STREAMER, EXCHANGER, FINISHER = WARPS, WARPS + 1, WARPS + 2
THREADS = 32 * (WARPS + 3)
SUMS, PARTS, ATTENDED, STREAM, MULTIPLIERS = 1, 2, 3, 4, 5
"""Barriers of a block: sums of rows are there; attention's parts are; its result is; sums of columns are; all that
multiply."""
TWO_ROLES = 32 * WARPS + 32
SHARED_BYTES = 231424 - 1024
"""Of a block's memory, beside its alignment."""


@dataclass(frozen=True)
class Sharing:
    """How warps share a product: `tiles` of its rows times `slices` of its depth, `steps` of 16 each."""

    tiles: int
    slices: int
    steps: int

    @property
    def workers(self) -> int:
        return self.tiles * self.slices


def shared(tiles: int, steps: int, line: int) -> Sharing:
    """Over as many warps as there are.  line: steps that come together, of which a warp takes some or several."""
    if not 0 < tiles <= WARPS:
        raise Refused(f"a product has {tiles} tiles in a block")
    whole = [s for s in range(1, WARPS // tiles + 1) if steps % s == 0]
    whole = [s for s in whole if steps // s % line == 0 or line % (steps // s) == 0]
    return Sharing(tiles, whole[-1], steps // whole[-1])


class Layout:
    """Numbers of one chain's kernel.  blocks: of the launch."""

    def __init__(self, chain: Chain, heads: int, depth: int, context: int, blocks: int) -> None:
        self.width, self.layers, self.heads, self.depth, self.context = chain.width, chain.layers, heads, depth, context
        self.blocks, self.layer_clusters = blocks, heads
        self.others = blocks - RANKS * heads
        if depth != 64 or self.width % (32 * RANKS // 2) or self.width // RANKS > 128 or self.others < 0:
            raise Refused(f"{heads} heads of {depth} and a width of {self.width} are not shared among {blocks} blocks")
        if context > RANKS * 2 * WARPS * MOST_TURNS:
            raise Refused(f"{context} positions do not fit registers")
        if chain.up.rows % (heads * RANKS * 32):
            raise Refused(f"{chain.up.rows} hidden units are not shared among {heads} clusters")
        self.columns = self.width // RANKS
        self.hidden = chain.up.rows // heads
        self.hidden_rows = self.hidden // RANKS
        self.head_rows = depth // RANKS
        self.chunk = 16 * self.width
        half = self.width // 32
        self.into = shared(3 * depth // LINE, half, 1)
        self.up = shared(self.hidden_rows // 8, half, 1)
        self.out = shared(self.columns // 16, depth // 16, LINE // 16)
        self.down = shared(self.columns // 16, self.hidden // 16, LINE // 16)
        self.first_out = self.into.tiles
        self.first_up = self.first_out + depth // LINE
        self.first_down = self.first_up + self.up.tiles
        self.layer_chunks = self.first_down + self.hidden // LINE
        self.head_chunks = chain.head.rows // 8
        if chain.head.rows % 8 or self.columns % 16:
            raise Refused("rows or columns do not fill tiles")
        self.arrivals = lcm(self.into.slices, self.up.slices, self.readers(self.out), self.readers(self.down))
        self.quads = self.columns // 4
        self.draws = chain.settings is not None
        self._place()

    @staticmethod
    def readers(sharing: Sharing) -> int:
        """Warps that read one chunk of 64 columns."""
        return sharing.tiles * max(1, LINE // 16 // sharing.steps)

    @property
    def layer_rows(self) -> int:
        """Rows of a layer's products of rows in a block."""
        return 8 * (self.into.tiles + self.up.tiles)

    def _place(self) -> None:
        """Bytes from the start of a block's memory."""
        sizes = {
            "stream": 4 * self.width,
            "units": 4 * self.hidden,
            "fixed": 8 * self.layers * self.layer_rows,
            "x": 8 * self.width,
            "normed": 8 * self.width,
            "hidden_units": 8 * self.hidden,
            "own": 3 * self.depth * 4,
            "merged": RANKS * self.part,
            "parts": (WARPS + 1) * self.part,
            "attended": 8 * self.depth,
            "statistics": 8 * RANKS,
            "into_sums": 12 * self.into.slices * 8 * self.into.tiles,
            "up_sums": 12 * self.up.slices * 8 * self.up.tiles,
            "out_sums": 4 * self.out.slices * self.columns,
            "down_sums": 4 * self.down.slices * self.columns,
            "best": 16 * WARPS,
            "logits": 32 * self.most_heads if self.draws else 0,
            "clocks": 32 * self.most_heads if self.draws else 0,
            "barriers": 8 * (2 * 64 + 8),
        }
        self.stages = min(60, (SHARED_BYTES - sum(-(-n // 64) * 64 for n in sizes.values())) // self.chunk)
        if self.stages < self.layer_chunks:
            raise Refused("a layer's weights do not fit a block's memory")
        self.at, end = {}, self.stages * self.chunk
        for name, size in sizes.items():
            self.at[name] = end
            end += -(-size // 64) * 64
        self.bytes = end
        first = self.at["barriers"]
        self.full, self.empty = first, first + 8 * self.stages
        names = ("x", "statistics", "own", "merged", "hidden_units")
        self.barrier = {name: first + 8 * (2 * self.stages + i) for i, name in enumerate(names)}

    @property
    def part(self) -> int:
        """Bytes of attention's result over some positions: its numbers, the largest score and the sum below it."""
        return 4 * self.depth + 16

    @property
    def exchanges(self) -> int:
        """Of the stream, in a run: two a layer and one behind them."""
        return 2 * self.layers + 1

    @cached_property
    def lines(self) -> dict[str, int]:
        """Where in global memory exchanges lie: bytes from its start, and of all."""
        slots = 2 * RANKS * self.layer_clusters * self.quads * 16
        final = 128 + slots
        best = final + RANKS * self.quads * 16
        draws = best + 32 * self.blocks
        return {
            "slots": 128,
            "final": final,
            "best": best,
            "draws": draws,
            "end": draws + 64 * self.blocks * self.draws,
        }

    def head_share(self) -> tuple[int, int]:
        """(chunks of the head for a block of a layer's cluster, those that are left for all others)."""
        if not self.others:
            return 0, 0
        each = max(0, (self.head_chunks - 4 * self.others) // self.blocks)
        return each, self.head_chunks - each * RANKS * self.layer_clusters

    @property
    def most_heads(self) -> int:
        """Chunks of the head of the block that has most."""
        each, rest = self.head_share()
        return max(each, -(-rest // self.others)) if self.others else -(-self.head_chunks // self.blocks)
