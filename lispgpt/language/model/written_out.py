"""Branches, and loops of numbers within a tensor, that a gradient goes through: both sides of a choice, and the rounds
one after the other.

    (if c (f x) (g y))                          becomes   (select c (f (select c x 0.0)) (g (select c 0.0 y)))
    (tensor [i n] (over [k 0 3 1] [s s] (f s k)))   becomes   (tensor [i n] (f (f (f s 0) 1) 2))

A loop of an entry's own stays one (loop_gradients.py), which carries tensors of no dimension in place of numbers.  The
side that is not taken computes with zeros, so that what it is worth, which may be no number, is in no gradient.  What a
loop or branch gave stays what it was for forms that are still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    captured_values,
    clone_with,
    constant_number,
    defining_op,
    nested_operations,
    operations,
)
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.forms import arithmetic, shapes, tensors
from lispgpt.language.model.gradient_rules import GradientRules
from lispgpt.language.reader.forms import Form

MOST_ROUNDS = 1024
"""Of a loop that is written out."""


def write_out(
    evaluator: Evaluator, losses: Sequence[ir.Value], wholes: Sequence[ir.Value], form: Form
) -> tuple[list[ir.Value], list[ir.Value]]:
    """Write out what lies between the values to differentiate by and the losses; these and those values as they are
    afterwards."""
    writer = Writer(evaluator, form)
    block = evaluator.builder.insertion.block
    losses, wholes = list(losses), list(wholes)
    rules = evaluator.states.of(GradientRules)
    while (found := next(_between(block, _needed(rules, losses), wholes), None)) is not None:
        replaced = writer.replace(found)
        losses = [replaced.get(value, value) for value in losses]
        wholes = [replaced.get(value, value) for value in wholes]
    return losses, wholes


def sources_of(loss: ir.Value) -> set[ir.Value]:
    """All that a value is computed from, itself included."""
    found, waiting = {loss}, [loss]
    while waiting:
        op = defining_op(waiting.pop())
        fresh = {*op.operands, *captured_values(op)} - found if op is not None else set()
        found |= fresh
        waiting.extend(fresh)
    return found


def _needed(rules: GradientRules, losses: Sequence[ir.Value]) -> set[ir.Value]:
    """The values through whose ops a gradient goes from the losses back: not those that functions with gradients of
    their own gave, nor what these are made of."""
    seen, through, waiting = set(losses), set(), list(losses)
    while waiting:
        value = waiting.pop()
        op = defining_op(value)
        if value in rules.stopped or op is None:
            continue
        if value in rules.calls or value in rules.recomputed:
            arguments = rules.calls[value][2] if value in rules.calls else rules.recomputed[value][1]
            sources = {v for v in arguments if isinstance(v, ir.Value)}
        else:
            through.add(value)
            sources = {*op.operands, *captured_values(op)}
        waiting.extend(sources - seen)
        seen |= sources
    return through


def _between(block: ir.Block, needed: set[ir.Value], wholes: Sequence[ir.Value]) -> Iterator[ir.Operation]:
    """The loops and branches of a block, and the loops in bodies of its ops, that are needed and depend on one of the
    values."""
    ops = operations(block)
    if not any(
        op.name in ("scf.for", "scf.if") for top in ops if len(top.regions) for op in (top, *nested_operations(top))
    ):
        return
    active = set(wholes)
    for op in ops:
        if not any(v in active for v in (*op.operands, *captured_values(op))):
            continue
        active.update(op.results)
        if any(result in needed for result in op.results):
            if op.name == "scf.if" or (op.name == "scf.for" and any(map(_is_real, op.results))):
                yield op
            elif op.name == "linalg.generic":
                yield from (inner for inner in nested_operations(op) if inner.name == "scf.for")


def _is_real(value: ir.Value) -> bool:
    """Whether a value is one float, and no tensor."""
    return isinstance(value.type, ir.FloatType)


class Writer:
    """Writes loops and branches of a block in other words, and keeps what is known of gradients of what is in them."""

    def __init__(self, evaluator: Evaluator, form: Form) -> None:
        self.evaluator, self.form = evaluator, form
        self.rules = evaluator.states.of(GradientRules)

    def replace(self, op: ir.Operation) -> dict[ir.Value, ir.Value]:
        """Write an op out before itself, and have what is there use that; its results as they are then."""
        with self.evaluator.builder.at(ir.InsertionPoint(op)):
            if op.name == "scf.if":
                values = self._both(op)
            else:
                values = self._rounds(op) if op.parent.operation.name == "linalg.generic" else self._with_tensors(op)
        return self.put(op, values)

    def put(self, op: ir.Operation, values: Sequence[ir.Value]) -> dict[ir.Value, ir.Value]:
        """Have what uses an op's results use other values."""
        replaced = {old: new for old, new in zip(op.results, values, strict=True) if old != new}
        for old, new in replaced.items():
            old.replace_all_uses_with(new)
        for known, (rule, given, arguments) in list(self.rules.calls.items()):
            self.rules.calls[known] = rule, _mapped(given, replaced), list(_mapped(tuple(arguments), replaced))
        for known, (function, given, standing) in list(self.rules.recomputed.items()):
            self.rules.recomputed[known] = function, _mapped(given, replaced), standing
        if op.parent.operation.name == "func.func":
            self.rules.rewritten += replaced.items()
        else:
            self.rules.erase(op)
        return replaced

    def rounds_of(self, loop: ir.Operation) -> range:
        """What the counter of a loop is in its rounds; an error where they are counted when it runs."""
        low, high, step = (constant_number(v) for v in list(loop.operands)[:3])
        if low is None or high is None or step is None or step < 1:
            self._fail(loop, "a loop whose rounds are counted when it runs has no gradient")
        return range(low, high, step)

    def again(
        self,
        loop: ir.Operation,
        starts: Sequence[ir.Value],
        arguments: Callable[[Sequence[ir.Value], ir.Value], Sequence[ir.Value]],
        ends: Callable[[Sequence[ir.Value], Mapping[ir.Value, ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """The results of a copy of a loop that starts otherwise.

        arguments: from what the copy carries and its counter, what the body is to take for what it carried.  ends: from
        what the body yields, and what stands for the values of the body, what is carried on.
        """
        builder, types = self.evaluator.builder, [start.type for start in starts]
        made = builder.emit("scf.for", [*list(loop.operands)[:3], *starts], types, {}, self.form, 1)
        place = self.evaluator.site.location(self.form)
        own = [loop.operands[0].type, *types]
        block = ir.Block.create_at_start(made.regions[0], own, [place] * len(own))
        counter, *carried = loop.regions[0].blocks[0].arguments
        *body, end = operations(loop.regions[0].blocks[0])
        with builder.at(block):
            mine = arguments(list(block.arguments)[1:], block.arguments[0])
            known = {counter: block.arguments[0], **dict(zip(carried, mine, strict=True))}
            self.copy(body, known)
            builder.emit("scf.yield", list(ends([known.get(v, v) for v in end.operands], known)), [], {}, self.form)
        return list(made.results)

    def _with_tensors(self, loop: ir.Operation) -> list[ir.Value]:
        """A copy of a loop that carries tensors in place of floats; the floats that it ends with."""
        evaluator, form = self.evaluator, self.form

        def into(values: Sequence[ir.Value], *_: Any) -> list[ir.Value]:
            return [tensors.of_scalar(evaluator, v, form) if _is_real(v) else v for v in values]

        def out_of(values: Sequence[ir.Value], *_: ir.Value) -> list[ir.Value]:
            return [
                evaluator.builder.emit("tensor.extract", [v], [old.type], {}, form) if _is_real(old) else v
                for v, old in zip(values, loop.results, strict=True)
            ]

        return out_of(self.again(loop, into(list(loop.operands)[3:]), out_of, into))

    def _rounds(self, loop: ir.Operation) -> list[ir.Value]:
        rounds = self.rounds_of(loop)
        if len(rounds) > MOST_ROUNDS:
            self._fail(loop, f"a loop of {len(rounds)} rounds in a tensor has no gradient: {MOST_ROUNDS} are the most")
        block = loop.regions[0].blocks[0]
        counter, *carried = block.arguments
        *body, end = operations(block)
        values = list(loop.operands)[3:]
        for number in rounds:
            known = dict(zip(carried, values, strict=True))
            known[counter] = self.evaluator.builder.constant(number, counter.type, self.form)
            self.copy(body, known)
            values = [known.get(v, v) for v in end.operands]
        return values

    def _both(self, choice: ir.Operation) -> list[ir.Value]:
        condition, sides = choice.operands[0], []
        for region, first in zip(choice.regions, (True, False), strict=True):
            *body, end = operations(region.blocks[0])
            inside = {op for top in body for op in (top, *nested_operations(top))}
            outside = dict.fromkeys(v for op in (*body, end) for v in (*op.operands, *captured_values(op)))
            known = {}
            for value in outside:
                if defining_op(value) not in inside and arithmetic.is_float(value.type):
                    known[value] = self._chosen(condition, value, None, first)
            self.copy(body, known)
            sides.append([known.get(v, v) for v in end.operands])
        return [self._chosen(condition, one, other, True) for one, other in zip(*sides, strict=True)]

    def _chosen(self, condition: ir.Value, value: ir.Value, other: ir.Value | None, first: bool) -> ir.Value:
        """value where the condition is as `first` says, else the other value, or zeros where there is none."""
        evaluator, form = self.evaluator, self.form

        def compute(one: ir.Value, two: ir.Value | None = None) -> ir.Value:
            if two is None:
                two = evaluator.builder.constant(0.0, one.type, form)
            pair = [one, two] if first else [two, one]
            return evaluator.builder.emit("arith.select", [condition, *pair], [one.type], {}, form)

        both = (value,) if other is None else (value, other)
        return (
            tensors.elementwise(evaluator, compute, both, form, widen=False)
            if shapes.is_tensor(value)
            else compute(*both)
        )

    def copy(self, body: Sequence[ir.Operation], known: dict[ir.Value, ir.Value]) -> None:
        """Copy ops, and what is known of gradients of what they make."""
        inner: dict[ir.Value, ir.Value] = {}
        for op in body:
            with self.evaluator.builder.insertion, op.location:
                made = clone_with(op, known)
            pairs = zip((op, *nested_operations(op)), (made, *nested_operations(made)), strict=True)
            inner.update(pair for old, new in pairs for pair in _made_by(old, new))
        every = known | inner
        for old, new in inner.items():
            if old in self.rules.calls:
                rule, given, arguments = self.rules.calls[old]
                self.rules.calls[new] = rule, _mapped(given, every), list(_mapped(tuple(arguments), every))
            if old in self.rules.recomputed:
                function, given, standing = self.rules.recomputed[old]
                self.rules.recomputed[new] = function, _mapped(given, every), standing
            if old in self.rules.stopped:
                self.rules.stopped.add(new)

    def _fail(self, op: ir.Operation, message: str) -> NoReturn:
        spans = self.evaluator.site.spans_of(op.location)
        raise self.evaluator.site.error(message, spans[-1] if spans else self.form)


def _made_by(op: ir.Operation, copy: ir.Operation) -> Iterator[tuple[ir.Value, ir.Value]]:
    """The results of an op and the arguments of its blocks, each with that of its copy."""
    yield from zip(op.results, copy.results, strict=True)
    for region, other in zip(op.regions, copy.regions, strict=True):
        for block, twin in zip(region.blocks, other.blocks, strict=True):
            yield from zip(block.arguments, twin.arguments, strict=True)


def _mapped(value: Any, known: dict[ir.Value, ir.Value]) -> Any:
    """Values replaced, in lists too."""
    if isinstance(value, tuple):
        return tuple(_mapped(item, known) for item in value)
    return known.get(value, value) if isinstance(value, ir.Value) else value
