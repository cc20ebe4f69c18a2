"""How a value is computed of weights alone, told so that what is computed alike is found and has a name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.mlir import attribute, create_op, ir
from lispgpt.ir.structure import captured_values, clone_with, defining_op, integers, operations, retype

ONCE = "once"
"""The mark of an op that may be computed when weights are loaded."""
MADE = "made"
"""The kind of what is made of weights."""
NAMED = 4
"""Weights that a name spells, at most."""


@dataclass(frozen=True)
class Recipe:
    """How a value is computed, as a function of weights by their names, which is in the module for the time being.

    text: of the function.  stem: of what it would be, were all slices of weights the first ones.  starts: where these
    begin.
    """

    function: ir.Operation
    weights: tuple[str, ...]
    text: str
    stem: str
    starts: tuple[tuple[int, ...], ...]


def recipe_of(module: ir.Module, value: ir.Value, names: dict[ir.Value, str]) -> Recipe:
    with ir.InsertionPoint(module.body), ir.Location.unknown():
        function = b.private_function("recipe")
    body, weights = function.regions[0].blocks.append(), []
    mapping: dict[ir.Value, ir.Value] = {}
    constants: dict[str, ir.Value] = {}

    def bring(value: ir.Value) -> None:
        if value in mapping:
            return
        op = defining_op(value)
        if op is None:
            mapping[value] = body.add_argument(value.type, ir.Location.unknown())
            weights.append(names[value])
            return
        text = str(op.attributes["value"]) if op.name == "arith.constant" else ""
        if text and text in constants and constants[text].type == value.type:
            mapping[value] = constants[text]
            return
        for read in (*op.operands, *captured_values(op)):
            bring(read)
        with ir.InsertionPoint(body), op.location:
            copy = clone_with(op, mapping)
        if ONCE in copy.attributes:
            del copy.attributes[ONCE]
        if text:
            constants[text] = copy.results[0]

    bring(value)
    with ir.InsertionPoint(body), ir.Location.unknown():
        create_op("func.return", [mapping[value]])
    retype(function, [value.type])
    text = _text(function)
    taken = (op for op in operations(body) if op.name == "tensor.extract_slice")
    slices = [op for op in taken if defining_op(op.operands[0]) is None]
    starts = [op.attributes["static_offsets"] for op in slices]
    for op in slices:
        op.attributes["static_offsets"] = attribute([min(n, 0) for n in integers(op.attributes["static_offsets"])])
    stem = _text(function)
    for op, start in zip(slices, starts, strict=True):
        op.attributes["static_offsets"] = start
    return Recipe(function, tuple(weights), text, stem, tuple(tuple(integers(start)) for start in starts))


def _text(function: ir.Operation) -> str:
    text: str = function.get_asm(assume_verified=True, use_local_scope=True)
    return text


@dataclass(frozen=True)
class Stack:
    """What is computed alike of parts of the same weights."""

    recipes: list[Recipe]

    def add(self, recipe: Recipe) -> str:
        """Have a value made, once for all who need it; the text by which it is found."""
        if any(recipe.text == known.text for known in self.recipes):
            recipe.function.erase()
        else:
            self.recipes.append(recipe)
            self.recipes.sort(key=lambda each: (each.starts, each.text))
        return recipe.text

    def number(self, text: str) -> int:
        return [recipe.text for recipe in self.recipes].index(text)

    @property
    def name(self) -> str:
        weights = [name.partition(":")[2] for name in self.recipes[0].weights]
        told = "\0".join([*weights, *(recipe.text for recipe in self.recipes)])
        return f"{MADE}:{'+'.join(weights[:NAMED]) or 'numbers'}.{hashlib.sha256(told.encode()).hexdigest()[:8]}"

    @property
    def type(self) -> ir.Type:
        """One value's, or of a row for each."""
        one = ir.FunctionType(ir.TypeAttr(self.recipes[0].function.attributes["function_type"]).value).results[0]
        if len(self.recipes) == 1:
            return one
        return ir.RankedTensorType.get([len(self.recipes), *one.shape], one.element_type)
