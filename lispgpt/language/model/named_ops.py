"""What linalg's ops compute: named ones written as what they stand for, and generic ones that are products."""

from __future__ import annotations

from lispgpt.ir.mlir import ir
from lispgpt.ir.named_ops import generalized
from lispgpt.ir.structure import operations
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.model.gradient_rules import is_filled_with
from lispgpt.language.reader.forms import Form


def made_generic(evaluator: Evaluator, op: ir.Operation, form: Form) -> ir.Operation | None:
    """A linalg.generic of a named op's operands that computes the same, written here; None where there is none."""
    if not op.name.startswith("linalg.") or op.name == "linalg.reduce":
        return None
    with generalized(op) as general:
        if general.name != "linalg.generic":
            return None
        attributes = {name: general.attributes[name] for name in general.attributes}
        types = [result.type for result in op.results]
        made: ir.Operation = evaluator.builder.emit("linalg.generic", list(op.operands), types, attributes, form, 1)
        general.regions[0].blocks[0].append_to(made.regions[0])
        return made


def is_contraction(op: ir.Operation) -> bool:
    """Whether a linalg.generic is a sum of products, one of whose operands alone has an index that is summed."""
    if len(op.operands) != 3 or all("parallel" in str(kind) for kind in op.attributes["iterator_types"]):
        return False
    names = [inner.name for inner in operations(op.regions[0].blocks[0]) if inner.name != "arith.extf"]
    return names == ["arith.mulf", "arith.addf", "linalg.yield"] and is_filled_with(op.operands[2], 0.0)
