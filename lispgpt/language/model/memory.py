"""Weights and states inside an entry: parts of them, reading them, and giving them values."""

from __future__ import annotations

from typing import Any

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin, special
from lispgpt.language.core.values import Bytes, State, StateReference, Variable, Weight, WeightReference, describe
from lispgpt.language.forms import arithmetic, shapes, tensors
from lispgpt.language.model import packed
from lispgpt.language.model.blocks import is_in_blocks, unpacked
from lispgpt.language.model.layers import place_of
from lispgpt.language.model.narrow import U8, is_bytes, numbers_of
from lispgpt.language.model.norms import warn_of_zeros
from lispgpt.language.model.packed import is_packed
from lispgpt.language.model.table import BATCH, Building, Model, Place, WholeTexts, Written
from lispgpt.language.reader.forms import Form, List, Symbol, show


def building(evaluator: Evaluator, form: Form, what: str) -> Building:
    """The entry that is being built."""
    found = evaluator.states.of(Model).building
    if found is None:
        evaluator.site.fail(f"`{what}` has a value inside an entry only", form)
    return found


def indexed(evaluator: Evaluator, target: Weight | State, arguments: list[Any], form: Form) -> Any:
    """`(ln1-w l)`: a layer's part of a weight; `(kv l)`: a reference to a part of a state."""
    sizes = [size for size in target.shape if isinstance(size, int)]
    count = len(sizes) if isinstance(target, State) else int(target.stacked)
    if not arguments or len(arguments) > count:
        evaluator.site.fail(f"`{show(form)}`: {target.name} takes {'one index' if count else 'no index'}", form)
    arguments = [place_of(evaluator, target, arguments[0], form), *arguments[1:]]
    for index, size in zip(arguments, sizes, strict=False):
        if not isinstance(index, int) or not 0 <= index < size:
            message = f"{target.name} goes from 0 to {size - 1} here, and `{show(form)}` asks for {describe(index)}"
            evaluator.site.fail(message, form)
    if isinstance(target, State):
        return StateReference(target, tuple(arguments))
    if target.value is None:
        evaluator.site.fail(f"the weight {target.name} has a value inside an entry only", form)
    if not is_in_blocks(target):
        part = shapes.extract(evaluator, target.value, *_layer(target, arguments[0]), form)
        return numbers_of(evaluator, part, form) if is_bytes(target) else part
    stored = tuple(target.value.type.shape)
    start, extents = (arguments[0], *[0] * (len(stored) - 1)), (None, *stored[1:])
    return unpacked(evaluator, target, shapes.extract(evaluator, target.value, start, extents, form), form)


def _layer(weight: Weight, index: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The offsets and sizes of one layer of a stacked weight."""
    return (index, *[0] * (len(weight.shape) - 1)), (None, *weight.shape[1:])


def _window(evaluator: Evaluator, value: Any, form: Form) -> tuple[State, tuple[Any, ...], tuple[Any, ...]]:
    """A state and the offsets and sizes in it that a reference stands for: indices are of its own dimensions alone."""
    if isinstance(value, State):
        value = StateReference(value, ())
    if not isinstance(value, StateReference):
        evaluator.site.fail(f"a state or a part of one is wanted here, and this is {describe(value)}", form)
    model, state = evaluator.states.of(Model), value.state
    if is_packed(state) and _texts(evaluator, state) is not None:
        evaluator.site.fail(f"{state.name} is packed ({state.dtype}), and states of whole texts are not", form)
    dimensions = model.dimensions(state)
    extents = _extents(evaluator, state)
    if extents is None:
        entry = building(evaluator, form, state.name).entry
        missing = next(name for name in dimensions if name not in entry.dimensions and isinstance(name, str))
        evaluator.site.fail(
            f"the state {state.name} has a dimension {missing}, which no input of {entry.name} has", form
        )
    sizes: list[Any] = list(extents)
    offsets = [0] * len(sizes)
    own = [place for place, size in enumerate(dimensions) if isinstance(size, int)]
    for place, index in zip(own, value.index, strict=False):
        offsets[place], sizes[place] = index, None
    return state, tuple(offsets), tuple(sizes)


def _texts(evaluator: Evaluator, state: State) -> WholeTexts | None:
    """The whole texts that have a state of their own in place of a state; None where there are none."""
    now = evaluator.states.of(Model).building
    return None if now is None or state.shared else now.whole


def _extents(evaluator: Evaluator, state: State) -> tuple[int, ...] | None:
    """A state's sizes in the entry that is built; None where one of them is no dimension of the entry."""
    model = evaluator.states.of(Model)
    if _texts(evaluator, state) is None:
        return None if state.value is None else tuple(state.value.type.shape)
    sizes = {} if model.building is None else model.building.sizes
    extents = [sizes.get(size) if isinstance(size, str) else size for size in model.dimensions(state)]
    return None if None in extents else tuple(extents)  # type: ignore[arg-type]


@builtin("read-state", 1, 1)
def _read_state(evaluator: Evaluator, form: Form, reference: Any) -> Any:
    """`(read-state (kv l))`: what a state holds by now; in `whole-texts`, where nothing was written, zeros."""
    building(evaluator, form, "read-state")
    state, found = _read(evaluator, form, reference)
    if is_packed(state):
        return packed.unpacked(evaluator, state, found, form)
    return numbers_of(evaluator, found, form) if is_bytes(state) else found


@builtin("state-as-stored", 1, 1)
def _state_as_stored(evaluator: Evaluator, form: Form, reference: Any) -> Any:
    """`(state-as-stored (kv l))`: what a state holds by now as it lies in memory: bytes, where its rows are packed."""
    building(evaluator, form, "state-as-stored")
    return _read(evaluator, form, reference)[1]


def _read(evaluator: Evaluator, form: Form, reference: Any) -> tuple[State, ir.Value]:
    """A state, and what it or a part of it holds by now."""
    state, offsets, sizes = _window(evaluator, reference, form)
    texts = _texts(evaluator, state)
    if texts is not None and texts.starts is not None:
        evaluator.site.fail(
            f"the state {state.name} goes on from one document of a text to the next: what reads it cannot be trained "
            "on documents apart (document-token)",
            form,
        )
    if texts is not None:
        written = texts.written(state.name, offsets, sizes)
        return state, _read_in_texts(evaluator, written, state, offsets, sizes, form)
    assert state.value is not None
    return state, shapes.extract(evaluator, state.value, offsets, sizes, form)


def _read_in_texts(
    evaluator: Evaluator, written: list[Written], state: State, offsets: Place, sizes: Place, form: Form
) -> ir.Value:
    """A part of a state of whole texts, from what was written there and zeros, as at a text's beginning."""
    if len(written) == 1 and written[0][:2] == (offsets, sizes):
        return written[0][2]
    dtype, extents = ir.Type.parse(find_dtype(state.dtype).mlir), _extents(evaluator, state)
    zero = 0.0 if arithmetic.is_float(dtype) else 0
    shape = tuple(size for size in sizes if size is not None) if not written else extents
    assert shape is not None
    shapes.tensor_type(evaluator, shape, dtype, form)
    held = tensors.filled(evaluator, shape, zero, dtype, form)
    for own_offsets, own_sizes, value in written:
        held = shapes.insert(evaluator, value, held, own_offsets, own_sizes, form)
    return shapes.extract(evaluator, held, offsets, sizes, form) if written else held


@builtin("write-state", 2, 2)
def _write_state(evaluator: Evaluator, form: Form, reference: Any, value: Any) -> Any:
    """`(write-state (kv l) x)`: from here on the state holds x there; gives x."""
    now = building(evaluator, form, "write-state")
    now.accumulates |= now.whole is None
    return _write(evaluator, form, reference, value, now.written)


@builtin("write-state-at-positions", 2, 2)
def _write_state_at_positions(evaluator: Evaluator, form: Form, reference: Any, value: Any) -> Any:
    """`write-state` of a value that is what the state held but for rows at their positions, along the dimension that is
    the config's `context`: a row written twice changes nothing."""
    now = building(evaluator, form, "write-state-at-positions")
    return _write(evaluator, form, reference, value, now.written if now.loops else now.placed)


class ChangedInLoop(Exception):
    """A step of a scan, with this body, changes a state that the scan does not carry yet."""

    def __init__(self, block: ir.Block, state: State) -> None:
        super().__init__(state.name)
        self.block, self.state = block, state


def may_change(evaluator: Evaluator, held: Any, form: Form) -> None:
    """An error in the body of a loop or of a branch, whose values end with it; but a scan carries the states that its
    steps change: ChangedInLoop where it has to know of one."""
    block = evaluator.builder.insertion.block
    if block.owner.operation.name == "func.func":
        return
    now = evaluator.states.of(Model).building
    body, carried = now.loops[-1] if now is not None and now.loops else (None, ())
    here = body is not None and body == block and isinstance(held, State)
    if here and held.value is not None and _texts(evaluator, held) is None:
        if held not in carried:
            raise ChangedInLoop(block, held)
        return
    what = "what lasts is not changed inside a loop or a branch; carry its value through, and change it behind"
    evaluator.site.fail(f"{what} (`scan` carries the states that a step writes)", form)


def _write(evaluator: Evaluator, form: Form, reference: Any, value: Any, names: set[str]) -> Any:
    """names: gets that of the state."""
    state, offsets, sizes = _window(evaluator, reference, form)
    may_change(evaluator, state, form)
    texts = _texts(evaluator, state)
    value = _stored(evaluator, state, value, form)
    if texts is not None:
        _, old = _read(evaluator, form, reference)
        if value.type != old.type:
            evaluator.site.fail(f"`write-state` gives {value.type} to what is {old.type}", form)
        texts.write(state.name, offsets, sizes, value)
        return value
    assert state.value is not None
    names.add(state.name)
    whole = all(size is not None for size in sizes)
    if whole and value.type == state.value.type:
        state.value = value
    else:
        state.value = shapes.insert(evaluator, value, state.value, offsets, sizes, form)
    return value


def _stored(evaluator: Evaluator, state: State, value: Any, form: Form) -> ir.Value:
    """What a state is to hold, as it is kept."""
    if not is_bytes(state):
        given = shapes.tensor_of(evaluator, value, form, "write-state")
        is_whole = not is_packed(state) or not arithmetic.is_float(given.type.element_type)
        return given if is_whole else packed.packed(evaluator, state, given, form)
    if not isinstance(value, Bytes):
        evaluator.site.fail(f"{state.name} is u8; (saturate x u8) makes what it is to hold", form)
    return value.value


@special("update!", 2, 2)
def _update(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(update! w x)`, `(update! (w l) x)`: a weight, a state, an input or a layer of one holds x after the entry, and
    wherever it is read after this."""
    now, place = building(evaluator, form, "update!"), form.items[1]
    held = _held(evaluator, place, environment)
    may_change(evaluator, held.state if isinstance(held, StateReference) else held, form)
    weight = held[0] if isinstance(held, tuple) else held
    if is_in_blocks(weight):
        evaluator.site.fail(f"{weight.name} is in blocks ({weight.dtype}), which are read and never updated", place)
    given = evaluator.single(form.items[2], environment)
    now.accumulates |= not isinstance(held, Variable)
    state = held.state if isinstance(held, StateReference) else held
    if is_bytes(state) and isinstance(state, State):
        return _write(evaluator, form, held, given, now.written)
    value = shapes.tensor_of(evaluator, given, form.items[2], "update!")
    if is_bytes(weight) or (isinstance(held, Variable) and _is_u8(now, held)):
        evaluator.site.fail(f"{weight.name} is u8, which is read and never updated", place)
    if isinstance(held, (State, StateReference)):
        _check_type(evaluator, _read_state(evaluator, place, held), value, form)
        return _write(evaluator, form, held, value, now.written)
    index = None
    if isinstance(held, tuple):
        held, index = held
    assert isinstance(held, (Weight, Variable)) and held.value is not None
    if index is None:
        _check_type(evaluator, held.value, value, form)
        held.value = value
    else:
        assert isinstance(held, Weight)
        offsets, sizes = _layer(held, index)
        _check_type(evaluator, shapes.extract(evaluator, held.value, offsets, sizes, form), value, form)
        held.value = shapes.insert(evaluator, value, held.value, offsets, sizes, form)
    held.updated = True
    if isinstance(held, Weight):
        warn_of_zeros(evaluator, held)
    return value


def _is_u8(now: Building, variable: Variable) -> bool:
    return any(i.name.name == variable.name and i.dtype == U8 for i in now.entry.inputs)


def _held(evaluator: Evaluator, place: Form, environment: Environment) -> Any:
    """What the first argument of update! stands for: a weight, a state, an input, (weight, layer), a state's part."""
    name = place.items[0] if isinstance(place, List) and place.items else place
    found = environment.lookup(name) if isinstance(name, Symbol) else None
    if isinstance(place, List) and isinstance(found, Weight) and found.stacked and len(place.items) == 2:
        evaluator.evaluate(place, environment)
        return found, place_of(evaluator, found, evaluator.single(place.items[1], environment), place)
    if isinstance(place, List) and isinstance(found, State):
        return evaluator.evaluate(place, environment)
    if place is name and isinstance(found, WeightReference):
        return found.weight
    if place is name and isinstance(found, (Weight, State, Variable)):
        return found
    evaluator.site.fail(
        f"`update!` wants a weight, a state or an input of the entry, and `{show(place)}` is none", place
    )


def _check_type(evaluator: Evaluator, old: ir.Value, new: ir.Value, form: Form) -> None:
    if old.type != new.type:
        hint = "" if old.type.element_type == new.type.element_type else "; `cast` it first"
        evaluator.site.fail(f"`update!` gives {new.type} to what is {old.type}{hint}", form)


@builtin("batch", 0, 0)
def _batch(evaluator: Evaluator, form: Form) -> Any:
    """How many sequences the entry being built runs at once; row n belongs to sequence n / (rows / batch)."""
    now = building(evaluator, form, BATCH)
    if BATCH not in now.sizes:
        evaluator.site.fail(
            f"`batch` needs an entry with a dimension of that name, which {now.entry.name} has not", form
        )
    return now.sizes[BATCH]


@builtin("devices", 0, 0)
def _devices(evaluator: Evaluator, form: Form) -> int:
    """`(devices)`: how many devices share the batch."""
    return evaluator.states.of(Model).devices


@builtin("state-sizes", 1, 1)
def _state_sizes(evaluator: Evaluator, form: Form, reference: Any) -> tuple[int | str, ...] | None:
    """`(state-sizes (kv l))`: the sizes of a state, or of what is left of it behind indices, free dimensions by their
    names; nil of what is no state."""
    state, index = (reference.state, reference.index) if isinstance(reference, StateReference) else (reference, ())
    if not isinstance(state, State):
        return None
    dimensions = evaluator.states.of(Model).dimensions(state)
    fixed = [place for place, size in enumerate(dimensions) if isinstance(size, int)][: len(index)]
    return tuple(size for place, size in enumerate(dimensions) if place not in fixed)


@builtin("batch-place", 1, 1)
def _batch_place(evaluator: Evaluator, form: Form, reference: Any) -> Any:
    """`(batch-place (kv l))`: which of the dimensions of a state, or a part of one, counts sequences."""
    sizes = _state_sizes(evaluator, form, reference)
    if sizes is None:
        evaluator.site.fail(f"`batch-place` wants a state or a part of one, and this is {describe(reference)}", form)
    if BATCH not in sizes:
        name = reference.state.name if isinstance(reference, StateReference) else reference.name
        evaluator.site.fail(f"the state {name} has no dimension named batch", form)
    return sizes.index(BATCH)


def called_size(evaluator: Evaluator, size: int, arguments: list[Any], form: Form) -> int:
    """`(batch)` where an entry's own dimension of that name hides the function: the same number."""
    now, head = evaluator.states.of(Model).building, form.items[0] if isinstance(form, List) and form.items else None
    if arguments or now is None or not isinstance(head, Symbol) or now.sizes.get(head.name) != size:
        evaluator.site.fail(f"{describe(size)} cannot be called", form)
    return size


@builtin("row-positions", 0, 0)
def _row_positions(evaluator: Evaluator, form: Form) -> Any:
    """Where in its sequence each row stands, a tensor of i32: the entry's input `positions`, or in `whole-texts` the
    places of a text's rows, from 0 on."""
    now = building(evaluator, form, "row-positions")
    if now.positions is None:
        evaluator.site.fail(
            "`row-positions` needs an entry with an input named positions, or (whole-texts [batch length] nil "
            "(fn [] …)) around what asks for them, as `training` has it around a loss",
            form,
        )
    return now.positions


@builtin("known-state", 1, 1)
def _known_state(evaluator: Evaluator, form: Form, name: Any) -> Any:
    """`(known-state "kv")`: the program's state of that name, nil where it declares none."""
    return evaluator.states.of(Model).states.get(name)


@builtin("mind-padding", 0, 0)
def _mind_padding(evaluator: Evaluator, form: Form) -> Any:
    """Say that the entry keeps rows that only pad a chunk (see `row-real`) out of its states."""
    building(evaluator, form, "mind-padding").minds_padding = True


@builtin("every-position", 0, 0)
def _every_position(evaluator: Evaluator, form: Form) -> Any:
    """Whether what a model says of a sequence's last position is wanted of all of them (see `at-every-position`)."""
    return building(evaluator, form, "every-position").every_position


@builtin("at-every-position", 1, 1)
def _at_every_position(evaluator: Evaluator, form: Form, body: Any) -> Any:
    """`(at-every-position (fn [] …))`: the function's value, in which `(every-position)` is true."""
    now = building(evaluator, form, "at-every-position")
    before, now.every_position = now.every_position, True
    try:
        return evaluator.call(body, [], form)
    finally:
        now.every_position = before


@builtin("multiplied", 1, 1)
def _multiplied(evaluator: Evaluator, form: Form, x: Any) -> Any:
    """`(multiplied x)`: x, which a product with a weight takes: see `last-multiplied`."""
    now = evaluator.states.of(Model).building
    if now is not None:
        now.multiplied = x
    return x


@builtin("last-multiplied", 1, 1)
def _last_multiplied(evaluator: Evaluator, form: Form, body: Any) -> Any:
    """`(last-multiplied (fn [] …))`: what the last product with a weight takes that the function makes; nil where there
    is none.  Of a model that gives logits these are its hidden states."""
    now = building(evaluator, form, "last-multiplied")
    now.multiplied = None
    evaluator.call(body, [], form)
    return now.multiplied
