"""Kernels by hand whose threads go in step, on a CPU: the values of a block's threads become vectors.

Before, in a block of 32 threads:                       After, for the whole block:
  %t = gpu.thread_id x                                    scf.for %i = 0 to 992 step 32 iter_args(%s = %zeros) {
  scf.for %i = %t to %n step 32 iter_args(%s = %zero) {     %x = vector.load %m[%i] : vector<32xf32>
    %x = memref.load %m[%i]                                 scf.yield (arith.addf %s, %x) }
    scf.yield (arith.addf %s, %x) }                       … the rest with a mask
  %o = gpu.shuffle xor %s, 16, 32                         %o = vector.shuffle %s, %s [16, 17, …]
  gpu.barrier

All threads make each step before any makes the next, so that barriers are where they are anyway.  Where threads part
ways, a mask says whose results and stores count, and a step that no thread makes is not made: what lies outside of
memory is not read.  A kernel that has other ops, or whose threads part ways ahead of what they meet at, is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir, numbers
from lispgpt.ir.structure import constant_number, integers, operations
from lispgpt.passes.lower.gpu_exchanges import COMBINE
from lispgpt.passes.lower.lanes import (
    LANE,
    PLACES,
    UNIFORM,
    Lanes,
    NotInLanes,
    attribute_of,
    axis_of,
    bounds_level,
    levels_of,
    permutation,
)

DIVISIONS = ("divsi", "divui", "remsi", "remui", "ceildivsi", "ceildivui", "floordivsi")
SHORT = 1 << 31


@dataclass(frozen=True)
class Steps:
    """The numbers base, base + stride, … of a group's lanes."""

    base: ir.Value
    stride: int


@dataclass(frozen=True)
class AtMost:
    """Steps, but none above a bound: the smaller of the two by `op`."""

    steps: Steps
    bound: ir.Value
    op: str


Item = Any
"""A group's value: a number that all its lanes have, a vector of them, Steps or AtMost."""


@dataclass
class Scope:
    """What holds where ops are emitted.  groups: that make the step.  mask: of the lanes that do, where not all do.
    known: what was computed, by what computes it, for others that compute the same; stores: how often was stored."""

    groups: list[int]
    mask: ir.Value | None = None
    known: dict[Any, Any] = field(default_factory=dict)

    def inside(self, groups: list[int] | None = None, mask: ir.Value | None = None) -> Scope:
        groups = self.groups if groups is None else groups
        return Scope(groups, self.mask if mask is None else mask, dict(self.known))


def in_lockstep(kernel: ir.Operation, subgroup: int) -> bool:
    """Rewrite a kernel by hand for a block at once; False, and nothing is changed, where it cannot be."""
    try:
        lanes = Lanes.of(integers(kernel.attributes["block"]), subgroup)
        levels = levels_of(kernel, lanes)
    except NotInLanes:
        return False
    block = kernel.regions[0].blocks[0]
    old = operations(block)
    try:
        with ir.InsertionPoint(old[-1]), kernel.location:
            _Lockstep(kernel, lanes, levels).run(old[:-1])
    except NotInLanes:
        for op in reversed([op for op in operations(block)[:-1] if op not in old]):
            op.erase()
        return False
    for op in reversed(old[:-1]):
        op.erase()
    kernel.attributes["grid"] = numbers((prod(integers(kernel.attributes["grid"])), 1, 1))
    for name in ("block", "shared_bytes"):
        del kernel.attributes[name]
    return True


class _Lockstep:
    """One kernel.  values: of each value, what it is in each group."""

    def __init__(self, kernel: ir.Operation, lanes: Lanes, levels: dict[ir.Value, int]) -> None:
        self.lanes, self.levels = lanes, levels
        self.width = lanes.width
        self.grid = integers(kernel.attributes["grid"])
        self.values: dict[ir.Value, list[Item]] = {}
        self.stores = 0
        for argument in kernel.regions[0].blocks[0].arguments:
            self.values[argument] = [argument] * lanes.count

    def run(self, ops: list[ir.Operation]) -> None:
        self._ops(ops, Scope(list(range(self.lanes.count))))

    def _ops(self, ops: list[ir.Operation], scope: Scope) -> None:
        for op in ops:
            with op.location:
                self._op(op, scope)

    def _op(self, op: ir.Operation, scope: Scope) -> None:
        name = op.name.replace(".", "_")
        handler: Callable[[ir.Operation, Scope], None] | None = getattr(self, f"_{name}", None)
        if op.name in PLACES:
            self._place(op, scope)
        elif handler is not None:
            handler(op, scope)
        elif op.name == "arith.constant":
            self._set(op, scope, lambda _: self._once(scope, str(op), lambda: self._again(op, [])))
        else:
            self._set(op, scope, lambda group: self._computed(op, group, scope))

    def _set(self, op: ir.Operation, scope: Scope, made: Callable[[int], Item]) -> None:
        """An op's one result: the same for all groups, or each group's."""
        values = self.values.setdefault(op.results[0], [None] * self.lanes.count)
        one = self.levels[op.results[0]] == UNIFORM
        first = made(scope.groups[0])
        for group in scope.groups:
            values[group] = first if one or group == scope.groups[0] else made(group)

    def _once(self, scope: Scope, key: Any, made: Callable[[], Any]) -> Any:
        """What was computed already, or is now."""
        if key not in scope.known:
            scope.known[key] = made()
        return scope.known[key]

    # ---- places

    def _place(self, op: ir.Operation, scope: Scope) -> None:
        self._set(op, scope, lambda group: self._of_place(op, group, scope))

    def _number(self, number: int, scope: Scope) -> ir.Value:
        return self._once(scope, ("number", number), lambda: b.as_value(number))  # type: ignore[no-any-return]

    def _of_place(self, op: ir.Operation, group: int, scope: Scope) -> Item:
        kind, lanes = op.name.removeprefix("gpu."), self.lanes
        if kind in ("lane_id", "subgroup_id", "num_subgroups", "subgroup_size"):
            if not lanes.are_subgroups:
                raise NotInLanes
            if kind == "lane_id":
                return Steps(self._number(0, scope), 1)
            return self._number({"subgroup_id": group, "num_subgroups": lanes.count}.get(kind, lanes.subgroup), scope)
        axis = "xyz".index(axis_of(op))
        if kind == "block_id":
            return self._once(scope, ("block", axis), lambda: self._block(axis))  # type: ignore[no-any-return]
        if kind in ("block_dim", "grid_dim"):
            return self._number((lanes.block if kind == "block_dim" else self.grid)[axis], scope)
        own = self._number(lanes.place(group)[axis], scope)
        if kind == "global_id":
            first = self._once(scope, ("first", axis), lambda: b.as_value(b.mul(self._block(axis), lanes.block[axis])))
            own = self._once(scope, ("global", axis, own), lambda: b.as_value(b.add(first, own)))
        return Steps(own, 1) if axis == 0 else own

    def _block(self, axis: int) -> ir.Value:
        return b.as_value(b.mod(b.div(b.block_id(), prod(self.grid[:axis])), self.grid[axis]))

    # ---- numbers

    def _vector(self, item: Item) -> ir.Value:
        """An item as a vector."""
        if isinstance(item, AtMost):
            return b.emit(item.op, [self._vector(item.steps), self._vector(item.bound)], [self._of(item.bound.type)])
        if isinstance(item, Steps):
            places = self._constants([item.stride * lane for lane in range(self.width)], item.base.type)
            return b.emit("arith.addi", [b.splat(item.base, self.width), places], [places.type])
        return b.splat(item, self.width)

    def _of(self, kind: ir.Type) -> ir.Type:
        return ir.VectorType.get([self.width], kind)

    def _constants(self, each: Sequence[int], kind: ir.Type) -> ir.Value:
        dense = ir.DenseElementsAttr.get([ir.IntegerAttr.get(kind, n) for n in each], type=self._of(kind))
        return b.emit("arith.constant", [], [dense.type], value=dense)

    def _ones(self) -> ir.Value:
        return b.splat(b.constant(1, b.i1()), self.width)

    def _among(self, lanes: ir.Value, scope: Scope) -> ir.Value:
        """Those of some lanes that make the step."""
        return lanes if scope.mask is None else b.emit("arith.andi", [lanes, scope.mask], [lanes.type])

    def _any(self, lanes: ir.Value) -> ir.Value:
        return b.emit("vector.reduction", [lanes], [b.i1()], kind=ir.Attribute.parse("#vector.kind<or>"))

    def _again(self, op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
        """The op on numbers, or on vectors where one operand is one."""
        kind = op.results[0].type
        wide = any(isinstance(v.type, ir.VectorType) for v in operands)
        if wide:
            alone = op.name == "arith.select" and not isinstance(operands[0].type, ir.VectorType)
            operands = [v if alone and i == 0 else b.splat(v, self.width) for i, v in enumerate(operands)]
        attributes = {name: op.attributes[name] for name in op.attributes}
        return create_op(op.name, operands, [self._of(kind) if wide else kind], attributes).results[0]

    def _computed(self, op: ir.Operation, group: int, scope: Scope) -> Item:
        items = [self.values[v][group] for v in op.operands]
        found = self._steps(op, items, scope)
        if found is not None:
            return found
        if scope.mask is not None and op.name.removeprefix("arith.") in DIVISIONS:
            one = b.splat(b.constant(1, op.results[0].type), self.width)
            items[1] = b.select(scope.mask, self._vector(items[1]), one)
        key = (op.name, str(op.attributes), tuple(items))
        return self._once(scope, key, lambda: self._again(op, [self._plain(item) for item in items]))  # type: ignore[no-any-return]

    def _plain(self, item: Item) -> ir.Value:
        return item if isinstance(item, ir.Value) else self._vector(item)

    def _steps(self, op: ir.Operation, items: list[Item], scope: Scope) -> Item | None:
        """The result as steps, where it is that."""
        steps = [i if isinstance(i, Steps) else Steps(i, 0) if self._is_number(i) else None for i in items]
        if None in steps or not any(s.stride for s in steps if s is not None):
            return None
        first, *rest = (s for s in steps if s is not None)
        bases = [first.base, *(s.base for s in rest)]

        def base(*operands: ir.Value) -> ir.Value:
            key = (op.name, str(op.attributes), operands)
            return self._once(scope, key, lambda: self._again(op, list(operands)))  # type: ignore[no-any-return]

        if op.name in ("arith.addi", "arith.subi"):
            stride = first.stride + (rest[0].stride if op.name == "arith.addi" else -rest[0].stride)
            return Steps(base(*bases), stride) if stride else base(*bases)
        if op.name == "arith.muli":
            for one, other in ((first, rest[0]), (rest[0], first)):
                factor = constant_number(other.base)
                if not other.stride and factor is not None:
                    return Steps(base(*bases), one.stride * factor) if factor else base(*bases)
            return None
        if op.name == "arith.index_cast":
            return Steps(base(first.base), first.stride)
        if op.name in ("arith.minsi", "arith.minui") and first.stride > 0 and not rest[0].stride:
            return AtMost(first, rest[0].base, op.name)
        return None

    def _is_number(self, item: Item) -> bool:
        return isinstance(item, ir.Value) and not isinstance(item.type, ir.VectorType)

    # ---- memory

    def _memref_alloca(self, op: ir.Operation, scope: Scope) -> None:
        kind = op.results[0].type
        host = ir.MemRefType.get(kind.shape, kind.element_type)
        made = create_op(
            "memref.alloca", [], [host], {"alignment": 64, "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}
        )
        self.values[op.results[0]] = [made.results[0]] * self.lanes.count

    def _memref_dim(self, op: ir.Operation, scope: Scope) -> None:
        self._set(op, scope, lambda group: self._again(op, [self._plain(self.values[v][group]) for v in op.operands]))

    def _memref_load(self, op: ir.Operation, scope: Scope) -> None:
        def made(group: int) -> Item:
            memref, *items = (self.values[v][group] for v in op.operands)
            key = ("load", memref, tuple(items), scope.mask, self.stores)
            return self._once(scope, key, lambda: self._load(memref, items, scope))  # type: ignore[no-any-return]

        self._set(op, scope, made)

    def _load(self, memref: ir.Value, items: list[Item], scope: Scope) -> ir.Value:
        if all(map(self._is_number, items)):
            return b.load(memref, items, 1)
        *rows, last = items
        if not all(map(self._is_number, rows)) or (isinstance(last, Steps) and last.stride != 1):
            return self._column(memref, items, scope)
        kind = self._of(memref.type.element_type)
        if isinstance(last, Steps) and scope.mask is None:
            return b.load(memref, [*rows, last.base], self.width, aligned=False)
        if isinstance(last, Steps):
            return b.emit("vector.maskedload", [memref, *rows, last.base, scope.mask, self._zeros(kind)], [kind])
        if isinstance(last, AtMost) and last.steps.stride == 1 and scope.mask is None:
            return self._up_to(memref, rows, last)
        return self._gather(memref, items, scope)

    def _up_to(self, memref: ir.Value, rows: list[ir.Value], last: AtMost) -> ir.Value:
        """Neighbours up to one place, and that one's element in the lanes behind it."""
        kind, base = self._of(memref.type.element_type), last.steps.base
        predicate = ir.IntegerAttr.get(b.i64(), 3 if last.op == "arith.minsi" else 7)
        end = b.as_value(b.add(base, self.width - 1))
        fits = b.emit("arith.cmpi", [end, last.bound], [b.i1()], predicate=predicate)

        def parted() -> list[ir.Value]:
            lanes = [self._vector(last.steps), self._vector(last.bound)]
            ahead = b.emit("arith.cmpi", lanes, [self._of(b.i1())], predicate=predicate)
            behind = b.splat(b.load(memref, [*rows, last.bound], 1), self.width)
            return [b.emit("vector.maskedload", [memref, *rows, base, ahead, behind], [kind])]

        return b.choose(fits, [kind], lambda: [b.load(memref, [*rows, base], self.width, aligned=False)], parted)[0]

    def _zeros(self, kind: ir.Type) -> ir.Value:
        element = kind.element_type
        return b.splat(b.constant(0.0 if isinstance(element, ir.FloatType) else 0, element), self.width)

    def _column(self, memref: ir.Value, items: list[Item], scope: Scope) -> ir.Value:
        """Of a square of rows that lie one behind the other, a column: all its columns are made at once."""
        first, column = items[-2:] if len(items) > 1 else (None, None)
        number = constant_number(column) if self._is_number(column) else None
        size = self.width
        if number is None or scope.mask is not None or not isinstance(first, Steps) or first.stride != 1:
            return self._gather(memref, items, scope)
        if not all(map(self._is_number, items[:-2])) or memref.type.shape[-1] < (number // size + 1) * size:
            return self._gather(memref, items, scope)
        if size & (size - 1) or size > 16:
            return self._gather(memref, items, scope)
        key = ("columns", memref, tuple(items[:-1]), number // size, self.stores)

        def made() -> list[ir.Value]:
            rows = [
                b.load(memref, [*items[:-2], b.add(first.base, lane), number // size * size], size, aligned=False)
                for lane in range(size)
            ]
            return _transposed(rows)

        return self._once(scope, key, made)[number % size]  # type: ignore[no-any-return]

    def _places(self, memref: ir.Value, items: list[Item]) -> tuple[ir.Value, ir.Value]:
        """A memref as one row, and where in it the lanes' elements are."""
        shape = list(memref.type.shape)
        total: ir.Value | None = None
        for d, item in enumerate(items):
            place = b.emit(
                "arith.muli", [self._vector(item), b.splat(b.as_value(prod(shape[d + 1 :])), self.width)],
                [self._of(ir.IndexType.get())],
            )  # fmt: skip
            total = place if total is None else b.emit("arith.addi", [total, place], [place.type])
        assert total is not None
        if prod(shape) < SHORT:
            total = b.emit("arith.index_cast", [total], [self._of(b.i32())])
        return b.flattened(memref) if len(shape) > 1 else memref, total

    def _gather(self, memref: ir.Value, items: list[Item], scope: Scope) -> ir.Value:
        row, places = self._places(memref, items)
        kind = self._of(memref.type.element_type)
        mask = self._ones() if scope.mask is None else scope.mask
        return b.emit("vector.gather", [row, b.as_value(0), places, mask, self._zeros(kind)], [kind])

    def _memref_store(self, op: ir.Operation, scope: Scope) -> None:
        for group in scope.groups:
            value, memref, *items = (self.values[v][group] for v in op.operands)
            self._store(value, memref, items, scope)
        self.stores += 1

    def _store(self, value: Item, memref: ir.Value, items: list[Item], scope: Scope) -> None:
        *rows, last = items or [None]
        if all(map(self._is_number, items)):
            if self._is_number(value):
                b.store(value, memref, items)
                return
            if scope.mask is None:
                b.store(b.lane_of(self._vector(value), self.width - 1), memref, items)
                return
        elif all(map(self._is_number, rows)) and isinstance(last, Steps) and last.stride == 1:
            if scope.mask is None:
                b.store(self._vector(value), memref, [*rows, last.base], aligned=False)
            else:
                create_op("vector.maskedstore", [memref, *rows, last.base, scope.mask, self._vector(value)])
            return
        if not items:
            raise NotInLanes
        row, places = self._places(memref, items)
        mask = self._ones() if scope.mask is None else scope.mask
        create_op("vector.scatter", [row, b.as_value(0), places, mask, self._vector(value)])

    # ---- what threads meet at

    def _gpu_barrier(self, op: ir.Operation, scope: Scope) -> None:
        self.stores += 1

    def _gpu_shuffle(self, op: ir.Operation, scope: Scope) -> None:
        for group in scope.groups:
            value, distance, width = (self.values[v][group] for v in op.operands)
            by, among = (constant_number(v) if self._is_number(v) else None for v in (distance, width))
            if by is None or among is None or among > self.lanes.subgroup:
                raise NotInLanes
            order = list(permutation(op, self.lanes, by, among))
            vector = self._vector(value)
            read = b.shuffled(vector, vector, [source for source, _ in order])
            valid = self._constants([int(valid) for _, valid in order], b.i1())
            for result, item in zip(op.results, (read, valid), strict=True):
                self.values.setdefault(result, [None] * self.lanes.count)[group] = item

    def _gpu_rotate(self, op: ir.Operation, scope: Scope) -> None:
        raise NotInLanes

    _gpu_subgroup_broadcast = _gpu_rotate

    def _gpu_subgroup_reduce(self, op: ir.Operation, scope: Scope) -> None:
        if attribute_of(op, "cluster_size") not in (0, self.width) or attribute_of(op, "cluster_stride") > 1:
            raise NotInLanes
        self._set(op, scope, lambda group: self._folded(op, self._lanes_of(self.values[op.operands[0]][group])))

    def _gpu_all_reduce(self, op: ir.Operation, scope: Scope) -> None:
        lanes = [lane for g in scope.groups for lane in self._lanes_of(self.values[op.operands[0]][g])]
        self._set(op, scope, lambda _: self._folded(op, lanes))

    def _lanes_of(self, item: Item) -> list[ir.Value]:
        vector = self._vector(item)
        return [b.lane_of(vector, lane) for lane in range(self.width)]

    def _folded(self, op: ir.Operation, lanes: list[ir.Value]) -> ir.Value:
        if "op" not in op.attributes:
            raise NotInLanes
        kind = str(op.attributes["op"]).split("<all_reduce_op ")[1].rstrip(">")
        name = COMBINE[kind][isinstance(lanes[0].type, ir.FloatType)]
        total = lanes[0]
        for lane in lanes[1:]:
            total = b.emit(name, [total, lane], [total.type])
        return total

    # ---- loops and branches

    def _carried(self, values: Sequence[ir.Value], like: Sequence[ir.Value], groups: list[int]) -> list[ir.Value]:
        """Items of values as what a loop or branch carries, by the levels of `like`."""
        made = []
        for value, other in zip(values, like, strict=True):
            level = self.levels[other]
            for group in groups[:1] if level == UNIFORM else groups:
                item = self.values[value][group]
                made.append(self._vector(item) if level == LANE else self._plain(item))
        return made

    def _spread(self, values: Sequence[ir.Value], found: Sequence[ir.Value], groups: list[int]) -> None:
        """The reverse: items of `values` from what is carried."""
        left = list(found)
        for value in values:
            items = self.values.setdefault(value, [None] * self.lanes.count)
            one = self.levels[value] == UNIFORM
            first = left.pop(0) if one else None
            for group in groups:
                items[group] = first if one else left.pop(0)

    def _scf_for(self, op: ir.Operation, scope: Scope) -> None:
        level = bounds_level(op, self.levels)
        for groups in [scope.groups] if level == UNIFORM else [[group] for group in scope.groups]:
            self._loop(op, scope.inside(groups))
        self.stores += 1

    def _loop(self, op: ir.Operation, scope: Scope) -> None:
        groups, arguments = scope.groups, list(op.regions[0].blocks[0].arguments)[1:]
        low, high, step = (self.values[v][groups[0]] for v in list(op.operands)[:3])
        carried = self._carried(list(op.operands)[3:], arguments, groups)
        if self._is_number(low) and self._is_number(high) and self._is_number(step):
            found = b.loop(low, high, step, carried, lambda i, *own: self._round(op, i, own, scope.inside()))
        else:
            found = self._parted(op, (low, high, step), carried, scope)
        self._spread(op.results, found, groups)

    def _round(self, op: ir.Operation, item: Item, own: Sequence[ir.Value], scope: Scope) -> list[ir.Value]:
        """A round of a loop; what it carries on."""
        block = op.regions[0].blocks[0]
        counter, *arguments = block.arguments
        self.stores += 1
        for group in scope.groups:
            self.values.setdefault(counter, [None] * self.lanes.count)[group] = item
        self._spread(arguments, own, scope.groups)
        *body, end = operations(block)
        self._ops(body, scope)
        return self._carried(list(end.operands), arguments, scope.groups)

    def _parted(
        self, op: ir.Operation, bounds: tuple[Item, Item, Item], carried: list[ir.Value], scope: Scope
    ) -> list[ir.Value]:
        """A loop of one group whose lanes begin apart: rounds that all its lanes make, and those that some do."""
        low, high, step = bounds
        if not isinstance(low, Steps) or low.stride < 0 or not self._is_number(high) or not self._is_number(step):
            raise NotInLanes
        by = constant_number(step)
        if by is None or by < 1:
            raise NotInLanes
        last = b.as_value(b.sub(high, (self.width - 1) * low.stride))
        found = b.loop(
            low.base, last, step, carried,
            lambda i, *own: self._round(op, Steps(i, low.stride), own, scope.inside()),
        )  # fmt: skip
        ends = [constant_number(v) for v in (low.base, high)]
        if None not in ends:
            first, end = (n for n in ends if n is not None)
            rest = first + max(0, -((first - end + (self.width - 1) * low.stride) // by)) * by
            if rest >= end:
                return found
            start: ir.Value = b.as_value(rest)
        else:
            index = low.base.type
            rounds = b.emit("arith.ceildivsi", [b.emit("arith.subi", [last, low.base], [index]), step], [index])
            rounds = b.emit("arith.maxsi", [rounds, b.as_value(0)], [index])
            start = b.as_value(b.add(low.base, b.emit("arith.muli", [rounds, step], [index])))

        def some(i: ir.Value, *own: ir.Value) -> list[ir.Value]:
            less = ir.IntegerAttr.get(b.i64(), 2)
            lanes = [self._vector(Steps(i, low.stride)), self._vector(high)]
            live = self._among(b.emit("arith.cmpi", lanes, [self._of(b.i1())], predicate=less), scope)

            def made() -> list[ir.Value]:
                found = self._round(op, Steps(i, low.stride), own, scope.inside(mask=live))
                return [b.select(live, new, old) for new, old in zip(found, own, strict=True)]

            if scope.mask is None:
                return made()
            return b.choose(self._any(live), [v.type for v in own], made, lambda: own)

        return b.loop(start, high, step, found, some)

    def _scf_if(self, op: ir.Operation, scope: Scope) -> None:
        level = self.levels.get(op.operands[0], UNIFORM)
        for groups in [scope.groups] if level == UNIFORM else [[group] for group in scope.groups]:
            inner = scope.inside(groups)
            condition = self.values[op.operands[0]][groups[0]]
            if self._is_number(condition):
                found = self._branches(op, condition, [inner, inner])
            else:
                found = self._both(op, self._vector(condition), inner)
            self._spread(op.results, found, groups)
        self.stores += 1

    def _branches(self, op: ir.Operation, condition: ir.Value, scopes: list[Scope]) -> list[ir.Value]:
        made = create_op("scf.if", [condition], self._types(op, scopes[0].groups), regions=2)
        for region, twin, scope in zip(op.regions, made.regions, scopes, strict=True):
            self._side(op, region, twin, scope.inside())
        return list(made.results)

    def _types(self, op: ir.Operation, groups: list[int]) -> list[ir.Type]:
        types = []
        for result in op.results:
            level = self.levels[result]
            kind = self._of(result.type) if level == LANE else result.type
            types += [kind] * (1 if level == UNIFORM else len(groups))
        return types

    def _side(self, op: ir.Operation, region: ir.Region, twin: ir.Region, scope: Scope) -> None:
        """One side of a branch."""
        with ir.InsertionPoint(twin.blocks.append()):
            ends: list[ir.Value] = []
            self.stores += 1
            if len(region.blocks):
                *body, end = operations(region.blocks[0])
                self._ops(body, scope)
                ends = self._carried(list(end.operands), op.results, scope.groups)
            create_op("scf.yield", ends)

    def _both(self, op: ir.Operation, condition: ir.Value, scope: Scope) -> list[ir.Value]:
        """Both sides of a branch of one group whose lanes part: each with the lanes that take it, where any does."""
        types, sides = self._types(op, scope.groups), []
        others = b.emit("arith.xori", [condition, self._ones()], [condition.type])
        for region, chosen in zip(op.regions, (condition, others), strict=True):
            if not len(region.blocks):
                continue
            live = self._among(chosen, scope)
            made = create_op("scf.if", [self._any(live)], types, regions=2)
            self._side(op, region, made.regions[0], scope.inside(mask=live))
            with ir.InsertionPoint(made.regions[1].blocks.append()):
                create_op("scf.yield", [self._zeros(kind) for kind in types])
            sides.append(list(made.results))
        return [b.select(condition, one, other) for one, other in zip(*sides, strict=True)] if types else []


def _transposed(rows: list[ir.Value]) -> list[ir.Value]:
    """The columns of a square of as many rows as a power of two: in each step, halves of rows change places."""
    count, half = len(rows), len(rows) // 2
    while half:
        order = [
            [i if i % (2 * half) < half else i - half + count for i in range(count)],
            [i + half if i % (2 * half) < half else i + count for i in range(count)],
        ]
        made = list(rows)
        for i in range(count):
            if not i & half:
                made[i], made[i + half] = (b.shuffled(rows[i], rows[i + half], each) for each in order)
        rows, half = made, half // 2
    return rows
