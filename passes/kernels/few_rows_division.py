"""How blocks and subgroups share a product of a few rows."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.matrices import Lanes
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class Share:
    """How a block's tile lies in instructions.  tiles: along w's rows.  turned: whether those are the instruction's
    columns.  size, left_size: rows of w and of x in an instruction.  held, held_left: which of these a lane has,
    counted from its own."""

    tiles: int
    turned: bool
    size: int
    left_size: int
    held: tuple[int, ...]
    held_left: tuple[int, ...]

    @property
    def outputs(self) -> int:
        return self.tiles * self.size

    @property
    def vectors(self) -> int:
        """Of w that a lane has in each step of k."""
        return self.tiles * len(self.held)


@dataclass(frozen=True)
class Division:
    """subgroups: of a block, each with `steps` of an instruction along k.  resident: how many blocks share a core and
    loop over tiles; 0: each has one tile.  parts: bf16 numbers that an f32 one is split into.  ahead: the most vectors
    of x that a lane is made to load before the first is multiplied.  copied: the most tiles of w that a block has on
    their way to shared memory; 0: they go to registers.  Where they do not: beside: threads, of this launch and others,
    that a core is to have registers for; sliced: whether each lane keeps its own runs of x where reductions make it;
    chains: sums that each of a lane's is made of."""

    share: Share
    subgroups: int
    steps: int
    resident: int
    parts: int
    ahead: int
    copied: int
    beside: int
    sliced: bool
    chains: int

    def stages(self, product: Product, target: Gpu) -> list[int]:
        """How many tiles of w a block may have on their way to shared memory at once, the best number first."""
        if not self.resident:
            return [1] if self.copied else []
        tiles = -(-product.columns // self.share.outputs)
        return list(range(min(self.copied, -(-tiles // (target.cores * self.resident))), 1, -1))


@dataclass(frozen=True)
class LanePart:
    """A lane's part of k, of which there are `inner`: of each of its subgroup's steps a run."""

    lanes: Lanes
    subgroup: Index
    steps: int
    inner: int
    ragged: bool

    def at(self, step: int) -> tuple[Index, ir.Value | None]:
        """Where the run of a step starts, and whether there is one (None: always)."""
        unit, number = self.lanes.unit, b.add(b.mul(self.subgroup, self.steps), step)
        k = b.add(b.mul(number, unit.block), b.mul(self.lanes.group, unit.run))
        if not self.ragged:
            return k, None
        live = b.less(k, self.inner)
        return b.or_zero(live, k), live
