"""Building an entry's function for one shape."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import State, Weight, describe
from lispgpt.language.forms import shapes
from lispgpt.language.forms.launches import Launches
from lispgpt.language.model.declarations import Entry, Model


def build(
    evaluator: Evaluator, entry: Entry, batch: int, positions: int, choose: Any, settings: int | None = None
) -> None:
    """Add `name_bB_sS` to the module: inputs, weights and states to the result, the next tokens where the program
    generates from this entry, and the states as they are afterwards.

    choose: the library's `best-token` or `draw-token`, which make tokens of logits.  settings: for the latter, how many
    words of i32 a sequence's settings have; the function is then `name_bB_sS_drawn`, with the settings as last input.
    """
    model = evaluator.states.of(Model)
    rows = ir.RankedTensorType.get([batch * positions], evaluator.builder.i32)
    states = list(model.states.values())
    types = [rows] * len(entry.inputs)
    types += [] if settings is None else [ir.RankedTensorType.get([batch, settings], evaluator.builder.i32)]
    inputs = len(types)
    types += [_type(evaluator, weight, weight.shape) for weight in model.weights.values()]
    types += [_type(evaluator, state, _with_batch(state, batch)) for state in states]
    location = evaluator.site.location(entry.form)
    function = evaluator.builder.emit(
        "func.func", [], [], _attributes(entry, batch, positions, model, settings is not None), entry.form, 1
    )
    block = ir.Block.create_at_start(function.regions[0], types, [location] * len(types))
    scope = Environment(entry.environment)
    arguments = list(block.arguments)
    for name, argument in zip(entry.inputs, arguments, strict=False):
        scope.define(name, argument)
    given = arguments[inputs:]
    declarations: list[Weight | State] = [*model.weights.values(), *states]
    for declared, argument in zip(declarations, given, strict=True):
        declared.value = argument
    model.batch = batch
    launches = evaluator.states.of(Launches)
    launches.in_entry = True
    model.positions = next((a for n, a in zip(entry.inputs, arguments, strict=False) if n.name == "positions"), None)
    try:
        result = evaluator.body_in(block, entry.body, scope)
        with evaluator.builder.at(block):
            given_too = [] if settings is None else [arguments[inputs - 1], arguments[1]]
            results = _results(evaluator, entry, evaluator.value_of(result, entry.body[-1]), choose, given_too)
            results += [state.value for state in states]
            evaluator.builder.emit("func.return", results, [], {}, entry.form)
        names = [f"result:{entry.name}", "result:next"][: len(results) - len(states)]
        names += [f"state:{state.name}" for state in states]
    finally:
        model.batch, model.positions, launches.in_entry = 0, None, False
        for declared in declarations:
            declared.value = None
    kind = ir.FunctionType.get(types, [value.type for value in results])
    function.attributes["function_type"] = ir.TypeAttr.get(kind)
    function.attributes["results"] = _strings(names)
    evaluator.site.verify(function, entry.form)


def _results(evaluator: Evaluator, entry: Entry, result: Any, choose: Any, given_too: list[Any]) -> list[Any]:
    """The entry's result and, where the program generates from it, the next tokens.

    given_too: what `choose` takes between the logits and the size of the vocabulary.
    """
    form = entry.body[-1]
    if not shapes.is_tensor(result):
        evaluator.site.fail(f"an entry gives a tensor, and `{entry.name}` gives {describe(result)}", form)
    model = evaluator.states.of(Model)
    generation = model.generation
    if generation is None or generation.entry != entry.name:
        return [result]
    if len(result.type.shape) != 2 or result.type.shape[0] != model.batch:
        evaluator.site.fail(f"`generate` wants one row of logits for each sequence, and got {result.type}", form)
    width = result.type.shape[1]
    vocabulary = model.config.get("vocab", width)
    if not isinstance(vocabulary, int) or not 0 < vocabulary <= width:
        evaluator.site.fail(f"vocab is {vocabulary}, and {entry.name} gives {width} logits", form)
    return [result, evaluator.call(choose, [result, *given_too, vocabulary], form)]


def _attributes(entry: Entry, batch: int, positions: int, model: Any, drawn: bool) -> dict[str, Any]:
    i64 = ir.IntegerType.get_signless(64)
    decodes = model.generation is not None and model.generation.entry == entry.name and positions == 1
    names = [f"input:{name.name}" for name in entry.inputs] + ["input:sampling"] * drawn
    names += [f"weight:{name}" for name in model.weights] + [f"state:{name}" for name in model.states]
    return {
        "sym_name": ir.StringAttr.get(f"{entry.name.replace('-', '_')}_b{batch}_s{positions}" + "_drawn" * drawn),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get([], [])),
        "entry": ir.StringAttr.get(("decode-drawn" if drawn else "decode-greedy") if decodes else entry.name),
        "sizes": ir.DictAttr.get(
            {"batch": ir.IntegerAttr.get(i64, batch), "positions": ir.IntegerAttr.get(i64, positions)}
        ),
        "arguments": _strings(names),
        "repeatable": ir.UnitAttr.get(),
        "inputs": ir.DictAttr.get({name.name: ir.DenseI64ArrayAttr.get([batch, positions]) for name in entry.inputs}),
    }


def _strings(names: list[str]) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names])


def _with_batch(state: State, batch: int) -> tuple[int, ...]:
    shape = state.shape
    return (shape[0], batch, *shape[1:]) if len(shape) > 1 else (batch, *shape)


def _type(evaluator: Evaluator, declared: Weight | State, shape: tuple[int, ...]) -> ir.Type:
    return shapes.tensor_type(evaluator, shape, ir.Type.parse(declared.dtype), declared.form)
