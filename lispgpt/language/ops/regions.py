"""Regions and blocks of ops: `(do …)`, `(region …)`, `(block ^label [(: a T)] …)`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.op_facts import facts
from lispgpt.language.core import attributes
from lispgpt.language.core.environment import Environment, did_you_mean
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import Special
from lispgpt.language.reader.forms import Form, List, Symbol, Vector, head_name, show


@dataclass
class Labels:
    """The named blocks of the regions that are being filled, innermost last."""

    around: list[dict[str, ir.Block]] = field(default_factory=list)

    @contextmanager
    def inside(self, labels: dict[str, ir.Block]) -> Iterator[None]:
        """While a region with these blocks is filled."""
        self.around.append(labels)
        try:
            yield
        finally:
            self.around.pop()


def is_region(form: Form, environment: Environment) -> bool:
    """Whether an op's argument is a region: such a form, unless the program has made its name its own."""
    if head_name(form) not in ("do", "region", "block") or not isinstance(form, List):
        return False
    head = form.items[0]
    return isinstance(head, Symbol) and isinstance(environment.lookup(head), Special)


def label(evaluator: Evaluator, symbol: Symbol) -> ir.Block:
    """The block that `^label` names, in the regions around."""
    labels = evaluator.states.of(Labels).around
    for blocks in reversed(labels):
        if symbol.name in blocks:
            return blocks[symbol.name]
    known = [name for blocks in labels for name in blocks]
    evaluator.site.fail(f"there is no block {symbol.name} here{did_you_mean(symbol.name, known)}", symbol)


def fill(evaluator: Evaluator, operation: Any, position: int, form: List, environment: Environment) -> None:
    """Make the blocks of one of an op's regions, evaluate their bodies, and end them where that is for the op to do."""
    region = operation.regions[position]
    scope = Environment(environment)
    items = (form,) if head_name(form) == "block" else form.items[1:]
    block_forms = [item for item in items if head_name(item) == "block"]
    loose = [item for item in items if head_name(item) != "block"]
    if not items:
        return
    if loose and block_forms:
        evaluator.site.fail("a region holds either blocks or plain forms, and this one mixes them", loose[0])
    made: list[tuple[ir.Block, tuple[Form, ...], Environment]] = []
    labels: dict[str, ir.Block] = {}
    if loose:
        made.append((ir.Block.create_at_start(region, []), items, scope))
    for item in block_forms:
        assert isinstance(item, List)
        made.append(_block(evaluator, region, item, scope, labels, made))
    with evaluator.states.of(Labels).inside(labels):
        for block, body, inner in made:
            value = evaluator.body_in(block, body, inner)
            _end(evaluator, operation, block, value, body[-1] if body else form)


def ends(block: ir.Block) -> bool:
    """Whether a block's last op is a terminator."""
    count = len(block.operations)
    return count > 0 and block.operations[count - 1].operation.has_trait(ir.IsTerminatorTrait)


def _end(evaluator: Evaluator, operation: Any, block: ir.Block, value: Any, form: Form) -> None:
    """End a block as its op wants it, with the last value where the op has one result of that type."""
    known = facts(operation.name)
    terminator = known.terminator
    if terminator is None or ends(block):
        return
    operands: list[ir.Value] = []
    wanted = [result.type for result in operation.results] if known.terminator_yields else []
    values = list(value) if isinstance(value, tuple) else [value]
    if operation.name in ("func.func", "gpu.func", "llvm.func"):
        kind = ir.TypeAttr(operation.attributes["function_type"]).value
        wanted = list(kind.results) if isinstance(kind, ir.FunctionType) else []
    if wanted:
        if len(values) != len(wanted) or _types_differ(values, wanted):
            return
        for item, kind in zip(values, wanted, strict=True):
            if isinstance(item, (bool, int, float)):
                with evaluator.builder.at(block):
                    item = evaluator.builder.constant(item, kind, form)
            if not isinstance(item, ir.Value):
                return
            operands.append(item)
    with evaluator.builder.at(block):
        if terminator == "scf.forall.in_parallel":
            made = evaluator.builder.emit(terminator, [], [], {}, form, 1)
            ir.Block.create_at_start(made.regions[0], [])
        else:
            evaluator.builder.emit(terminator, operands, [], {}, form)


def _types_differ(values: list[Any], wanted: list[ir.Type]) -> bool:
    pairs = zip(values, wanted, strict=True)
    return any(isinstance(value, ir.Value) and value.type != kind for value, kind in pairs)


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
    places = [evaluator.site.location(parameter) for parameter in parameters]
    if made:
        block = made[-1][0].create_after(*types, arg_locs=places)
    else:
        block = ir.Block.create_at_start(region, types, places)
    if name is not None:
        if name.name in labels:
            evaluator.site.fail(f"a second block is called {name.name}", name)
        labels[name.name] = block
    inner = Environment(scope)
    for (parameter, _), argument in zip(pairs, block.arguments, strict=True):
        inner.define(parameter, argument)
    return block, items, inner


def typed_name(evaluator: Evaluator, form: Form, environment: Environment) -> tuple[Symbol, ir.Type]:
    """`(: name T)`"""
    if head_name(form) != ":" or not isinstance(form, List) or len(form.items) != 3:
        evaluator.site.fail(f"`{show(form)}` stands where a typed name is wanted, like (: x i32)", form)
    _, name, kind = form.items
    if not isinstance(name, Symbol):
        evaluator.site.fail(f"`{show(name)}` is not a name", name)
    return name, attributes.type_of(evaluator.builder, evaluator.single(kind, environment), kind)
