"""Gradients of a `tensor` comprehension (linalg.generic): its body's scalar ops, differentiated by the rules in Lisp.

For y[i…] = f(a[…], …) and an operand a, one new comprehension computes g[i…] * df/da over the loops, which is then
summed over the loops that a does not have.  What the body gathers at one computed index is added row by row (see
scattering); at several of them, it is summed by a product with a one-hot matrix of the indices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, dim_positions, indexing_maps, is_elementwise, operations, shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.forms import arithmetic, tensors
from lispgpt.language.forms.tensors import Comprehension
from lispgpt.language.model import index_algebra
from lispgpt.language.model.body_clones import Clone, ends, scalars_before, with_branches, within
from lispgpt.language.model.gradient_rules import GradientRules, without_rule
from lispgpt.language.model.scattering import Scatter
from lispgpt.language.reader.forms import Form

Mask = Callable[[ir.Value], ir.Value]
PASSING = ("arith.addf", "arith.subf", "arith.extf", "arith.truncf")


def of(
    evaluator: Evaluator, op: ir.Operation, gradient: ir.Value, active: set[ir.Value], form: Form
) -> list[tuple[ir.Value, ir.Value | Scatter]] | None:
    """What a linalg.generic adds to the gradients of the tensors that it reads; None where it is no comprehension."""
    if not is_elementwise(op):
        return None
    body = _Body(evaluator, op, gradient, active, form)
    found: list[tuple[ir.Value, ir.Value | Scatter]] = []
    arguments = list(op.regions[0].blocks[0].arguments)
    for operand, map_, argument in zip(list(op.operands)[:-1], indexing_maps(op), arguments, strict=False):
        if operand in active and any(True for _ in argument.uses):
            dims = dim_positions(map_)
            part = index_algebra.summed_to(evaluator, body.share(argument), tuple(dims), form)
            found.append((operand, index_algebra.padded(evaluator, part, shape_of(operand), form)))
    for inner in body.scalars():
        if inner.name == "tensor.extract" and inner.operands[0] in active:
            found.append((inner.operands[0], body.scattered(inner)))
    return found


class _Body:
    """The body of one comprehension, y = f(…), and the gradient of y."""

    def __init__(
        self, evaluator: Evaluator, op: ir.Operation, gradient: ir.Value, active: set[ir.Value], form: Form
    ) -> None:
        self.evaluator, self.op, self.gradient, self.form, self.active = evaluator, op, gradient, form, active
        self.block = op.regions[0].blocks[0]
        self.before = scalars_before(op, active)
        self.made = [*self.before, *operations(self.block)[:-1]]
        self.shape = shape_of(op.results[0])
        self.maps = [dim_positions(m) for m in indexing_maps(op)]

    def scalars(self) -> list[ir.Operation]:
        """The ops that make scalars: those before the body that it needs, and its own with those of its branches."""
        return list(with_branches([*self.before, *operations(self.block)]))

    def clone(self, made: Comprehension, loops: dict[int, int]) -> Clone:
        """The body's scalars in another comprehension."""
        return Clone(self.evaluator, self.op, made, loops, self.form, self.before)

    def share(self, wanted: ir.Value) -> ir.Value:
        """g[i…] * df/d(wanted) at every point of the loops."""
        if self._passes(wanted):
            return self.gradient
        everywhere = tuple(range(len(self.shape)))

        def compute(made: Comprehension) -> ir.Value:
            clone = self.clone(made, {d: d for d in everywhere})
            depends = self._dependents(wanted)
            result = operations(self.block)[-1].operands[0]
            whole = made.read(self.evaluator, self.gradient, everywhere, self.form)
            shares = {result: tensors.widened(self.evaluator, whole, self.form)}
            self._back(self.made, wanted, shares, depends, clone, lambda part: part)
            value = shares.get(wanted)
            zero = self.evaluator.builder.constant(0.0, tensors.summed_in(self.evaluator, wanted), self.form)
            return self._only(made, zero if value is None else value)

        return tensors.generic(self.evaluator, self.shape, compute, self.form)

    def _passes(self, wanted: ir.Value) -> bool:
        """Whether y is the wanted value and what does not depend on it, added and rounded: its gradient is g."""
        value, depends = operations(self.block)[-1].operands[0], self._dependents(wanted)
        while value != wanted:
            op = defining_op(value)
            if op is None or op.name not in PASSING or op.results[0] in self.evaluator.states.of(GradientRules).calls:
                return False
            sources = [v for v in op.operands if v in depends]
            if len(sources) != 1 or (op.name == "arith.subf" and sources[0] != op.operands[0]):
                return False
            value = sources[0]
        return True

    def _dependents(self, wanted: ir.Value) -> set[ir.Value]:
        found = {wanted}
        for inner in self.scalars():
            if any(v in found for v in (*inner.operands, *(v for end in ends(inner) for v in end.operands))):
                found.update(inner.results)
        return found

    def _back(
        self, made: list[ir.Operation], wanted: ir.Value, shares: dict[ir.Value, ir.Value], depends: set[ir.Value],
        clone: Clone, masked: Mask,
    ) -> None:  # fmt: skip
        """Go through ops from the last to the first.  masked: makes 0 of a share where the ops are of a branch that is
        not taken: what they are worth there may be no number."""
        for inner in reversed(made):
            results = [r for r in inner.results if r != wanted and r in shares and r in depends]
            if results and inner.name == "scf.if":
                self._branches(inner, wanted, shares, depends, clone, masked)
            elif results:
                self._through(inner, shares, depends, clone, masked)

    def _branches(
        self, choice: ir.Operation, wanted: ir.Value, shares: dict[ir.Value, ir.Value], depends: set[ir.Value],
        clone: Clone, masked: Mask,
    ) -> None:  # fmt: skip
        builder, condition = self.evaluator.builder, clone.value(choice.operands[0])

        def taken(part: ir.Value, first: bool) -> ir.Value:
            zero = builder.constant(0.0, part.type, self.form)
            both = [part, zero] if first else [zero, part]
            return builder.emit("arith.select", [condition, *both], [part.type], {}, self.form)

        for end, first in zip(ends(choice), (True, False), strict=True):
            here = partial(taken, first=first)
            for result, value in zip(choice.results, end.operands, strict=True):
                if result in shares and value in depends:
                    self._add(shares, value, here(shares[result]))
            self._back(operations(end.block)[:-1], wanted, shares, depends, clone, lambda p, h=here: masked(h(p)))  # type: ignore[misc]

    def _add(self, shares: dict[ir.Value, ir.Value], value: ir.Value, part: ir.Value) -> None:
        if value in shares:
            part = self.evaluator.builder.emit("arith.addf", [shares[value], part], [part.type], {}, self.form)
        shares[value] = part

    def _through(
        self, inner: ir.Operation, shares: dict[ir.Value, ir.Value], depends: set[ir.Value], clone: Clone, masked: Mask
    ) -> None:
        evaluator, result = self.evaluator, inner.results[0]
        rules = evaluator.states.of(GradientRules)
        operands = list(inner.operands)
        if result in rules.calls:
            rule, _, arguments = rules.calls[result]
            operands = [a for a in arguments if isinstance(a, ir.Value)]
        elif inner.name in rules.of_ops:
            rule = rules.of_ops[inner.name]
        else:
            evaluator.site.fail(without_rule(evaluator, f"`{inner.name}`"), self.form)
        values = [clone.value(v) for v in (result, *operands)]
        parts = evaluator.call(rule, [shares[result], *values], self.form)
        for operand, part in zip(operands, parts, strict=False):
            if part is None or operand not in depends:
                continue
            if isinstance(part, (int, float)):
                part = evaluator.builder.constant(float(part), tensors.summed_in(evaluator, operand), self.form)
            self._add(shares, operand, masked(part))

    def _only(self, made: Comprehension, value: ir.Value) -> ir.Value:
        """Drop the ops and inputs of a body that its value does not need."""
        rules = self.evaluator.states.of(GradientRules)
        for op in reversed(operations(made.block)):
            if all(not any(True for _ in r.uses) and r != value for r in op.results):
                rules.erase(op)
        for number in reversed(range(len(made.inputs))):
            argument = made.inputs[number][2]
            if argument != value and not any(True for _ in argument.uses):
                made.block.erase_argument(number)
                del made.inputs[number]
        return value

    def scattered(self, extract: ir.Operation) -> ir.Value | Scatter:
        """The gradient of a tensor that the body gathers from: every share, added where it was read."""
        evaluator, form = self.evaluator, self.form
        source, *places = list(extract.operands)
        total = self.share(extract.results[0])
        loops = [_loop_of(place) for place in places]
        if any(d is not None and self.shape[d] > n for d, n in zip(loops, shape_of(source), strict=True)):
            evaluator.site.fail("there is no gradient of an `at` that only a branch keeps within its tensor", form)
        computed = [position for position, loop in enumerate(loops) if loop is None]
        if len(computed) == 1 and len(set(loops)) == len(loops):
            position = computed[0]
            along, plain = self._loops_of(places[position]), [loop for loop in loops if loop is not None]
            if along and not set(along) & set(plain):
                shares = index_algebra.summed_to(evaluator, total, (*along, *plain), form)
                limit = shape_of(source)[position] if extract.block not in (self.block, self.op.block) else None
                where = self._numbers(places[position], along, limit)
                return Scatter(evaluator, shares, where, position, shape_of(source), form)
        names: list[Any] = list(range(len(self.shape)))
        kept: list[Any] = []
        gathered = []
        for position, place in enumerate(places):
            loop = _loop_of(place)
            if loop is not None and loop not in kept:
                kept.append(loop)
            else:
                kept.append(f"at {position}")
                gathered.append((position, place))
        needed = {position: self._loops_of(place) for position, place in gathered}
        for number, (position, place) in enumerate(gathered):
            later = {d for p, _ in gathered[number + 1 :] for d in needed[p]} | set(kept)
            hot = self._one_hot(place, needed[position], shape_of(source)[position])
            left = [n for n in names if n in later] + [f"at {position}"]
            total = index_algebra.contraction(
                evaluator, None, left, (total, names), (hot, [*needed[position], f"at {position}"]), form
            )
            names = left
        order = tuple(names.index(n) for n in kept)
        ordered = index_algebra.permuted if gathered else index_algebra.summed_to
        return index_algebra.padded(evaluator, ordered(evaluator, total, order, form), shape_of(source), form)

    def _loops_of(self, value: ir.Value) -> list[int]:
        """The loops that a scalar of the body depends on."""
        found: set[int] = set()
        inside = set(self.scalars())

        def look(value: ir.Value) -> None:
            op = defining_op(value)
            if op is None:
                if isinstance(value.owner, ir.Block) and value.owner == self.block:
                    found.update(self.maps[ir.BlockArgument(value).arg_number])
            elif op in inside:
                for operand in (v for end in ends(op) for v in end.operands):
                    look(operand)
                if op.name == "linalg.index":
                    found.add(ir.IntegerAttr(op.attributes["dim"]).value)
                for operand in op.operands:
                    look(operand)

        look(value)
        return sorted(found)

    def _numbers(self, place: ir.Value, loops: list[int], limit: int | None) -> ir.Value:
        """[…loops]: the values of an index of the body, as i32.  limit: of a branch's index, the tensor's extent."""
        evaluator, form = self.evaluator, self.form

        def compute(made: Comprehension) -> ir.Value:
            value = self.clone(made, {d: i for i, d in enumerate(loops)}).value(place)
            value = value if limit is None else within(evaluator, value, limit, form)
            return arithmetic.cast(evaluator, value, ir.IntegerType.get_signless(32), form)

        return tensors.generic(evaluator, tuple(self.shape[d] for d in loops), compute, form)

    def _one_hot(self, place: ir.Value, loops: list[int], extent: int) -> ir.Value:
        """[…loops extent]: 1.0 where the index is that of the last dimension, else 0.0."""
        evaluator, form = self.evaluator, self.form
        shape = (*(self.shape[d] for d in loops), extent)

        def compute(made: Comprehension) -> ir.Value:
            clone = self.clone(made, {d: i for i, d in enumerate(loops)})
            emit = evaluator.builder.emit
            number = {"dim": ir.IntegerAttr.get(evaluator.builder.i64, len(loops))}
            here = emit("linalg.index", [], [evaluator.builder.index], number, form)
            predicate = {"predicate": ir.IntegerAttr.get(evaluator.builder.i64, 0)}
            same = emit("arith.cmpi", [clone.value(place), here], [evaluator.builder.i1], predicate, form)
            one, zero = (evaluator.builder.constant(n, evaluator.builder.f32, form) for n in (1.0, 0.0))
            return emit("arith.select", [same, one, zero], [evaluator.builder.f32], {}, form)

        return tensors.generic(evaluator, shape, compute, form)


def _loop_of(place: ir.Value) -> int | None:
    """The loop that an index of the body is, unchanged."""
    op = defining_op(place)
    return ir.IntegerAttr(op.attributes["dim"]).value if op is not None and op.name == "linalg.index" else None
