"""An evaluator that remembers what the forms of one file came to: types, shapes, numbers, and the work of their ops."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import everything_in, shape_of, trip_count
from lispgpt.language.core.builder import Builder
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.language import Language
from lispgpt.language.core.values import BlockType, Closure, Macro, OpResults, State, StateReference, Variable, Weight
from lispgpt.language.reader.forms import Form, List, Symbol

MOST_KINDS = 3
"""Different types that one form is remembered with."""

MOST_LOOKED_AT = 40
"""Evaluations of one form: what is inlined often is mostly alike."""

_WITHOUT_WORK = ("arith.constant", "arith.ext", "arith.trunc", "arith.index_cast", "arith.sitofp", "arith.bitcast")
_COMPUTING = ("arith.", "math.")


@dataclass
class Seen:
    """What one form came to.  kinds: its values, in words, each once.  times: its evaluations.  operations, moved: of
    the first: arithmetic on elements, and bytes that its ops on tensors read and write, before any are fused."""

    kinds: list[str] = field(default_factory=list)
    times: int = 0
    operations: int = 0
    moved: int = 0


def spelled(value: Any) -> str | None:
    """A value's type and shape as programs write them, or a plain value itself; None for what says nothing."""
    match value:
        case bool() | None:
            return None
        case int() | float():
            return str(value)
        case str():
            return f'"{value}"' if len(value) < 60 else None
        case ir.Value():
            return _of_type(value.type)
        case OpResults():
            return ", ".join(_of_type(each.type) for each in value) or None
        case ir.Type() | BlockType():
            return f"the type {value}"
        case Weight() | State():
            return f"[{' '.join(map(str, value.shape))}] {value.dtype}"
        case StateReference():
            free = any(not isinstance(size, int) for size in value.state.shape)
            whole = [size for size in value.state.shape if isinstance(size, int)][len(value.index) :]
            return None if free else f"[{' '.join(map(str, whole))}] {value.state.dtype}"
        case Variable() if value.value is not None:
            return _of_type(value.value.type)
        case tuple() if value and len(value) < 9 and all(isinstance(item, int | float) for item in value):
            return f"[{' '.join(map(str, value))}]"
    return None


def _of_type(kind: ir.Type) -> str:
    if not isinstance(kind, ir.RankedTensorType):
        return str(kind)
    sizes = ("?" if size < 0 else str(size) for size in kind.shape)
    return f"[{' '.join(sizes)}] {kind.element_type}"


class Counting(Builder):
    """Remembers ops that have work of their own until it is counted: their bodies are filled after they are made."""

    def __init__(self, site: Any) -> None:
        super().__init__(site)
        self.waiting: list[Any] = []
        self.operations = self.moved = 0

    def emit(self, name: str, *rest: Any, **more: Any) -> Any:
        made = super().emit(name, *rest, **more)
        if name.startswith("linalg.") and name not in ("linalg.yield", "linalg.index"):
            self.waiting.append(made)
        return made

    def count(self) -> None:
        """Add the work of the ops that were made since it was last counted."""
        for made in self.waiting:
            try:
                self._add(made.owner if isinstance(made, ir.OpResult) else made.operation)
            except (RuntimeError, ValueError, ir.MLIRError):  # taken out again, or of sizes that nobody knows
                continue
        self.waiting.clear()

    def _add(self, op: Any) -> None:
        inner = [each for each in everything_in(op) if each.name.startswith(_COMPUTING)]
        self.operations += trip_count(op) * sum(not each.name.startswith(_WITHOUT_WORK) for each in inner)
        if op.name != "linalg.fill":
            self.moved += sum(_bytes(operand) for operand in op.operands)


def _bytes(value: ir.Value) -> int:
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType):
        return 0
    element = kind.element_type
    return prod(shape_of(value)) * getattr(element, "width", 64) // 8


class Watching(Evaluator):
    """watched: the name of the file whose forms are remembered, by where they start and end."""

    watched = ""

    def __init__(self, language: Language) -> None:
        super().__init__(language)
        self.builder: Counting = Counting(self.site)
        self.seen: dict[tuple[int, int], Seen] = {}
        self.expansions: dict[str, tuple[Symbol, str]] = {}

    def evaluate(self, form: Form, environment: Environment) -> Any:
        span = form.span
        if span.source.name != self.watched:
            return super().evaluate(form, environment)
        if not isinstance(form, List):
            value = super().evaluate(form, environment)
            self.note(form, value)
            return value
        self.builder.count()
        before = self.builder.operations, self.builder.moved
        value = super().evaluate(form, environment)
        self.builder.count()
        seen = self.note(form, value)
        if seen.times == 1:
            seen.operations, seen.moved = self.builder.operations - before[0], self.builder.moved - before[1]
        return value

    def call(self, function: Any, arguments: list[Any], form: Form) -> Any:
        if type(function) is Closure and function.form.span.source.name == self.watched:
            for pattern, argument in zip(function.parameters.names, arguments, strict=False):
                self.note(pattern, argument)
        return super().call(function, arguments, form)

    def evaluate_expansion(self, macro: Macro, form: List, environment: Environment) -> Any:
        outermost = not self.site.frames and form.span.source.name == self.watched
        before = dict(environment.names) if outermost else {}
        value = super().evaluate_expansion(macro, form, environment)
        if outermost:
            head = form.items[0]
            for name, made in environment.names.items():
                if isinstance(name, str) and isinstance(head, Symbol) and before.get(name) is not made:
                    self.expansions.setdefault(name, (head, spelled(made) or ""))
        return value

    def note(self, form: Form, value: Any) -> Seen:
        """Remember what a form came to."""
        seen = self.seen.setdefault((form.span.start, form.span.end), Seen())
        seen.times += 1
        if seen.times <= MOST_LOOKED_AT and len(seen.kinds) < MOST_KINDS:
            kind = spelled(value)
            if kind is not None and kind not in seen.kinds:
                seen.kinds.append(kind)
        return seen
