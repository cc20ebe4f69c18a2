"""make-weights: what entries compute of weights alone is computed once, when weights are loaded.

Before:                                            After:
  func.func @y(%x, %w: tensor<2x6x8xbf16>,           func.func @y(%x, %w, %v, %m: tensor<2x6xf32>)
      %v: tensor<2x8xf32>)                               {arguments = [… "made:v+w.1f2e3d4c"]} {
    %w0 = extract_slice %w[0, 0, 0]                    %r = extract_slice %m[0, 0] [1, 6]
    %v0 = extract_slice %v[0, 0]                       … %r …
    %r = linalg.contract {once} ins(%w0, %v0) …      func.func @make_weights(%v, %w) {makes, results = ["made:…"]} {
    … %r …                                             %r0 = linalg.contract …   %r1 = linalg.contract …
                                                       … insert_slice %r1 into … [1, 0]   return

Ops that are marked `once` are such, where all that they read are weights that no entry of the module updates, views of
them, numbers, and what other such ops make; what is marked and reads anything else is computed where it stands.

Requires: entries on tensors.
Ensures: nothing is marked any more.  Where something is made, the module has one more function like an entry's, which
`makes` it for all others: it reads weights, its results are called "made:NAME", and other entries have those that they
need as arguments of these names.  What is computed alike of other parts of the same weights, as in a model's layers,
is stacked in one of them, in the order of these parts.  NAME says the weights, and by a hash what is computed of them,
so that artifacts of one program agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from lispgpt.base.dtypes import DTYPES
from lispgpt.ir.mlir import attribute, create_op, ir
from lispgpt.ir.structure import (
    captured_values,
    clone_with,
    defining_op,
    element_type,
    entry_arguments,
    entry_functions,
    everything_in,
    integers,
    operations,
    retype,
    shape_of,
    strings,
    symbol_of,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.model.kernel_groups import is_inline
from lispgpt.passes.model.weight_recipes import ONCE, Recipe, Stack, recipe_of
from lispgpt.passes.recognise.placements import row_slice
from lispgpt.passes.states import UNPLACED

MAKES = "makes"
"""The mark of the function that makes what is made of weights."""


class MakeWeights(Pass):
    starts_from = (UNPLACED,)

    def run(self, module: ir.Module, target: object) -> None:
        entries = entry_functions(module)
        updated = {name for entry in entries for name in strings(entry.attributes["results"])}
        stacks: dict[tuple[tuple[str, ...], str], Stack] = {}
        wanted: dict[ir.Operation, list[tuple[ir.Value, Stack, str]]] = {}
        for entry in entries:
            weights = {v: n for n, v in entry_arguments(entry).items() if n.startswith("weight:") and n not in updated}
            wanted[entry] = []
            for value in _wanted(entry, weights):
                recipe = recipe_of(module, value, weights)
                stack = stacks.setdefault((recipe.weights, recipe.stem), Stack([]))
                wanted[entry].append((value, stack, stack.add(recipe)))
        for entry, values in wanted.items():
            _take(entry, values)
            for op in everything_in(entry):
                if ONCE in op.attributes:
                    del op.attributes[ONCE]
        if stacks:
            _build(module, list(stacks.values()))


# ---- what is made


def _wanted(entry: ir.Operation, weights: Collection[ir.Value]) -> Iterator[ir.Value]:
    """What is to be made, of all that may be: values that something else reads."""
    ops = operations(entry.regions[0].blocks[0])
    once: set[ir.Operation] = set()
    known: dict[ir.Value, bool] = {}

    def is_made(value: ir.Value) -> bool:
        """Whether a value is the same in every run."""
        if value not in known:
            op = defining_op(value)
            known[value] = value in weights if op is None else op in once or (is_inline(op) and reads_such(op))
        return known[value]

    def reads_such(op: ir.Operation) -> bool:
        return all(map(is_made, (*op.operands, *captured_values(op))))

    for op in ops:
        if ONCE in op.attributes and all(map(_can_be_kept, op.results)) and reads_such(op):
            once.add(op)

    def is_read(value: ir.Value) -> bool:
        """Whether an op that stays where it is reads a value, or a view of it."""
        for use in value.uses:
            op = use.owner.operation
            made = op in once or (is_inline(op) and all(map(is_made, op.results)) and not any(map(is_read, op.results)))
            if not made and not any(_is_inside(op, other) for other in once):
                return True
        return False

    for op in ops:
        if op in once:
            yield from filter(is_read, op.results)


def _can_be_kept(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and str(element_type(value)) in DTYPES


def _is_inside(op: ir.Operation, other: ir.Operation) -> bool:
    """Whether an op stands in a region of another, at any depth."""
    around = op.parent
    while around is not None and around != other:
        around = around.operation.parent
    return around is not None


# ---- who makes it, and who takes it


def _take(entry: ir.Operation, values: list[tuple[ir.Value, Stack, str]]) -> None:
    """Have an entry read what is made for it."""
    block, names = entry.regions[0].blocks[0], strings(entry.attributes["arguments"])
    for value, stack, text in values:
        if stack.name not in names:
            names.append(stack.name)
            block.add_argument(stack.type, ir.Location.unknown())
        made = block.arguments[names.index(stack.name)]
        if len(stack.recipes) > 1:
            with ir.InsertionPoint.at_block_begin(block), defining_op(value).location:
                number, shape = stack.number(text), shape_of(made)
                made = row_slice("tensor.extract_slice", [made], value.type, number, shape)
        value.replace_all_uses_with(made)
    if not values:
        return
    for op in reversed(operations(block)):
        dead = not any(True for result in op.results for _ in result.uses)
        if dead and len(op.results) and (ONCE in op.attributes or is_inline(op)):
            op.erase()
    if "batched" in entry.attributes:
        batched = integers(entry.attributes["batched"])
        entry.attributes["batched"] = attribute([*batched, *[-1] * (len(names) - len(batched))])
    entry.attributes["arguments"] = attribute(names)
    retype(entry, [v.type for v in operations(block)[-1].operands])


def _build(module: ir.Module, stacks: list[Stack]) -> None:
    """Add the function that makes it all, in place of the recipes."""
    maker = _maker(module)
    block = maker.regions[0].blocks[0]
    weights: dict[str, ir.Value] = {}
    results = []
    for stack in stacks:
        with ir.InsertionPoint(block), ir.Location.unknown():
            made = [_computed(recipe, block, weights) for recipe in stack.recipes]
            whole = made[0] if len(made) == 1 else create_op("tensor.empty", [], [stack.type]).results[0]
            for number, part in enumerate(made if len(made) > 1 else []):
                whole = row_slice("tensor.insert_slice", [part, whole], stack.type, number, shape_of(whole))
        results.append(whole)
    with ir.InsertionPoint(block), ir.Location.unknown():
        create_op("func.return", results)
    maker.attributes["arguments"] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in weights])
    maker.attributes["results"] = attribute([stack.name for stack in stacks])
    retype(maker, [value.type for value in results])
    for recipe in (recipe for stack in stacks for recipe in stack.recipes):
        recipe.function.erase()


def _maker(module: ir.Module) -> ir.Operation:
    """A new function like an entry's, with nothing in it."""
    taken = {symbol_of(op) for op in operations(module.body) if "sym_name" in op.attributes}
    symbol = next(name for name in (f"make_weights{n or ''}" for n in range(len(taken) + 1)) if name not in taken)
    empty = ir.ArrayAttr.get([])
    attributes = {"entry": "make-weights", "sizes": empty, "extents": [], "inputs": {}, MAKES: ir.UnitAttr.get()}
    with ir.InsertionPoint(module.body), ir.Location.unknown():
        kind = ir.FunctionType.get([], [])
        maker = create_op("func.func", [], [], {"sym_name": symbol, "function_type": kind, **attributes}, 1)
    maker.regions[0].blocks.append()
    return maker


def maker_of(module: ir.Module) -> ir.Operation:
    """The function of a module of buffers that makes weights, which it gets where it has none."""
    for entry in entry_functions(module):
        if MAKES in entry.attributes:
            return entry
    maker, empty = _maker(module), ir.ArrayAttr.get([])
    for name in ("arguments", "types", "results"):
        maker.attributes[name] = empty
    with ir.InsertionPoint(maker.regions[0].blocks[0]), ir.Location.unknown():
        create_op("func.return")
    return maker


def _computed(recipe: Recipe, block: ir.Block, weights: dict[str, ir.Value]) -> ir.Value:
    """Emit what a recipe says; weights: the block's arguments by name, which get what the recipe needs."""
    body = recipe.function.regions[0].blocks[0]
    mapping: dict[ir.Value, ir.Value] = {}
    for name, argument in zip(recipe.weights, body.arguments, strict=True):
        if name not in weights:
            weights[name] = block.add_argument(argument.type, ir.Location.unknown())
        mapping[argument] = weights[name]
    *ops, last = operations(body)
    for op in ops:
        with op.location:
            clone_with(op, mapping)
    return mapping[last.operands[0]]
