"""choose: for each product of a GPU the schedule that should take least time.

Before: kernels that are products, which no schedule has taken.
After:  each has the name of one as `chosen`, and no other takes it; and as `offers` what every schedule says of it: the
        time that it should take, or why it leaves the kernel.

Requires: what destination-passing and recognise-products ensure.
Ensures: the order of schedules in a pipeline does not matter for products.  Where a schedule then cannot write what it
offered, the kernel is left to those that follow.

Where no launch of the chip was ever timed, which models are fitted to, none is chosen: schedules take kernels in the
pipeline's order.

Times are models': of the bytes that blocks bring, by way of the cache that all cores share, of operations, and of what
nothing overlaps with, at the chip's rates.  Those of warpgroups are fitted to an H200's (targets/warpgroup_tiles.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lispgpt.ir.mlir import attribute, ir
from lispgpt.ir.structure import operations
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import refusable
from lispgpt.passes.kernels.products import CHOSEN, Product, unscheduled_products
from lispgpt.passes.kernels.refusal import Refused, refusals
from lispgpt.passes.library import NO_SCHEDULES, Library
from lispgpt.passes.schedule.products.schedule_gpu_column_contractions import ScheduleGpuColumnContractions
from lispgpt.passes.schedule.products.schedule_gpu_contractions import ScheduleGpuContractions
from lispgpt.passes.schedule.products.schedule_gpu_skinny_products import ScheduleGpuSkinnyProducts
from lispgpt.passes.schedule.warpgroups.schedule_gpu_warpgroups import ScheduleGpuWarpgroups, is_made
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.build import Builder
from lispgpt.passes.tile.cost import seconds, work_of
from lispgpt.passes.tile.lower.lower_tiles import withdraw

OFFERS = "offers"
"""A kernel's attribute: for each schedule {schedule, nanoseconds} or {schedule, refused}."""


OTHERS = (
    ScheduleGpuSkinnyProducts(),
    ScheduleGpuWarpgroups(),
    ScheduleGpuContractions(),
    ScheduleGpuColumnContractions(),
)
"""Schedules that are no tile programs."""


@dataclass(frozen=True)
class Offer:
    """schedule: its name.  seconds: that it should take; None: it leaves the kernel, and `refused` says why."""

    schedule: str
    seconds: float | None = None
    refused: str = ""

    def facts(self) -> dict[str, int | str]:
        if self.seconds is None:
            return {"schedule": self.schedule, "refused": self.refused}
        return {"schedule": self.schedule, "nanoseconds": round(1e9 * self.seconds)}


@dataclass(frozen=True)
class Choose(Pass):
    """use, copies, parts: as of choose-tiles, for the library's schedules.  skinny_copies: the same for skinny."""

    use: str = "direct skinny matmul"
    skinny_copies: str = "async"
    copies: str = "registers"
    parts: int = 2

    def run(self, module: ir.Module, target: Gpu, library: Library = NO_SCHEDULES) -> None:
        if target.rates is None:
            return
        for kernel, product in unscheduled_products(module, is_made):
            offers = list(self._offers(kernel, product, target, library))
            kernel.attributes[OFFERS] = ir.ArrayAttr.get([attribute(offer.facts()) for offer in offers])
            taken = [offer for offer in offers if offer.seconds is not None]
            if taken and target.launch_seconds:
                best = min(taken, key=lambda offer: offer.seconds or 0.0)
                kernel.attributes[CHOSEN] = attribute(best.schedule)

    def _offers(self, kernel: ir.Operation, product: Product, target: Gpu, library: Library) -> Iterator[Offer]:
        yield from self._tiles(kernel, product, target, library)
        for pass_ in OTHERS:
            try:
                yield Offer(pass_.name, pass_.time_of(kernel, product, target))
            except Refused as refused:
                yield Offer(pass_.name, refused=str(refused))

    def _tiles(self, kernel: ir.Operation, product: Product, target: Gpu, library: Library) -> Iterator[Offer]:
        by_name = {schedule.name: schedule for schedule in library.common}
        earlier = refusals(kernel)
        for name in self.use.split() if target.matrix is not None else ():
            schedule, copies = by_name[name], self.skinny_copies if name == "skinny" else self.copies
            builder = Builder(product, target, self.parts, copies)
            why_not = schedule.takes(builder)
            if why_not is None and name in earlier:
                why_not = "its program could not be lowered"
            if why_not is not None:
                yield Offer(name, refused=why_not)
                continue
            before = set(operations(kernel.regions[0].blocks[0]))
            with refusable(kernel):
                with ir.InsertionPoint(operations(kernel.regions[0].blocks[0])[-1]), kernel.location:
                    schedule.write(builder)
                program = [op for op in operations(kernel.regions[0].blocks[0]) if op not in before]
                time = seconds(work_of(program, builder.launch.grid, builder.launch.residency), target)
                withdraw(program)
                yield Offer(name, time)
