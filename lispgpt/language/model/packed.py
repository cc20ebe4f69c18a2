"""States whose rows, along the last dimension, are packed: blocks of numbers of 8 bits that share a scale.

Such a state's memory is bytes.  What they stand for is computed wherever it is read, as weights in blocks are; what is
written is packed by functions of lib/packed.lisp, whose last op says in `packs` into which type.
"""

from __future__ import annotations

import math
from typing import Any

from lispgpt.base.dtypes import OWN_BLOCKS, ROW_DTYPES, find_dtype, row_bytes
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, viewed
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.library import LIBRARY
from lispgpt.language.core.registry import builtin
from lispgpt.language.core.values import State, StateReference, describe
from lispgpt.language.forms import modules, shapes
from lispgpt.language.model.blocks import mark_computed
from lispgpt.language.reader.forms import Form


def is_packed(held: Any) -> bool:
    """Whether something is a state of packed rows."""
    return isinstance(held, State) and held.dtype in ROW_DTYPES


def stored_type(evaluator: Evaluator, state: State, extents: list[int]) -> ir.Type:
    """The type of the tensor that a state's memory is, where its sizes are these."""
    if is_packed(state):
        extents = [*extents[:-1], row_bytes(state.dtype, extents[-1])]
        return shapes.tensor_type(evaluator, extents, ir.IntegerType.get_signless(8), state.form)
    return shapes.tensor_type(evaluator, extents, ir.Type.parse(find_dtype(state.dtype).mlir), state.form)


def check_rows(evaluator: Evaluator, state: State) -> None:
    """An error where a state's rows are no whole blocks of its type."""
    row, block = state.shape[-1] if state.shape else 1, find_dtype(state.dtype).block
    if not is_packed(state) or (isinstance(row, int) and (state.dtype in OWN_BLOCKS or row % block == 0)):
        return
    said = f"have {row} elements, and blocks of {state.dtype} have {block}"
    if not isinstance(row, int):
        said = f"are of a size that is known in entries alone, and those of {state.dtype} are of one size"
    evaluator.site.fail(f"rows of the state {state.name} {said}", state.form)


def packed(evaluator: Evaluator, state: State, value: ir.Value, form: Form) -> ir.Value:
    """Numbers, [… row], as a state of packed rows keeps them: [… bytes]."""
    *outer, row = value.type.shape
    rows = shapes.reshape(evaluator, value, (math.prod(outer), row), form)
    made = _call(evaluator, f"pack-{state.dtype}", rows, form)
    defining_op(viewed(made)).attributes["packs"] = ir.StringAttr.get(state.dtype)
    return shapes.reshape(evaluator, made, (*outer, made.type.shape[-1]), form)


def unpacked(evaluator: Evaluator, state: State, stored: ir.Value, form: Form) -> ir.Value:
    """The numbers, [… row] in bf16, of some of a state's packed rows, [… bytes].

    The op that computes them says in `packed` of which type they are.
    """
    *outer, nbytes = stored.type.shape
    row = state.shape[-1]
    assert isinstance(row, int)
    count = 1 if state.dtype in OWN_BLOCKS else row // find_dtype(state.dtype).block
    rows = shapes.reshape(evaluator, stored, (math.prod(outer), count, nbytes // count), form)
    value = _call(evaluator, f"unpack-{state.dtype}", rows, form)
    mark_computed(value, rows, "packed", state.dtype)
    return shapes.reshape(evaluator, value, (*outer, row), form)


def _call(evaluator: Evaluator, name: str, rows: ir.Value, form: Form) -> ir.Value:
    library = modules.load(evaluator, LIBRARY / "packed.lisp", form)
    return evaluator.value_of(evaluator.call(library.names[name], [rows], form), form)


@builtin("packed-rows", 2, 2)
def _packed_rows(evaluator: Evaluator, form: Form, value: Any, reference: Any) -> Any:
    """`(packed-rows x (kv l))`: x, [… row], as a state of packed rows keeps it, bytes; of any other state x itself."""
    state = _state_of(evaluator, reference, form)
    return (
        packed(evaluator, state, shapes.tensor_of(evaluator, value, form, "packed-rows"), form)
        if is_packed(state)
        else value
    )


@builtin("unpacked-rows", 2, 2)
def _unpacked_rows(evaluator: Evaluator, form: Form, value: Any, reference: Any) -> Any:
    """`(unpacked-rows bytes (kv l))`: the numbers, in bf16, of what was read of a state of packed rows by
    `state-as-stored`; of any other state what was read."""
    state = _state_of(evaluator, reference, form)
    return (
        unpacked(evaluator, state, shapes.tensor_of(evaluator, value, form, "unpacked-rows"), form)
        if is_packed(state)
        else value
    )


def _state_of(evaluator: Evaluator, reference: Any, form: Form) -> State:
    state = reference.state if isinstance(reference, StateReference) else reference
    if not isinstance(state, State):
        evaluator.site.fail(f"a state or a part of one is wanted here, and this is {describe(reference)}", form)
    return state
