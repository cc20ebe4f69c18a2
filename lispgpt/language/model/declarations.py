"""The model tier: config, weights, state, entries and generation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lispgpt.dtypes import MODEL_DTYPES
from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment, did_you_mean
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin, special
from lispgpt.language.core.values import State, StateReference, Weight, describe
from lispgpt.language.forms import shapes
from lispgpt.language.forms.choice import holds
from lispgpt.language.forms.tensors import dimension
from lispgpt.language.reader.forms import Form, Keyword, List, Map, Symbol, Vector, head_name, show

COUNTS = ("max-new-tokens", "top-k", "seed")
GENERATE_OPTIONS = (*COUNTS, "temperature", "top-p", "greedy")


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry point: evaluated once for each shape that it is compiled for."""

    name: str
    inputs: tuple[Symbol, ...]
    body: tuple[Form, ...]
    environment: Environment
    form: Form


@dataclass(frozen=True, eq=False)
class Generation:
    """`(generate entry {options})`"""

    entry: str
    options: dict[str, int | float | bool]
    form: Form


@dataclass(eq=False)
class Model:
    """What a program declares of a model.  overrides win over the checkpoint's config, which wins over the program's
    own; batch and positions are those of the entry that is being built."""

    overrides: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Weight] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    generation: Generation | None = None
    batch: int = 0
    positions: ir.Value | None = None


@special("config", 0, None)
def _config(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    model = evaluator.states.of(Model)
    items = form.items[1:]
    for index in range(0, len(items), 2):
        name = items[index]
        if not isinstance(name, Symbol) or index + 1 == len(items):
            evaluator.site.fail("`config` binds names and values in pairs: (config layers 12 heads 12)", name)
        if name.name in model.config:
            evaluator.site.fail(f"the config value {name.name} is given twice", name)
        value = evaluator.single(items[index + 1], environment)
        for source, given in (("the checkpoint", model.checkpoint), ("--set", model.overrides)):
            if name.name in given:
                value = _overridden(evaluator, name, value, given[name.name], source)
        model.config[name.name] = value
        environment.define(name, value)
    return None


def _overridden(evaluator: Evaluator, name: Symbol, value: Any, given: Any, source: str) -> Any:
    """A config value from outside, of the kind that the program's own has."""
    if isinstance(value, ir.Type) and isinstance(given, str) and given in MODEL_DTYPES:
        return ir.Type.parse(given)
    if isinstance(value, float) and isinstance(given, int) and not isinstance(given, bool):
        return float(given)
    if isinstance(value, ir.Type):
        evaluator.site.fail(
            f"{source} gives {name.name} as {given!r}, which is none of {', '.join(MODEL_DTYPES)}", name
        )
    if type(given) is not type(value):
        evaluator.site.fail(f"{source} gives {name.name} as {given!r}, and the program has {value!r} there", name)
    return given


@special("weights", 0, None)
def _weights(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    for item in form.items[1:]:
        _declare_weights(evaluator, item, environment, ())
    return None


def _declare_weights(evaluator: Evaluator, item: Form, environment: Environment, leading: tuple[int, ...]) -> None:
    """One weight, or those of a `(per layers …)` or of a `(when condition …)` that holds."""
    head = head_name(item)
    stacks = head == "per" and not leading
    if not (stacks or head == "when") or not isinstance(item, List) or len(item.items) < 3:
        _weight(evaluator, item, environment, leading)
        return
    if stacks:
        leading = (dimension(evaluator, item.items[1], environment),)
    elif not holds(evaluator.single(item.items[1], environment)):
        return
    for inner in item.items[2:]:
        _declare_weights(evaluator, inner, environment, leading)


def _weight(evaluator: Evaluator, form: Form, environment: Environment, leading: tuple[int, ...]) -> None:
    name, shape, dtype = _declaration(evaluator, form, environment, "(wte [vocab width] bf16)")
    if name.name in evaluator.states.of(Model).weights:
        evaluator.site.fail(f"the weight {name.name} is declared twice", name)
    weight = Weight(name.name, leading + shape, dtype, bool(leading), form)
    evaluator.states.of(Model).weights[name.name] = weight
    environment.define(name, weight)


def _declaration(
    evaluator: Evaluator, form: Form, environment: Environment, example: str
) -> tuple[Symbol, tuple[int, ...], str]:
    parts = form.items if isinstance(form, List) else ()
    if len(parts) not in (2, 3) or not isinstance(parts[0], Symbol) or not isinstance(parts[1], Vector):
        evaluator.site.fail(f"`{show(form)}` is not a name, its sizes and a type, like {example}", form)
    sizes = tuple(dimension(evaluator, size, environment) for size in parts[1].items)
    if not sizes:
        evaluator.site.fail(f"`{parts[0].name}` has no dimension", parts[1])
    dtype = "f32"
    if len(parts) == 3:
        dtype = str(evaluator.single(parts[2], environment))
        if dtype not in MODEL_DTYPES:
            evaluator.site.fail(f"`{show(parts[2])}` is not one of the types {', '.join(MODEL_DTYPES)}", parts[2])
    return parts[0], sizes, dtype


@special("state", 0, None)
def _state(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    for item in form.items[1:]:
        name, shape, dtype = _declaration(evaluator, item, environment, "(kv [layers 2 heads context 64] bf16)")
        if name.name in evaluator.states.of(Model).states:
            evaluator.site.fail(f"the state {name.name} is declared twice", name)
        state = State(name.name, shape, dtype, item)
        evaluator.states.of(Model).states[name.name] = state
        environment.define(name, state)
    return None


@special("entry", 3, None)
def _entry(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    name, inputs = form.items[1], form.items[2]
    if not isinstance(name, Symbol) or not isinstance(inputs, Vector):
        evaluator.site.fail("an entry is (entry name [tokens positions] body)", form)
    names = tuple(item for item in inputs.items if isinstance(item, Symbol))
    if len(names) != len(inputs.items) or not names:
        evaluator.site.fail("an entry's inputs are names: (entry name [tokens positions] body)", inputs)
    if name.name in evaluator.states.of(Model).entries:
        evaluator.site.fail(f"the entry {name.name} is defined twice", name)
    evaluator.states.of(Model).entries[name.name] = Entry(name.name, names, form.items[3:], environment.capture(), form)
    return None


@special("generate", 1, 2)
def _generate(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    model, name = evaluator.states.of(Model), form.items[1]
    if not isinstance(name, Symbol) or name.name not in model.entries:
        evaluator.site.fail(f"`{show(name)}` is not an entry{did_you_mean(show(name), model.entries)}", name)
    if model.generation is not None:
        evaluator.site.fail("a program has one `generate`", form)
    options: dict[str, int | float | bool] = {}
    given = form.items[2].items if len(form.items) > 2 and isinstance(form.items[2], Map) else ()
    if len(form.items) > 2 and not isinstance(form.items[2], Map):
        evaluator.site.fail("the options of `generate` are a map: {:max-new-tokens 64 :top-k 50}", form.items[2])
    for index in range(0, len(given), 2):
        key = given[index]
        if not isinstance(key, Keyword) or index + 1 == len(given):
            evaluator.site.fail(f"`{show(key)}` is not a :key with a value", key)
        if key.name not in GENERATE_OPTIONS:
            hint = did_you_mean(key.name, GENERATE_OPTIONS, f"; there are {', '.join(GENERATE_OPTIONS)}")
            evaluator.site.fail(f"`generate` has no option :{key.name}{hint}", key)
        value = evaluator.single(given[index + 1], environment)
        if not isinstance(value, (int, float)):
            evaluator.site.fail(f"`:{key.name}` is a number, and not {describe(value)}", given[index + 1])
        if key.name in COUNTS and (type(value) is not int or value < 0):
            evaluator.site.fail(f"`:{key.name}` is a whole number from 0, and not {describe(value)}", given[index + 1])
        options[key.name] = value
    model.generation = Generation(name.name, options, form)
    return None


def indexed(evaluator: Evaluator, target: Weight | State, arguments: list[Any], form: Form) -> Any:
    """`(ln1-w l)`: a layer's part of a weight; `(kv l)`: a reference to a part of a state."""
    count = len(target.shape) if isinstance(target, State) else int(target.stacked)
    if not arguments or len(arguments) > count:
        evaluator.site.fail(f"`{show(form)}`: {target.name} takes {'one index' if count else 'no index'}", form)
    for index, size in zip(arguments, target.shape, strict=False):
        if not isinstance(index, int) or not 0 <= index < size:
            message = f"{target.name} goes from 0 to {size - 1} here, and `{show(form)}` asks for {describe(index)}"
            evaluator.site.fail(message, form)
    if isinstance(target, State):
        return StateReference(target, tuple(arguments))
    if target.value is None:
        evaluator.site.fail(f"the weight {target.name} has a value inside an entry only", form)
    offsets = (*arguments, *[0] * (len(target.shape) - 1))
    return shapes.extract(evaluator, target.value, offsets, (None, *target.shape[1:]), form)


def _window(evaluator: Evaluator, value: Any, form: Form) -> tuple[State, tuple[Any, ...], tuple[Any, ...]]:
    """A state and the offsets and sizes in it that a reference stands for."""
    if isinstance(value, State):
        value = StateReference(value, ())
    if not isinstance(value, StateReference):
        evaluator.site.fail(f"a state or a part of one is wanted here, and this is {describe(value)}", form)
    state = value.state
    if state.value is None:
        evaluator.site.fail(f"the state {state.name} has a value inside an entry only", form)
    sizes: list[Any] = list(state.value.type.shape)
    offsets = [0] * len(sizes)
    batch = 1 if len(state.shape) > 1 else 0
    for position, index in enumerate(value.index):
        place = position if position < batch else position + 1
        offsets[place], sizes[place] = index, None
    return state, tuple(offsets), tuple(sizes)


@builtin("read-state", 1, 1)
def _read_state(evaluator: Evaluator, form: Form, reference: Any) -> Any:
    """`(read-state (kv l))`: what a state holds by now; its batch comes first after the fixed dimensions."""
    state, offsets, sizes = _window(evaluator, reference, form)
    assert state.value is not None
    return shapes.extract(evaluator, state.value, offsets, sizes, form)


@builtin("write-state", 2, 2)
def _write_state(evaluator: Evaluator, form: Form, reference: Any, value: Any) -> Any:
    """`(write-state (kv l) x)`: from here on the state holds x there; gives x."""
    state, offsets, sizes = _window(evaluator, reference, form)
    assert state.value is not None
    value = shapes.tensor_of(evaluator, value, form, "write-state")
    state.value = shapes.insert(evaluator, value, state.value, offsets, sizes, form)
    return value


@builtin("batch", 0, 0)
def _batch(evaluator: Evaluator, form: Form) -> Any:
    """How many sequences the entry being built runs at once; row n belongs to sequence n / (rows / batch)."""
    if not evaluator.states.of(Model).batch:
        evaluator.site.fail("`batch` has a value inside an entry only", form)
    return evaluator.states.of(Model).batch


@builtin("row-positions", 0, 0)
def _row_positions(evaluator: Evaluator, form: Form) -> Any:
    """The entry's input `positions`: where in its sequence each row stands, a tensor of i32."""
    if evaluator.states.of(Model).positions is None:
        evaluator.site.fail("`row-positions` needs an entry with an input named positions", form)
    return evaluator.states.of(Model).positions
