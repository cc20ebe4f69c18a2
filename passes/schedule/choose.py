"""choose: for each product and attention of a GPU the schedule that should take least time.

Before: kernels that are products, or attention of several rows, which no schedule has taken.
After:  each has the name of one as `chosen`, and no other takes it; and as `offers` what every schedule says of it: the
        time that it should take, or why it leaves the kernel.

Requires: what destination-passing and recognise-products ensure.
Ensures: the order of schedules in a pipeline does not matter for these.  Where a schedule then cannot write what it
offered, the kernel is left to those that follow.

Where `lispgpt tune` has measured a kernel's schedules, the fastest is chosen.  Elsewhere, where no launch of the chip
was ever timed, which models are fitted to, none is: schedules take kernels in the pipeline's order.

Times are models': of the bytes that blocks bring, by way of the cache that all cores share, of operations, and of what
nothing overlaps with, at the chip's rates.  Those of warpgroups are fitted to an H200's (targets/warpgroup_tiles.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lispgpt.ir.mlir import attribute, ir
from lispgpt.ir.structure import operations
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.cache_rows import attentions
from lispgpt.passes.kernels.cached_results import is_made
from lispgpt.passes.kernels.kernel import refusable
from lispgpt.passes.kernels.offers import TUNED, Offer, has_left, note_identity, note_offers
from lispgpt.passes.kernels.products import CHOSEN, product_in, unscheduled_products
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.library import NO_SCHEDULES, Library
from lispgpt.passes.schedule.products.schedule_gpu_column_contractions import ScheduleGpuColumnContractions
from lispgpt.passes.schedule.products.schedule_gpu_contractions import ScheduleGpuContractions
from lispgpt.passes.schedule.warpgroups.schedule_gpu_warpgroups import ScheduleGpuWarpgroups
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.build import Builder, Launch
from lispgpt.passes.tile.build_attention import AttentionBuilder
from lispgpt.passes.tile.build_scores import NO_PRODUCT
from lispgpt.passes.tile.copies import BULK
from lispgpt.passes.tile.lower.lower_tiles import withdraw

OTHERS = (
    ScheduleGpuWarpgroups(),
    ScheduleGpuContractions(),
    ScheduleGpuColumnContractions(),
)
"""Schedules that are no tile programs."""


@dataclass(frozen=True)
class Choose(Pass):
    """use, copies, parts: as of choose-tiles, for the library's schedules of products.  small_copies: the copies of
    those of few rows.  takes: whether schedules are chosen; if not, only what they say is noted, for the report, of
    kernels that the user's own schedules are asked for first."""

    only_faster = True
    use: str = "direct skinny matmul attention"
    small_copies: str = "async"
    copies: str = "registers"
    parts: int = 2
    takes: bool = True

    def run(self, module: ir.Module, target: Gpu, library: Library = NO_SCHEDULES) -> None:
        if target.rates is None or not (self.takes or library.own):
            return
        for kernel, _ in unscheduled_products(module, is_made, joined=True):
            self._take(kernel, target, library, self.offers_of(kernel, library, target))
        for kernel, attention in attentions(module, target):
            builder = AttentionBuilder(NO_PRODUCT, target, self.parts, attention=attention)
            self._take(kernel, target, library, self._tiles(kernel, builder, library))

    def offers_of(self, kernel: ir.Operation, library: Library, target: Gpu) -> list[Offer]:
        """What every schedule says of a kernel of products; none where it is no such kernel."""
        product = product_in(kernel, is_made)
        if product is None:
            return []
        others = () if product.joined else _others(OTHERS, kernel, product, target)
        return [*self._tiles(kernel, Builder(product, target, self.parts), library), *others]

    def _take(self, kernel: ir.Operation, target: Gpu, library: Library, offers: Iterable[Offer]) -> None:
        measured, offers = library.tuned.get(note_identity(kernel), ""), list(offers)
        note_offers(kernel, offers)
        seconds = {offer.schedule: offer.seconds for offer in offers if offer.seconds is not None}
        if self.takes and measured in seconds:
            kernel.attributes[CHOSEN], kernel.attributes[TUNED] = attribute(measured), ir.UnitAttr.get()
        elif self.takes and seconds and target.launch_seconds:
            kernel.attributes[CHOSEN] = attribute(min(seconds, key=lambda name: seconds[name]))

    def _tiles(self, kernel: ir.Operation, builder: Builder, library: Library) -> Iterator[Offer]:
        by_name = {schedule.name: schedule for schedule in library.common}
        target = builder.target
        for name in self.use.split() if target.matrix is not None else ():
            schedule = by_name[name]
            if not schedule.suits(builder):
                continue
            copies = BULK if schedule.of == "attention" else self.small_copies if name == "skinny" else self.copies
            builder = replace(builder, most=copies, launch=Launch())
            why_not = has_left(kernel, name, own=False) or schedule.takes(builder)
            if why_not is not None:
                yield Offer(name, refused=why_not)
                continue
            before = set(operations(kernel.regions[0].blocks[0]))
            with refusable(kernel) as left:
                with ir.InsertionPoint(operations(kernel.regions[0].blocks[0])[-1]), kernel.location:
                    schedule.write(builder)
                program = [op for op in operations(kernel.regions[0].blocks[0]) if op not in before]
                time = builder.seconds_of(program)
                withdraw(program)
            yield Offer(name, refused=left[0]) if left else Offer(name, time)


def _others(schedules: Sequence[Any], *kernel: Any) -> Iterator[Offer]:
    for pass_ in schedules:
        try:
            yield Offer(pass_.name, pass_.time_of(*kernel))
        except Refused as refused:
            yield Offer(pass_.name, refused=str(refused))
