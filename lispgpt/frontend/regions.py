"""Regions and blocks of ops: `(do …)`, `(region …)`, `(block ^label [(: a T)] …)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lispgpt.frontend import attributes
from lispgpt.frontend.environment import Environment, did_you_mean
from lispgpt.frontend.forms import Form, List, Symbol, Vector, head_name, show
from lispgpt.mlir import ir

if TYPE_CHECKING:
    from lispgpt.frontend.evaluator import Evaluator


def is_region(form: Form, environment: Environment) -> bool:
    """Whether an op's argument is a region."""
    return head_name(form) in ("do", "region")


def label(evaluator: Evaluator, symbol: Symbol) -> ir.Block:
    """The block that `^label` names, in the regions around."""
    for blocks in reversed(evaluator.blocks):
        if symbol.name in blocks:
            return blocks[symbol.name]
    known = [name for blocks in evaluator.blocks for name in blocks]
    evaluator.fail(f"there is no block {symbol.name} here{did_you_mean(symbol.name, known)}", symbol)


def fill(evaluator: Evaluator, region: ir.Region, form: List, environment: Environment) -> None:
    """Make the blocks of a region and evaluate their bodies."""
    scope = Environment(environment)
    items = form.items[1:]
    block_forms = [item for item in items if head_name(item) == "block"]
    loose = [item for item in items if head_name(item) != "block"]
    if not items:
        return
    made: list[tuple[ir.Block, tuple[Form, ...], Environment]] = []
    labels: dict[str, ir.Block] = {}
    if loose:
        if block_forms:
            evaluator.fail("a region holds either blocks or plain forms, and this one mixes them", loose[0])
        made.append((ir.Block.create_at_start(region, []), items, scope))
    for item in block_forms:
        assert isinstance(item, List)
        made.append(_block(evaluator, region, item, scope, labels, made))
    evaluator.blocks.append(labels)
    for block, body, inner in made:
        evaluate_in(evaluator, block, body, inner)
    evaluator.blocks.pop()


def evaluate_in(evaluator: Evaluator, block: ir.Block, body: tuple[Form, ...], scope: Environment) -> Any:
    """Evaluate forms with their ops going to the end of a block."""
    outside, evaluator.insertion = evaluator.insertion, ir.InsertionPoint(block)
    try:
        return evaluator.body(body, scope)
    finally:
        evaluator.insertion = outside


def _block(
    evaluator: Evaluator,
    region: ir.Region,
    form: List,
    scope: Environment,
    labels: dict[str, ir.Block],
    made: list[tuple[ir.Block, tuple[Form, ...], Environment]],
) -> tuple[ir.Block, tuple[Form, ...], Environment]:
    items = form.items[1:]
    name = None
    if items and isinstance(items[0], Symbol) and items[0].name.startswith("^"):
        name, items = items[0], items[1:]
    parameters: tuple[Form, ...] = ()
    if items and isinstance(items[0], Vector):
        parameters, items = items[0].items, items[1:]
    pairs = [typed_name(evaluator, parameter, scope) for parameter in parameters]
    types = [kind for _, kind in pairs]
    places = [evaluator.location(parameter) for parameter in parameters]
    if made:
        block = made[-1][0].create_after(*types, arg_locs=places)
    else:
        block = ir.Block.create_at_start(region, types, places)
    if name is not None:
        if name.name in labels:
            evaluator.fail(f"a second block is called {name.name}", name)
        labels[name.name] = block
    inner = Environment(scope)
    for (parameter, _), argument in zip(pairs, block.arguments, strict=True):
        inner.define(parameter, argument)
    return block, items, inner


def typed_name(evaluator: Evaluator, form: Form, environment: Environment) -> tuple[Symbol, ir.Type]:
    """`(: name T)`"""
    if head_name(form) != ":" or not isinstance(form, List) or len(form.items) != 3:
        evaluator.fail(f"`{show(form)}` stands where a typed name is wanted, like (: x i32)", form)
    _, name, kind = form.items
    if not isinstance(name, Symbol):
        evaluator.fail(f"`{show(name)}` is not a name", name)
    return name, attributes.type_of(evaluator, evaluator.single(kind, environment), kind)
