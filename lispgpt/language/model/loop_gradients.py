"""Gradients of loops of a known number of rounds: what each round starts from is kept, and a loop goes back.

    y = x; for i: y = f(y, w, i)         becomes   y = x; for i: kept[i] = y; y = f(y, w, i)
                                                   gy, gw = …, 0; for i from the last: gy, gw += df(kept[i], w, i) * gy

In a round that goes back what the body computes is computed again, as far as its gradients need it, but for products,
which are kept: of these, and of what a round starts from, only what gradients need is kept.  So a loop of a few rounds,
in a loop over such loops, keeps a few of those at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import captured_values, defining_op, dim_positions, indexing_maps, operations, shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.forms import arithmetic, shapes, tensors
from lispgpt.language.model.body_clones import scalars_before
from lispgpt.language.model.gradient_rules import GradientRules
from lispgpt.language.model.gradient_sums import as_type
from lispgpt.language.model.later_sums import LaterSums, is_sum, made_in
from lispgpt.language.model.named_ops import is_contraction
from lispgpt.language.model.table import Model
from lispgpt.language.model.written_out import Writer, write_out
from lispgpt.language.reader.forms import Form

Pairs = list[tuple[ir.Value, ir.Value]]
Inside = Callable[[list[ir.Operation], Pairs, list[ir.Value], dict[ir.Value, ir.Value]], tuple[ir.Value, ...]]
"""Of ops, gradients of what they make, values to differentiate by and sums so far: the gradients of those values."""


SHORTEST_PRODUCT = 8
"""How many terms the sums of a product have at least that is kept."""


class LoopGradients:
    """The gradients of one loop.

    captured: the tensors from outside, which its body reads, that have gradients; totals: those, when it has gone back.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        loop: ir.Operation,
        gradients: Sequence[ir.Value | None],
        active: set[ir.Value],
        form: Form,
    ) -> None:
        """gradients: of the loop's results; None where there is none."""
        self.evaluator, self.loop, self.form = evaluator, loop, form
        self.writer = Writer(evaluator, form)
        self.rounds = self.writer.rounds_of(loop)
        self.starts, block = list(loop.operands)[3:], loop.regions[0].blocks[0]
        self.counter, *self.carried = block.arguments
        *self.body, self.end = operations(block)
        self.active = active
        self.products = list(dict.fromkeys(_last_sum(op.results[0]) for op in self.body if self._is_long_product(op)))
        self.varying = self._varying()
        wanted = self._wanted([i for i, gradient in enumerate(gradients) if gradient is not None])
        self.places = [i for i in wanted if i in self.varying]
        self.gradients = [self._first(gradients[i], i) for i in self.places]
        self.before = scalars_before(loop, active)
        made = {result for op in self.before for result in op.results}
        reads = [*captured_values(loop), *(v for op in self.before for v in op.operands)]
        self.captured = [v for v in dict.fromkeys(reads) if v in active - made and shapes.is_tensor(v)]
        self.totals: list[ir.Value] = []

    def _first(self, gradient: ir.Value | None, place: int) -> ir.Value:
        wide = tensors.summed_in(self.evaluator, self.carried[place])
        if gradient is None:
            return tensors.filled(self.evaluator, shape_of(self.carried[place]), 0.0, wide, self.form)
        return as_type(self.evaluator, gradient, wide, self.form)

    def _is_long_product(self, op: ir.Operation) -> bool:
        """Whether an op is a product that takes longer to make again than to read."""
        if op.name != "linalg.contract" and not (op.name == "linalg.generic" and is_contraction(op)):
            return False
        building = self.evaluator.states.of(Model).building
        if building is not None and building.any_size:
            return True
        loops = [dim_positions(map_) for map_ in indexing_maps(op)]
        pairs = zip(loops, op.operands, strict=True)
        extents = {d: n for own, value in pairs for d, n in zip(own, shape_of(value), strict=True)}
        return prod(n for d, n in extents.items() if d not in loops[-1]) >= SHORTEST_PRODUCT

    def _varying(self) -> list[int]:
        """Which of what is carried depends on what has gradients."""
        found = {i for i, start in enumerate(self.starts) if start in self.active}
        stopped = self.evaluator.states.of(GradientRules).stopped
        while True:
            known = self.active | {self.carried[i] for i in found}
            for op in self.body:
                if any(v in known for v in (*op.operands, *captured_values(op))):
                    known |= {r for r in op.results if r not in stopped}
            more = found | {i for i, v in enumerate(self.end.operands) if v in known}
            if more == found:
                return [i for i in sorted(found) if arithmetic.is_float(self.carried[i].type)]
            found = more

    def _wanted(self, given: list[int], more: Sequence[ir.Value] = ()) -> list[int]:
        """Which of what is carried those results, and more values of a round, are made of."""
        found, seen = set(given), set()
        values = [*more, *(self.end.operands[place] for place in given)]
        while values:
            value = values.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self.carried and (place := self.carried.index(value)) not in found:
                found.add(place)
                values.append(self.end.operands[place])
            op = defining_op(value)
            if op is not None and op in self.body:
                values += [*op.operands, *captured_values(op)]
        return sorted(found)

    def go_back(self, sums: Sequence[ir.Value], inside: Inside) -> Pairs:
        """Emit both loops; the gradients of what the loop started from.  sums: of what it captures, by now."""
        evaluator, form = self.evaluator, self.form
        if not self.rounds:
            self.totals = list(sums)
            return self._of_starts(self.gradients)
        wide = [tensors.summed_in(evaluator, value) for value in self.captured]
        sums = [as_type(evaluator, *pair, form) for pair in zip(sums, wide, strict=True)]
        kept = [self._room(value) for value in (*self.carried, *self.products)]
        results, self.totals = self._loop_back(sums, kept, inside)
        self._keep(kept)
        for room in kept:
            if not any(True for _ in room.uses):
                defining_op(room).erase()
        return self._of_starts(results)

    def _loop_back(
        self, sums: list[ir.Value], kept: list[ir.Value], inside: Inside
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Emit the loop that goes back; the gradients of what is carried, and the sums, after it."""
        evaluator, form, index = self.evaluator, self.form, self.evaluator.builder.index
        begin, count = [*self.gradients, *sums], len(self.gradients)
        types = [index, *(value.type for value in begin)]
        holder = evaluator.builder.emit("scf.execute_region", [], [], {}, form, 1)
        block = ir.Block.create_at_start(holder.regions[0], types, [evaluator.site.location(form)] * len(types))
        with evaluator.builder.at(block):
            number, reads = self._reads(block.arguments[0], kept)
            found = list(self._round(list(block.arguments), number, reads, inside))
            later = LaterSums(evaluator, block, dict(zip(reads, kept, strict=True)), form)
            for place in range(count, len(begin)):
                start = block.arguments[place + 1]
                found[place] = later.place(place - count, start, found[place], begin[place], number)
            for place in range(count, len(begin)):
                start = block.arguments[place + 1]
                found[place] = later.take(place - count, start, found[place])
            carried = [i for i in range(len(begin)) if found[i] != block.arguments[i + 1] or i < count]
            filled = later.keep(len(self.rounds), number)
            evaluator.builder.emit("scf.yield", [*(found[i] for i in carried), *filled], [], {}, form)
        _drop_unused(evaluator.states.of(GradientRules), block)
        for i in reversed(range(len(begin))):
            if i not in carried:
                block.erase_argument(i + 1)
        bounds = [evaluator.builder.constant(n, index, form) for n in (0, len(self.rounds), 1)]
        starts = [*(begin[i] for i in carried), *later.starts()]
        loop = evaluator.builder.emit("scf.for", [*bounds, *starts], [v.type for v in starts], {}, form, 1)
        block.append_to(loop.regions[0])
        holder.erase()
        made = dict(zip(carried, loop.results, strict=False))
        results = [made.get(i, value) for i, value in enumerate(begin)]
        return results[:count], later.add(results[count:], list(loop.results)[len(carried) :])

    def _of_starts(self, gradients: Sequence[ir.Value]) -> Pairs:
        pairs = zip(self.places, gradients, strict=True)
        return [(self.starts[i], gradient) for i, gradient in pairs if self.starts[i] in self.active]

    def _room(self, value: ir.Value) -> ir.Value:
        """What holds a value of each round; its place until it is known whether it is needed."""
        kind = value.type.element_type if shapes.is_tensor(value) else _held(value.type)
        return tensors.empty(self.evaluator, (len(self.rounds), *shape_of(value)), kind, self.form)

    def _reads(self, number: ir.Value, kept: list[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
        """Which round a round that goes back is of, and what was kept of that."""
        last = self.evaluator.builder.constant(len(self.rounds) - 1, self.evaluator.builder.index, self.form)
        number = self._index("arith.subi", last, number)
        values = zip(kept, (*self.carried, *self.products), strict=True)
        return number, [self._read(room, number, value) for room, value in values]

    def _round(
        self, arguments: list[ir.Value], number: ir.Value, reads: list[ir.Value], inside: Inside
    ) -> tuple[ir.Value, ...]:
        """A round that goes back: of the round with that number, with what was kept of it."""
        evaluator, form = self.evaluator, self.form
        gradients, sums = arguments[1 : len(self.places) + 1], arguments[len(self.places) + 1 :]
        states = reads[: len(self.carried)]
        known = {self.counter: self._counted(number), **dict(zip(self.carried, states, strict=True))}
        first = len(operations(evaluator.builder.insertion.block))
        self.writer.copy([*self.before, *self.body], known)
        ends = [known.get(v, v) for v in self.end.operands]
        targets = [*(states[i] for i in self.places), *self.captured]
        losses, _ = write_out(evaluator, [ends[i] for i in self.places], targets, form)
        ops = operations(evaluator.builder.insertion.block)[first:]
        given = list(zip(losses, gradients, strict=True))
        found = inside(ops, given, targets, dict(zip(self.captured, sums, strict=True)))
        for product, read in zip(self.products, reads[len(self.carried) :], strict=True):
            known[product].replace_all_uses_with(read)
        return found

    def _index(self, name: str, one: ir.Value, other: ir.Value) -> ir.Value:
        made: ir.Value = self.evaluator.builder.emit(name, [one, other], [one.type], {}, self.form)
        return made

    def _counted(self, number: ir.Value) -> ir.Value:
        """The loop's counter in a round, by the round's number."""
        builder, kind = self.evaluator.builder, self.counter.type
        if kind != number.type:
            number = builder.emit("arith.index_cast", [number], [kind], {}, self.form)
        for name, other in (("arith.muli", self.rounds.step), ("arith.addi", self.rounds.start)):
            if other != (name == "arith.muli"):
                number = self._index(name, number, builder.constant(other, kind, self.form))
        return number

    def _read(self, room: ir.Value, number: ir.Value, value: ir.Value) -> ir.Value:
        """What a round started from."""
        offsets, sizes = (number, *[0] * len(shape_of(value))), (None, *shape_of(value))
        found = shapes.extract(self.evaluator, room, offsets, sizes, self.form)
        if shapes.is_tensor(value):
            return found
        builder, kind = self.evaluator.builder, room.type.element_type
        found = builder.emit("tensor.extract", [found], [kind], {}, self.form)
        return found if kind == value.type else builder.emit("arith.index_cast", [found], [value.type], {}, self.form)

    def _keep(self, kept: list[ir.Value]) -> None:
        """Have the loop put what goes back needs of each round's start where it is read.  Of a loop within a loop that
        goes back, what nothing needs any more is not computed."""
        used = [i for i, room in enumerate(kept) if any(True for _ in room.uses)]
        if not used:
            return
        evaluator, places = self.evaluator, list(range(len(self.carried)))
        inner = self.loop.parent.operation.name != "func.func"
        if inner:
            read = [i for i, result in enumerate(self.loop.results) if any(True for _ in result.uses)]
            products = [self._saved(i) for i in used if i >= len(self.carried)]
            places = self._wanted(sorted({*read, *(i for i in used if i < len(self.carried))}), products)
        rooms: dict[int, ir.Value] = {}
        where: list[ir.Value] = []

        def begin(carried: Sequence[ir.Value], counter: ir.Value) -> Sequence[ir.Value]:
            where.append(self._place(counter))
            mine = dict(zip(places, carried, strict=False))
            rooms.update(zip(used, carried[len(places) :], strict=True))
            rooms.update((i, self._write(mine[i], rooms[i], where[0])) for i in used if i < len(self.carried))
            return [mine[i] if i in mine else self._nothing(value.type) for i, value in enumerate(self.carried)]

        def go_on(values: Sequence[ir.Value], known: Mapping[ir.Value, ir.Value]) -> Sequence[ir.Value]:
            products = [i for i in used if i >= len(self.carried)]
            for i in products:
                rooms[i], _ = made_in(self.evaluator, known[self._saved(i)], rooms[i], where[0], self.form)
            return [*(values[i] for i in places), *(rooms[i] for i in used)]

        with evaluator.builder.at(ir.InsertionPoint(self.loop)):
            starts = [*(self.starts[i] for i in places), *(self._room(self._saved(i)) for i in used)]
            results = self.writer.again(self.loop, starts, begin, go_on)
        for i, room in zip(used, results[len(places) :], strict=True):
            kept[i].replace_all_uses_with(room)
        if inner:
            _drop_unused(evaluator.states.of(GradientRules), defining_op(results[0]).regions[0].blocks[0])
        found = dict(zip(places, results, strict=False))
        self.writer.put(self.loop, [found.get(i, old) for i, old in enumerate(self.loop.results)])

    def _saved(self, place: int) -> ir.Value:
        """What a room is of: something carried, or a product."""
        return [*self.carried, *self.products][place]

    def _nothing(self, kind: ir.Type) -> ir.Value:
        """A value that no op needs."""
        if isinstance(kind, ir.RankedTensorType):
            return tensors.empty(self.evaluator, tuple(kind.shape), kind.element_type, self.form)
        return self.evaluator.builder.constant(0, kind, self.form)

    def _place(self, counter: ir.Value) -> ir.Value:
        """A round's number by the loop's counter."""
        builder, kind = self.evaluator.builder, self.counter.type
        for name, other in (("arith.subi", self.rounds.start), ("arith.divui", self.rounds.step)):
            if other != (name == "arith.divui"):
                counter = self._index(name, counter, builder.constant(other, kind, self.form))
        if kind == builder.index:
            return counter
        return builder.emit("arith.index_cast", [counter], [builder.index], {}, self.form)  # type: ignore[no-any-return]

    def _write(self, value: ir.Value, room: ir.Value, place: ir.Value) -> ir.Value:
        offsets, sizes = (place, *[0] * len(shape_of(value))), (None, *shape_of(value))
        if not shapes.is_tensor(value):
            kind, number = room.type.element_type, value
            if value.type != kind:
                number = self.evaluator.builder.emit("arith.index_cast", [value], [kind], {}, self.form)
            value = tensors.generic(self.evaluator, (), lambda _: number, self.form)
        return shapes.insert(self.evaluator, value, room, offsets, sizes, self.form)


def _last_sum(product: ir.Value) -> ir.Value:
    """What a product is added to, where nothing else needs it."""
    uses = [use.owner.operation for use in product.uses]
    if len(uses) == 1 and is_sum(uses[0]) and uses[0].block == defining_op(product).block:
        return _last_sum(uses[0].results[0])
    return product


def _held(kind: ir.Type) -> ir.Type:
    """The elements of a tensor of numbers: of an index, i64."""
    return ir.IntegerType.get_signless(64) if isinstance(kind, ir.IndexType) else kind


def _drop_unused(rules: GradientRules, block: ir.Block) -> None:
    """Erase the ops that neither what is yielded nor another op needs."""
    for op in reversed(operations(block)[:-1]):
        if not any(True for result in op.results for _ in result.uses):
            rules.erase(op)
