"""`(gradients loss [w …])`: reverse-mode gradients of a scalar, as ordinary ops behind those that made it.

The ops of the entry are walked backwards once.  What each makes of the gradient of its result is said in Lisp, by
`defgradient` (lib/gradients.lisp has the language's own rules); `elementwise_gradients` applies the scalar rules inside
the body of a `tensor`.  A gradient that is asked for is f32; on the way to it, that of a bf16 value is rounded to bf16,
so that products of bf16 have gradients that are such products.
"""

from __future__ import annotations

from contextlib import nullcontext
from math import prod
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import VIEWS, captured_values, defining_op, operations, shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin
from lispgpt.language.core.values import Closure, describe
from lispgpt.language.forms import arithmetic, shapes, tensors
from lispgpt.language.model import body_clones, elementwise_gradients
from lispgpt.language.model.gradient_checks import GradientChecks
from lispgpt.language.model.gradient_rules import GradientRules, same_value, without_rule
from lispgpt.language.model.gradient_sums import Sum, as_type
from lispgpt.language.model.gradient_targets import targets_of
from lispgpt.language.model.loop_gradients import LoopGradients
from lispgpt.language.model.named_ops import is_contraction, made_generic
from lispgpt.language.model.scattering import Scatter
from lispgpt.language.model.table import Model
from lispgpt.language.model.written_out import write_out
from lispgpt.language.reader.forms import Form

SUMS = ("linalg.contract", "linalg.reduce arith.addf")
"""Ops that add what they compute to what their result begins with."""


@builtin("gradients", 2, 2)
def _gradients(evaluator: Evaluator, form: Form, loss: Any, targets: Any) -> Any:
    """`(gradients loss [w …])`: for each of the values its gradient, in f32, of f64 in f64, and of the value's shape.

    A slice, a reshape or a layer `(w l)` is a window of what it is taken from: its gradient is that window of the
    whole's gradient, however often it is spelled.  A value that the loss is not computed from is an error, but for a
    weight that `(all-weights)` lists: it has zeros, as what `stop-gradient` cuts off has.  Of a loop of a known number
    of rounds on the way, what each round starts from is kept, and a loop goes back; of a choice both sides are
    computed.
    """
    loss = tensors.of_scalar(evaluator, loss, form)
    if not shapes.is_tensor(loss) or prod(shape_of(loss)) != 1 or not arithmetic.is_float(loss.type):
        evaluator.site.fail(f"`gradients` wants a tensor of one float to differentiate, and got {describe(loss)}", form)
    listed = shapes.items_of(targets) or ()
    targets = targets_of(evaluator, targets, loss, form)
    checks, names = evaluator.states.of(GradientChecks), []
    checked = checks.on and evaluator.builder.insertion.block.owner.operation.name == "func.func"
    if checked:
        names = [checks.move(evaluator, target.whole, form) for target in targets]
    (loss,), wholes = write_out(evaluator, [loss], [target.whole for target in targets], form)
    found = _Backward(evaluator, form, wholes).run(loss)
    if checked:
        checks.say(evaluator, names, listed, loss, found, form)
    return tuple(target.window_of(evaluator, part, form) for target, part in zip(targets, found, strict=True))


def _ops_so_far(block: ir.Block) -> list[ir.Operation]:
    """The ops of a block, behind those ahead of the loops and branches that it is in."""
    ops = operations(block)
    holder = block.owner.operation
    while holder.name not in ("func.func", "builtin.module"):
        around = operations(holder.block)
        ops = around[: around.index(holder)] + ops
        holder = holder.block.owner.operation
    return ops


class _Backward:
    """One backward walk."""

    def __init__(self, evaluator: Evaluator, form: Form, targets: list[ir.Value]) -> None:
        self.evaluator, self.form, self.targets = evaluator, form, targets
        self.rules = evaluator.states.of(GradientRules)
        self.block = evaluator.builder.insertion.block
        self.sums: dict[ir.Value, Sum] = {}
        self.active: set[ir.Value] = set(targets)

    def run(self, loss: ir.Value) -> tuple[ir.Value, ...]:
        one = tensors.filled(self.evaluator, shape_of(loss), 1.0, tensors.summed_in(self.evaluator, loss), self.form)
        return self._from(_ops_so_far(self.block), [(loss, one)])

    def _from(self, ops: list[ir.Operation], given: list[tuple[ir.Value, ir.Value]]) -> tuple[ir.Value, ...]:
        """The targets' gradients in f32, of f64 in f64, of these ops and of gradients that what they make is given."""
        self._spread_activity(ops)
        for value, gradient in given:
            self.add(value, gradient)
        self._walk(ops)
        return tuple(self._wide(target, self.gradient_of(target)) for target in self.targets)

    def _wide(self, value: ir.Value, gradient: ir.Value) -> ir.Value:
        """A value's gradient in the type that it is summed in."""
        return as_type(self.evaluator, gradient, tensors.summed_in(self.evaluator, value), self.form)

    def _spread_activity(self, ops: list[ir.Operation]) -> None:
        """Mark the values that depend on a target."""
        for op in ops:
            if any(v in self.active for v in [*op.operands, *captured_values(op)]):
                self.active.update(r for r in op.results if arithmetic.is_float(r.type) and r not in self.rules.stopped)

    def _walk(self, ops: list[ir.Operation]) -> None:
        for op in reversed(ops):
            if op.name == "scf.for" and not any(
                r in self.rules.calls or r in self.rules.recomputed for r in op.results
            ):
                self._through_loop(op)
                continue
            for result in op.results:
                if result in self.sums and result in self.active and self._goes_on(op, result):
                    self._through(op, result)

    def _goes_on(self, op: ir.Operation, result: ir.Value) -> bool:
        """Whether a gradient of elements goes on to others: one of none does not, and neither does one to none."""
        sources = [v for v in (*op.operands, *captured_values(op)) if v in self.active]
        return prod(shape_of(result)) > 0 and any(prod(shape_of(source)) for source in sources)

    def _through_loop(self, loop: ir.Operation) -> None:
        """Add to the gradients of what a loop started from and what its body takes from outside."""
        there = (r in self.sums and r in self.active and prod(shape_of(r)) for r in loop.results)
        given = [r if is_there else None for r, is_there in zip(loop.results, there, strict=True)]
        if any(result is not None for result in given):
            gradients = [None if r is None else self.gradient_of(r) for r in given]
            made = LoopGradients(self.evaluator, loop, gradients, self.active, self.form)
            captured, sums = made.captured, [self.gradient_of(v) for v in made.captured]
            starts = made.go_back(sums, self._inside)
            self.sums |= {value: Sum([total]) for value, total in zip(captured, made.totals, strict=True)}
            for start, gradient in starts:
                self.add(start, gradient)

    def _inside(
        self,
        ops: list[ir.Operation],
        given: list[tuple[ir.Value, ir.Value]],
        targets: list[ir.Value],
        sums: dict[ir.Value, ir.Value],
    ) -> tuple[ir.Value, ...]:
        """The gradients in a round of a loop that goes back; sums: those of values from outside by then."""
        inner = _Backward(self.evaluator, self.form, targets)
        inner.sums = {value: Sum([total]) for value, total in sums.items()}
        return inner._from(ops, given)

    def _through(self, op: ir.Operation, result: ir.Value) -> None:
        """Add to the gradients of what a value was made from."""
        evaluator, gradient = self.evaluator, self.gradient_of(result)
        if result.type.element_type == ir.BF16Type.get() and not self._is_asked_for(result):
            gradient = as_type(self.evaluator, gradient, result.type.element_type, self.form)
        if result in self.rules.recomputed:
            self._recompute(result, gradient)
            return
        if result in self.rules.calls:
            rule, given, arguments = self.rules.calls[result]
            self._apply(rule, gradient, given, [a for a in arguments if isinstance(a, ir.Value)], op)
            return
        if op.name == "linalg.generic" and not is_contraction(op):
            found = elementwise_gradients.of(evaluator, op, gradient, self.active, self.form)
            if found is None:
                raise self._no_rule(op, op.name)
            for value, part in found:
                if isinstance(part, Scatter):
                    self.sums.setdefault(value, Sum()).scatters.append(part)
                else:
                    self.add(value, part)
            return
        key = "linalg.contract" if op.name == "linalg.generic" else op.name
        count = len(op.operands) - (len(op.results) if op.name.startswith("linalg.") else 0)
        given = [v for v in list(op.operands)[:count] if not isinstance(v.type, ir.IndexType)]
        if key == "linalg.reduce":
            combiner, given[0] = body_clones.combined(evaluator, op, self.form)
            key = f"{key} {combiner}"
        if key not in self.rules.of_ops:
            if not self._through_its_body(op, gradient):
                raise self._no_rule(op, key.replace(" ", " by "))
            return
        for start in list(op.operands)[count:]:
            if start in self.active and key not in SUMS:
                raise self._no_rule(op, f"{key.replace(' ', ' by ')} onto what is there")
            if start in self.active:
                self.add(start, gradient)
        if given[0] != op.operands[0]:
            self.active.add(given[0])
        self._apply(self.rules.of_ops[key], gradient, result, given, op)
        if given[0] != op.operands[0]:
            self._walk([defining_op(given[0])])

    def _through_its_body(self, op: ir.Operation, gradient: ir.Value) -> bool:
        """Go on through the linalg.generic that computes what a named op does, if there is one."""
        made = made_generic(self.evaluator, op, self.form)
        if made is None:
            return False
        self.sums[made.results[0]] = Sum([gradient])
        self._spread_activity([made])
        self._walk([made])
        return True

    def _is_asked_for(self, value: ir.Value) -> bool:
        """Whether a value is a part, or a view, of one of those to differentiate by."""
        op = defining_op(value)
        while op is not None and op.name in VIEWS:
            value = op.operands[0]
            op = defining_op(value)
        return value in self.targets

    def _apply(
        self, rule: Closure, gradient: ir.Value, result: Any, operands: list[ir.Value], op: ir.Operation
    ) -> None:
        found = self.evaluator.call(rule, [gradient, result, *operands], self.form)
        parts = shapes.items_of(found)
        if parts is None or len(parts) > len(operands):
            self.evaluator.site.fail(
                f"`{rule.name}` gives {describe(found)}; a vector of at most {len(operands)} gradients is wanted",
                rule.form,
            )
        for operand, part in zip(operands, parts, strict=False):
            if part is None or operand not in self.active:
                continue
            if shapes.is_tensor(operand):
                self.add(operand, part)
            else:
                self._add_to_scalar(operand, part)

    def _add_to_scalar(self, scalar: ir.Value, gradient: Any) -> None:
        """Count a gradient in for the tensors that a scalar is computed from."""
        whole = tensors.of_scalar(self.evaluator, scalar, self.form)
        self.active.add(whole)
        self.add(whole, tensors.of_scalar(self.evaluator, gradient, self.form))
        self._walk([defining_op(whole)])

    def _recompute(self, result: ir.Value, gradient: ir.Value) -> None:
        """Call the function once more, on values that no common subexpression can be found for, and walk its ops."""
        function, arguments, standing = self.rules.recomputed[result]
        again = [same_value(self.evaluator, a, self.form) if shapes.is_tensor(a) else a for a in arguments]
        before = len(operations(self.block))
        now = self.evaluator.states.of(Model).building
        with now.as_it_was(standing) if now is not None and standing is not None else nullcontext():
            value = self.evaluator.call(function, again, self.form)
        (value,), _ = write_out(self.evaluator, [value], [a for a in again if shapes.is_tensor(a)], self.form)
        ops = operations(self.block)[before:]
        self.active.update(new for old, new in zip(arguments, again, strict=True) if old in self.active)
        self._spread_activity(ops)
        self.add(value, gradient)
        self._walk(ops)
        for old, new in zip(arguments, again, strict=True):
            if new is not old and new in self.sums:
                self.add(old, self.gradient_of(new))

    def add(self, value: ir.Value, gradient: Any) -> None:
        """Count a gradient in for a value."""
        if not shapes.is_tensor(gradient) or shape_of(gradient) != shape_of(value):
            self.evaluator.site.fail(
                f"a gradient of {value.type} is a tensor of its shape, and got {describe(gradient)}", self.form
            )
        self.sums.setdefault(value, Sum()).add(gradient)

    def gradient_of(self, value: ir.Value) -> ir.Value:
        """The sum of a value's gradients so far."""
        found = self.sums.get(value)
        if found is None:
            wide = tensors.summed_in(self.evaluator, value)
            return tensors.filled(self.evaluator, shape_of(value), 0.0, wide, self.form)
        total = found.total(self.evaluator, value, self.form)
        self.sums[value] = Sum([total])
        return total

    def _no_rule(self, op: ir.Operation, what: str) -> Exception:
        spans = self.evaluator.site.spans_of(op.location)
        told = {
            "scf.while": "a loop whose rounds are counted when it runs",
            "func.call": "a kernel or function that is called",
            "linalg.generic": "an op with sums of its own",
        }
        message = without_rule(self.evaluator, told.get(what, f"`{what}`"))
        return self.evaluator.site.error(message, spans[-1] if spans else self.form)
