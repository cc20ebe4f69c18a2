"""`print` and `assert` in entries: tensors that a run shows, and conditions that end it.

What is shown is a result that the entry gives beside its own; the session reads it after each run, on any device:

    (print "h" h)     becomes   a result `report:0` of h's type, and in the function's attribute `reports`
                                {kind "print", form "gpt2.lisp:12:5", text "h", values ["report:0"], loops 0}

In a step of `scan` it is one more tensor that is kept of each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin
from lispgpt.language.core.values import describe, items_of
from lispgpt.language.forms import shapes, structs, tensors
from lispgpt.language.forms.casts import cast
from lispgpt.language.forms.launches import Launches
from lispgpt.language.reader.forms import Form

GRADIENT = "gradient"
"""What a check of gradients has read, and no form of the program's."""

HELD = ("f32", "bf16", "i32", "f64", "i64")
"""Elements that results may have."""


@dataclass(eq=False)
class Report:
    """One form's: kind: "print", "assert" or "gradient".  place: the user's form.  loops: how many scans it is
    in."""

    kind: str
    place: str
    text: str
    values: list[ir.Value]
    loops: int = 0


@dataclass(eq=False)
class Reports:
    """What the entry that is being built has met so far; frames: the steps of scans that are being evaluated, with the
    block of each, innermost last."""

    found: list[Report] = field(default_factory=list)
    frames: list[tuple[ir.Block, list[Report]]] = field(default_factory=list)

    def start(self) -> None:
        """Forget all, for another entry."""
        self.found, self.frames = [], []

    def enter(self, block: ir.Block) -> list[Report]:
        """Begin with a step, whose values its scan keeps; the list that gets what it reports."""
        reports: list[Report] = []
        self.frames.append((block, reports))
        return reports

    def leave(self, evaluator: Evaluator, reports: Sequence[Report], kept: Sequence[ir.Value], form: Form) -> None:
        """End it.  kept: of each value that those reports have, what all steps made."""
        self.frames.pop()
        values = iter(kept)
        for report in reports:
            own = [next(values) for _ in report.values]
            self._add(evaluator, Report(report.kind, report.place, report.text, own, report.loops + 1), form)

    def put(self, evaluator: Evaluator, report: Report, form: Form) -> None:
        """Add a form's, which has to stand where its values can be had."""
        block = evaluator.builder.insertion.block
        if block.owner.operation.name != "func.func" and not (self.frames and self.frames[-1][0] == block):
            evaluator.site.fail(
                f"`{report.kind}` stands in an entry or in a step of `scan`, and not in another loop, a branch or an "
                "element of a tensor; carry the value out, and put it behind",
                form,
            )
        self._add(evaluator, report, form)

    def _add(self, evaluator: Evaluator, report: Report, form: Form) -> None:
        report.values = [_copied(evaluator, value, form) for value in report.values]
        (self.frames[-1][1] if self.frames else self.found).append(report)

    def attribute(self) -> ir.Attribute:
        """The function's attribute `reports`."""
        string, number = ir.StringAttr.get, iter(range(sum(len(r.values) for r in self.found)))
        count = ir.IntegerType.get_signless(64)
        return ir.ArrayAttr.get(
            [
                ir.DictAttr.get(
                    {
                        "kind": string(r.kind),
                        "form": string(r.place),
                        "text": string(r.text),
                        "values": ir.ArrayAttr.get([string(f"report:{next(number)}") for _ in r.values]),
                        "loops": ir.IntegerAttr.get(count, r.loops),
                    }
                )
                for r in self.found
            ]
        )

    def results(self) -> dict[str, ir.Value]:
        """What the function returns of them, by name."""
        values = [value for report in self.found for value in report.values]
        return {f"report:{number}": value for number, value in enumerate(values)}


def _copied(evaluator: Evaluator, value: ir.Value, form: Form) -> ir.Value:
    """A result of its own, which stays whatever else becomes of the value."""
    along = tuple(range(len(shape_of(value))))
    return tensors.generic(evaluator, shape_of(value), lambda made: made.read(evaluator, value, along, form), form)


def _held(evaluator: Evaluator, value: Any, form: Form) -> ir.Value:
    """A value as a tensor that results may be: a number of rank 0, bits and whole numbers as i32."""
    value = evaluator.ssa(evaluator.value_of(value, form), form)
    if isinstance(value, bool | int | float):
        kind = evaluator.builder.f32 if isinstance(value, float) else evaluator.builder.i32
        return tensors.filled(evaluator, (), value, kind, form)
    if isinstance(getattr(value, "type", None), (ir.FloatType, ir.IntegerType, ir.IndexType)):
        scalar = value
        value = tensors.generic(evaluator, (), lambda _: scalar, form)
    value = shapes.tensor_of(evaluator, value, form, "print")
    kind = value.type.element_type
    if str(kind) in HELD:
        return value  # type: ignore[no-any-return]
    wanted = evaluator.builder.i32 if isinstance(kind, (ir.IntegerType, ir.IndexType)) else evaluator.builder.f32
    return tensors.elementwise(  # type: ignore[no-any-return]
        evaluator, lambda x: cast(evaluator, x, wanted, form), (value,), form, widen=False
    )


@builtin("print", 1, None)
def _print(evaluator: Evaluator, form: Form, *arguments: Any) -> Any:
    """`(print "h is" h)` in an entry, `(print "format" a…)` in a program with a main.

    In an entry: texts and tensors in any order, which each run writes to standard error behind the form's place, on
    every target; in a step of `scan` those of all steps, behind the loop.  The value is the last tensor, so that the
    form may stand around an expression: `(linear (print "h" h) w b)`.

    In a program: as C's printf has it, also `(print ["format" a…])`; small numbers widen as in C.
    """
    if not evaluator.states.of(Launches).in_entry:
        return structs.print_format(evaluator, form, "print", "", *arguments)
    return _shown(evaluator, form, arguments)


@builtin("println", 0, None)
def _println(evaluator: Evaluator, form: Form, *arguments: Any) -> Any:
    """`print` with an end of line behind it; in an entry the same as `print`."""
    if not evaluator.states.of(Launches).in_entry:
        return structs.print_format(evaluator, form, "println", "\n", *arguments)
    return _shown(evaluator, form, arguments)


def _shown(evaluator: Evaluator, form: Form, arguments: Sequence[Any]) -> Any:
    listed = items_of(arguments[0]) if len(arguments) == 1 else None
    arguments = arguments if listed is None else listed
    words, values = _parts(evaluator, arguments, form)
    _report(evaluator, "print", " ".join(words), values, form)
    return next((a for a in reversed(arguments) if not isinstance(a, str)), None)


@builtin("assert", 1, None)
def _assert(evaluator: Evaluator, form: Form, condition: Any, *arguments: Any) -> Any:
    """`(assert condition "what is wrong" x…)`: a run in which an element of the condition is false ends with an error
    at this form, on every target.

    condition: an i1 or a tensor of them, such as `(< (abs x) 10.0)`; a comparison with NaN is false.  In a step of
    `scan` it is of all steps.  Texts and tensors behind it are said with the error; results and states of that run are
    made all the same, and lost to whoever asked for it.  A condition that is known while compiling is checked then.
    """
    if isinstance(condition, bool) or condition is None:
        if not condition:
            words = [str(a) if isinstance(a, str) else describe(a) for a in arguments]
            evaluator.site.fail(" ".join(["this does not hold", *words]), form)
        return None
    value = evaluator.ssa(condition, form)
    kind = getattr(value, "type", None)
    if not isinstance(value, ir.Value) or getattr(kind, "element_type", kind) != evaluator.builder.i1:
        evaluator.site.fail(
            f"`assert` wants a condition, an i1 or a tensor of them, and got {describe(condition)}", form
        )
    if not evaluator.states.of(Launches).in_entry:
        evaluator.site.fail("`assert` of what is computed stands in an entry of a model", form)
    words, values = _parts(evaluator, arguments, form)
    _report(evaluator, "assert", " ".join(words), [_held(evaluator, value, form), *values], form)
    return None


def _parts(evaluator: Evaluator, arguments: Sequence[Any], form: Form) -> tuple[list[str], list[ir.Value]]:
    """The texts, in which `{}` stands for each tensor, and the tensors."""
    words: list[str] = []
    values: list[ir.Value] = []
    for argument in arguments:
        if isinstance(argument, str):
            words.append(argument.replace("{", "{{").replace("}", "}}"))
        else:
            words.append("{}")
            values.append(_held(evaluator, argument, form))
    return words, values


def _report(evaluator: Evaluator, kind: str, text: str, values: list[ir.Value], form: Form) -> None:
    evaluator.states.of(Reports).put(evaluator, Report(kind, place_of(evaluator, form), text, values), form)


def place_of(evaluator: Evaluator, form: Form) -> str:
    """The user's form that a form is of, such as "gpt2.lisp:12:5"."""
    span = evaluator.site.error("", form).span
    assert span is not None
    file, line, column = str(span).rsplit(":", 2)
    return f"{PurePath(file).name}:{line}:{column}"
