"""Building an entry's function for one choice of its free dimensions."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from lispgpt.base.dtypes import DTYPES, find_dtype
from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import Bytes, Record, State, Variable, Weight, describe
from lispgpt.language.forms import shapes, tensors
from lispgpt.language.forms.launches import Launches
from lispgpt.language.forms.stretching import Inputs
from lispgpt.language.forms.tensors import dimension
from lispgpt.language.model import packed
from lispgpt.language.model.adapting import check_adapted
from lispgpt.language.model.blocks import is_in_blocks, stored_type, unpacked
from lispgpt.language.model.gradient_checks import GradientChecks
from lispgpt.language.model.gradient_rules import GradientRules
from lispgpt.language.model.index_checks import check_indices
from lispgpt.language.model.narrow import U8, is_bytes, numbers_of
from lispgpt.language.model.reports import Reports
from lispgpt.language.model.table import BATCH, POSITIONS, Building, Entry, Input, Model
from lispgpt.language.reader.forms import Form, List, Symbol, show


def build(evaluator: Evaluator, entry: Entry, sizes: dict[str, int], any_size: bool = False) -> None:
    """Add a function to the module: inputs, weights and states to results, and to what was updated as it is afterwards.

    Its attributes say what each argument and result is ("input:x", "weight:w", "state:s", "result:y"), the entry's name
    and sizes, the shapes that inputs were declared with, `batched` of one that takes whole sequences (the dimension of
    each argument that counts those of the batch, or -1), and whether the entry is `repeatable`: whether rows may stand
    in it twice; of states that `grows`, which dimension counts positions.  any_size: see `Building`.
    """
    with ExitStack() as calls:
        for what, form in entry.calls:
            calls.enter_context(evaluator.site.frame(what, form))
        _build(evaluator, entry, sizes, any_size)


def _build(evaluator: Evaluator, entry: Entry, sizes: dict[str, int], any_size: bool) -> None:
    model = evaluator.states.of(Model)
    scope = Environment(entry.environment)
    for name, size in sizes.items():
        scope.names[name] = size
    declared = {i.name.name: _declared_shape(evaluator, entry, i, scope) for i in entry.inputs}
    held: dict[str, Variable | Weight | State] = {}
    types: list[ir.Type] = []
    for given in entry.inputs:
        shape = declared[given.name.name]
        flat = (shape[0] * shape[1],) if given.sizes is None else shape
        types.append(shapes.tensor_type(evaluator, flat, ir.Type.parse(find_dtype(given.dtype).mlir), given.name))
        held[f"input:{given.name.name}"] = Variable(given.name.name)
    for weight in model.weights.values():
        types.append(stored_type(evaluator, weight))
        held[f"weight:{weight.name}"] = weight
    for state in model.states.values():
        extents = [sizes.get(size) if isinstance(size, str) else size for size in model.dimensions(state)]
        if None not in extents:
            types.append(packed.stored_type(evaluator, state, extents))  # type: ignore[arg-type]
            held[f"state:{state.name}"] = state
    function = evaluator.builder.emit(
        "func.func", [], [], _attributes(evaluator, entry, sizes, declared), entry.form, 1
    )
    location = evaluator.site.location(entry.form)
    block = ir.Block.create_at_start(function.regions[0], types, [location] * len(types))
    now = model.building = Building(entry, sizes, any_size=any_size)
    launches = evaluator.states.of(Launches)
    launches.in_entry = True
    reports = evaluator.states.of(Reports)
    reports.start()
    checks = evaluator.states.of(GradientChecks)
    checks.moves = {}
    for variable, argument in zip(held.values(), block.arguments, strict=True):
        variable.value, variable.updated = argument, False
    with evaluator.builder.at(block):
        for weight in filter(is_in_blocks, model.weights.values()):
            if not weight.stacked:
                weight.value = unpacked(evaluator, weight, weight.value, weight.form)
        for given in (given for given in entry.inputs if given.dtype == U8):
            variable = held[f"input:{given.name.name}"]
            variable.value = numbers_of(evaluator, variable.value, given.name)
        for weight in model.weights.values():
            if is_bytes(weight) and not weight.stacked:
                weight.value = numbers_of(evaluator, weight.value, weight.form)
    evaluator.states.of(Inputs).start([v.value for v in held.values() if not isinstance(v, Weight)])
    for given in entry.inputs:
        variable = held[f"input:{given.name.name}"]
        scope.define(given.name, variable)
        now.inputs[given.name.name] = variable  # type: ignore[assignment]
        if given.name.name == POSITIONS:
            now.positions = _rows(evaluator, block, variable.value, given.name)
    try:
        value = evaluator.value_of(evaluator.body_in(block, entry.body, scope), entry.body[-1])
        check_adapted(evaluator, model, now)
        with evaluator.builder.at(block):
            value, as_bytes = _without_bytes(value, entry.name)
            results = _results(evaluator, entry, value)
        shown = reports.results()
        for name, along in checks.moves.items():
            held[f"input:{name}"] = Variable(name, along)
            declared[name] = tuple(along.type.shape)
        types = _drop_unused(held, block, [*results.values(), *shown.values()])
        grows = model.growing()
        kept = {n: v.value for n, v in held.items() if isinstance(v, State) or v.updated}
        with evaluator.builder.at(block):
            returned = [*results.values(), *shown.values(), *kept.values()]
            evaluator.builder.emit("func.return", returned, [], {}, entry.form)
        evaluator.states.of(GradientRules).settle()
    finally:
        model.building, launches.in_entry = None, False
        evaluator.states.of(Inputs).start([])
        for variable in held.values():
            variable.value = None
    kind = ir.FunctionType.get(types, [value.type for value in returned])
    function.attributes["function_type"] = ir.TypeAttr.get(kind)
    unsigned = [f"input:{i.name.name}" for i in entry.inputs if i.dtype == U8] + [
        name for name, variable in held.items() if is_bytes(variable)
    ]
    unsigned += [f"result:{name}" for name in as_bytes]
    if checks.moves:
        function.attributes["inputs"] = _extents(declared)
    if unsigned:
        function.attributes["unsigned"] = _strings(unsigned)
    function.attributes["arguments"] = _strings(list(held))
    function.attributes["results"] = _strings([*(f"result:{name}" for name in results), *shown, *kept])
    if shown:
        function.attributes["reports"] = reports.attribute()
    if BATCH in sizes and not entry.takes_rows:
        function.attributes["batched"] = ir.DenseI64ArrayAttr.get([_batched(model, entry, name) for name in held])
    if now.minds_padding or not now.accumulates:
        function.attributes["repeatable"] = ir.UnitAttr.get()
    if grows:
        i64 = ir.IntegerType.get_signless(64)
        function.attributes["grows"] = ir.DictAttr.get({n: ir.IntegerAttr.get(i64, axis) for n, axis in grows.items()})
    evaluator.site.verify(function, entry.form)
    check_indices(evaluator, function, entry.form)


def _drop_unused(held: dict[str, Variable | Weight | State], block: ir.Block, results: list[ir.Value]) -> list[ir.Type]:
    """Take the states that the entry neither reads nor changes from its arguments; the types of those that are left."""
    arguments = list(block.arguments)
    values = [variable.value for variable in held.values()]
    changed = [value for value, argument in zip(values, arguments, strict=True) if value != argument]
    for number, (name, variable) in reversed(list(enumerate(held.items()))):
        argument = arguments[number]
        used = values[number] != argument or argument in [*results, *changed] or any(True for _ in argument.uses)
        if isinstance(variable, State) and not used:
            variable.value = None
            del held[name]
            block.erase_argument(number)
    return [argument.type for argument in block.arguments]


def _declared_shape(evaluator: Evaluator, entry: Entry, given: Input, scope: Environment) -> tuple[int, ...]:
    if given.sizes is None:
        return scope.names[BATCH], scope.names[POSITIONS]
    return tuple(dimension(evaluator, size, scope) for size in given.sizes)


def _rows(evaluator: Evaluator, block: ir.Block, positions: Any, form: Form) -> ir.Value:
    """One position for each row."""
    count = 1
    for extent in positions.type.shape:
        count *= extent
    with evaluator.builder.at(block):
        return shapes.reshape(evaluator, positions, (count,), form)


def _without_bytes(value: Any, name: str) -> tuple[Any, list[str]]:
    """An entry's value with tensors in place of `Bytes`, and the names of the results that were these."""
    if isinstance(value, Bytes):
        return value.value, [name]
    if not isinstance(value, Record):
        return value, []
    values = {key: each.value if isinstance(each, Bytes) else each for key, each in value.values.items()}
    return replace(value, values=values), [key for key, each in value.values.items() if isinstance(each, Bytes)]


def _results(evaluator: Evaluator, entry: Entry, value: Any) -> dict[str, ir.Value]:
    """The entry's results by name: what its last form says, or one by the entry's own name."""
    form = entry.body[-1]
    found = dict(value.values) if isinstance(value, Record) else {entry.name: value}
    if not found:
        evaluator.site.fail(f"`{entry.name}` has no result", form)
    for name, result in found.items():
        found[name] = result = tensors.of_scalar(evaluator, evaluator.value_of(result, form), form)
        if not shapes.is_tensor(result):
            what = f"{name} of `{entry.name}`" if isinstance(value, Record) else f"`{entry.name}`"
            evaluator.site.fail(f"an entry gives a tensor, and {what} gives {describe(result)}", form)
        kind = result.type.element_type
        if str(kind) not in DTYPES and not isinstance(kind, ir.IndexType):
            given = f"results are of f32, bf16, f16, f64, i8, i16, i32, i64 or i1, and `{name}` is of {kind}"
            evaluator.site.fail(f"{given}; `cast` converts", form)
    return found


def _attributes(
    evaluator: Evaluator,
    entry: Entry,
    sizes: dict[str, int],
    declared: dict[str, tuple[int, ...]],
) -> dict[str, Any]:
    stem = "_".join([entry.name, *(f"{name}{size}" for name, size in sizes.items())])
    stem = "".join(c if c.isalnum() else "_" for c in stem)
    names = (op.operation.attributes.get("sym_name") for op in evaluator.builder.module.body.operations)
    taken = {name.value for name in names if name is not None}
    symbol = next(name for name in (f"{stem}{n or ''}" for n in range(len(taken) + 1)) if name not in taken)
    return {
        "sym_name": ir.StringAttr.get(symbol),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get([], [])),
        "entry": ir.StringAttr.get(entry.name),
        "sizes": ir.ArrayAttr.get([ir.StringAttr.get(name) for name in sizes]),
        "extents": ir.DenseI64ArrayAttr.get(list(sizes.values())),
        "inputs": _extents(declared),
    }


def _extents(declared: dict[str, tuple[int, ...]]) -> ir.Attribute:
    return ir.DictAttr.get({name: ir.DenseI64ArrayAttr.get(list(shape)) for name, shape in declared.items()})


def _batched(model: Model, entry: Entry, argument: str) -> int:
    """The dimension of an argument that is the batch's size; -1 where it has none, -2 where it has one whose size is
    reckoned from the batch's."""
    kind, name = argument.split(":", 1)
    if kind == "state":
        dimensions = model.dimensions(model.states[name])
        return dimensions.index(BATCH) if BATCH in dimensions else -1
    given = next((given for given in entry.inputs if kind == "input" and given.name.name == name), None)
    for number, size in enumerate(given.sizes or () if given is not None else ()):
        if isinstance(size, Symbol) and size.name == BATCH:
            return number
        if isinstance(size, List) and BATCH in show(size).replace("(", " ").replace(")", " ").split():
            return -2
    return -1


def _strings(names: list[str]) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names])
