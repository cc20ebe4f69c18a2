"""How several sequences' chain is shared among clusters: what their launch has that one sequence's has not.

Subgroups have a layer's weights in registers for all sequences, whose columns of the residual stream are those of a
matrix instruction. Rank r of a cluster has the keys and values of sequence r, so that attention's parts never leave a
block.  What clusters add to the residual stream is summed up once: of each rank's columns of all sequences a cluster's
block has a share, whose sums all blocks read.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate

from lispgpt.passes.decode_step.layout import BARRIER_BYTES, LINE, PLACES, RANKS, SUBGROUPS, Layout, Sharing
from lispgpt.passes.kernels.refusal import Refused

MOST_SEQUENCES = RANKS
"""Columns of a matrix instruction, and ranks of a cluster."""
OPERAND_PARTS = 3
"""BF16 of a number of an operand, whose sum it is."""
MATRIX_BYTES = 16 * MOST_SEQUENCES
"""Of one part of 8 numbers of all sequences."""
PART_BYTES = 2 * MATRIX_BYTES
STEP_BYTES = OPERAND_PARTS * PART_BYTES
"""Of 16 numbers of all sequences."""
NUMBERS = 16
"""Of keys, and of values, that a lane has at once at most, as subgroups have a product's weights at the same time."""
SUMMER = SUBGROUPS + 1
"""The subgroup that sums up what clusters add to the residual stream; those behind it have the sequences' own rows."""
NEW_ROW_SUBGROUPS = 2


def pitch(sharing: Sharing) -> int:
    """Numbers from one sequence's sums of a product to the next one's, in other banks of a block's memory."""
    return 16 * sharing.all + 4


def _share(tiles: int, steps: int, line: int = 1) -> Sharing:
    """A product's tiles and depth over subgroups: each has as few tiles' steps as possible, and as few groups of
    subgroups as possible read all of the other side.  line: steps that come together, of which a subgroup takes some or
    several."""
    found = []
    for groups in (g for g in range(1, min(tiles, SUBGROUPS) + 1) if tiles % g == 0):
        for slices in (s for s in range(1, SUBGROUPS // groups + 1) if steps % s == 0):
            own = steps // slices
            if own % line == 0 or line % own == 0:
                found.append(Sharing(groups, slices, own, tiles))
    return min(found, key=lambda sharing: (_held_steps(sharing), sharing.tiles))


def _held_steps(sharing: Sharing) -> int:
    """Of 16 of the depth and 16 rows, whose weights a subgroup has in its registers."""
    return sharing.steps * sharing.all // sharing.tiles


class BatchLayout(Layout):
    spread, under_way, brings = 1, 1, False
    piece, pause = 4, 2400
    threads = 32 * (SUMMER + 1 + NEW_ROW_SUBGROUPS)
    awaited = ("own", "attended", "hidden_units")

    def _take_turns(self) -> None:
        self.numbers = min(self.numbers, NUMBERS)
        super()._take_turns()

    def _turns_near(self, most: int) -> int:
        return 0

    def _share_products(self, most: int) -> None:
        if self.sequences > MOST_SEQUENCES:
            raise Refused(f"{self.sequences} sequences are more than {MOST_SEQUENCES}")
        if self.residual_parts > SUBGROUPS:
            raise Refused(f"a block's subgroups do not have a residual stream of {self.width} at once")
        rows, columns = self.width // 16, -(-self.columns // 16)
        self.qkv, self.up = _share(-(-self.qkv_tiles // 2), rows), _share(-(-self.up_tiles // 2), rows)
        self.out_projection = _share(columns, self.attended // 16, LINE // 16)
        self.down = _share(columns, self.hidden // 16, LINE // 16)
        steps = max(_held_steps(a) + _held_steps(c) for a, c in ((self.qkv, self.out_projection), (self.up, self.down)))
        self._place()
        if self.stages < self.layer_chunks or steps > most:
            raise Refused(f"a block does not hold its part of a layer beside {self.sequences} sequences")
        self.arrivals = self._whole_arrivals()

    def _sizes(self) -> dict[str, int]:
        sums = max(s.slices * pitch(s) for s in (self.qkv, self.up, self.out_projection, self.down))
        return {
            "x": STEP_BYTES * max(self.width, self.hidden) // 16,
            "attended_parts": STEP_BYTES * self.attended // 16,
            "attended": 4 * self.each * self.depth * self.sequences,
            "hidden_units": 4 * self.hidden * self.sequences,
            "own": 4 * self.head_rows,
            "parts": self.parts * self.part,
            "sums": 4 * MOST_SEQUENCES * sums,
            "statistics": 8 * self.residual_parts * self.sequences,
            "moments": 8 * SUBGROUPS * self.sequences,
            "ahead": self.hoisted_at[None],
            "best": 16 * SUBGROUPS * self.sequences,
            "positions": 4 * self.sequences,
            "tokens": 4 * self.sequences,
            "barriers": BARRIER_BYTES,
        }

    @cached_property
    def lines(self) -> dict[str, int]:
        addends = RANKS * self.layer_clusters * self.layer_clusters * self.own_lines
        sizes = {
            "addends": 2 * 16 * addends,
            "residual_stream": PLACES * 4 * self.sequences * self.width,
            "best": 2 * 32 * self.blocks * self.sequences,
        }
        return dict(zip([*sizes, "end"], accumulate(sizes.values(), initial=128), strict=True))
