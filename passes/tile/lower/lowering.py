"""From a tile program to gpu, vector, nvgpu, amdgpu and PTX: each op by itself, in the program's order.

A value of the program becomes a Python object that says where it lies: an index, a view's operand, shared memory, or
the SSA values that a thread has of a register tile.  What moves and what multiplies is in the other files of this
folder, by what the chip can do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lispgpt.base.errors import InternalError
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, integers, nested_operations, operations
from lispgpt.passes.kernels.block_rows import BlockRows
from lispgpt.passes.kernels.epilogue import Epilogue, Whole
from lispgpt.passes.kernels.matrices import lanes_of
from lispgpt.passes.kernels.products import Operand, Product
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.score_masks import Mask
from lispgpt.passes.kernels.team import Team
from lispgpt.passes.kernels.views import depends_only_on
from lispgpt.passes.recognise.attention import attention_of
from lispgpt.passes.recognise.attention_gradients import attention_gradients_of
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.attention_rows import AttentionRows
from lispgpt.passes.tile.copies import BULK, operand_of
from lispgpt.passes.tile.lower.emitter import ARITHMETIC, Emitter, is_index
from lispgpt.passes.tile.lower.memory import REDUCED, BlockTiles, Slot
from lispgpt.passes.tile.lower.operand_runs import OperandRuns, PackedRuns, membership
from lispgpt.passes.tile.lower.register_rows import (
    RegisterOperand,
    RowNumbers,
    RowVector,
    Seat,
    as_operand,
    mapped,
    masked,
    read_operand,
    reduced,
)
from lispgpt.passes.tile.lower.rings import AsyncRing, BulkRing, Ring, copied_operands
from lispgpt.passes.tile.lower.score_weights import ScoreWeights, reach
from lispgpt.passes.tile.lower.staged_operand import Origin, StagedOperand, Tile
from lispgpt.passes.tile.lower.units import Sums, WarpgroupSums, sums_of
from lispgpt.passes.tile.lower.warpgroup_lines import multiply_lines
from lispgpt.passes.tile.lower.warpgroup_stores import WarpgroupStores
from lispgpt.passes.tile.row_reductions import row_reductions
from lispgpt.passes.tile.sum_rows import SumRows
from lispgpt.passes.tile.types import (
    OPERAND,
    ROWS,
    SHARES,
    SWIZZLE,
    WARPGROUP,
    RegisterTile,
    register_tile,
    shared_tile,
)

COPIER_REGISTERS, MOST_REGISTERS, CORE_REGISTERS = 40, 240, 65536
"""Of a thread that starts bulk copies, of any thread, and of all threads of a core."""


CLEARED = 8
"""BF16 numbers that a thread clears at once."""

PAST = 9
"""MLIR's number of the comparison of indices that says whether the first is no smaller than the second."""

READ_AHEAD = 16
"""Vectors of a row that a lane reads at once, of which a reduction is made."""


@dataclass(frozen=True)
class Limited:
    """A view.  limit: where it ends along its outer dimension, or along its inner one; None: where its tensor does."""

    operand: Operand
    limit: ir.Value | None = None
    inner: bool = False

    @property
    def ends(self) -> tuple[ir.Value | None, ir.Value | None]:
        """Along the outer dimension, and the inner one."""
        return (None, self.limit) if self.inner else (self.limit, None)


@dataclass(frozen=True)
class Patches:
    """What a thread has of a box on its way to shared memory.  staged: how it is shared out.  raw: whether values are
    memory's, of which elements are still to be made."""

    staged: StagedOperand
    values: list[ir.Value]
    raw: bool = False


class Lowering(Emitter):
    """Emits a kernel's tile program, whose ops are those of its function, at the insertion point.

    product: what the kernel computes; None: it is an attention.  constants: its arguments that no launch writes.
    """

    def __init__(self, kernel: ir.Operation, product: Product | None, constants: set[ir.Value], target: Gpu) -> None:
        super().__init__(kernel, target)
        self.product, self.constants = product, constants
        self.ops = operations(kernel.regions[0].blocks[0])
        self.results = outputs_of(kernel)
        attention = attention_of(kernel)
        self.rows = None if attention is None else AttentionRows(attention)
        gradients = attention_gradients_of(kernel)
        self.sums = None if gradients is None else SumRows(gradients)
        self.weigh: dict[ir.Operation, ScoreWeights] = {}
        self.masks: dict[ir.Operation, list[Mask]] = {}
        launch = ir.DictAttr(kernel.attributes["tile"])
        self.threads = ir.IntegerAttr(launch["threads"]).value
        self.residency = max(1, ir.IntegerAttr(launch["residency"]).value)
        self.cluster = ir.IntegerAttr(launch["cluster"]).value if "cluster" in launch else 1
        self.stores = None if product is None else WarpgroupStores.of(kernel, product, self.ops, target)
        self.tiles = BlockTiles(target, self.ops, 0 if self.stores is None else self.stores.nbytes)
        self.waited = False
        roles = [op for op in self.tiles.every if op.name == "tile.role"]
        self.roles = integers(roles[0].attributes["threads"]) if roles else [0, self.threads]

    @property
    def loop_annotation(self) -> str:
        """LLVM's attribute of the program's loops."""
        return self.target.loop_annotation

    def emit(self) -> None:
        self.thread: Index = b.thread_id()
        self.member = self._member_thread()
        self.reader = Reader(self.target)
        first = [
            op for op in self.ops if op.name == "tile.zeros"
        ]  # which threads are where is known to all that follows
        for op in first:
            self._op(op)
        self.tiles.allocate()
        self.target.dependency_release()
        for op in self.ops:
            if op in first:
                continue
            if (
                op.name.startswith(("tile.", "gpu.", "arith.cmpi"))
                or op.name in ARITHMETIC
                or is_index(op)
                or _has_registers(op)
            ):
                self._op(op)
        self._know_everything()
        if self.cluster > 1 and (self.stores is None or self.stores.splits == 1):
            self.target.cluster_barrier()  # no block may end while another still copies into its memory

    def record(self) -> None:
        self.tiles.record(self.kernel)

    def _member_thread(self) -> Index:
        """The thread's number among those that multiply; those that copy stand for some of these until roles part."""
        copiers = self.roles[0]
        if not copiers:
            return self.thread
        behind = b.less(self.thread, copiers)
        return b.select(behind, b.as_value(self.thread), b.sub(self.thread, copiers))

    def _registers_of(self, value: ir.Value) -> RegisterTile:
        """The type of a value; of an attention's as subgroups have it, of whom its warpgroups are."""
        tile = register_tile(value)
        return tile if self.product is not None else tile.by_subgroups

    def _sums_of(self, value: ir.Value) -> Sums:
        """Zeros of such a type."""
        who = (self.thread, self.threads) if self.product is not None else (self.member, self.roles[1])
        return sums_of(self._registers_of(value), self.target, *who)

    # ---- order

    def _know_everything(self) -> None:
        """Wait for the launches ahead, ahead of the first access to what they write."""
        if not self.waited:
            self.waited = True
            self.target.dependency_wait()

    def _block_id(self, op: ir.Operation) -> Index:
        return b.block_id("xyz"["xyz".index(str(op.attributes["dimension"])[-2])])

    def _barrier(self, op: ir.Operation) -> None:
        b.barrier()

    def _for(self, op: ir.Operation) -> list[Any]:
        """A loop that carries what threads have of register tiles."""
        self._know_everything()
        low, high, step, *inits = self._of(op)
        spread = [value for init in inits for value in _registers(init)]
        after: list[Any] = []

        def body(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            block = op.regions[0].blocks[0]
            given = [number, *_gathered(inits, carried)]
            self.values.update(zip(block.arguments, given, strict=True))
            after[:] = self._block(block)
            return [value for one in after for value in _registers(one)]

        results = b.loop(low, high, step, spread, body)
        if results and self.loop_annotation:
            results[0].owner.attributes["loop_annotation"] = ir.Attribute.parse(self.loop_annotation)
        return _gathered(inits, results)

    def _meet(self, op: ir.Operation | None = None) -> None:
        """All who multiply wait for each other."""
        if self.roles[0]:
            self.target.team_barrier(self.roles[1])
        else:
            b.barrier()

    def _role(self, op: ir.Operation) -> list[list[int]]:
        return [integers(op.attributes["threads"])]

    def _index_switch(self, op: ir.Operation) -> None:
        """Two roles: the first one's threads come first, of which one does all that there is to do."""
        copiers, multiplying = self.values[op.operands[0]]
        multiply, fill = (region.blocks[0] for region in op.regions)
        copies = self.target.copies
        assert copies is not None
        left = (CORE_REGISTERS // self.residency - copiers * COPIER_REGISTERS) // multiplying

        def first() -> None:
            copies.registers(COPIER_REGISTERS, more=False)
            b.if_then(b.equal(self.thread, 0), lambda: self._role_of(fill))
            if self.stores is not None:
                self.stores.stand_by()

        def second() -> None:
            copies.registers(min(MOST_REGISTERS, left) // 8 * 8, more=True)
            self._role_of(multiply)
            if self.stores is not None:
                self.stores.finish()

        b.either(b.less(self.thread, copiers), first, second)

    def _role_of(self, block: ir.Block) -> None:
        self.waited = False
        self._block(block)

    # ---- memory

    def _view(self, op: ir.Operation) -> Limited:
        return Limited(operand_of(op.results[0]))

    def _shared(self, op: ir.Operation) -> Slot:
        return Slot(shared_tile(op.results[0]), self.tiles.memory_of(op.results[0]))

    def _slot(self, op: ir.Operation) -> Slot:
        tile, number = self._of(op)
        return replace(tile, slot=b.mod(number, tile.tile.slots))

    def _limit(self, op: ir.Operation) -> Limited:
        view, end = self._of(op)
        return Limited(view.operand, end, ir.BoolAttr(op.attributes["inner"]).value)

    def _load(self, op: ir.Operation) -> Patches | RegisterOperand:
        view, batch, outer, inner = self._of(op)
        operand, (end, inner_end) = view.operand, view.ends
        tile = register_tile(op.results[0])
        if tile.layout == OPERAND:
            self._know_everything()
            lines, seat = tile.unit == WARPGROUP, self._seat(op.results[0])
            return read_operand(tile.by_subgroups, operand, self.reader, seat, (batch, outer, inner), lines)
        if operand.buffer() not in self.constants:
            self._know_everything()
        rows, columns = tile.shape
        put_to = self.tiles.put_to(op)
        origin = Origin(batch, outer, self.member, self.roles[1], end, inner_end)
        place = Tile(rows, columns, put_to.padding, put_to.slots or 1, bool(put_to.swizzle))
        clears = not self.tiles.is_right(op)
        memory = self.tiles.memory_for(op)
        staged = StagedOperand(operand, place, origin, self.reader, put_to.parts, clears, memory)
        raw = "later" in op.attributes and staged.waits
        return Patches(staged, staged.loads(inner) if raw else staged.load(inner), raw)

    def _operand(self, op: ir.Operation) -> OperandRuns | PackedRuns:
        view, batch, outer, inner = self._of(op)
        operand, tile = view.operand, register_tile(op.results[0])
        if operand.buffer() not in self.constants:
            self._know_everything()
        place = membership(tile, self.target, self.thread)
        if tile.blocks:
            return PackedRuns(tile, operand, self.target, place, (batch, outer), []).loaded(inner)
        return OperandRuns(tile, operand, self.target, place, self.reader, (batch, outer), []).loaded(inner)

    def _split(self, op: ir.Operation) -> OperandRuns:
        runs: OperandRuns = self._of(op)[0]
        return runs.split(register_tile(op.results[0]))

    def _reduce_rows(self, op: ir.Operation) -> None:
        """By the block's subgroups, each some of the rows; what reads the reductions' results takes them from there."""
        operand, first = self._of(op)[0].operand, self._of(op)[2]
        self._know_everything()
        rows = ir.IntegerAttr(op.attributes["rows"]).value
        reductions = row_reductions(operand)
        if reductions is None or len(reductions) > REDUCED:
            raise Refused("reductions that are not of whole rows make an operand")
        lane, subgroup = (f(self.thread, self.target.subgroup) for f in (b.mod, b.div))
        number = subgroup if isinstance(subgroup, ir.Value) else None
        team = Team(lane, self.target.subgroup, self.target.subgroup, number, together=READ_AHEAD)
        reader, memory = Reader(self.target, team), []
        for reduction in reductions:
            memory.append(b.shared([rows], reduction.results[0].type.element_type))
        subgroups = self.threads // self.target.subgroup
        for start in range(0, rows, subgroups):
            row = b.at_most(b.add(subgroup, start), rows - 1)
            at = b.at_most(b.add(first, row), operand.extent - 1)
            for reduction, results in zip(reductions, memory, strict=True):
                shape = reduction.results[0].type.shape
                value = reader.read(reduction.results[0], [at if extent > 1 else 0 for extent in shape])
                b.if_then(b.equal(lane, 0), partial(b.store, value, results, [row]))
        b.barrier()
        for reduction, results in zip(reductions, memory, strict=True):
            self.reader.bind(reduction.results[0], partial(_kept, results, reduction, first))

    def _put(self, op: ir.Operation) -> None:
        patches, slot = self._of(op)
        values = patches.staged.made_of(patches.values) if patches.raw else patches.values
        patches.staged.store(values, slot.slot)
        if slot.tile.swizzle and self.target.warpgroup is not None:
            self.target.warpgroup.publish()

    def _ring(self, op: ir.Operation) -> Ring:
        fills = [one for one in self.tiles.every if one.name == "tile.fill" and one.operands[0] == op.results[0]]
        by_member = {ir.IntegerAttr(fill.attributes["member"]).value: fill.operands[1] for fill in fills}
        slots = [Slot(*both) for both in self.tiles.members_of(op.results[0])]
        views = [operand_of(by_member[i]) for i in range(len(slots))]
        facts = (self.target, slots, views, self.thread, self.threads)
        if ir.StringAttr(op.attributes["copies"]).value != BULK:
            return AsyncRing(*facts)
        sharing = integers(op.attributes["sharing"]) if "sharing" in op.attributes else [1] * len(slots)
        operands = copied_operands(views, slots, sharing, self.target)
        maps = [operand.maps(self.kernel) for operand in operands]
        rank = b.mod(b.block_id(), self.cluster)
        ring = BulkRing(*facts, operands, maps, self.tiles.barriers, self.roles[1], rank)
        if self.stores is not None:
            self.stores.make_maps()
        b.if_then(b.equal(self.thread, 0), ring.make)
        (self.target.cluster_barrier if self.cluster > 1 else b.barrier)()
        return ring

    def _fill(self, op: ir.Operation) -> None:
        ring, view, *at, number = self._of(op)
        if view.operand.buffer() not in self.constants:
            self._know_everything()
        start = partial(ring.fill, ir.IntegerAttr(op.attributes["member"]).value, at, number, view.ends[0])
        if isinstance(ring, BulkRing) and not self.roles[0]:
            b.if_then(b.equal(self.thread, 0), start)
        else:
            start()

    def _fetch(self, op: ir.Operation) -> None:
        if self.stores is not None:
            batch, row, column = self._of(op, first=1)
            self.stores.fetch((batch, row, column))

    def _if(self, op: ir.Operation) -> None:
        """Of a program that hands nothing on."""
        b.if_then(self._of(op)[0], lambda: self._block_of(op))

    def _block_of(self, op: ir.Operation) -> None:
        self._block(op.regions[0].blocks[0])

    def _cmpi(self, op: ir.Operation) -> ir.Value:
        number = ir.IntegerAttr(op.attributes["predicate"]).value
        return b.emit("arith.cmpi", list(map(b.as_value, self._of(op))), [b.i1()], predicate=number)

    def _wait(self, op: ir.Operation) -> list[list[Slot]]:
        ring, number = self._of(op)
        return [ring.wait(number, ir.IntegerAttr(op.attributes["ahead"]).value)]

    def _member(self, op: ir.Operation) -> Slot:
        slots = self._of(op)[0]
        found: Slot = slots[ir.IntegerAttr(op.attributes["member"]).value]
        return found

    def _release(self, op: ir.Operation) -> None:
        self.values[op.operands[0]].release(self._of(op)[-1])

    def _clear(self, op: ir.Operation) -> None:
        """Only in tiles that reach past the end: by those who multiply, whose instructions are to see it."""
        slot, first, end = self._of(op)
        b.if_then(b.less(end, b.add(first, slot.tile.rows)), partial(self._clear_from, slot, b.sub(end, first)))

    def _clear_from(self, slot: Slot, row: Index) -> None:
        assert self.target.warpgroup is not None
        tile, nothing = slot.tile, b.constant(0.0, ir.VectorType.get([CLEARED], ir.BF16Type.get()))
        each, start = SWIZZLE // (2 * CLEARED), b.add(slot.memory, b.mul(slot.slot, slot.tile.slot_bytes))
        for first in range(0, tile.slot_bytes // (2 * CLEARED), self.roles[1]):
            number = b.add(self.member, first)
            line = b.mod(b.div(number, each), tile.rows)
            inside = b.less(number, tile.slot_bytes // (2 * CLEARED))
            store = partial(b.store_at, nothing, b.add(start, b.mul(number, 2 * CLEARED)))
            b.if_then(b.both(inside, b.less(line, row, predicate=PAST)), store)
        self.target.warpgroup.publish()
        self._meet()

    def _drain(self, op: ir.Operation) -> None:
        self.values[op.operands[0]].wait(0, 0)

    # ---- registers

    def _zeros(self, op: ir.Operation) -> Sums:
        return self._sums_of(op.results[0])

    def _mma(self, op: ir.Operation) -> Sums:
        sums, a, right = self._of(op)
        if self.product is None and right.tile.swizzle:
            left, start = a.blocks if isinstance(a, RegisterOperand) else a, defining_op(op.operands[0])
            return multiply_lines(sums, left, right, "across" in op.attributes, adds=_is_carried(start))
        if "later" in op.attributes:
            started: Sums = sums.started(a, right)
            self.target.warpgroup.wait(1)  # type: ignore[union-attr]
            return started
        if isinstance(a, RegisterOperand):
            return sums.multiply_operand(a.blocks, right, "across" in op.attributes)
        return sums.multiply(a, right)

    def _settle(self, op: ir.Operation) -> Sums:
        settled: Sums = self._of(op)[0].settled()
        return settled

    def _add_parts(self, op: ir.Operation) -> Sums:
        return self._of(op)[0].added(self.tiles.own_memory(op), self._meet)

    def _store(self, op: ir.Operation) -> None:
        registers, tensor, batch, row, column, *others = self._of(op)
        self._know_everything()
        if isinstance(registers, RowNumbers):
            self._store_numbers(registers, tensor, batch, row)
            return
        if self.stores is not None:
            assert self.tiles.block is not None and isinstance(registers, WarpgroupSums)
            self.stores.store(registers, self.tiles.block, self.tiles.staging_at(), (batch, row, column))
            return
        *_, rows, columns = register_tile(op.operands[0]).shape
        results = [(t, buffer) for t, buffer in self.results if self.rows is None or not self.rows.is_log_sum(t)]
        product: Whole | None = self.rows or self.product
        if self.sums is not None:
            product = part = self.sums.part_of(tensor)
            results = [(t, buffer) for t, buffer in results if t == part.sum.out.tensor]
        if self.product is not None and "transposed" in op.attributes:
            product = self.product.transposed()
        assert product is not None
        beside = [each.result for each in self.product.all[1:]] if self.product is not None else []
        epilogue = Epilogue(self.reader, product, results, (rows, columns), (row, column), batch, beside=beside)
        pieces = registers.pieces()
        for other in others:
            pieces = [replace(x, beside=(*x.beside, y.value)) for x, y in zip(pieces, other.pieces(), strict=True)]
        epilogue.write(epilogue.placed(pieces))

    # ---- attention

    def _seat(self, value: ir.Value) -> Seat:
        return Seat.of(register_tile(value).by_subgroups, self.target, self.member)

    def _mapped(self, op: ir.Operation) -> Any:
        return mapped(op, self._of(op))

    def _filled(self, op: ir.Operation) -> RowNumbers:
        number = ir.FloatAttr(ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()).value
        tile = self._registers_of(op.results[0])
        if tile.layout in (ROWS, SHARES):
            return RowNumbers.filled(tile, self.target, self.member, number)
        sums = self._sums_of(op.results[0])
        return replace(sums, values=[b.constant(number, v.type) for v in sums.values])  # type: ignore[return-value]

    def _visible(self, op: ir.Operation) -> list[Index]:
        assert self.rows is not None and self.target.matrix is not None
        bounds = [bound for bound in (self.rows.attention.lower, self.rows.attention.upper) if bound is not None]
        if not all(depends_only_on(tensor, self.constants) for bound in bounds for tensor in bound.tensors()):
            self._know_everything()
        batch, row = self._of(op)
        lanes = lanes_of(self.target.matrix, b.mod(self.thread, self.target.subgroup))
        others = [place for d, place in enumerate(self.rows.loops(batch, 0)) if d != self.rows.row]
        facts = (self.rows.attention, self.reader, lanes, self.target, self.rows.row, others, row)
        rows = BlockRows(*facts, ir.IntegerAttr(op.attributes["rows"]).value)
        least, last = rows.last_positions()
        for mask in {use.owner.operation for use in op.results[1].uses}:
            self._prepare_mask(mask, rows, (least, last))
        return [rows.start(1), least, last]

    def _prepare_mask(self, op: ir.Operation, rows: BlockRows, bounds: tuple[ir.Value, ir.Value]) -> None:
        """Find, ahead of all tiles, what each of a lane's rows sees."""
        tile, seat = self._registers_of(op.operands[0]), self._seat(op.operands[0])
        attention, each = rows.attention, len(seat.unit.pieces())
        places = [rows.place(b.add(rows.first, row)) for row in seat.result_rows(tile)]
        past = attention.context % tile.shape[2] != 0
        groups = [places[i : i + each] for i in range(0, len(places), each)]
        self.masks[op] = [Mask(attention, self.reader, seat.lanes, group, *bounds, past) for group in groups]

    def _reach(self, op: ir.Operation) -> list[Index]:
        assert self.sums is not None
        self._know_everything()
        task, row = self._of(op)
        for weights in self.tiles.every:
            if weights.name == "tile.weights" and list(weights.operands)[:2] == list(op.operands):
                tile, seat = self._registers_of(weights.operands[4]), self._seat(weights.operands[4])
                self.weigh[weights] = ScoreWeights.ahead(self.sums, self.reader, seat, tile, task, row)
        return reach(self.sums, self.reader, task, row, ir.IntegerAttr(op.attributes["rows"]).value)

    def _weights(self, op: ir.Operation) -> list[Sums]:
        _, _, round_, along, *scores = self._of(op)
        return list(self.weigh[op].of(round_, along, scores))

    def _mask(self, op: ir.Operation) -> Sums:
        scores, _, _, position, *_ = self._of(op)
        return masked(scores, self.masks[op], position, self._seat(op.operands[0]))

    def _reduce(self, op: ir.Operation) -> RowNumbers:
        (whole,), by = self._of(op), ir.StringAttr(op.attributes["by"]).value
        if isinstance(whole, RowNumbers):
            return whole.whole(by)
        return reduced(whole, by, self._registers_of(op.results[0]), self._seat(op.results[0]))

    def _broadcast(self, op: ir.Operation) -> Any:
        tile = self._registers_of(op.results[0])
        (rows,) = self._of(op)
        return rows.broadcast(rows if tile.layout == SHARES else self._sums_of(op.results[0]), tile)

    def _over_members(self, op: ir.Operation) -> RowNumbers:
        found: RowNumbers = self._of(op)[0].over_members(
            ir.StringAttr(op.attributes["by"]).value, self.tiles.own_memory(op), self._meet
        )
        return found

    def _as_operand(self, op: ir.Operation) -> RegisterOperand:
        tile = self._registers_of(op.results[0])
        return as_operand(self._of(op)[0], tile, self._seat(op.results[0]), self.tiles.own_memory(op))

    def _store_numbers(self, rows: RowNumbers, tensor: ir.Value, batch: Index, first: Index) -> None:
        assert self.rows is not None
        buffer, own = dict(self.results)[tensor], b.equal(rows.seat.lanes.result_column, 0)
        own = b.both(own, b.equal(rows.seat.member, 0)) if rows.tile.shape[0] > 1 else own
        for row, value in zip(rows.seat.result_rows(rows.tile), rows.values, strict=True):
            at = b.add(first, row)
            live = b.both(own, b.less(at, self.rows.rows) if self.rows.rows % rows.tile.shape[1] else None)
            b.if_live(live, partial(b.store, value, buffer, self.rows.loops(batch, at)))


def _kept(memory: ir.Value, reduction: ir.Operation, first: Index, index: Sequence[Index], width: int) -> ir.Value:
    """A reduction's result of one of the rows from `first` on."""
    wide = [i for i, extent in zip(index, reduction.results[0].type.shape, strict=True) if extent > 1]
    return b.load(memory, [b.sub(wide[0], first) if wide else 0], 1)


def _has_registers(op: ir.Operation) -> bool:
    """Whether an op of other dialects is a program's: a loop, roles, or a function of register tiles."""
    mapped = [RegisterTile.of(result.type) for result in op.results] if op.name.startswith(("arith.", "math.")) else []
    return any(mapped) or (
        op.name.startswith("scf.") and any(x.name.startswith("tile.") for x in nested_operations(op))
    )


def _is_carried(op: ir.Operation | None) -> bool:
    """Whether sums are of something."""
    return op is None or op.name != "tile.zeros"


def _registers(value: Any) -> list[ir.Value]:
    """The SSA values that a loop carries for a value of the program."""
    if isinstance(value, (OperandRuns, PackedRuns, Patches, Sums, RowNumbers, RowVector)):
        return value.values
    raise InternalError(f"a loop of a tile program carries no {type(value).__name__}")


def _gathered(templates: Sequence[Any], values: Sequence[ir.Value]) -> list[Any]:
    """The program's values, like these, of what a loop carries."""
    found, rest = [], list(values)
    for template in templates:
        count = len(template.values)
        found.append(replace(template, values=rest[:count]))
        rest = rest[count:]
    return found
