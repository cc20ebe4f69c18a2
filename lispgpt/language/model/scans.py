"""`scan`: a recurrence as one loop of the entry, whose body is there once, however many its steps are.

(scan (fn [h x] (let [h (tanh (+ (linear h w) x))] [h h])) start xs)
becomes   %h, %ys = scf.for %i iter_args(%h = %start, %ys = empty) { … slice of xs at %i … insert into %ys at %i … }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import operations, shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin
from lispgpt.language.core.values import Record, State, describe, items_of
from lispgpt.language.forms import shapes, tensors
from lispgpt.language.model.memory import ChangedInLoop, may_change
from lispgpt.language.model.reports import Reports
from lispgpt.language.model.table import Building, Model
from lispgpt.language.reader.forms import Form

OPTIONS = ("reverse", "while", "chunk")


@builtin("scan", 3, 4)
def _scan(evaluator: Evaluator, form: Form, step: Any, start: Any, xs: Any, options: Any = None) -> Any:
    """`(scan step start xs {:reverse true :while going :chunk 32})`: the steps of a recurrence, one after the other.

    `(step state x)` gives `[state y]`: the state after a step, and what is to be kept of it, or nil.  State, x and y
    are each a tensor or a list of tensors; a state may be a number, too.  xs has them for all steps along its first
    dimension; a whole number in its place says how many steps there are, and x is then the step's number.  The value is
    [state ys]: the last state, and all that was kept, along a new first dimension.

    `:reverse` goes from the last of xs to the first.  `:while` is a function of the state: the first step before which
    it is false, and all later ones, leave the state as it is and keep zeros, and the value is [state ys steps], with
    the number of steps that were made, of i32.  For gradients each step's state and its products are kept; with
    `:chunk` the state of every so-manyth step, from which those between are computed again: it divides the number of
    steps.  Of the model's states that a step writes, each step reads what the one before it wrote.
    """
    given = options.values if isinstance(options, Record) else {}
    if (options is not None and not isinstance(options, Record)) or (unknown := [k for k in given if k not in OPTIONS]):
        what = f":{unknown[0]}" if isinstance(options, Record) else describe(options)
        evaluator.site.fail(f"the options of `scan` are a map of :reverse, :while and :chunk, and not {what}", form)
    return _Scan(evaluator, form, step, start, xs, given).run()


@contextmanager
def _inside(
    evaluator: Evaluator, block: ir.Block, carried: Sequence[State], values: Sequence[ir.Value]
) -> Iterator[None]:
    """In the body of a loop, where the states that it carries hold these values."""
    now = evaluator.states.of(Model).building
    if now is None:
        yield
        return
    now.loops.append((block, tuple(carried)))
    for state, value in zip(carried, values, strict=True):
        state.value = value
    yield
    now.loops.pop()


@dataclass
class _Shape:
    """How a list of values was given: alone, or in a list."""

    alone: bool

    def of(self, values: Sequence[Any]) -> Any:
        return values[0] if self.alone else tuple(values)


class _Scan:
    """One scan in the making.  starts: what the states begin with; read: the tensors that have an x for each step."""

    def __init__(
        self, evaluator: Evaluator, form: Form, step: Any, start: Any, xs: Any, options: dict[str, Any]
    ) -> None:
        self.evaluator, self.form, self.step = evaluator, form, step
        listed = items_of(start)
        self.state = _Shape(listed is None)
        self.starts = [self._started(value) for value in ((start,) if listed is None else listed)]
        self.reverse, self.going = bool(options.get("reverse")), options.get("while")
        listed = items_of(xs)
        self.x = _Shape(listed is None)
        self.read: list[ir.Value] = []
        if isinstance(xs, int) and not isinstance(xs, bool):
            self.steps = xs
        else:
            given = (xs,) if listed is None else listed
            self.read = [shapes.tensor_of(evaluator, evaluator.value_of(x, form), form, "scan") for x in given]
            counts = {(*shape_of(x), 0)[0] for x in self.read}
            if len(counts) != 1 or 0 in map(len, map(shape_of, self.read)):
                kinds = ", ".join(str(x.type) for x in self.read)
                evaluator.site.fail(f"`scan` wants tensors with as many rows, and got {kinds or 'none'}", form)
            self.steps = counts.pop()
        self.chunk = options.get("chunk")
        if self.steps < 0 or (self.chunk is not None and not self._divides(self.chunk)):
            wrong = f"{self.steps} steps" if self.steps < 0 else f"chunks of {describe(self.chunk)}"
            evaluator.site.fail(f"`scan` of {self.steps} steps cannot have {wrong}", form)

    def _divides(self, chunk: Any) -> bool:
        return isinstance(chunk, int) and chunk > 0 and self.steps % chunk == 0

    def _started(self, value: Any) -> ir.Value:
        value = self.evaluator.ssa(self.evaluator.value_of(value, self.form), self.form)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            builder = self.evaluator.builder
            return builder.constant(value, builder.f32 if isinstance(value, float) else builder.i32, self.form)
        if not isinstance(value, ir.Value):
            self.evaluator.site.fail(
                f"a state of `scan` is a tensor or a number, and this is {describe(value)}", self.form
            )
        return value

    def run(self) -> Any:
        """Build the loop, again for each of the model's states that a step turns out to change: it is carried, too."""
        now = self.evaluator.states.of(Model).building
        carried: list[State] = []
        while True:
            undo = None if now is None else self._remembered(now)
            try:
                found, changed = self._built(carried)
            except ChangedInLoop as error:
                if error.block != self.block or undo is None:
                    raise
                undo()
                carried.append(error.state)
                continue
            for state, value in zip(carried, changed, strict=True):
                may_change(self.evaluator, state, self.form)
                state.value = value
            return found

    def _remembered(self, now: Building) -> Callable[[], None]:
        """What takes back all that building the loop has done."""
        model = self.evaluator.states.of(Model)
        bring_back = self.evaluator.states.keep()
        values = [(state, state.value) for state in model.states.values()]
        multiplied, loops = now.multiplied, list(now.loops)

        def undo() -> None:
            bring_back()
            now.multiplied, now.loops[:] = multiplied, loops
            for state, value in values:
                state.value = value
            self.holder.erase()

        return undo

    def _built(self, carried: Sequence[State]) -> tuple[Any, list[ir.Value]]:
        """The scan's value, and what the states that are carried hold behind it."""
        evaluator, form, builder = self.evaluator, self.form, self.evaluator.builder
        starts = list(self.starts)
        if self.going is not None:
            starts.append(builder.constant(0, builder.i32, form))
        first = len(starts)
        before = [state.value for state in carried]
        starts += [value for value in before if value is not None]
        self.holder = holder = builder.emit("scf.execute_region", [], [], {}, form, 1)
        place = evaluator.site.location(form)
        types = [builder.index, *(start.type for start in starts)]
        self.block = block = ir.Block.create_at_start(holder.regions[0], types, [place] * len(types))
        reports = evaluator.states.of(Reports)
        seen = reports.enter(block)
        with builder.at(block), _inside(evaluator, block, carried, list(block.arguments)[first + 1 :]):
            new, kept = self._step(block, carried)
            own = len(kept)
            kept += [value for report in seen for value in report.values]
            rooms = [block.add_argument(self._room(y), place) for y in kept]
            filled = [self._put(y, room, block.arguments[0]) for y, room in zip(kept, rooms, strict=True)]
            builder.emit("scf.yield", [*new, *filled], [], {}, form)
        starts += [tensors.empty(evaluator, shape_of(room), room.type.element_type, form) for room in rooms]
        results = self._loop(block, starts)
        holder.erase()
        count = len(self.starts)
        ys = results[len(starts) - len(kept) :]
        reports.leave(evaluator, seen, ys[own:], form)
        found = [self.state.of(results[:count]), self.y.of(ys[:own]) if own else None]
        if self.going is not None:
            found.append(tensors.of_scalar(evaluator, results[count], form))
        for state, value in zip(carried, before, strict=True):
            state.value = value
        return tuple(found), results[first : first + len(carried)]

    def _step(self, block: ir.Block, carried: Sequence[State]) -> tuple[list[ir.Value], list[ir.Value]]:
        """The states after a step, and those of the model that are carried, and what is kept of it."""
        evaluator, form = self.evaluator, self.form
        number, *states = block.arguments
        held = states[len(states) - len(carried) :]
        states, made = states[: len(self.starts)], states[len(self.starts) : len(states) - len(carried)]
        place = self._place(number)
        rows = [self._row(x, place) for x in self.read]
        state = self.state.of(states)
        goes = self._goes(number, made[0], state) if made else None
        result = items_of(
            evaluator.value_of(evaluator.call(self.step, [state, self.x.of(rows) if rows else place], form), form)
        )
        if result is None or len(result) != 2:
            got = "something else" if result is None else f"{len(result)} values"
            evaluator.site.fail(f"a step of `scan` gives [state y], and this gives {got}", form)
        new = self._states(result[0], states)
        kept = [] if result[1] is None else self._kept(result[1])
        lasting = [state.value for state in carried if state.value is not None]
        if goes is None:
            return [*new, *lasting], kept
        i32 = evaluator.builder.i32
        more = evaluator.builder.emit(
            "arith.addi", [made[0], evaluator.builder.constant(1, i32, form)], [i32], {}, form
        )
        pairs = [*zip(new, states, strict=True), (more, made[0]), *zip(lasting, held, strict=True)]
        new = [self._chosen(goes, *pair) for pair in pairs]
        zeros = [tensors.filled(evaluator, shape_of(y), 0, y.type.element_type, form) for y in kept]
        return new, [self._chosen(goes, y, zero) for y, zero in zip(kept, zeros, strict=True)]

    def _row(self, x: ir.Value, place: ir.Value) -> ir.Value:
        """What a step reads of a tensor."""
        rest = shape_of(x)[1:]
        if not self.steps:
            return tensors.empty(self.evaluator, rest, x.type.element_type, self.form)
        return shapes.extract(self.evaluator, x, (place, *[0] * len(rest)), (None, *rest), self.form)

    def _place(self, number: ir.Value) -> ir.Value:
        """Which of the rows of xs a step reads."""
        builder = self.evaluator.builder
        if not self.reverse:
            return number
        last = builder.constant(self.steps - 1, builder.index, self.form)
        return builder.emit("arith.subi", [last, number], [builder.index], {}, self.form)  # type: ignore[no-any-return]

    def _goes(self, number: ir.Value, made: ir.Value, state: Any) -> ir.Value:
        """Whether all steps before this one were made, and this one is to be."""
        evaluator, builder, form = self.evaluator, self.evaluator.builder, self.form
        found = evaluator.ssa(evaluator.call(self.going, [state], form), form)
        if not isinstance(found, ir.Value) or found.type != builder.i1:
            evaluator.site.fail(f"`:while` of `scan` gives an i1, and this gives {describe(found)}", form)
        count = builder.emit("arith.index_cast", [number], [builder.i32], {}, form)
        equal = {"predicate": ir.IntegerAttr.get(builder.i64, 0)}
        before = builder.emit("arith.cmpi", [made, count], [builder.i1], equal, form)
        return builder.emit("arith.andi", [before, found], [builder.i1], {}, form)  # type: ignore[no-any-return]

    def _chosen(self, condition: ir.Value, one: ir.Value, other: ir.Value) -> ir.Value:
        def compute(a: ir.Value, b: ir.Value) -> ir.Value:
            made: ir.Value = self.evaluator.builder.emit("arith.select", [condition, a, b], [a.type], {}, self.form)
            return made

        if shapes.is_tensor(one):
            return tensors.elementwise(self.evaluator, compute, (one, other), self.form, widen=False)
        return compute(one, other)

    def _states(self, value: Any, states: Sequence[ir.Value]) -> list[ir.Value]:
        evaluator, form = self.evaluator, self.form
        listed = (value,) if self.state.alone else items_of(value)
        if listed is None or len(listed) != len(states):
            evaluator.site.fail(
                f"a step of `scan` gives {len(states)} states, as it starts with: {describe(value)}", form
            )
        found = [evaluator.ssa(evaluator.value_of(v, form), form) for v in listed]
        for i, (new, state) in enumerate(zip(found, states, strict=True)):
            if isinstance(new, (int, float)):
                found[i] = new = evaluator.builder.constant(new, state.type, form)
            if isinstance(new, ir.Value) and shapes.is_tensor(state) != shapes.is_tensor(new):
                found[i] = new = self._as_given(new, state)
            if not isinstance(new, ir.Value) or new.type != state.type:
                got = new.type if isinstance(new, ir.Value) else describe(new)
                evaluator.site.fail(
                    f"a state of `scan` stays of the type it starts with, {state.type}; a step gives {got}", form
                )
        return found

    def _as_given(self, new: ir.Value, state: ir.Value) -> ir.Value:
        """A number of a tensor without dimensions, or such a tensor of a number, where the state is that."""
        if not shapes.is_tensor(new):
            return tensors.of_scalar(self.evaluator, new, self.form)  # type: ignore[no-any-return]
        if shape_of(new):
            return new
        return self.evaluator.builder.emit("tensor.extract", [new], [new.type.element_type], {}, self.form)  # type: ignore[no-any-return]

    def _kept(self, value: Any) -> list[ir.Value]:
        evaluator, form = self.evaluator, self.form
        listed = items_of(value)
        self.y = _Shape(listed is None)
        found = []
        for y in (value,) if listed is None else listed:
            y = tensors.of_scalar(evaluator, evaluator.ssa(evaluator.value_of(y, form), form), form)
            found.append(shapes.tensor_of(evaluator, y, form, "scan"))
        return found

    def _room(self, y: ir.Value) -> ir.Type:
        return shapes.tensor_type(self.evaluator, (self.steps, *shape_of(y)), y.type.element_type, self.form)

    def _put(self, y: ir.Value, room: ir.Value, number: ir.Value) -> ir.Value:
        if not self.steps:
            return room
        offsets, sizes = (self._place(number), *[0] * len(shape_of(y))), (None, *shape_of(y))
        return shapes.insert(self.evaluator, y, room, offsets, sizes, self.form)

    def _loop(self, block: ir.Block, starts: list[ir.Value]) -> list[ir.Value]:
        """A loop with this body; of chunks, a loop over loops; of no steps, what it would start from."""
        if not self.steps:
            return starts
        if self.chunk is None or self.chunk == self.steps:
            return list(self._for(self.steps, starts, block).results)
        builder, form, place = self.evaluator.builder, self.form, self.evaluator.site.location(self.form)
        loop = self._for(self.steps // self.chunk, starts)
        types = [builder.index, *(start.type for start in starts)]
        outer = ir.Block.create_at_start(loop.regions[0], types, [place] * len(types))
        with builder.at(outer):
            results = self._for(self.chunk, list(outer.arguments)[1:], block).results
            builder.emit("scf.yield", list(results), [], {}, form)
        inner = block.arguments[0]
        with builder.at(ir.InsertionPoint(operations(block)[0])):
            chunk = builder.constant(self.chunk, builder.index, form)
            first = builder.emit("arith.muli", [outer.arguments[0], chunk], [builder.index], {}, form)
            number = builder.emit("arith.addi", [first, first], [builder.index], {}, form)
        inner.replace_all_uses_with(number)
        number.owner.operands[1] = inner
        return list(loop.results)

    def _for(self, count: int, starts: list[ir.Value], block: ir.Block | None = None) -> ir.Operation:
        builder = self.evaluator.builder
        bounds = [builder.constant(n, builder.index, self.form) for n in (0, count, 1)]
        types = [start.type for start in starts]
        loop: ir.Operation = builder.emit("scf.for", [*bounds, *starts], types, {}, self.form, 1)
        if block is not None:
            block.append_to(loop.regions[0])
        return loop
