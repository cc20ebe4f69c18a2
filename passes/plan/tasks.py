"""A launch as tasks: a kernel, how many blocks of it there are, and what it does to which bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from lispgpt.base.access import READ, READ_WRITE, SCRATCH, WRITE, Region, dependencies
from lispgpt.base.errors import InternalError
from lispgpt.ir.access import access_of
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, everything_in, integers
from lispgpt.ir.tensor_maps import maps_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.memory.kernel_buffers import byte_size
from lispgpt.passes.model.kernel_work import recorded_work
from lispgpt.passes.plan.idle_threads import check_idle
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.rates import Rates

WHOLE_BLOCK = ("gpu.all_reduce", "gpu.num_subgroups", "gpu.global_id", "gpu.dynamic_shared_memory", "gpu.printf")
"""Ops whose meaning depends on what the launch is."""
ALIGNMENT = 16
"""Of buffers' first bytes, and of a block's arrays."""


@dataclass(frozen=True)
class Tasks:
    """One step of an entry.  regions: what it does to its arguments; buffers are the entry's, by their numbers."""

    call: ir.Operation
    kernel: ir.Operation
    regions: tuple[Region, ...]

    @staticmethod
    def of(call: ir.Operation, kernel: ir.Operation) -> Tasks:
        pairs = zip(call.operands, access_of(kernel), strict=True)
        return Tasks(call, kernel, tuple(_region(value, access) for value, access in pairs))

    @property
    def grid(self) -> list[int]:
        return integers(self.kernel.attributes["grid"])

    @property
    def count(self) -> int:
        return prod(self.grid)

    @property
    def threads(self) -> int:
        return integers(self.kernel.attributes["block"])[0]

    @property
    def cluster(self) -> int:
        attributes = self.kernel.attributes
        return next(iter(ir.DenseI32ArrayAttr(attributes["cluster"]))) if "cluster" in attributes else 1

    @property
    def shape(self) -> tuple[object, ...]:
        """What rounds of one loop have alike: the kernel and the buffers."""
        return self.kernel, *(region.buffer for region in self.regions)


def _region(value: ir.Value, access: str) -> Region:
    view = defining_op(value)
    if view is None or view.name != "memref.view":
        raise InternalError("one-launch: a kernel's argument is not a view of an entry's buffer")
    offset = ir.IntegerAttr(defining_op(view.operands[1]).attributes["value"]).value
    return Region(str(ir.BlockArgument(view.operands[0]).arg_number), offset, byte_size(value.type), access)


def block_memory(kernel: ir.Operation) -> list[ir.Operation]:
    """A kernel's allocations of its block's memory."""
    return [op for op in everything_in(kernel) if op.name == "memref.alloca"]


def aligned_bytes(op: ir.Operation) -> int:
    """What an allocation takes of its block's memory."""
    return -(-byte_size(op.results[0].type) // ALIGNMENT) * ALIGNMENT


def check_part(kernel: ir.Operation, target: Gpu, most: int) -> None:
    """Refused where a kernel's body cannot be run by the blocks of another launch, of `most` threads at most."""
    threads = integers(kernel.attributes["block"])
    if threads[1:] != [1, 1] or threads[0] % target.subgroup or threads[0] > most:
        raise Refused(f"its blocks have {' by '.join(map(str, threads))} threads")
    if maps_of(kernel):
        raise Refused("it copies tensors by maps")
    if any("workgroup" not in str(op.results[0].type) for op in block_memory(kernel)):
        raise Refused("its threads have memory of their own")
    for op in everything_in(kernel):
        named = op.name if op.name != "llvm.inline_asm" else str(op.attributes["asm_string"])
        if op.name in WHOLE_BLOCK or "mbarrier" in named or "wgmma" in named:
            raise Refused(f"it has {op.name if op.name in WHOLE_BLOCK else 'barriers in shared memory'}")
    check_idle(kernel.regions[0].blocks[0])


@dataclass(frozen=True)
class Modelled:
    """Seconds of a run of steps: as launches, and as one, by what each step waits for."""

    apart: float
    together: float


def floor_seconds(kernel: ir.Operation, rates: Rates) -> float:
    """The least that a kernel takes by what it reads, writes and computes."""
    work = recorded_work(kernel) or {}
    looked = work.get("context", 0)
    nbytes = work.get("bytes", 0) + looked * work.get("position_bytes", 0)
    operations = work.get("operations", 0) + looked * work.get("position_operations", 0)
    return max(nbytes / rates.bandwidth, operations / rates.vector)


def waits_of(run: Sequence[Tasks]) -> list[tuple[int, ...]]:
    """For each step the earlier ones that its workers have to wait for: two steps of one task each are one worker's."""
    needed = dependencies([step.regions for step in run])
    return [
        tuple(n for n in earlier if step.count > 1 or run[n].count > 1)
        for step, earlier in zip(run, needed, strict=True)
    ]


def modelled_seconds(run: Sequence[Tasks], target: Gpu) -> Modelled | None:
    """Floors of the steps, and what it costs that each waits for those before it."""
    if target.rates is None or not target.launch_seconds:
        return None
    floors = [floor_seconds(step.kernel, target.rates) for step in run]
    apart, together = (len(run) * seconds for seconds in (target.launch_seconds, target.exchange_seconds))
    return Modelled(sum(floors) + apart, sum(floors) + together)


def touched_buffers(run: Sequence[Tasks], whole: bool) -> list[Region]:
    """The part of each of the entry's buffers that a run of steps touches, and what it does there all in all.

    whole: whether the run is all of the entry, so that nothing is in its memory before, and nothing wanted afterwards.
    """
    found: dict[str, list[Region]] = {}
    for region in (region for step in run for region in step.regions):
        found.setdefault(region.buffer, []).append(region)
    return [_joined(regions, whole) for regions in found.values()]


def _joined(regions: Sequence[Region], whole: bool) -> Region:
    low = min(region.offset for region in regions) // ALIGNMENT * ALIGNMENT
    end = max(region.end for region in regions)
    written: list[Region] = []
    early = False
    for region in regions:
        early |= region.reads and not _covered(region.offset, region.end, written)
        written += [region] if region.access == WRITE else []
    if all(region.access == READ for region in regions):
        access = READ
    elif not early and _covered(low, end, written):
        access = WRITE
    else:
        access = SCRATCH if whole and not early else READ_WRITE
    return Region(regions[0].buffer, low, end - low, access)


def _covered(start: int, end: int, parts: Sequence[Region]) -> bool:
    """Whether every byte from start to end is in one of the parts."""
    for part in sorted(parts, key=lambda part: part.offset):
        if part.offset <= start:
            start = max(start, part.end)
    return start >= end
