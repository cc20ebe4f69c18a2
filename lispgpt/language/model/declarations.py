"""What a model is made of: `config`, `weights` and `state`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lispgpt.base.dtypes import BLOCK_DTYPES, CONFIG_DTYPES, DECLARED_DTYPES, MOST_DIMENSIONS, ROW_DTYPES, find_dtype
from lispgpt.ir.mlir import ir
from lispgpt.language.core.attributes import parse_type
from lispgpt.language.core.environment import MISSING, Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin, special
from lispgpt.language.core.values import BlockType, State, Weight, describe
from lispgpt.language.forms.choice import holds
from lispgpt.language.forms.tensors import dimension
from lispgpt.language.model.layers import Stack, is_stack, stack_of
from lispgpt.language.model.packed import check_rows
from lispgpt.language.model.table import Model
from lispgpt.language.reader.forms import Form, Keyword, List, Map, Symbol, Vector, head_name, show

WEIGHT_TYPE, WEIGHT_TYPES = "weight-type", "weight-types"
"""The config's type of matrices, and what a checkpoint says of those that it has in blocks."""
DISTRIBUTIONS = ("normal", "uniform")


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
    if isinstance(value, (ir.Type, BlockType)) and isinstance(given, str):
        if given in BLOCK_DTYPES:
            return BlockType(given)
        if given in CONFIG_DTYPES:
            return parse_type(evaluator.builder, given, name)
    if isinstance(value, float) and isinstance(given, int) and not isinstance(given, bool):
        return float(given)
    if isinstance(value, (ir.Type, BlockType)):
        known = ", ".join([*CONFIG_DTYPES, *BLOCK_DTYPES])
        evaluator.site.fail(f"{source} gives {name.name} as {given!r}, which is none of {known}", name)
    if isinstance(value, tuple) and isinstance(given, list):
        return tuple(given)
    if type(given) is not type(value):
        evaluator.site.fail(f"{source} gives {name.name} as {given!r}, and the program has {value!r} there", name)
    return given


@builtin("configured", 2, 2)
def _configured(evaluator: Evaluator, form: Form, name: Any, otherwise: Any) -> Any:
    """`(configured "vocab" 50257)`: the value of a name of the program's config, or the other where it has none."""
    return evaluator.states.of(Model).config.get(name, otherwise)


@special("weights", 0, None)
def _weights(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    for item in form.items[1:]:
        for each, stack in _declarations(evaluator, item, environment):
            _weight(evaluator, each, environment, stack)
    return None


def _declarations(
    evaluator: Evaluator, item: Form, environment: Environment, stack: Stack | None = None
) -> Iterator[tuple[Form, Stack | None]]:
    """One weight or state, or those of a `(per layers …)` that has layers, or of a `(when condition …)` that holds."""
    if is_stack(item) and stack is None:
        stack, inside = stack_of(evaluator, item, environment)  # type: ignore[arg-type]
        if not stack.count:
            return
    elif head_name(item) == "when" and len(item.items) > 2:  # type: ignore[attr-defined]
        inside = item.items[2:] if holds(evaluator.single(item.items[1], environment)) else ()  # type: ignore[attr-defined]
    else:
        yield item, stack
        return
    for inner in inside:
        yield from _declarations(evaluator, inner, environment, stack)


def _weight(evaluator: Evaluator, form: Form, environment: Environment, stack: Stack | None) -> None:
    """`(w [out in] bf16 {:init (normal 0.02)})`: the options say what training from nothing begins with."""
    options = form.items[-1] if isinstance(form, List) and isinstance(form.items[-1], Map) else None
    plain = form if options is None else List(form.span, form.items[:-1])  # type: ignore[attr-defined]
    name, sizes, dtype = _declaration(evaluator, plain, environment, "(wte [vocab width] bf16)", BLOCK_DTYPES)
    shape = tuple(dimension(evaluator, size, environment) for size in sizes)
    if name.name in evaluator.states.of(Model).weights:
        evaluator.site.fail(f"the weight {name.name} is declared twice", name)
    initial = None if options is None else _initial(evaluator, options, environment)
    dtype = _stored_dtype(evaluator, name, plain, shape, dtype)
    leading, layers = ((stack.count,), stack.layers) if stack else ((), None)
    weight = Weight(name.name, leading + shape, dtype, bool(leading), form, initial, layers)
    evaluator.states.of(Model).weights[name.name] = weight
    environment.define(name, weight)


def _stored_dtype(evaluator: Evaluator, name: Symbol, form: Form, shape: tuple[int, ...], dtype: str) -> str:
    """A weight's type: the checkpoint's own blocks, where the program leaves it to the config's weight-type and nobody
    set that."""
    model, parts = evaluator.states.of(Model), form.items if isinstance(form, List) else ()
    named = len(parts) == 3 and isinstance(parts[2], Symbol) and parts[2].name == WEIGHT_TYPE
    if named and WEIGHT_TYPE not in model.overrides:
        dtype = model.checkpoint.get(WEIGHT_TYPES, {}).get(name.name, dtype)
    block, row = find_dtype(dtype).block, shape[-1] if shape else 1
    if row % block:
        evaluator.site.fail(f"rows of {name.name} have {row} elements, and blocks of {dtype} have {block}", form)
    return dtype


def _initial(evaluator: Evaluator, options: Map, environment: Environment) -> tuple[str, float]:
    """A number that all elements are, `(normal deviation)`, or `(uniform limit)` for numbers from -limit to limit."""
    key = options.items[0] if options.items else options
    if len(options.items) != 2 or not isinstance(key, Keyword) or key.name != "init":
        evaluator.site.fail("a weight's one option is {:init 1}, {:init (normal 0.02)} or {:init (uniform 0.1)}", key)
    kind, form = head_name(options.items[1]), options.items[1]
    if kind in DISTRIBUTIONS and isinstance(form, List) and len(form.items) == 2:
        form = form.items[1]
    else:
        kind = "constant"
    head = form.items[0] if isinstance(form, List) and form.items else None
    unknown = isinstance(head, Symbol) and environment.lookup(head) is MISSING
    value = None if unknown else evaluator.single(form, environment)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        given = f"`{show(form)}`" if unknown else describe(value)
        evaluator.site.fail(f"`:init` is a number, such as 1, (normal N) or (uniform N), and this is {given}", form)
    if kind != "constant" and value < 0:
        evaluator.site.fail(f"`{kind}` is about 0, as far as {show(form)}, which may not be below 0", form)
    return kind, float(value)


def _declaration(
    evaluator: Evaluator, form: Form, environment: Environment, example: str, more: tuple[str, ...] = ()
) -> tuple[Symbol, tuple[Form, ...], str]:
    """The name, the forms of the sizes and the type of a weight or state.  more: types beside those of all tensors."""
    parts = form.items if isinstance(form, List) else ()
    if len(parts) not in (2, 3) or not isinstance(parts[0], Symbol) or not isinstance(parts[1], Vector):
        evaluator.site.fail(f"`{show(form)}` is not a name, its sizes and a type, like {example}", form)
    if len(parts[1].items) > MOST_DIMENSIONS - 1:  # of which a stack of layers has one more
        evaluator.site.fail(f"a weight or state has at most {MOST_DIMENSIONS - 1} dimensions", parts[1])
    known = (*DECLARED_DTYPES, *more)
    return (
        parts[0],
        parts[1].items,
        dtype_of(evaluator, parts[2], environment, known) if len(parts) == 3 else str(evaluator.builder.f32),
    )


SPELLED = {"bool": "i1", "u8": "u8"}
"""Types of declared tensors that are none of MLIR's."""


def dtype_of(
    evaluator: Evaluator, form: Form, environment: Environment, known: tuple[str, ...] = DECLARED_DTYPES
) -> str:
    """The type of a declared tensor's elements."""
    spelled = SPELLED.get(form.name) if isinstance(form, Symbol) and environment.lookup(form) is MISSING else None
    dtype = spelled or str(evaluator.single(form, environment))
    if evaluator.builder.wide and dtype in ("f32", "bf16", "f16"):
        return "f64"
    if dtype not in known:
        evaluator.site.fail(f"`{show(form)}` is not one of the types {', '.join(known)}", form)
    return dtype


def is_free(size: Form, environment: Environment) -> bool:
    """Whether a size is a name that stands for no number: a free dimension of the entry."""
    return isinstance(size, Symbol) and not isinstance(environment.lookup(size), (int, float))


@special("state", 0, None)
def _state(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    for item in form.items[1:]:
        for each, stack in _declarations(evaluator, item, environment):
            _one_state(evaluator, each, environment, stack)
    return None


def _one_state(evaluator: Evaluator, item: Form, environment: Environment, stack: Stack | None) -> None:
    model = evaluator.states.of(Model)
    example = "(kv [layers 2 heads context 64] bf16)"
    name, sizes, dtype = _declaration(evaluator, item, environment, example, ROW_DTYPES)
    if name.name in model.states:
        evaluator.site.fail(f"the state {name.name} is declared twice", name)
    dtype = "f64" if dtype in ROW_DTYPES and evaluator.builder.wide else dtype
    shape = tuple(_state_size(evaluator, size, environment) for size in sizes)
    leading, layers = ((stack.count,), stack.layers) if stack else ((), None)
    state = State(name.name, leading + shape, dtype, item, layers=layers)
    check_rows(evaluator, state)
    model.states[name.name] = state
    environment.define(name, state)


def _state_size(evaluator: Evaluator, size: Form, environment: Environment) -> int | str:
    """A number, or the name of a free dimension of the entries that use the state."""
    if isinstance(size, Symbol) and is_free(size, environment):
        return size.name
    return dimension(evaluator, size, environment)
