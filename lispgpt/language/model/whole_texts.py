"""Whole texts inside an entry, as a loss looks at them: what a model's layers ask of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin
from lispgpt.language.core.values import LoopIndex, describe, items_of
from lispgpt.language.forms import casts, shapes, tensors
from lispgpt.language.model.memory import building
from lispgpt.language.model.table import BATCH, Entry, Model, WholeTexts
from lispgpt.language.reader.forms import Form


@builtin("whole-texts", 3, 4)
def _whole_texts(evaluator: Evaluator, form: Form, sizes: Any, random: Any, body: Any, starts: Any = None) -> Any:
    """`(whole-texts [batch length] random (fn [] …))`: the function's value, in which rows are those of so many texts,
    one after the other, each whole from its beginning: so a loss looks at them.  `(row-positions)` are their places,
    `(batch)` counts them, `attend` sees what is there and needs no cache, states begin as zeros and are forgotten, and
    `last` gives all rows.  random: [seed step] for `dropout`, or nil where nothing is to be dropped.  starts: of texts
    that are documents one behind the other, the place where each row's begins, i32 [batch length]: `attend` sees no row
    of others, and states, which would go on, are errors."""
    now, numbers = building(evaluator, form, "whole-texts"), items_of(sizes)
    if numbers is None or len(numbers) != 2 or not all(type(n) is int and n > 0 for n in numbers):
        evaluator.site.fail(f"`whole-texts` wants how many texts and how long they are, not {describe(sizes)}", form)
    texts, length = numbers
    if starts is not None and not _is_place_of_each(starts, texts, length):
        wanted = f"the starts of documents are i32 [{texts} {length}]"
        evaluator.site.fail(f"{wanted} here, one for each row, and not {describe(starts)}", form)
    places = _places(evaluator, texts, length, form)
    inside = replace(now, positions=places, sizes=now.sizes | {BATCH: texts}, every_position=True)
    inside.whole = WholeTexts(texts, length, places, random, starts)
    with now.as_it_was(inside):
        return evaluator.call(body, [], form)


@builtin("text-rows", 0, 0)
def _text_rows(evaluator: Evaluator, form: Form) -> Any:
    """`(text-rows)`: [texts length] of the whole texts that are looked at (`whole-texts`), nil where none are."""
    now = evaluator.states.of(Model).building
    if now is None or now.whole is None:
        return None
    if now.positions != now.whole.positions:
        message = "in `whole-texts` each row stands at its place in its text, and other positions are given"
        evaluator.site.fail(message, form)
    return now.whole.texts, now.whole.length


@builtin("text-starts", 0, 0)
def _text_starts(evaluator: Evaluator, form: Form) -> Any:
    """`(text-starts)`: of whole texts that are several documents, where each row's begins, [i32 [texts length]]; of
    others, []."""
    now = evaluator.states.of(Model).building
    return () if now is None or now.whole is None or now.whole.starts is None else (now.whole.starts,)


@builtin("row-places?", 1, 1)
def _are_places(evaluator: Evaluator, form: Form, value: Any) -> bool:
    """`(row-places? ids)`: whether a tensor is the places of the rows of `whole-texts`."""
    now = evaluator.states.of(Model).building
    return now is not None and now.whole is not None and isinstance(value, ir.Value) and value == now.whole.positions


@builtin("drawn", 0, 0)
def _drawn(evaluator: Evaluator, form: Form) -> Any:
    """`(drawn)`: what `dropout` draws from in whole texts, and a number that no other call gets; nil for nothing."""
    now = evaluator.states.of(Model).building
    if now is None or now.whole is None or now.whole.random is None:
        return None
    now.whole.drawn += 1
    return now.whole.random, now.whole.drawn - 1


@builtin("entry?", 1, 1)
def _is_entry(evaluator: Evaluator, form: Form, value: Any) -> bool:
    """`(entry? x)`: whether something is an entry of the program."""
    return isinstance(value, Entry)


def _is_place_of_each(value: Any, texts: int, length: int) -> bool:
    return isinstance(value, ir.Value) and str(value.type) == f"tensor<{texts}x{length}xi32>"


def _places(evaluator: Evaluator, texts: int, length: int, form: Form) -> ir.Value:
    """Where each row stands in its text, i32 [texts * length]."""
    i32 = ir.IntegerType.get_signless(32)

    def compute(made: tensors.Comprehension) -> ir.Value:
        return casts.cast(evaluator, made.index(evaluator, LoopIndex(1, made), form), i32, form)

    places = tensors.generic(evaluator, (texts, length), compute, form)
    return shapes.reshape(evaluator, places, (texts * length,), form)
