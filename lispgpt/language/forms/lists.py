"""Lists while compiling: `first rest nth count cons concat map fold range` and what else lives without SSA values."""

from __future__ import annotations

from typing import Any

from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin
from lispgpt.language.core.values import Record, describe, items_of, not_whole
from lispgpt.language.reader.forms import Form, Keyword, Symbol, show

LONGEST = 1_000_000


def _items(evaluator: Evaluator, value: Any, form: Form) -> tuple[Any, ...]:
    items = items_of(value)
    if items is None:
        evaluator.site.fail(f"`{show(form)}` wants a list, and got {describe(value)}", form)
    return items


@builtin("list", 0, None)
def _list(evaluator: Evaluator, form: Form, *members: Any) -> Any:
    return members


@builtin("first", 1, 1)
def _first(evaluator: Evaluator, form: Form, value: Any) -> Any:
    items = _items(evaluator, value, form)
    return items[0] if items else None


@builtin("rest", 1, 1)
def _rest(evaluator: Evaluator, form: Form, value: Any) -> Any:
    items = _items(evaluator, value, form)
    evaluator.spend(len(items), form)
    return items[1:]


@builtin("list?", 1, 1)
def _is_list(evaluator: Evaluator, form: Form, value: Any) -> Any:
    """`(list? x)`: whether a value is a list while compiling."""
    return items_of(value) is not None


@builtin("map?", 1, 1)
def _is_map(evaluator: Evaluator, form: Form, value: Any) -> Any:
    """`(map? x)`: whether a value is a map of keywords while compiling."""
    return isinstance(value, Record)


@builtin("get", 3, 3)
def _get(evaluator: Evaluator, form: Form, value: Any, key: Any, otherwise: Any) -> Any:
    """`(get {:a 1} :a 0)`: what a map has for a keyword, the last argument where it has nothing."""
    if not isinstance(value, Record) or not isinstance(key, Keyword):
        evaluator.site.fail(f"`get` wants a map and a keyword, and got {describe(value)} and {describe(key)}", form)
    return value.values.get(key.name, otherwise)


@builtin("keys", 1, 1)
def _keys(evaluator: Evaluator, form: Form, value: Any) -> Any:
    """`(keys {:a 1})`: the names that a map has values for, as strings."""
    if not isinstance(value, Record):
        evaluator.site.fail(f"`keys` wants a map, and got {describe(value)}", form)
    return tuple(value.values)


@builtin("merge", 1, None)
def _merge(evaluator: Evaluator, form: Form, *maps: Any) -> Any:
    """`(merge {:a 1} {:b 2})`: a map of all that maps have, of the last one where several have a name."""
    for value in maps:
        if not isinstance(value, Record):
            evaluator.site.fail(f"`merge` wants maps, and got {describe(value)}", form)
    return Record({name: value for each in maps for name, value in each.values.items()})


@builtin("call-with", 2, 2)
def _call_with(evaluator: Evaluator, form: Form, function: Any, arguments: Any) -> Any:
    """`(call-with f [a b])`: (f a b), of a list of any length."""
    return evaluator.call(function, list(_items(evaluator, arguments, form)), form)


@builtin("nth", 2, 2)
def _nth(evaluator: Evaluator, form: Form, value: Any, position: Any) -> Any:
    items = value if isinstance(value, str) else _items(evaluator, value, form)
    if not isinstance(position, int) or not 0 <= position < len(items):
        kind = "text" if isinstance(value, str) else "list"
        evaluator.site.fail(f"`nth`: {describe(position)} is not a position in a {kind} of {len(items)}", form)
    return items[position]


@builtin("count", 1, 1)
def _count(evaluator: Evaluator, form: Form, value: Any) -> Any:
    return len(value) if isinstance(value, str) else len(_items(evaluator, value, form))


@builtin("cons", 2, 2)
def _cons(evaluator: Evaluator, form: Form, member: Any, value: Any) -> Any:
    items = _items(evaluator, value, form)
    evaluator.spend(len(items), form)
    return (member, *items)


@builtin("concat", 0, None)
def _concat(evaluator: Evaluator, form: Form, *values: Any) -> Any:
    lists = [_items(evaluator, value, form) for value in values]
    if sum(map(len, lists)) > LONGEST:
        evaluator.site.fail(f"`{show(form)}` is longer than {LONGEST}", form)
    evaluator.spend(sum(map(len, lists)), form)
    return tuple(member for items in lists for member in items)


@builtin("map", 2, None)
def _map(evaluator: Evaluator, form: Form, function: Any, *values: Any) -> Any:
    lists = [_items(evaluator, value, form) for value in values]
    return tuple(evaluator.call(function, list(members), form) for members in zip(*lists, strict=False))


@builtin("fold", 3, 3)
def _fold(evaluator: Evaluator, form: Form, function: Any, start: Any, value: Any) -> Any:
    """`(fold f start list)`: (f (f start first) second) and so on."""
    for member in _items(evaluator, value, form):
        start = evaluator.call(function, [start, member], form)
    return start


@builtin("filter", 2, 2)
def _filter(evaluator: Evaluator, form: Form, function: Any, value: Any) -> Any:
    """`(filter f list)`: the members of which f is true."""
    return tuple(m for m in _items(evaluator, value, form) if evaluator.call(function, [m], form) not in (None, False))


@builtin("reverse", 1, 1)
def _reverse(evaluator: Evaluator, form: Form, value: Any) -> Any:
    """`(reverse list)`: from the last member to the first."""
    items = _items(evaluator, value, form)
    evaluator.spend(len(items), form)
    return items[::-1]


@builtin("take", 2, 2)
def _take(evaluator: Evaluator, form: Form, count: Any, value: Any) -> Any:
    """`(take n list)`: the first n members, or all where there are fewer."""
    return _items(evaluator, value, form)[: _how_many(evaluator, count, form)]


@builtin("drop", 2, 2)
def _drop(evaluator: Evaluator, form: Form, count: Any, value: Any) -> Any:
    """`(drop n list)`: the members behind the first n."""
    return _items(evaluator, value, form)[_how_many(evaluator, count, form) :]


def _how_many(evaluator: Evaluator, count: Any, form: Form) -> int:
    if not isinstance(count, int) or count < 0:
        evaluator.site.fail(f"`{show(form)}` wants a whole number from 0 on first, and got {describe(count)}", form)
    evaluator.spend(1, form)
    return count


@builtin("range", 1, 3)
def _range(evaluator: Evaluator, form: Form, *bounds: Any) -> Any:
    """`(range n)`, `(range from to)`, `(range from to step)`: whole numbers, 5.0 too as it is a size; the end is not
    in it."""
    bounds = tuple(int(n) if isinstance(n, float) and n.is_integer() else n for n in bounds)
    for bound in bounds:
        if not isinstance(bound, int):
            evaluator.site.fail(
                f"`range` counts whole numbers known while compiling, and got {not_whole(bound, form)}", form
            )
    if len(bounds) == 3 and bounds[2] == 0:
        evaluator.site.fail("`range` with a step of 0 never ends", form)
    numbers = range(*bounds)
    if numbers and abs((numbers[-1] - numbers[0]) // numbers.step) >= LONGEST:
        evaluator.site.fail(f"`{show(form)}` is longer than {LONGEST}; unroll less, or emit scf.for", form)
    evaluator.spend(len(numbers), form)
    return tuple(numbers)


@builtin("str", 0, None)
def _str(evaluator: Evaluator, form: Form, *parts: Any) -> Any:
    text = "".join(_text(part) for part in parts)
    if len(text) > LONGEST:
        evaluator.site.fail(f"`{show(form)}` is longer than {LONGEST} characters", form)
    evaluator.spend(len(text), form)
    return text


@builtin("symbol", 1, None)
def _symbol(evaluator: Evaluator, form: Form, *parts: Any) -> Any:
    """`(symbol "a" b)`: the name spelled by the parts, for macros that make names."""
    return Symbol(form.span, "".join(_text(part) for part in parts))


def _text(value: Any) -> str:
    if isinstance(value, (Symbol, Keyword)):
        return value.name
    if value is None or isinstance(value, bool):
        return {None: "nil", True: "true", False: "false"}[value]
    return show(value) if isinstance(value, Form) else str(value)
