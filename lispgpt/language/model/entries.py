"""`entry`: typed inputs, free dimensions, the shapes to compile for; and calling one entry from another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import MISSING, Environment, did_you_mean
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin, special
from lispgpt.language.core.values import Builtin, Special, describe, items_of
from lispgpt.language.forms import shapes
from lispgpt.language.forms.choice import holds
from lispgpt.language.forms.tensors import dimension
from lispgpt.language.model.declarations import dtype_of, is_free
from lispgpt.language.model.narrow import U8
from lispgpt.language.model.table import BATCH, POSITIONS, Entry, Input, Model
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Map, Symbol, Vector, head_name, show

EXAMPLE = "(entry name [tokens positions] body) or (entry name [(x [batch 784] f32)] body)"


@special("entry", 3, None)
def _entry(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(entry name [(x [batch 784] f32) …] {:shapes [{batch 4} …]}? body…)`"""
    model, name, inputs = evaluator.states.of(Model), form.items[1], form.items[2]
    if not isinstance(name, Symbol) or not isinstance(inputs, Vector):
        evaluator.site.fail(f"an entry is {EXAMPLE}", form)
    taken = tuple(each for item in inputs.items for each in _inputs_of(evaluator, item, environment))
    names = [declared.name.name for declared in taken]
    for declared in taken:
        if names.count(declared.name.name) > 1:
            evaluator.site.fail(f"two inputs of {name.name} are called {declared.name.name}", declared.name)
    if name.name in model.entries:
        evaluator.site.fail(f"the entry {name.name} is defined twice", name)
    options, body = _options(form.items[3:])
    if not body:
        evaluator.site.fail(f"the entry {name.name} computes nothing", form)
    dimensions = tuple(_dimensions(taken, environment))
    chosen = None if options is None else _shapes(evaluator, options, dimensions, name, environment)
    calls = tuple((frame.what, frame.form) for frame in evaluator.site.frames)
    entry = Entry(name.name, taken, dimensions, chosen, body, environment.capture(), form, calls=calls)
    model.entries[name.name] = entry
    if isinstance(environment.lookup(name), (Special, Builtin)) or environment.lookup(name) is MISSING:
        environment.define(name, entry)
    return None


@special("inputs", 1, None)
def _inputs(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(inputs (x [batch 784] f32) …)`: inputs of entries, as a list; an entry in place of one gives all of its
    own, as a list of such inputs does.  Sizes that the program knows are what they are here."""
    found: list[Input] = []
    for item in form.items[1:]:
        if _is_declaration(item):
            found.append(_known(evaluator, _input(evaluator, item, environment), environment))
            continue
        value = evaluator.single(item, environment)
        if isinstance(value, Entry):
            found += [_known(evaluator, declared, value.environment) for declared in value.inputs]
        elif (listed := items_of(value)) is not None and all(isinstance(each, Input) for each in listed):
            found += listed
        else:
            message = "`inputs` wants (name [sizes] type), an entry, or what another `inputs` gives, not "
            evaluator.site.fail(message + describe(value), item)
    return tuple(found)


@builtin("input-name", 1, 1)
def _input_name(evaluator: Evaluator, form: Form, given: Any) -> Any:
    """`(input-name i)`: what an input is called."""
    return _given(evaluator, given, form, "input-name").name.name


@builtin("input-value", 1, 1)
def _input_value(evaluator: Evaluator, form: Form, given: Any) -> Any:
    """`(input-value i)`: what the entry that is being built is given for an input of that name."""
    name, now = _given(evaluator, given, form, "input-value").name.name, evaluator.states.of(Model).building
    held = {} if now is None else now.inputs
    if name not in held:
        evaluator.site.fail(f"no entry is being built that has an input {name}", form)
    return held[name].value


def _given(evaluator: Evaluator, value: Any, form: Form, what: str) -> Input:
    if not isinstance(value, Input):
        evaluator.site.fail(f"`{what}` wants an input, as `inputs` lists them, and got {describe(value)}", form)
    return value


def _is_declaration(item: Form) -> bool:
    return isinstance(item, List) and len(item.items) > 1 and isinstance(item.items[1], Vector)


def _inputs_of(evaluator: Evaluator, item: Form, environment: Environment) -> tuple[Input, ...]:
    """One input, or those of `(inputs …)`."""
    listed = isinstance(item, List) and head_name(item) == "inputs" and not _is_declaration(item)
    return _inputs(evaluator, item, environment) if listed else (_input(evaluator, item, environment),)  # type: ignore[arg-type]


def _known(evaluator: Evaluator, declared: Input, environment: Environment) -> Input:
    """The input with numbers in place of the names that stand for some."""

    def known(size: Form) -> Form:
        if isinstance(size, Symbol):
            value = environment.lookup(size)
            return Literal(size.span, value) if type(value) is int else size
        if isinstance(size, List):
            return List(size.span, (size.items[0], *map(known, size.items[1:])))
        return size

    return (
        declared if declared.sizes is None else Input(declared.name, tuple(map(known, declared.sizes)), declared.dtype)
    )


def _input(evaluator: Evaluator, item: Form, environment: Environment) -> Input:
    """A name alone, or `(x [batch 784] f32)`, whose type is f32 where it says none."""
    if isinstance(item, Symbol):
        return Input(item, None, "i32")
    parts = item.items if isinstance(item, List) else ()
    if len(parts) not in (2, 3) or not isinstance(parts[0], Symbol) or not isinstance(parts[1], Vector):
        evaluator.site.fail(
            f"`{show(item)}` is no input: it is a name, or a name, its sizes and a type, as in {EXAMPLE}", item
        )
    dtype = dtype_of(evaluator, parts[2], environment) if len(parts) == 3 else str(evaluator.builder.f32)
    return Input(parts[0], parts[1].items, dtype)


def _options(forms: tuple[Form, ...]) -> tuple[Vector | None, tuple[Form, ...]]:
    """The value of `{:shapes …}`, which may stand before or after the body, and the forms of the body."""
    for place in (0, len(forms) - 1):
        option = forms[place]
        if len(forms) > 1 and isinstance(option, Map) and len(option.items) == 2:
            key, value = option.items
            if isinstance(key, Keyword) and key.name == "shapes" and isinstance(value, Vector):
                return value, forms[:place] + forms[place + 1 :]
    return None, forms


def _dimensions(inputs: tuple[Input, ...], environment: Environment) -> Iterator[str]:
    """The free dimensions that inputs name, each once."""
    seen: set[str] = set()
    for declared in inputs:
        names = (BATCH, POSITIONS) if declared.sizes is None else _free_names(declared.sizes, environment)
        for name in names:
            if name not in seen:
                seen.add(name)
                yield name


def _free_names(sizes: tuple[Form, ...], environment: Environment) -> Iterator[str]:
    for size in sizes:
        if isinstance(size, Symbol) and is_free(size, environment):
            yield size.name
        elif isinstance(size, List):
            yield from _free_names(size.items[1:], environment)


def _shapes(
    evaluator: Evaluator, option: Vector, dimensions: tuple[str, ...], name: Symbol, environment: Environment
) -> tuple[dict[str, int], ...]:
    """The choices of free dimensions in `[{batch 4 length 64} …]`."""
    found = []
    for item in option.items:
        if not isinstance(item, Map) or len(item.items) % 2:
            evaluator.site.fail(f"`{show(item)}` is no choice of sizes, like {{batch 4 length 64}}", item)
        chosen: dict[str, int] = {}
        for key, value in zip(item.items[::2], item.items[1::2], strict=True):
            if not isinstance(key, (Symbol, Keyword)) or key.name not in dimensions:
                known = f"; it has {', '.join(dimensions)}" if dimensions else "; it has none"
                hint = did_you_mean(show(key), dimensions, known)
                evaluator.site.fail(f"{name.name} has no free dimension `{show(key)}`{hint}", key)
            if key.name in chosen:
                evaluator.site.fail(f"`{show(item)}` gives {key.name} twice", key)
            chosen[key.name] = dimension(evaluator, value, environment)
        found.append(chosen)
    return tuple(found)


@builtin("restrict-shapes", 2, 2)
def _restrict_shapes(evaluator: Evaluator, form: Form, entry: Any, allowed: Any) -> Any:
    """`(restrict-shapes e (fn [batch positions] …))`: of the shapes that nobody gave, those that the function takes."""
    if not isinstance(entry, Entry):
        evaluator.site.fail(f"`restrict-shapes` wants an entry, and got {describe(entry)}", form)
    entry.allowed = lambda sizes: holds(evaluator.call(allowed, list(sizes), form))


def call(evaluator: Evaluator, entry: Entry, arguments: list[Any], form: Form) -> Any:
    """`(logits tokens positions)`: an entry's value for other inputs, inside another entry.  Its `positions` are where
    its rows stand (`row-positions`), and its `(batch)` is that of what it is given."""
    if len(arguments) != len(entry.inputs):
        takes = ", ".join(declared.name.name for declared in entry.inputs)
        evaluator.site.fail(f"the entry {entry.name} takes {takes or 'nothing'}, and {len(arguments)} are given", form)
    scope = Environment(entry.environment)
    sizes: dict[str, int] = {}
    for declared, argument in zip(entry.inputs, arguments, strict=True):
        value = evaluator.ssa(argument, form)
        if declared.sizes is not None:
            _check_tensor(evaluator, entry, declared, value, form)
            learn_sizes(evaluator, entry, declared, value.type.shape, sizes, form)
        scope.define(declared.name, value)
    for name, size in sizes.items():
        scope.names[name] = size
    with evaluator.site.frame(entry.name, form), _standing_at(evaluator, scope, entry, sizes, form):
        return evaluator.body(entry.body, scope)


@contextmanager
def _standing_at(
    evaluator: Evaluator, scope: Environment, entry: Entry, sizes: dict[str, int], form: Form
) -> Iterator[None]:
    """Have the rows stand at the positions that a called entry is given, and its sizes be those of what it is given."""
    now = evaluator.states.of(Model).building
    given = next((i for i in entry.inputs if i.name.name == POSITIONS), None)
    if now is None:
        yield
        return
    before = now.positions, now.sizes
    now.sizes = now.sizes | sizes
    if given is not None:
        positions = shapes.tensor_of(evaluator, scope.names[POSITIONS], form, entry.name)
        now.positions = shapes.reshape(evaluator, positions, (prod(positions.type.shape),), form)
    try:
        yield
    finally:
        now.positions, now.sizes = before


def _check_tensor(evaluator: Evaluator, entry: Entry, declared: Input, value: Any, form: Form) -> None:
    name = declared.name.name
    if not isinstance(value, ir.Value) or not isinstance(value.type, ir.RankedTensorType):
        evaluator.site.fail(f"{name} of {entry.name} is a tensor, and this is {describe(value)}", form)
    dtype = "i32" if declared.dtype == U8 else declared.dtype
    if str(value.type.element_type) != dtype:
        evaluator.site.fail(f"{name} of {entry.name} is {declared.dtype}, and this is {value.type}", form)


def learn_sizes(
    evaluator: Evaluator, entry: Entry, declared: Input, shape: Sequence[int], sizes: dict[str, int], form: Form
) -> None:
    """Learn an entry's free dimensions from the shape of what is given for an input, and check the rest of it."""
    name, wanted = declared.name.name, declared.sizes
    if wanted is None:
        wanted = tuple(Symbol(declared.name.span, dimension) for dimension in (BATCH, POSITIONS))
    names = [size.name if isinstance(size, Symbol) else show(size) for size in wanted]
    spelled = " ".join(names)
    if len(shape) != len(wanted):
        given = f"a tensor [{' '.join(map(str, shape))}]" if shape else "a scalar"
        evaluator.site.fail(f"{name} of {entry.name} is a tensor [{spelled}], and {given} is given", form)
    scope = Environment(entry.environment)
    for size, written, found in zip(wanted, names, shape, strict=True):
        if isinstance(size, Symbol) and size.name in entry.dimensions:
            known = sizes.setdefault(size.name, found)
        else:
            scope.names.update(sizes)
            known = dimension(evaluator, size, scope)
        if known != found:
            evaluator.site.fail(
                f"{name} of {entry.name} is [{spelled}] with `{written}` = {known}, and {found} is given there",
                form,
            )


@builtin("results", 1, 1)
def _results(evaluator: Evaluator, form: Form, value: Any) -> Any:
    """`(results x)`: the values of a map, or the one value that x is, in a list."""
    found = items_of(value)
    return (value,) if found is None else found
