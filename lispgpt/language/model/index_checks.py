"""Indices that are past their tensor's end whatever an entry is given: an error at their form.

An index that loops' counters alone make is known while compiling.  Where it is outside in some round, the program is
wrong, unless what is read counts only where a condition holds: `if` does not read where it does not hold, and `select`
takes the other value.  An index that an input gives, plus or minus a number, is checked when the entry is called.  Any
other is held to the range of its tensor: what is below 0 reads the first element, what is past the end the last.
"""

from __future__ import annotations

from lispgpt.ir.index_ranges import IndexRanges, indices_of, is_conditional
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import everything_in
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.reader.forms import Form


def check_indices(evaluator: Evaluator, function: ir.Operation, form: Form) -> None:
    """The error of the first such index of an entry's function; form: the entry's."""
    ranges = IndexRanges()
    for op in everything_in(function):
        for number, last in indices_of(op):
            found = None if is_conditional(op) else ranges.outside(op.operands[number], last)
            if found is not None:
                whole = op.operands[1 if op.name == "tensor.insert_slice" else 0]
                spans = evaluator.site.spans_of(op.location)
                where = f"its last element is {last}" if op.name == "tensor.extract" else f"the last start is {last}"
                where = where if last >= 0 else "it has no elements"
                message = f"this reaches index {found} of {whole.type}, and {where}"
                raise evaluator.site.error(message, spans[0] if spans else form)
