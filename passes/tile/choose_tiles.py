"""choose-tiles: a tile program for each kernel that a schedule takes.

Before: linalg.contract of any layout, operands in f32 or bf16, with elementwise ops around it.
After:  the same, and behind it a tile program of the first schedule that takes the kernel, which has its name as
        `tiles` and {grid, threads, residency} as `tile`.  Schedules of a user's own (in the model's file, or of
        `--schedules FILE`) come first, then those of the library that `use` names.

Requires: what destination-passing and recognise-products ensure.
Ensures: kernels with the attribute `tile` have a program for lower-tiles; the rest are as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import attribute, ir
from lispgpt.ir.structure import operations, unscheduled_kernels
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.cache_rows import attentions
from lispgpt.passes.kernels.cached_results import is_made
from lispgpt.passes.kernels.kernel import refusable
from lispgpt.passes.kernels.offers import Offer, has_left, note_offers
from lispgpt.passes.kernels.products import is_for, unscheduled_products
from lispgpt.passes.kernels.refusal import note_refusal
from lispgpt.passes.library import NO_SCHEDULES, Library, Schedule
from lispgpt.passes.recognise.attention import Attention, attention_of
from lispgpt.passes.recognise.attention_gradients import attention_gradients_of
from lispgpt.passes.targets import Cpu, Gpu
from lispgpt.passes.tile.build import Builder
from lispgpt.passes.tile.build_attention import AttentionBuilder
from lispgpt.passes.tile.build_gradients import GradientsBuilder
from lispgpt.passes.tile.build_rows import RowsBuilder
from lispgpt.passes.tile.build_scores import NO_PRODUCT
from lispgpt.passes.tile.copies import COPIES
from lispgpt.passes.tile.row_kernels import RowsKernel


@dataclass(frozen=True)
class ChooseTiles(Pass):
    """use: names of the library's schedules that are chosen from, with spaces between; the user's own come before them.
    copies: what schedules may bring tiles with, the best that a chip has up to this: "registers", "async" (pieces that
    threads start to copy) or "bulk" (boxes, with warpgroup instructions that read them).  parts: bf16 numbers that an
    f32 one is split into."""

    only_faster = True
    use: str = ""
    copies: str = "bulk"
    parts: int = 2

    def run(self, module: ir.Module, target: Gpu | Cpu, library: Library = NO_SCHEDULES) -> None:
        if self.copies not in COPIES:
            raise UserError(f"copies are one of {', '.join(COPIES)}, not {self.copies!r}")
        schedules = [*library.own, *self._used(library)]
        if not schedules:
            return
        for kernel, builder in self._kernels(module, target, {schedule.of for schedule in schedules}):
            offered = [schedule for schedule in library.own if schedule.suits(builder)]
            if any(self._offer(schedule, kernel, builder) for schedule in offered):
                continue
            for schedule in self._used(library) if _suits(builder) else ():
                known = is_for(kernel, schedule.name)
                if schedule.suits(builder) and known and self._write(schedule, kernel, builder) is None:
                    break

    def _kernels(
        self, module: ir.Module, target: Any, kinds: set[str]
    ) -> Iterator[tuple[ir.Operation, Builder | RowsBuilder]]:
        """Kernels of some kinds that have no program yet, with what writes one."""
        for kernel, product in unscheduled_products(module, is_made, joined=True) if "product" in kinds else ():
            yield kernel, Builder(product, target, self.parts, self.copies)
        for kernel, attention in _attentions(module, target) if "attention" in kinds else ():
            yield kernel, AttentionBuilder(NO_PRODUCT, target, self.parts, self.copies, attention=attention)
        for kernel in unscheduled_kernels(module, "attention-gradient") if "attention-gradient" in kinds else ():
            sums = attention_gradients_of(kernel) if "tile" not in kernel.attributes else None
            if sums is not None:
                yield kernel, GradientsBuilder(NO_PRODUCT, target, self.parts, self.copies, gradients=sums)
        for kernel in unscheduled_kernels(module, "rows") if "rows" in kinds else ():
            if "tile" not in kernel.attributes:
                yield kernel, RowsBuilder(RowsKernel(kernel), target)

    def _used(self, library: Library) -> list[Schedule]:
        by_name = {schedule.name: schedule for schedule in library.common}
        for name in self.use.split():
            if name not in by_name:
                raise UserError(f"there is no schedule {name!r} (there are: {', '.join(by_name) or 'none'})")
        return [by_name[name] for name in self.use.split()]

    def _offer(self, schedule: Schedule, kernel: ir.Operation, builder: Builder | RowsBuilder) -> bool:
        """Whether a schedule of the user's takes a kernel, which it is asked once; what it says is kept for reports."""
        if has_left(kernel, schedule.name, own=True):
            return False
        before = set(operations(kernel.regions[0].blocks[0]))
        if not _suits(builder):
            why_not: str | None = f"{builder.target} has no matrix instructions"
        else:
            why_not = self._write(schedule, kernel, builder)
        seconds = None
        if why_not is None:
            seconds = builder.seconds_of([op for op in operations(kernel.regions[0].blocks[0]) if op not in before])
        note_offers(kernel, [Offer(schedule.name, seconds, why_not or "", own=True)])
        return why_not is None

    @staticmethod
    def _write(schedule: Schedule, kernel: ir.Operation, builder: Builder | RowsBuilder) -> str | None:
        """Why a schedule leaves a kernel; None: it has written its program."""
        why_not = schedule.takes(builder)
        if why_not is not None:
            note_refusal(kernel, f"{schedule.name}: {why_not}")
            return why_not
        with refusable(kernel) as left:
            with ir.InsertionPoint(operations(kernel.regions[0].blocks[0])[-1]), kernel.location:
                schedule.write(builder)
            kernel.attributes["tiles"] = attribute(schedule.name)
            kernel.attributes["tile"] = builder.launch.facts
        return left[0] if left else None


def _attentions(module: ir.Module, target: Gpu | Cpu) -> Iterator[tuple[ir.Operation, Attention]]:
    if isinstance(target, Gpu):
        yield from attentions(module, target)
        return
    for kernel in unscheduled_kernels(module, "attention"):
        if (attention := attention_of(kernel)) is not None:
            yield kernel, attention


def _suits(builder: Builder | RowsBuilder) -> bool:
    """Whether the chip has what all programs of a kind want."""
    return isinstance(builder, RowsBuilder) or builder.target.matrix is not None
