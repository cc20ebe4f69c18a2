"""Which results steps of one launch hand on as words that say of themselves whether they are there, and who waits else.

Such a result lies in the arena, all of it is f32 that the step's body only stores, each number once, and every step
that reads it only loads from it (see marked_words.py).  Then nobody waits for it, but for the numbers where he loads
them.  What else steps do to common bytes is told by signals.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from lispgpt.base.access import READ, Region
from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op
from lispgpt.passes.kernels.marked_words import Layout
from lispgpt.passes.plan.tasks import Tasks

LINE = 128
"""Bytes to which results are aligned in the launch's memory for them, whose first line is for the runs' number."""
LOADS, STORES = ("memref.load", "vector.load"), ("memref.store", "vector.store")


@dataclass(frozen=True)
class Part:
    """Words from `first` on of what step `writer` leaves from byte `offset` of the launch's memory on."""

    writer: int
    offset: int
    first: int
    layout: Layout

    @property
    def shape(self) -> tuple[object, ...]:
        """What rounds of one loop have alike."""
        return self.first, self.layout


@dataclass
class Exchanges:
    """parts: what a step's argument is, by the numbers of both, where it is such a result.  waits: for each step the
    steps by whose signals it has to wait.  nbytes: of the launch's memory, 0 where there are none."""

    parts: dict[tuple[int, int], Part] = field(default_factory=dict)
    waits: list[tuple[int, ...]] = field(default_factory=list)
    nbytes: int = 0

    def shape(self, step: int, arguments: int) -> tuple[object, ...]:
        """What rounds of one loop have alike."""
        parts = [self.parts.get((step, i)) for i in range(arguments)]
        return tuple(None if part is None else part.shape for part in parts)

    def reads(self, step: int) -> bool:
        """Whether a step reads such a result."""
        return any(number == step and part.writer != step for (number, _), part in self.parts.items())

    @property
    def signals(self) -> set[int]:
        """The steps that somebody waits for by their signals."""
        return {earlier for waits in self.waits for earlier in waits}


def exchanges(run: Sequence[Tasks], buffers: Collection[str], later: Sequence[Sequence[Region]]) -> Exchanges:
    """Of a run of steps.  buffers: those in which nothing is wanted after all.  later: what is done behind the run."""
    found, end = Exchanges(), LINE
    for writer, step in enumerate(run):
        for i, region in enumerate(step.regions):
            if region.buffer not in buffers or not stores_once(step.kernel, i):
                continue
            readers = _readers(run, writer, region, later)
            if readers is None:
                continue
            width = max(_width(run[n].kernel, j) for n, j in readers)
            layout = Layout(region.nbytes // 4, width)
            found.parts[writer, i] = Part(writer, end, 0, layout)
            for n, j in readers:
                found.parts[n, j] = Part(writer, end, (run[n].regions[j].offset - region.offset) // 4, layout)
            end += -(-region.nbytes // LINE) * LINE
    found.nbytes = end if found.parts else 0
    found.waits = _waits(run, found.parts)
    return found


def _readers(
    run: Sequence[Tasks], writer: int, region: Region, later: Sequence[Sequence[Region]]
) -> list[tuple[int, int]] | None:
    """The arguments of steps that read what is written, as long as nobody else has written there; None where there are
    none, or some that do not only load from it, or somebody does behind the run."""
    found, left = [], [(region.offset, region.end)]
    done = [*(step.regions for step in run), *later]
    for number in range(writer + 1, len(done)):
        regions = [(i, r) for i, r in enumerate(done[number]) if r.buffer == region.buffer]
        for i, other in regions:
            met = [(low, high) for low, high in left if low < other.end and other.offset < high]
            if not met or not other.reads:
                continue
            inside = any(low <= other.offset and other.end <= high for low, high in met)
            if other.access != READ or not inside or number >= len(run) or not _width(run[number].kernel, i):
                return None
            found.append((number, i))
        for _, other in regions:
            if other.writes:
                halves = [((low, min(high, other.offset)), (max(low, other.end), high)) for low, high in left]
                left = [(low, high) for pair in halves for low, high in pair if low < high]
    return found or None


def _width(kernel: ir.Operation, number: int) -> int:
    """The most neighbours that a body takes at once of an argument, of f32, from which it only loads; 0 elsewhere."""
    uses = _uses(kernel, number, LOADS)
    return max((b.width_of(op.results[0]) for op in uses), default=0) if uses is not None else 0


def stores_once(kernel: ir.Operation, number: int) -> bool:
    """Whether all that a body does to an argument, of f32, is to store each number once."""
    uses = _uses(kernel, number, STORES)
    if not uses or (len(uses) > 1 and ir.StringAttr(kernel.attributes["kernel"]).value == "hand"):
        return False
    return all(_moves(op) for op in uses)


def _uses(kernel: ir.Operation, number: int, names: Sequence[str]) -> list[ir.Operation] | None:
    """The ops that use an argument, where it is f32, has no gaps, and all of them are of these kinds."""
    argument = kernel.regions[0].blocks[0].arguments[number]
    plain = ir.MemRefType.get(argument.type.shape, b.f32())
    uses = [use.owner.operation for use in argument.uses]
    return uses if argument.type == plain and all(op.name in names for op in uses) else None


def _moves(store: ir.Operation) -> bool:
    """Whether it stores elsewhere in each round of the loops around it."""
    around = store.parent
    while around is not None and around.name != "func.func":
        if around.name == "scf.while" or (
            around.name.endswith(".for") and not _depends(list(store.operands)[2:], around.regions[0].blocks[0])
        ):
            return False
        around = around.operation.parent
    return True


def _depends(values: Sequence[ir.Value], block: ir.Block) -> bool:
    """Whether some of the values are made of a block's arguments."""
    waiting, seen = list(values), set(values)
    while waiting:
        value = waiting.pop()
        op = defining_op(value)
        if op is None:
            if ir.BlockArgument(value).owner == block:
                return True
            continue
        new = [operand for operand in op.operands if operand not in seen]
        waiting += new
        seen.update(new)
    return False


def _waits(run: Sequence[Tasks], parts: dict[tuple[int, int], Part]) -> list[tuple[int, ...]]:
    """For each step the earlier ones whose signals it needs.

    What another step has written otherwise than in marked words has to be waited for, unless both steps are one task
    each, which one worker does.  What another one has only read may be overwritten once results have come, by whatever
    way, that all of its tasks are needed for.
    """
    apart = [[r for i, r in enumerate(step.regions) if (n, i) not in parts] for n, step in enumerate(run)]
    waits: list[tuple[int, ...]] = []
    seen: list[int] = []  # for each step, one bit for each step of which it sees all that it has done
    after: list[int] = []  # and for each step that has done all that it does
    for number, step in enumerate(run):
        sees, follows, found = 0, 0, []
        for i, region in enumerate(step.regions):
            part = parts.get((number, i))
            if part is not None and part.writer != number and region.nbytes == 4 * part.layout.count:
                follows |= 1 << part.writer | after[part.writer]
        for earlier in range(number - 1, -1, -1):
            met = [theirs for mine in apart[number] for theirs in apart[earlier] if mine.conflicts(theirs)]
            known = sees if any(theirs.writes for theirs in met) else follows
            if not met or known >> earlier & 1:
                continue
            if step.count > 1 or run[earlier].count > 1:
                found.append(earlier)
            sees |= 1 << earlier | seen[earlier]
            follows |= 1 << earlier | after[earlier]
        waits.append(tuple(sorted(found)))
        seen.append(sees)
        after.append(follows)
    return waits
