"""What a gather's gradient is: rows that are added, one after the other, where they were read."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.forms import arithmetic, shapes, tensors
from lispgpt.language.model import index_algebra
from lispgpt.language.reader.forms import Form


@dataclass(frozen=True, eq=False)
class Scatter:
    """Rows to be added to a tensor of a shape.

    shares [… rest]: a row for each number of where […] (i32), which says where along dimension `position` of the tensor
    it is to be added; rest are the tensor's other dimensions, of which it may have the first elements only.
    """

    evaluator: Evaluator
    shares: ir.Value
    where: ir.Value
    position: int
    shape: tuple[int, ...]
    form: Form

    def onto(self, base: ir.Value | None) -> ir.Value:
        """base, or zeros, with the rows added in their order."""
        evaluator, form = self.evaluator, self.form
        count, rest = prod(shape_of(self.where)), shape_of(self.shares)[len(shape_of(self.where)) :]
        rows = shapes.reshape(evaluator, self.shares, (count, *rest), form)
        where = shapes.reshape(evaluator, self.where, (count,), form)
        own = (self.shape[self.position], *rest)
        if base is not None and own == self.shape and self.position == 0:
            return self._added(base, rows, where, count)
        zeros = tensors.filled(evaluator, own, 0.0, tensors.summed_in(evaluator, rows), form)
        made = self._added(zeros, rows, where, count)
        others = range(1, len(own))
        order = (*others[: self.position], 0, *others[self.position :])
        whole = index_algebra.padded(evaluator, index_algebra.permuted(evaluator, made, order, form), self.shape, form)
        return whole if base is None else arithmetic.binary(evaluator, "+", base, whole, form)

    def _added(self, base: ir.Value, rows: ir.Value, where: ir.Value, count: int) -> ir.Value:
        """A loop over the rows that carries the tensor which they are added to."""
        evaluator, form = self.evaluator, self.form
        if not prod(shape_of(rows)):
            return base
        emit, index = evaluator.builder.emit, evaluator.builder.index
        low, high, step = (evaluator.builder.constant(n, index, form) for n in (0, count, 1))
        loop = emit("scf.for", [low, high, step, base], [base.type], {}, form, 1)
        place = evaluator.site.location(form)
        block = ir.Block.create_at_start(loop.regions[0], [index, base.type], [place] * 2)
        number, carried = block.arguments
        rest = shape_of(rows)[1:]
        sizes, behind = (1, *rest), (0,) * len(rest)
        with evaluator.builder.at(block):
            found = emit("tensor.extract", [where, number], [ir.IntegerType.get_signless(32)], {}, form)
            at: Any = emit("arith.index_cast", [found], [index], {}, form)
            old = shapes.extract(evaluator, carried, (at, *behind), sizes, form)
            row = shapes.extract(evaluator, rows, (number, *behind), sizes, form)
            total = arithmetic.binary(evaluator, "+", old, row, form)
            emit("scf.yield", [shapes.insert(evaluator, total, carried, (at, *behind), sizes, form)], [], {}, form)
        return loop.results[0]
