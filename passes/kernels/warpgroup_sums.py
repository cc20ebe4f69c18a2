"""How warpgroups multiply a tile from a ring of stages, each its part of the rows or columns."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.left_registers import LeftRegisters
from lispgpt.passes.kernels.ring import Ring, StagePlace
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.warpgroup import WarpgroupUnit
from lispgpt.passes.targets.warpgroup_tiles import products_of


@dataclass(frozen=True)
class Member:
    """A thread of the warpgroups that multiply.  number: in its warpgroup.  row_part, output_part: the warpgroup's.
    row: of the tile, its first; it has results of that and of the eighth after it.  pair: of eight columns it has two,
    from 2·pair."""

    number: Index
    row_part: Index
    output_part: Index
    row: Index
    pair: Index


def own_warpgroup(thread: Index, target: Gpu) -> Index:
    """The number of a thread's warpgroup in its block: taken from a subgroup's first lane, so that the compiler knows
    that all lanes have the same, and keeps descriptors that depend on it in registers that they share."""
    assert target.warpgroup is not None
    number = b.emit("arith.index_cast", [b.as_value(b.div(thread, target.warpgroup.threads))], [b.i32()])
    return b.emit("arith.index_cast", [b.shuffle_from(number, 0, target.subgroup)], [ir.IndexType.get()])


@dataclass(frozen=True)
class TileSums:
    """columns: of a warpgroup.  steps: of k."""

    unit: WarpgroupUnit
    ring: Ring
    member: Member
    columns: int
    steps: int

    def walk(
        self, place: StagePlace, registers: LeftRegisters | None, steps: Index | None = None
    ) -> tuple[StagePlace, list[ir.Value]]:
        """Where the ring is after a tile, and its sums.  registers: of the left operand; None: it stays in memory, and
        `steps` may be others for each tile."""
        count = self.columns * self.unit.rows // self.unit.threads
        nothing = [b.emit("llvm.mlir.undef", [], [b.f32()]) for _ in range(count)]
        if registers is None:
            return self._walk_shared(place, nothing, self.steps if steps is None else steps)
        return self._walk_registers(place, nothing, registers)

    def _walk_shared(self, place: StagePlace, sums: list[ir.Value], steps: Index) -> tuple[StagePlace, list[ir.Value]]:
        """With both operands taken from shared memory."""

        def step(
            number: ir.Value, slot: ir.Value, phase: ir.Value, before: ir.Value, *sums: ir.Value
        ) -> list[ir.Value]:
            here = StagePlace(slot, phase)
            self.ring.wait_full(here)
            totals = self._multiply(slot, None, list(sums), number)
            self.unit.wait(1)
            b.if_then(b.less(0, number), lambda: self.ring.release(before, self.member.number))
            return [*self.ring.after(here).values(), slot, *totals]

        slot, phase, last, *sums = b.loop(0, steps, 1, [*place.values(), place.values()[0], *sums], step)
        sums = self.unit.done(sums)
        self.ring.release(last, self.member.number)
        return StagePlace(slot, phase), sums

    def _walk_registers(
        self, place: StagePlace, sums: list[ir.Value], registers: LeftRegisters
    ) -> tuple[StagePlace, list[ir.Value]]:
        """With the left operand from registers.  Two steps at a time, because those of one step are made while the
        other's are in use."""
        self.ring.wait_full(place)
        left = registers.load(self.ring.left_at(place.slot))
        count = len(left)

        def step(number: Index, state: list[ir.Value]) -> list[ir.Value]:
            """Multiply what is in registers and in a stage; meanwhile prepare the next step's."""
            here = StagePlace(*state[:2])
            totals = self._multiply(here.slot, state[3 : 3 + count], state[3 + count :], number)
            self.unit.wait(1)
            b.if_then(b.less(0, number), lambda: self.ring.release(state[2], self.member.number))
            following = self.ring.after(here)
            self.ring.wait_full(following)
            left = registers.load(self.ring.left_at(following.slot))
            return [*following.values(), here.slot, *left, *totals]

        def two_steps(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            first = b.mul(number, 2)
            return step(b.add(first, 1), step(first, list(carried)))

        state = [*place.values(), place.values()[0], *left, *sums]
        state = b.loop(0, (self.steps - 1) // 2, 1, state, two_steps)
        if (self.steps - 1) % 2:
            state = step(self.steps - 2, state)
        last = StagePlace(*state[:2])
        sums = self._multiply(last.slot, state[3 : 3 + count], state[3 + count :], self.steps - 1)
        sums = self.unit.done(sums)
        if self.steps > 1:
            self.ring.release(state[2], self.member.number)
        self.ring.release(last.slot, self.member.number)
        return self.ring.after(last), sums

    def _multiply(
        self, slot: Index, left: list[ir.Value] | None, sums: list[ir.Value], number: Index
    ) -> list[ir.Value]:
        """Start one step; left: registers, or None for shared memory.  number: of the step, from 0 of a tile."""
        unit, transposed = self.unit, (self.ring.left.transposed, self.ring.right.transposed)
        lines = self.ring.right_at(slot)
        right = unit.descriptor_at(
            b.add(lines, b.mul(self.member.output_part, self.columns * unit.inner * 2)), transposed[1]
        )
        first = b.emit("arith.extui", [b.less(0, number)], [b.i32()])
        always = b.constant(1, b.i32())
        columns = [unit.further(right, n * self.ring.right.tensor_bytes) for n in range(self.ring.right.numbers)]
        wholes = []
        if left is None:
            rows = b.add(self.ring.left_at(slot), b.mul(self.member.row_part, unit.rows * unit.inner * 2))
            starts = [b.add(rows, n * self.ring.left.tensor_bytes) for n in range(len(self.ring.left.tensors))]
            wholes = [unit.descriptor_at(start, transposed[0]) for start in starts]
            sums = unit.ready(sums)
        else:
            ready = unit.ready([*left, *sums])
            left, sums = ready[: len(left)], ready[len(left) :]
        parts = 2 if left is not None else len(wholes)
        pairs = products_of(parts, len(columns))
        for block in range(unit.inner // unit.block):
            own = [unit.advanced(column, block, transposed[1]) for column in columns]
            for part, other in pairs:
                at = (block * parts + part) * 4
                row = [unit.advanced(wholes[part], block, transposed[0])] if left is None else left[at : at + 4]
                sums = unit.multiply_if(row, own[other], sums, transposed, always if block or part or other else first)
        unit.commit()
        return sums
