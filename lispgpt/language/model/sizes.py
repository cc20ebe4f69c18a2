"""Which choices of its free dimensions an entry is compiled for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from lispgpt.base.errors import UserError
from lispgpt.language.core.environment import did_you_mean
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.site import Site
from lispgpt.language.forms import modules
from lispgpt.language.model.entries import learn_sizes
from lispgpt.language.model.table import BATCH, POSITIONS, Entry, Model
from lispgpt.language.model.up_to import ladder


@dataclass(frozen=True)
class Wanted:
    """What whoever compiles wants of a program's entries.

    rows: (sequences, positions of each) for entries that take rows of sequences, where nobody says more.  given: sizes
    by dimension; each is for the entries whose free dimensions it has all of, in place of what their forms give.
    entries: the entries to compile; None for all but those in unneeded, of which a program need not have any.  unsized:
    whether entries that nobody gives sizes are left out, in place of an error.  inputs: the shapes of what an entry is
    to be run on, which say its sizes, by entry and input.
    arrays: the shapes of inputs, by their names, in all entries that have such.
    up_to: free dimensions, one of an entry's, that may have any size up to one; see up_to.py.
    trial: in place of all this, each entry that the program's
    own files have, once and small, to see whether it can be built; those that nobody gives sizes are left out.
    """

    rows: Sequence[tuple[int, int]] = ()
    given: Sequence[Mapping[str, int]] = ()
    entries: Collection[str] | None = None
    unneeded: Collection[str] = ()
    unsized: bool = False
    inputs: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    trial: bool = False
    arrays: Mapping[str, Sequence[int]] = field(default_factory=dict)
    up_to: Mapping[str, int] = field(default_factory=dict)


def choices(evaluator: Evaluator, model: Model, wanted: Wanted) -> list[tuple[Entry, dict[str, int]]]:
    """The entries to build, each with its sizes; UserError for names that no entry has, and for missing sizes."""
    if wanted.trial:
        smallest = replace(wanted, rows=[(1, 1)], unsized=True)
        own = [entry for entry in model.entries.values() if not modules.is_library(evaluator, entry.environment)]
        return [(e, sizes) for e in own for sizes in _of_entry(evaluator.site, model, e, smallest)[:1]]
    _check_names(model, wanted)
    found = []
    for entry in model.entries.values():
        if entry.name not in wanted.unneeded if wanted.entries is None else entry.name in wanted.entries:
            given = wanted.inputs.get(entry.name)
            if given is not None:
                chosen = [_of_inputs(evaluator, entry, given)]
            elif wanted.arrays:
                chosen = [_of_arrays(evaluator, entry, wanted.arrays)]
            else:
                chosen = _of_entry(evaluator.site, model, entry, wanted)
            found += [(entry, sizes) for sizes in _once(_laddered(evaluator.site, entry, chosen, wanted.up_to))]
    if not found and wanted.entries is None:
        for entry in model.entries.values():
            _fail_unsized(evaluator.site, entry)
    return found


def growing(entry: Entry, up_to: Mapping[str, int]) -> str | None:
    """The free dimension of an entry that may have any size up to one."""
    return None if entry.takes_rows else next((name for name in entry.dimensions if name in up_to), None)


def _laddered(
    site: Site, entry: Entry, chosen: Sequence[dict[str, int]], up_to: Mapping[str, int]
) -> list[dict[str, int]]:
    """Sizes to compile for, for any size up to one."""
    name = growing(entry, up_to)
    if name is None:
        return list(chosen)
    for sizes in chosen:
        if sizes[name] > up_to[name]:
            most = f"{entry.name} is compiled for a {name} up to {up_to[name]}"
            site.fail(f"{most}, and this is {sizes[name]}", entry.form)
    return [{**sizes, name: size} for sizes in chosen for size in ladder(up_to[name])]


def _of_inputs(evaluator: Evaluator, entry: Entry, given: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes that the shapes of an entry's inputs say."""
    names = [declared.name.name for declared in entry.inputs]
    if set(given) != set(names):
        takes = ", ".join(names) or "nothing"
        evaluator.site.fail(f"{entry.name} takes {takes}, and {', '.join(given) or 'nothing'} is given", entry.form)
    sizes: dict[str, int] = {}
    for declared in entry.inputs:
        learn_sizes(evaluator, entry, declared, given[declared.name.name], sizes, declared.name)
    for dimension in entry.dimensions:
        if dimension not in sizes:
            evaluator.site.fail(f"the inputs of {entry.name} do not say its {dimension}", entry.form)
    return {dimension: sizes[dimension] for dimension in entry.dimensions}


def _of_arrays(evaluator: Evaluator, entry: Entry, arrays: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes that arrays say, which are for an entry's inputs of their names; numbers are given otherwise."""
    sizes: dict[str, int] = {}
    for declared in entry.inputs:
        name = declared.name.name
        if name in arrays:
            learn_sizes(evaluator, entry, declared, arrays[name], sizes, declared.name)
        elif declared.sizes is None or declared.sizes:
            there = ", ".join(arrays)
            evaluator.site.fail(f"{entry.name} takes an array {name}, and the data has {there}", declared.name)
    for dimension in entry.dimensions:
        if dimension not in sizes:
            evaluator.site.fail(f"the arrays for {entry.name} do not say its {dimension}", entry.form)
    return {dimension: sizes[dimension] for dimension in entry.dimensions}


def _check_names(model: Model, wanted: Wanted) -> None:
    for name in wanted.entries or ():
        if name not in model.entries:
            hint = did_you_mean(name, model.entries, f"; it has {', '.join(model.entries) or 'none'}")
            raise UserError(f"the program has no entry {name!r}{hint}")
    known = {dimension for entry in model.entries.values() for dimension in entry.dimensions}
    for name in wanted.up_to:
        if name not in known:
            hint = did_you_mean(name, known, f"; there are {', '.join(sorted(known)) or 'none'}")
            raise UserError(f"--up-to {name}={wanted.up_to[name]}: no entry has a free dimension of this name{hint}")
    for given in wanted.given:
        for dimension in given:
            if dimension not in known:
                hint = did_you_mean(dimension, known, f"; there are {', '.join(sorted(known)) or 'none'}")
                raise UserError(
                    f"--shape {dimension}={given[dimension]}: no entry has a free dimension of this name{hint}"
                )


def _of_entry(site: Site, model: Model, entry: Entry, wanted: Wanted) -> list[dict[str, int]]:
    every = [{**wanted.up_to, **given} for given in wanted.given or ([{}] if wanted.up_to else [])]
    asked = [{d: given[d] for d in entry.dimensions} for given in every if set(entry.dimensions) <= set(given)]
    if not entry.dimensions:
        return [{}]
    if asked:
        return _once(asked)
    defaults = _defaults(model, entry, wanted)
    found = []
    shapes = entry.shapes
    if shapes is None or (not shapes and wanted.entries is not None):  # it was asked for by name
        shapes = ({},) if entry.takes_rows else ()
    for shape in shapes:
        if set(shape) == set(entry.dimensions):
            found.append(dict(shape))
        elif entry.takes_rows:
            fitting = [row for row in defaults if all(row.get(d, size) == size for d, size in shape.items())]
            found += [{**row, **shape} for row in fitting]
        else:
            missing = next(d for d in entry.dimensions if d not in shape)
            site.fail(f"a shape of {entry.name} does not say its {missing}", entry.form)
    for sizes in found:
        if set(sizes) != set(entry.dimensions):
            missing = next(d for d in entry.dimensions if d not in sizes)
            site.fail(f"nothing says for which {missing} to compile {entry.name}{_advice(entry)}", entry.form)
    unasked = entry.shapes is not None and wanted.entries is None
    if not found and not unasked and not entry.takes_rows and not wanted.unsized:
        _fail_unsized(site, entry)
    return _once(found)


def _fail_unsized(site: Site, entry: Entry) -> NoReturn:
    free = ", ".join(entry.dimensions)
    site.fail(f"nothing says for which {free} to compile {entry.name}{_advice(entry)}", entry.form)


def _advice(entry: Entry) -> str:
    example = " ".join(f"{dimension} 4" for dimension in entry.dimensions)
    option = ",".join(f"{dimension}=4" for dimension in entry.dimensions)
    return f": give {{:shapes [{{{example}}}]}} after its inputs, or --shape {option}"


def _defaults(model: Model, entry: Entry, wanted: Wanted) -> list[dict[str, int]]:
    """What entries of rows are compiled for, as far as the config's `context` reaches; always single positions.

    An entry that is asked for by its name has them all where it would have none by itself.
    """
    context = model.config.get("context")
    reached = [
        {BATCH: batch, POSITIONS: positions}
        for batch, positions in wanted.rows
        if positions == 1 or not isinstance(context, int) or positions <= context
    ]
    if entry.allowed is None or entry.dimensions != (BATCH, POSITIONS):
        return reached
    allowed = [sizes for sizes in reached if entry.allowed(list(sizes.values()))]
    return allowed if allowed or wanted.entries is None else reached


def _once(choices: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    return [sizes for number, sizes in enumerate(choices) if sizes not in choices[:number]]
