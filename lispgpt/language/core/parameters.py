"""Parameter lists of functions and macros, and binding arguments to them."""

from __future__ import annotations

from typing import Any

from lispgpt.language.core.elsewhere import WITH_MORE
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.site import Site
from lispgpt.language.core.values import OpResults, Parameters, describe, items_of
from lispgpt.language.reader.forms import Form, Symbol, Vector, show


def parse_parameters(site: Site, form: Form, what: str) -> Parameters:
    """`[a [b c] & rest]`"""
    if not isinstance(form, Vector):
        site.fail(f"`{what}` wants its parameters in a vector, like [x y]", form)
    names: list[Form] = []
    items = iter(form.items)
    for item in items:
        if isinstance(item, Symbol) and item.name == "&":
            rest = next(items, None)
            extra = next(items, None)
            if not isinstance(rest, Symbol) or extra is not None:
                site.fail("`&` is followed by one last name, which takes all further arguments", item)
            return Parameters(tuple(names), rest)
        check_pattern(site, item)
        names.append(item)
    return Parameters(tuple(names), None)


def check_pattern(site: Site, pattern: Form) -> None:
    """A name, or a vector of such."""
    if isinstance(pattern, Vector):
        for item in pattern.items:
            check_pattern(site, item)
    elif not isinstance(pattern, Symbol):
        site.fail(f"`{show(pattern)}` stands where a name to bind is wanted", pattern)


def bind(site: Site, name: str, parameters: Parameters, arguments: list[Any], scope: Environment, form: Form) -> None:
    """Bind the arguments of one call."""
    wanted, given = len(parameters.names), len(arguments)
    if given < wanted or (given > wanted and parameters.rest is None):
        count = f"at least {wanted}" if parameters.rest is not None else f"{wanted}"
        names = " ".join(show(n) for n in parameters.names) + (f" & {parameters.rest.name}" if parameters.rest else "")
        ours = given > wanted and wanted and parameters.names[0].span.source.name.startswith("lib/")
        more = f"; {WITH_MORE[name]}" if ours and name in WITH_MORE else ""
        site.fail(f"`{name}` takes {count} argument{'s' * (count != '1')} [{names}] and got {given}{more}", form)
    for pattern, value in zip(parameters.names, arguments, strict=False):
        destructure(site, pattern, value, scope, form)
    if parameters.rest is not None:
        scope.define(parameters.rest, tuple(arguments[wanted:]))


def destructure(site: Site, pattern: Form, value: Any, scope: Environment, place: Form | None = None) -> None:
    """Bind a name to a value, or the names of a vector to the members of a list or the results of an op.

    place: the form of an error where there are more or fewer; by default the vector.
    """
    if isinstance(pattern, Symbol):
        scope.define(pattern, value)
        return
    check_pattern(site, pattern)
    assert isinstance(pattern, Vector)
    items = items_of(value)
    if items is None:
        items = (value,)
    if len(items) != len(pattern.items):
        has = f"has {len(items)} result{'s' * (len(items) != 1)}" if isinstance(value, OpResults) else describe(value)
        message = f"[{' '.join(show(i) for i in pattern.items)}] names {len(pattern.items)} values"
        if isinstance(value, OpResults):
            site.fail(f"{message}, and `{value.op_name}` {has}", place or pattern)
        site.fail(f"{message}, and there are {len(items)}: {describe(value)}", place or pattern)
    for item, member in zip(pattern.items, items, strict=True):
        destructure(site, item, member, scope, place)


def arity(name: str, least: int, most: int | None, count: int) -> str:
    """`x` takes so many arguments and got that many."""
    wanted = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
    return f"`{name}` takes {wanted} argument{'' if wanted == '1' else 's'} and got {count}"
