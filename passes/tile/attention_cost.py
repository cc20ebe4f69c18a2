"""How long attention by blocks of rows should take, at the chip's rates: a model, as cost.py is one for products.

A block multiplies its rows by each tile of keys that they see, and every tile has to come to its registers however few
its rows are.  Blocks that see most come first, so that the launch ends with the longest of them, or when all have had
their share of the cores.
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.attention_rows import AttentionRows
from lispgpt.passes.tile.cost import BUSY, REACHED

ROW_SUBGROUP = 16
"""Rows of a subgroup."""


@dataclass(frozen=True)
class Rates:
    """share: of the matrix instructions' rate that is reached.  brought: vector operations for each number of keys and
    values that a block brings.  step, start: seconds of a tile, and of a launch, that nothing overlaps with.  busy: the
    subgroups that keep a core busy.  Of an H200 (2026)."""

    share: float
    brought: float
    step: float
    start: float
    busy: float


BY_TILES = Rates(0.53, 6.2, 0.56e-6, 5.5e-6, 5.0)
"""attention.lisp's, where these tell 140 launches within 17 %, and its shapes apart."""

BY_LINES = Rates(0.82, 7.6, 0.2e-6, 4.4e-6, 4.1)
"""The same of its shapes for warpgroups, where these tell 57 launches within 17 %."""


@dataclass(frozen=True)
class Blocks:
    """rows: of a block.  keys: of a tile.  members: subgroups that share a row's keys.  resident: blocks that share a
    core.  products: how many of parts make scores, and weighed sums."""

    rows: int
    keys: int
    members: int
    resident: int
    products: tuple[int, int]

    @property
    def subgroups(self) -> int:
        return self.rows // ROW_SUBGROUP * self.members


def products_of_parts(left: int, right: int) -> int:
    """How many products of two operands' BF16 parts are summed."""
    return sum(1 for p in range(left) for q in range(right) if p + q < max(left, right))


def attention_seconds(rows: AttentionRows, blocks: Blocks, target: Gpu, rates: Rates = BY_TILES) -> float | None:
    """None where the chip's rates are not known.  Rows see all that there is, or if a mask ends what they see, what is
    ahead of them."""
    chip, a = target.rates, rows.attention
    if chip is None:
        return None
    most = min(a.context, rows.rows) if a.upper is not None else a.context
    mean = (most + blocks.rows) / 2 if a.upper is not None else most
    count = rows.batches * -(-rows.rows // blocks.rows)
    together = min(blocks.resident, -(-count // target.cores))
    products = a.depth * blocks.products[0] + a.width * blocks.products[1]
    multiplied = 2 * blocks.rows * products / (rates.share * REACHED * chip.matrix / target.cores)
    words = a.depth + a.width if str(a.keys.element) == "bf16" else 2 * (a.depth + a.width)
    key = multiplied + words * rates.brought / (BUSY * chip.vector / target.cores)
    longest = most * key * max(together, rates.busy / blocks.subgroups) + -(-most // blocks.keys) * rates.step
    idle = max(1.0, rates.busy / (together * blocks.subgroups))
    everyone = count / target.cores * (mean * key * idle + mean / blocks.keys * rates.step / together)
    return rates.start + max(longest, everyone)
