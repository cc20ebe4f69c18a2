"""How a chain is shared among clusters: who has which rows and columns, in which steps, and where it lies in memory.

A cluster's blocks are its ranks.  Each cluster has some heads, whose keys and values it makes itself where other
clusters have them, too, and some hidden units; of both all clusters have as many, so that what lies past the last one
counts as zeros (heads: as the last one again).  What rank r has of a product of its rows is an eighth of them, of one
that sums over them an eighth of the residual stream's columns.  Weights come in chunks of one size: 8 rows of all
columns, or 64 columns of a rank's rows.

Where a layer's chunks fit a block's memory and what subgroups have of them their registers, they are held there before
the other side of the product is; where not they are walked through, some chunks at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import lcm, prod

from lispgpt.ir.structure import element_type, shape_of
from lispgpt.passes.decode_step.attention_heads import Heads
from lispgpt.passes.decode_step.chain import OF_COLUMNS, Chain
from lispgpt.passes.decode_step.fixed_point_sums import MOST_PARTS
from lispgpt.passes.decode_step.norm_sums import NormSums
from lispgpt.passes.decode_step.packed_weights import PackedWeights
from lispgpt.passes.kernels.refusal import Refused

SUBGROUPS = 12
"""Of a block, that multiply."""
THREADS = 32 * SUBGROUPS
LATER = 80_000
"""Bytes of the lm head that a block without layers has less than others: the residual comes 0.6 us later."""


@dataclass(frozen=True)
class Sharing:
    """How subgroups share a product: `tiles` of its rows at once times `slices` of its depth, `steps` of 16 each.  all:
    the tiles that there are, `tiles` at a time."""

    tiles: int
    slices: int
    steps: int
    all: int

    @property
    def workers(self) -> int:
        return self.tiles * self.slices


def held(tiles: int, steps: int, line: int, together: int = 1) -> Sharing | None:
    """Over as many subgroups as there are, all tiles at once.  line: steps that come together, of which a subgroup
    takes some or several.  together: steps of an instruction."""
    if tiles > SUBGROUPS:
        return None
    steps //= together
    whole = [s for s in range(1, SUBGROUPS // tiles + 1) if steps % s == 0]
    whole = [s for s in whole if steps // s % line == 0 or line % (steps // s) == 0]
    return Sharing(tiles, whole[-1], steps // whole[-1] * together, tiles)


def walked(tiles: int, steps: int, most: int, together: int = 1) -> Sharing:
    """Some of a product's tiles of rows at a time, at most so many, so that most subgroups work."""
    steps //= together
    found = []
    for now in (n for n in range(1, min(most, SUBGROUPS) + 1) if tiles % n == 0):
        slices = next(s for s in range(SUBGROUPS // now, 0, -1) if steps % s == 0)
        found.append(Sharing(now, slices, steps // slices * together, tiles))
    return max(found, key=lambda sharing: (sharing.workers, -sharing.tiles))


@dataclass(frozen=True)
class LmHeadShare:
    """How many of the lm head's chunks each block has whose cluster has layers, and how many all others have."""

    each: int
    rest: int
    others: int

    @staticmethod
    def of(chunks: int, nbytes: int, layered: int, others: int) -> LmHeadShare:
        """nbytes: of a chunk.  layered, others: blocks."""
        if not others:
            return LmHeadShare(-(-chunks // layered), 0, 0)
        blocks = layered + others
        each = (chunks + min(LATER // nbytes, chunks // blocks // 4) * others) // blocks
        return LmHeadShare(each, chunks - each * layered, others)

    @property
    def most(self) -> int:
        """Of the block that has most."""
        return max(self.each, -(-self.rest // self.others)) if self.others else self.each

    @property
    def rows(self) -> int:
        """Of these chunks."""
        return 8 * self.most


RANKS, LINE = 8, 64
"""Blocks of a cluster, and bf16 of a line that bulk copies bring."""
SHARED_UNIT = 64
"""Neighbouring numbers of the residual stream that are whole numbers of one unit, for packed weights."""
LEAST_STAGES = 4
WALKED_UNDER_WAY = 48 << 10
"""Bytes of weights that a block brings at once where it walks through them, whole chunks and two at least: Qwen3 of
0.6B on an H200, whose chunks have 16 KiB, takes 564 us a token with two at once, 530 with three and 542 with four; a
Llama of 1.2B, with chunks of 32, 722, 761 and 774."""
STAGES_BESIDE_ROWS = 8
"""Chunks of weights that are in memory beside rows of the cache, where not a layer's."""
SWIZZLED = 1024
"""What chunks that tensor maps bring are aligned to."""
WEIGHT_COPIER, EXCHANGER, FINISHER, CLOCKED_BY = range(SUBGROUPS, SUBGROUPS + 4)
SUMS, PARTS, ATTENDED, RESIDUAL_STREAM, MULTIPLIERS, HOISTED, TOKEN, ROW, RACES, GATHERED, GAMMAS = range(1, 12)
"""Barriers of a block: sums of rows are there; attention's parts are; its result is; sums of columns are; all that
multiply; what is made ahead of the layers is there; the token to go on with is; the residual stream is; a draw's clocks
are; its most probable tokens are; weights of heads' norms are."""
PLACES = 3
"""Where sums of additions lie in turn: behind attention, behind a layer, and behind a run's last one."""
PUBLISHED = 64
"""Bytes that a block publishes to all others in a round of a draw, at most."""
TWO_ROLES, THREE_ROLES = THREADS + 32, THREADS + 64
"""Threads of the subgroups that multiply and of one or of both that finish and exchange."""
BARRIER_BYTES = 8 * (2 * 60 + 8)
SHARED_BYTES = 231424 - 1024
"""Of a block's memory, beside its alignment."""


def up_to(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class Layout:
    """Numbers of one chain's kernel.  blocks: of the launch.  steps, numbers, rows: see SplitDecode.

    piece: columns of the residual stream that a thread has side by side.  pause: clocks from when a block has made its
    part of an addition until it asks for all of it.  spread: a block has those of a sequence's positions whose number
    modulo this is its rank.  under_way: chunks that the weight copier brings at once.  threads: of a block.  entries:
    most probable tokens of a block that all others gather in a draw.  brings: whether the subgroups that multiply bring
    what the ring has no room for ahead of the head: not of BF16 that is walked through, with which the copier alone is
    1 % faster on an H200.  awaited: what its barriers beside the ring's are for.  sums_at: what is made of norms'
    weights, by the argument that has it.  hoisted,
    hoisted_at: shapes of what is made ahead of the layers and where each starts, behind all of it the end."""

    piece, pause = 2, 900
    spread, under_way, threads, entries, brings = RANKS, 2, 32 * (SUBGROUPS + 4), 4, True
    awaited: tuple[str, ...] = ("ended", "own", "merged", "hidden_units", "rows", "read")

    def __init__(
        self, chain: Chain, heads: Heads, context: int, blocks: int, steps: int, numbers: int, rows: int
    ) -> None:
        self.numbers = numbers
        self.width, self.layers, self.depth, self.context = chain.width, chain.layers, heads.depth, context
        self.heads, self.blocks, self.chain, self.sequences = heads, blocks, chain, chain.sequences
        self.hoisted, self.gammas = self._hoisted_shapes(), self._gammas()
        starts = accumulate((4 * prod(shape) for shape in self.hoisted.values()), initial=0)
        self.hoisted_at = dict(zip([*self.hoisted, None], starts, strict=True))
        self.sums_at: dict[int, NormSums] = {}
        if self.width % LINE or self.width // RANKS > 256 or self.depth % RANKS or self.depth > 256:
            raise Refused(f"heads of {self.depth} and a width of {self.width} do not fill tiles")
        clusters = min(blocks // RANKS, MOST_PARTS) if chain.sequences == 1 else blocks // RANKS
        self.head_rows, self.rows_of_kinds = self._share_heads(clusters)
        units = -(-chain.down.depth // LINE)
        self.hidden = -(-units // clusters) * LINE
        # Where all clusters have layers, some of zeros, GPT-2 of 350M on an H200 takes 0.92 to 0.97 of the time,
        # Qwen3 of 0.6B 0.98 to 0.99, GPT-2 of 124M 0.99 to 1.03, and eight sequences of it 1.06.
        self.layer_clusters = max(self.head_clusters, -(-chain.down.depth // self.hidden))
        self.others = blocks - RANKS * self.layer_clusters
        self.columns = self.width // RANKS
        self.hidden_rows = self.hidden // RANKS
        self.draws = chain.settings is not None
        self.attended = up_to(self.each * self.depth, LINE)
        self.qkv_tiles = -(-self.head_rows // (8 * RANKS))
        self.up_tiles = len(chain.gate_up) * self.hidden_rows // 8
        self.first_out_projection = self.qkv_tiles
        self.first_up = self.first_out_projection + self.attended // LINE
        self.first_down = self.first_up + self.up_tiles
        self.layer_chunks = self.first_down + self.hidden // LINE
        self.lm_head_chunks = -(-chain.lm_head.rows // 8)
        self._pack()
        layered = RANKS * self.layer_clusters
        self.lm_head_share = LmHeadShare.of(self.lm_head_chunks, self.chunk_bytes("lm_head"), layered, self.others)
        self._take_turns()
        self._share_products(steps)
        self._place(self._turns_near(rows))

    @property
    def residual_parts(self) -> int:
        """Parts of a sequence's residual stream that a subgroup takes at once."""
        return -(-self.width // (32 * self.piece))

    @property
    def quads(self) -> int:
        """Lines of four numbers of a sequence in a rank's columns."""
        return self.columns // 4

    @property
    def own_lines(self) -> int:
        """Of a rank's lines of all sequences, those that one of its blocks sums up."""
        return -(-self.sequences * self.quads // self.layer_clusters)

    @property
    def published_of_race(self) -> int:
        """Bytes that a block publishes to all others of its race: two lines, and one of each of its most probable
        tokens."""
        return 16 * (2 + self.entries)

    @property
    def exchange_cost(self) -> float:
        """How much longer than plain heads' an exchange of one sequence's residual stream takes, with all that is done
        between two.  Who reads a head's row norms it again: Qwen3 of 0.6B on an H200 takes 556 us a token by one
        launch, 515 without its norms, and 579 by launches apart.  Several sequences of GPT-2 of 124M on an H100: two
        138 us where a graph takes 200, four 138 and 212, eight 155 and 207."""
        if self.sequences > 1:
            return 1.25 + 0.04 * self.sequences
        return 1.0 + 0.5 * len(self.chain.head_norms)

    def _hoisted_shapes(self) -> dict[int, tuple[int, ...]]:
        """Of F32 made ahead of the layers, by attention's argument; of several sequences each block has its own's."""
        found: dict[int, tuple[int, ...]] = {}
        for ahead in self.chain.hoisted:
            arguments = ahead.kernel.regions[0].blocks[0].arguments
            found |= {theirs: shape_of(arguments[mine]) for mine, theirs in ahead.results.items()}
        found = dict(sorted(found.items()))
        if self.sequences == 1:
            return found
        if any(shape[0] != self.sequences for shape in found.values()):
            raise Refused("what a kernel ahead of the layers makes is not of each sequence")
        return {argument: (1, *shape[1:]) for argument, shape in found.items()}

    def _gammas(self) -> dict[int, int]:
        """Which norms of heads have their layer's weights in a block's memory, each as the so manieth: whoever reads a
        head's row would wait for them."""
        norms = self.chain.head_norms if self.sequences == 1 else ()
        weights = [one.kernel.regions[0].blocks[0].arguments[one.gamma] for one in norms]
        near = [n for n, w in enumerate(weights) if shape_of(w) == (self.depth,) and str(element_type(w)) == "f32"]
        return {number: place for place, number in enumerate(near)}

    def _share_heads(self, clusters: int) -> tuple[int, tuple[int, int, int]]:
        """A cluster's heads: few enough, and of whole groups or of one.  Returns its rows of the first product, and
        those of queries, keys and values."""
        heads, group = self.heads.count, self.heads.group
        found = [n for n in range(-(-heads // clusters), heads + 1) if n % group == 0 or group % n == 0]
        self.each = found[0]
        self.kv = max(1, self.each // group)
        self.members = self.each // self.kv
        """Heads of a cluster that share keys and values."""
        if self.kv > SUBGROUPS:
            raise Refused(f"{heads} heads are not shared among {clusters} clusters")
        self.head_clusters = -(-heads // self.each)
        self.head_subgroups = SUBGROUPS // self.kv
        self.parts = self.each * (self.head_subgroups + 1)
        rows = (self.each * self.depth, self.kv * self.depth, self.kv * self.depth)
        return sum(rows), rows

    def _take_turns(self) -> None:
        """Of the cache's rows, of which a turn's are as many as a cluster's subgroups take at once."""
        rows = self.heads.rows
        self.row_numbers = 4 if self.heads.depth <= 128 and not self.heads.short else 8
        self.row_lanes = 1
        while self.row_lanes * self.row_numbers < self.heads.depth:
            self.row_lanes *= 2
        self.row_words = self.row_numbers // 2 if self.heads.short else self.row_numbers
        self.row_step = 32 // self.row_lanes * self.head_subgroups
        self.all_turns = -(-self.context // (self.spread * self.row_step))
        self.turns = min(self.all_turns, max(1, self.numbers // self.row_words))
        self.row_lines = 0 if rows is None else self.heads.row_bytes // (2 * LINE)

    def _turns_near(self, most: int) -> int:
        """Turns whose rows lie in a block's memory, where it has room beside the chunks of weights that it needs: all
        of the product behind attention come ahead of rows.  Those of 16 bits come to registers as fast."""
        rows, stages = self.heads.rows, self.layer_chunks if self.whole else STAGES_BESIDE_ROWS
        if rows is None or self.heads.short or self.context % RANKS or self.attended > LINE * stages:
            return 0
        if self.heads.row_bytes % (2 * LINE) or rows.position % 16 or rows.head % 16:
            return 0
        room = SHARED_BYTES - self.bytes + (self.stages - stages) * self.chunk - SWIZZLED
        return max(0, min(self.turns, most // self.row_step, room // self.turn_bytes))

    @property
    def near_rows(self) -> int:
        """Rows of a head that lie in a block's memory."""
        return self.near * self.row_step

    @property
    def turn_bytes(self) -> int:
        """Of a turn's rows of keys and values."""
        rows = self.heads.rows
        return 0 if rows is None else 2 * self.kv * self.row_step * self.heads.row_bytes

    def _pack(self) -> None:
        """Products whose weights are packed, by name, and the room of a chunk.  packed_at: the entry's arguments."""
        chain, own = self.chain, self.each * self.depth
        if chain.out_projection.packed and own % 16:
            raise Refused(f"heads of {self.depth} do not fill steps of 16")
        packed = {name: one for name, one in chain.products.items() if one.packed}
        self.packed = {name: PackedWeights.of_rows(one) for name, one in packed.items() if name not in OF_COLUMNS}
        for name, span in zip(OF_COLUMNS, (own, self.hidden), strict=True):
            if name in packed:
                self.packed[name] = PackedWeights.of_columns(packed[name], span if span % LINE else LINE, RANKS)
        self.packed_at: dict[str, int] = {}
        plain = len(self.packed) < len(chain.products)
        sizes = [packed.chunk for packed in self.packed.values()] + [16 * self.width] * plain
        self.chunk = up_to(max(sizes), SWIZZLED if plain else 128)

    def chunk_bytes(self, name: str) -> int:
        """What is brought of a product's chunk."""
        return self.packed[name].chunk if name in self.packed else 16 * self.width

    def as_digits(self, name: str) -> bool:
        """Whether a product of rows takes the residual stream as whole numbers, whose sums are made real for each
        block: of short ones, as q8_0's, this takes longer than BF16 parts do, SmolLM2 of 135M a tenth more on an
        H200."""
        return name in self.packed and self.packed[name].grain >= SHARED_UNIT

    def layers_of(self, name: str) -> int:
        """How often a product's weights are there: for each layer, or, the lm head's, once."""
        return 1 if name == "lm_head" else self.layers

    @property
    def layer_bytes(self) -> int:
        """Of a layer's weights in a block."""
        rows = self.qkv_tiles * self.chunk_bytes("qkv") + self.up_tiles * self.chunk_bytes("up0")
        columns = self.attended * self.chunk_bytes("out_projection") + self.hidden * self.chunk_bytes("down")
        return rows + columns // LINE

    def _share_products(self, most: int) -> None:
        half = self.width // 32
        tiles = -(-self.columns // 16)
        qkv, up = (2 if self.as_digits(name) else 1 for name in ("qkv", "up0"))
        sharings = (
            held(self.qkv_tiles, half, 1, qkv), held(self.up_tiles, half, 1, up),
            held(tiles, self.attended // 16, LINE // 16), held(tiles, self.hidden // 16, LINE // 16),
        )  # fmt: skip
        self.whole = False
        if all(sharings):
            self.qkv, self.up, self.out_projection, self.down = (s for s in sharings if s is not None)
            steps = max(self.qkv.steps // qkv + self.out_projection.steps, self.up.steps // up + self.down.steps)
            self._place()
            self.whole = self.stages >= self.layer_chunks and steps <= most
        if self.whole:
            self.arrivals = self._whole_arrivals()
            return
        self.arrivals, self.brings = SUBGROUPS, bool(self.packed)
        self.out_projection = self.down = Sharing(tiles, 1, LINE // 16, tiles)
        for some in (LEAST_STAGES, 2, 1):
            self.qkv, self.up = walked(self.qkv_tiles, half, some, qkv), walked(self.up_tiles, half, some, up)
            self._place()
            if self.stages >= max(LEAST_STAGES, some + 2):
                if not self.packed:
                    self.under_way = max(self.under_way, min(self.stages - 1, -(-WALKED_UNDER_WAY // self.chunk)))
                return
        raise Refused(f"a block's memory has room for {max(0, self.stages)} parts of its weights at once")

    def _whole_arrivals(self) -> int:
        """That a slot's barrier counts, where each product's readers are as many."""
        columns = self.readers(self.out_projection), self.readers(self.down)
        return lcm(self.qkv.slices, self.up.slices, *columns)

    @staticmethod
    def readers(sharing: Sharing) -> int:
        """Subgroups that read one chunk of 64 columns."""
        return sharing.tiles * max(1, LINE // 16 // sharing.steps)

    @property
    def norm_sums(self) -> list[NormSums]:
        """What is made once of norms' weights."""
        first, second, _ = self.chain.norms
        of = [(self.chain.qkv, first), *((up, second) for up in self.chain.gate_up)]
        return [NormSums(one, norm, self.layers) for one, norm in of if norm.centred or norm.beta is not None]

    def _place(self, near: int = 0) -> None:
        """Bytes from the start of a block's memory.  near: turns whose rows of the cache lie there."""
        self.near = near
        self.sizes = self._sizes()
        self.stages = min(60, (SHARED_BYTES - sum(up_to(n, 64) for n in self.sizes.values())) // self.chunk)
        self.at, end = {}, self.stages * self.chunk
        for name, size in self.sizes.items():
            self.at[name] = end
            end += up_to(size, 64)
        self.bytes = end
        first = self.at["barriers"]
        self.full, self.empty = first, first + 8 * self.stages
        self.barrier = {name: first + 8 * (2 * self.stages + i) for i, name in enumerate(self.awaited)}

    def _sizes(self) -> dict[str, int]:
        """Bytes of what lies in a block's memory beside the ring's chunks."""
        digits = [self.as_digits(name) for name in ("qkv", "up0", "lm_head")]
        return {
            "rows": up_to(self.near * self.turn_bytes, SWIZZLED),
            "residual_stream": 4 * self.width,
            "x": 0 if all(digits) else 8 * self.width,
            "hidden_units": 8 * self.hidden,
            "own": 4 * self.head_rows,
            "merged": RANKS * self.each * self.part,
            "parts": self.parts * self.part,
            "attended": 8 * self.attended,
            "ahead": self.hoisted_at[None],
            "gammas": 4 * self.depth * len(self.gammas),
            "statistics": 8 * self.residual_parts,
            "moments": 8,
            "digits": 4 * self.width * any(digits),
            "units": 4 * self.width // SHARED_UNIT * any(digits),
            "tokens": 4,
            "qkv_sums": 4 * self.qkv.slices * 8 * self.qkv.all,
            "up_sums": 4 * self.up.slices * 8 * self.up.all,
            "out_projection_sums": 4 * self.out_projection.slices * self.sum_columns,
            "down_sums": 4 * self.down.slices * self.sum_columns,
            "best": 0 if self.draws else 16 * SUBGROUPS,
            "logits": 4 * self.lm_head_share.rows * self.draws,
            "paces": 4 * self.lm_head_share.rows * self.draws,
            "round": 8 * self.draws,
            "heats": 16 * SUBGROUPS * self.draws,
            "tops": 32 * SUBGROUPS * self.draws,
            "gathered": 12 * self.entries * self.blocks * self.draws,
            "barriers": BARRIER_BYTES,
            "brought": 8 * self.lm_head_share.most,
        }

    @property
    def sum_columns(self) -> int:
        """Columns of a rank, filled up to whole tiles."""
        return up_to(self.columns, 16)

    @property
    def part(self) -> int:
        """Bytes of attention's result over some positions: its numbers, the largest score and the sum below it."""
        return 4 * self.depth + 16

    @cached_property
    def lines(self) -> dict[str, int]:
        """Where in global memory exchanges lie: bytes from its start, and of all."""
        sizes = {
            "sums": 2 * 8 * self.width,
            "seen": 2 * 8 * self.width,
            "final": 8 * self.width,
            "best": 2 * 32 * self.blocks * self.sequences,
            "draws": 2 * PUBLISHED * self.blocks * self.draws,
            "races": 2 * self.published_of_race * self.blocks * self.draws,
        }
        return dict(zip([*sizes, "end"], accumulate(sizes.values(), initial=128), strict=True))
