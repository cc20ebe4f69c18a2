"""The tiles in which warpgroups should take least time for a product that a schedule has them multiply."""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.model.row_moments import find_moments, moment_of
from lispgpt.passes.targets.warpgroup_tiles import (
    FEWEST_STAGES,
    Shape,
    cost,
    has_groups,
    stages_beside_results,
    tilings,
)
from lispgpt.passes.tile.build import Builder
from lispgpt.passes.tile.copies import stored_parts
from lispgpt.passes.tile.types import SWIZZLE


def warpgroup_tiling(kernel: Builder) -> tuple[int, int, int, tuple[int, int], int, int]:
    """(rows, columns, slots, teams, blocks that bring columns for each other, blocks that share out k), where bulk
    copies bring them."""
    p, target, parts = kernel.product, kernel.target, stored_parts(kernel.left)
    left_bytes = 4 if kernel.left.dtype == "f32" else 2
    results = [b.item_bytes(buffer.type) for _, buffer in p.results_of(p.op.operation.parent)]
    across, count = (kernel.lies_across(kernel.left), kernel.lies_across(kernel.right)), max(1, len(results))
    bytes_ = left_bytes, sum(results)
    shape = Shape(p.rows, p.columns, p.inner, *bytes_, across, count, stored=parts > 1, batches=p.batches)

    slots = {t: stages_beside_results(t, shape, target) for t in tilings(target, shape) if t.shares is None}
    found = [tiling for tiling, most in slots.items() if most >= FEWEST_STAGES]
    if any(moment_of(tensor) is not None for tensor in kernel.made_beside):
        moments = find_moments(outputs_of(p.op.operation.parent))
        unit = target.warpgroup.threads if target.warpgroup else 0
        found = [t for t in found if moments is not None and has_groups(t, moments.group, unit)]
    if not found:
        raise Refused("no tile has the groups of columns of which moments are wanted")
    best = min(found, key=lambda tiling: cost(tiling, shape, target))
    fewest = max(FEWEST_STAGES, -(-p.inner // (SWIZZLE // 2)))
    teams = best.row_parts, best.output_parts
    return best.rows, best.outputs, min(slots[best], fewest), teams, best.pair, best.splits
