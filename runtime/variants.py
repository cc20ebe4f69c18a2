"""Which of an entry's compiled variants takes the inputs of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.arrays import as_array, as_stored
from lispgpt.runtime.plan.plan import Buffer, Entry
from lispgpt.runtime.weights import spelled_inputs


def variant(
    entries: Sequence[Entry], declared: Mapping[str, Buffer], name: str, values: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Entry, dict[str, np.ndarray], int | None]:
    """The entry of that name that fits the inputs' shapes, the inputs as they are stored, and the size that they are of
    where the entry is for any up to one; None else.

    values: the first inputs, in their order; named: others.  declared: what buffers hold.  UserError where no entry
    fits, inputs are missing or too many, or they would have rows read or written that there are not.
    """
    compiled = [entry for entry in entries if entry.name == name]
    if not compiled:
        known = ", ".join(dict.fromkeys(entry.name for entry in entries))
        raise UserError(f"there is no entry {name!r}; there are {known or 'none'}")
    inputs = tuple(compiled[0].inputs)
    given = dict(zip(inputs, values, strict=False)) | dict(named)
    names = [*inputs[: len(values)], *named]
    if len(values) > len(inputs) or sorted(names) != sorted(inputs):
        wanted = ", ".join(inputs) or "nothing"
        more = ["more"] * (len(values) > len(inputs))
        raise UserError(f"entry {name!r} takes {wanted}, and not {', '.join([*names, *more]) or 'nothing'}")
    shapes = {key: np.shape(value) for key, value in given.items()}
    entry, size = fitting(compiled, declared, shapes)
    if entry is not None:
        places = {key: declared[place] for key, place in entry.inputs.items()}
        if entry.up_to is not None:
            given = {key: entry.up_to.filled(key, as_array(given[key], key), places[key].shape) for key in places}
        arrays = {key: as_stored(given[key], place, key) for key, place in places.items()}
        check_inputs(entry, declared, arrays)
        return entry, arrays, size
    made_for = "; ".join(spelled_inputs({k: declared[p].shape for k, p in e.inputs.items()}) for e in compiled)
    raise UserError(f"entry {name!r} is compiled for {made_for}, and not {spelled_inputs(shapes)}")


def fitting(
    entries: Sequence[Entry], declared: Mapping[str, Buffer], shapes: Mapping[str, Sequence[int]]
) -> tuple[Entry | None, int | None]:
    """Of entries of one name that which inputs of these shapes fit, and their size where it is for any up to one: the
    smallest such, and one that is compiled for no other size first."""
    growing: list[tuple[int, int, Entry]] = []
    for number, entry in enumerate(entries):
        own = {key: declared[place].shape for key, place in entry.inputs.items()}
        if entry.up_to is not None:
            size = entry.up_to.size_of(shapes, own) if own.keys() == shapes.keys() else None
            growing += [] if size is None else [(entry.sizes[entry.up_to.dimension], number, entry)]
        elif {key: tuple(shape) for key, shape in shapes.items()} == own:
            return entry, None
    if not growing:
        return None, None
    found = min(growing)[2]
    assert found.up_to is not None
    own = {key: declared[place].shape for key, place in found.inputs.items()}
    return found, found.up_to.size_of(shapes, own)


def check_inputs(entry: Entry, declared: Mapping[str, Buffer], arrays: Mapping[str, np.ndarray]) -> None:
    """UserError where some of an entry's inputs, as they are stored, would have rows read or written that there are
    not."""
    _check_positions(entry, declared, arrays)
    _check_bounds(entry, arrays)


def _check_positions(entry: Entry, declared: Mapping[str, Buffer], arrays: Mapping[str, np.ndarray]) -> None:
    """UserError where a row would be written to a state outside of its positions, which is memory of something else."""
    if not entry.grows or "positions" not in arrays:
        return
    count = min(declared[state].shape[axis] for state, axis in entry.grows.items())
    outside = arrays["positions"][(arrays["positions"] < 0) | (arrays["positions"] >= count)]
    if outside.size:
        raise UserError(f"input positions has {outside[0]}, and entry {entry.name!r} has memory for 0 to {count - 1}")


def _check_bounds(entry: Entry, arrays: Mapping[str, np.ndarray]) -> None:
    """UserError where an input has a row read or written that a tensor does not have, which is other memory."""
    for bound in entry.bounds:
        outside = bound.outside(arrays[bound.input]) if bound.input in arrays else None
        if outside is not None:
            what = f"input {bound.input} has {outside}, and entry {entry.name!r}"
            raise UserError(f"{what} reads or writes by it where {bound.first} to {bound.last} are")
