"""schedule-gpu-warpgroups: products of many rows with a BF16 operand, on matrix instructions of whole warpgroups.

Before: linalg.contract of any layout, one operand in bf16 or weights in blocks and the other in bf16 or f32, with
        elementwise ops around it.
After:  a block computes tiles of rows by columns, one after another.  Threads of it start bulk copies, which bring
        both operands to a ring of stages in shared memory, in lines along whichever dimension is innermost; two
        warpgroups, or one where each tile has its block, multiply from there and store results in bulk, while the
        next tile's copies are under way.  An operand in f32 is multiplied from registers, as two bf16 parts that add
        up to it, or from shared memory where it is stored as such.  Weights in blocks are widened by the threads
        that start copies, once a tile, to two bf16 parts, or to one where round-activations lets them.  A
        cluster's blocks bring columns for each other, or, where tiles are few, share out k and add up.  Columns
        that go to a cache are stored there by threads, each row at its position (see cached_results), and where
        norms of the results are deferred, threads make their rows' moments of what they have in registers (see
        moment_sums).

Requires: what plan-arena and recognise-products ensure.
Ensures: kernels of kind "contraction" that the target's warpgroup instructions and tensor maps fit have only scalar,
vector and matrix ops, `grid`, `block`, their dynamic `shared_bytes` and `tensor_maps`.
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.block_weights import BlockWeights
from lispgpt.passes.kernels.cached_results import is_made
from lispgpt.passes.kernels.kernel import constant_arguments
from lispgpt.passes.kernels.products import Operand, Product, unscheduled_products
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.ring import CopiedOperand, WidenedOperand
from lispgpt.passes.kernels.tensor_map import Boxes, find_boxes, strided
from lispgpt.passes.model.row_moments import find_moments, moment_of
from lispgpt.passes.recognise.bf16_parts import may_round
from lispgpt.passes.schedule.warpgroups.operands import Operands
from lispgpt.passes.schedule.warpgroups.product import WarpgroupProduct
from lispgpt.passes.schedule.warpgroups.split_k import lend_memory
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.tensor_copies import TensorCopies
from lispgpt.passes.targets.warpgroup_tiles import CLOCK, PARTS, Shape, Tiling, cost, has_groups, tilings


@dataclass(frozen=True)
class ScheduleGpuWarpgroups(Pass):
    """least_rows: the fewest rows of x to treat this way.  rows, outputs, warpgroups, splits, pair: of a `Tiling`;
    0: by cost.  shared: whether blocks may share the k of all tiles."""

    starts_from = (PLACED,)
    only_faster = True
    least_rows: int = 16
    rows: int = 0
    outputs: int = 0
    warpgroups: int = 0
    splits: int = 0
    pair: int = 0
    shared: bool = True

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.warpgroup is None or target.copies is None:
            return
        constant = constant_arguments(module)
        for kernel, found in unscheduled_products(module, is_made, self.name):
            product = _weights_on_the_right(found)
            operands = self._operands(product, target, target.copies)
            if operands is not None and (tiling := self._tiling(kernel, product, operands, target)) is not None:
                if tiling.shares is not None:
                    lend_memory(module, kernel, tiling, target.warpgroup.threads)
                WarpgroupProduct(kernel, product, operands, constant(kernel), target, tiling).emit()

    def time_of(self, kernel: ir.Operation, found: Product, target: Gpu) -> float:
        """Seconds that it should take of a product; Refused where it leaves that to others."""
        if target.warpgroup is None or target.copies is None:
            raise Refused("the chip has no matrix instructions of warpgroups")
        product = _weights_on_the_right(found)
        operands = self._operands(product, target, target.copies)
        if operands is None:
            raise Refused(
                "an operand is neither boxes of BF16 or F32 numbers nor in blocks, or there are too few rows or columns"
            )
        tiling = self._tiling(kernel, product, operands, target)
        if tiling is None:
            raise Refused("no tile has the groups of columns of which moments are wanted")
        return cost(tiling, self._shape(kernel, product, operands), target) / CLOCK

    def _operands(self, product: Product, target: Gpu, copies: TensorCopies) -> Operands | None:
        """How both operands are copied; None where they cannot be, or the product is too small."""
        unit, layout = target.warpgroup, product.layout
        assert unit is not None
        widened = _widened_operand(product, unit.inner, copies.line)
        if (product.left.dtype not in ("f32", "bf16") or (product.right.dtype != "bf16" and widened is None)) or (
            product.rows < self.least_rows or product.columns < unit.columns
        ):
            return None

        def boxes(operand: Operand, part: int | None = None) -> Boxes | None:
            kinds = (layout.batch, operand.outer, layout.sums)
            return find_boxes(strided(operand.tensor, part), layout, operand.dimensions, kinds, copies)

        stored = [boxes(product.left, part) for part in range(PARTS)]
        left, rest = (boxes(product.left), None) if None in stored else stored
        if left is None:
            return None
        own = CopiedOperand(left, 0, unit.inner, copies.line, rest=rest)
        if widened is not None:
            return Operands(own, widened)
        right = boxes(product.right)
        return None if right is None else Operands(own, CopiedOperand(right, 0, unit.inner, copies.line))

    @staticmethod
    def _shape(kernel: ir.Operation, product: Product, operands: Operands) -> Shape:
        results = [b.item_bytes(buffer.type) for _, buffer in product.results_of(kernel)]
        return operands.shape(product, sum(results), len(results))

    def _tiling(self, kernel: ir.Operation, product: Product, operands: Operands, target: Gpu) -> Tiling | None:
        """The tiling that should take least time; None where none has the groups of columns that moments are wanted
        of."""
        unit, outputs = target.warpgroup, outputs_of(kernel)
        assert unit is not None
        moments, transposed = find_moments(outputs), product.op.operands[0] != product.left.tensor
        shape = self._shape(kernel, product, operands)
        wanted = [(name, getattr(self, name)) for name in ("rows", "outputs", "warpgroups", "splits", "pair")]
        candidates = [
            tiling
            for tiling in tilings(target, shape)
            if all(n in (0, getattr(tiling, name)) for name, n in wanted)
            if tiling.shares is None or (self.shared and product.batches == 1)
        ]
        if not candidates:
            sizes = ", ".join(f"{name} {n}" for name, n in wanted if n)
            raise UserError(f"schedule-gpu-warpgroups: there is no tile of {sizes} for a product over {product.inner}")
        if any(moment_of(tensor) is not None for tensor, _ in outputs):
            if moments is None or transposed or product.batches > 1 or moments.source not in [t for t, _ in outputs]:
                return None
            candidates = [t for t in candidates if has_groups(t, moments.group, unit.threads)]
        return min(candidates, default=None, key=lambda tiling: cost(tiling, shape, target))


def _weights_on_the_right(found: Product) -> Product:
    """With weights in blocks, or what is in BF16, on the right."""
    if BlockWeights.of(found.right) is not None:
        return found
    return found.transposed() if found.right.dtype == "f32" else found


def _widened_operand(product: Product, step: int, line: int) -> WidenedOperand | None:
    """Of weights in blocks, whole steps of which are to be widened; None where they are none."""
    if BlockWeights.of(product.right) is None or product.batches > 1 or product.inner % step:
        return None
    return WidenedOperand(1 if may_round(product.right.tensor) else PARTS, 0, step, line)
