"""Bodies of linalg's named ops, which MLIR makes while it reads an op's text."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.op_facts import facts
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.reader.forms import Form


def check_elements(evaluator: Evaluator, operation: Any, form: Form) -> None:
    """An error where a named op that exists for floats alone, though MLIR takes others, gets whole numbers."""
    if operation.name != "linalg.softmax":
        return
    for kind in [operand.type for operand in operation.operands][:1]:  # without any, MLIR says what is missing
        if isinstance(kind, ir.ShapedType) and not isinstance(kind.element_type, ir.FloatType):
            evaluator.site.fail(f"a softmax is of floats, and this is {kind}; `cast` it first", form)


def make_body(evaluator: Evaluator, operation: Any, form: Form) -> None:
    """Give a named op the body that its definition has."""
    name = operation.name
    body = facts(name).body
    if body == "program":
        evaluator.site.fail(f"`{name}` wants a region that computes one element", form)
    sizes = list(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"]))
    operands = list(operation.operands)
    if body == "copy":
        _copying_body(evaluator, operation, operands, form)
        return
    kinds = [str(operand.type) for operand in operands]
    names = [f"%a{i}" for i in range(len(operands))]
    ins, outs = slice(0, sizes[0]), slice(sizes[0], sum(sizes))
    results = ", ".join(str(result.type) for result in operation.results)
    text = f"""func.func @f({", ".join(f"{n}: {k}" for n, k in zip(names, kinds, strict=True))}) {{
      {"%r = " if results else ""}{name} {_attributes(operation)}
        {f"ins({', '.join(names[ins])} : {', '.join(kinds[ins])})" if sizes[0] else ""}
        outs({", ".join(names[outs])} : {", ".join(kinds[outs])}) {f"-> {results}" if results else ""}
      return }}"""
    try:
        module = ir.Module.parse(text, evaluator.builder.context)
    except ir.MLIRError as error:
        message = error.error_diagnostics[0].message if error.error_diagnostics else str(error)
        evaluator.site.fail(f"`{name}` does not fit its operands ({', '.join(kinds)}): {message}", form)
    made = next(iter(module.body.operations[0].regions[0].blocks[0].operations))
    made.operation.regions[0].blocks[0].append_to(operation.regions[0])


def _attributes(operation: Any) -> str:
    """The op's attributes where its text has them: linalg.contract's and elementwise's come bare, others in braces."""
    given = {item.name: item.attr for item in _named(operation) if item.name != "operandSegmentSizes"}
    given.pop("linalg.memoized_indexing_maps", None)
    if operation.name in ("linalg.contract", "linalg.elementwise", "linalg.matmul", "linalg.batch_matmul"):
        maps = given.pop("indexing_maps", None)
        kind = given.pop("kind", None)
        bare = [f"kind={kind}"] if kind is not None else []
        return " ".join([*bare, *([f"indexing_maps = {maps}"] if maps is not None else [])])
    braced = ", ".join(f"{name} = {value}" for name, value in given.items())
    return "{" + braced + "}" if braced else ""


def _named(operation: Any) -> list[Any]:
    attributes = operation.attributes
    return [attributes[i] for i in range(len(attributes))]


def _copying_body(evaluator: Evaluator, operation: Any, operands: list[ir.Value], form: Form) -> None:
    if len(operands) < 2:
        evaluator.site.fail(f"`{operation.name}` wants a value and where it goes", form)
    kinds = [o.type.element_type if isinstance(o.type, ir.ShapedType) else o.type for o in operands]
    place = evaluator.site.location(form)
    block = ir.Block.create_at_start(operation.regions[0], kinds, [place] * len(kinds))
    value = block.arguments[0]
    if kinds[0] != kinds[-1]:
        evaluator.site.fail(f"`{operation.name}`: {kinds[0]} does not go into elements of {kinds[-1]}", form)
    with evaluator.builder.at(block):
        evaluator.builder.emit("linalg.yield", [value], [], {}, form)
