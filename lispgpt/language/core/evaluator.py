"""The evaluator: walks forms, computes at compile time, and emits MLIR at the current insertion point."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from lispgpt.errors import UserError
from lispgpt.ir.mlir import ir
from lispgpt.language.core import registry
from lispgpt.language.core.environment import MISSING, Environment, did_you_mean
from lispgpt.language.core.parameters import bind
from lispgpt.language.core.values import (
    Alias,
    Builtin,
    Closure,
    Function,
    LoopIndex,
    Macro,
    OpResults,
    Special,
    State,
    Weight,
    describe,
)
from lispgpt.language.forms import calls, functions
from lispgpt.language.forms.compilation import Compilation
from lispgpt.language.model import declarations as model
from lispgpt.language.ops import attributes, op_names, ops
from lispgpt.language.reader import places
from lispgpt.language.reader.forms import Form, List, Literal, Map, Symbol, Value, Vector
from lispgpt.source import Source, Span

DEEPEST_CALLS = 150
MOST_STEPS = 5_000_000


@dataclass(eq=False)
class Frame:
    """A macro expansion or an inlined call that is being evaluated."""

    what: str
    form: Form
    location: ir.Location
    number: int


class Evaluator:
    """One evaluation: the module that is being filled, and where in the program and in the module it stands."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.context = ir.Context.current
        self.unknown = ir.Location.unknown()
        self.module = ir.Module.create(self.unknown)
        self.insertion = ir.InsertionPoint(self.module.body)
        self.frames: list[Frame] = []
        self.sources: dict[str, Source] = {}
        self.emitter = ops.Emitter(self)
        self.blocks: list[dict[str, ir.Block]] = []
        self.steps = 0
        self.model = model.Model()
        self.functions: dict[str, Function] = {}
        self.ahead: dict[str, tuple[List, Environment]] = {}
        self.libraries: list[str] = []
        self.compilations: list[Compilation] = []
        self.strings: dict[str, str] = {}
        self.capabilities: dict[str, int] = {}
        self.launch: Any = None
        self.launches: dict[Any, str] = {}
        self.prelude = Environment()
        self.loaded: dict[Path, Environment] = {}
        self.loading: list[Path] = []
        self.parsed: dict[str, Any] = {}
        self.i1, self.i32, self.i64 = (ir.IntegerType.get_signless(width) for width in (1, 32, 64))
        self.f32, self.f64, self.index = ir.F32Type.get(), ir.F64Type.get(), ir.IndexType.get()
        self._frame_count = 0
        self._locations: dict[tuple[Span, int], ir.Location] = {}

    # ---- forms

    def evaluate(self, form: Form, environment: Environment) -> Any:
        """The value of a form; ops with no or several results give OpResults."""
        if isinstance(form, Symbol):
            return self.name(form, environment)
        if isinstance(form, List):
            return self._list(form, environment)
        if isinstance(form, (Literal, Value)):
            return form.value
        if isinstance(form, Map) and len(form.items) % 2:
            self.fail("a map is {:key value …}, and the last key of this one has no value", form)
        if isinstance(form, Vector):
            return tuple(self.evaluate(item, environment) for item in form.items)
        return form

    def body(self, forms: tuple[Form, ...], environment: Environment) -> Any:
        """The forms in turn; the value of the last one."""
        value = None
        for form in forms:
            value = self.evaluate(form, environment)
        return value

    def single(self, form: Form, environment: Environment) -> Any:
        """The one value of a form: an op's first result, a weight's tensor."""
        return self.value_of(self.evaluate(form, environment), form)

    def value_of(self, value: Any, form: Form) -> Any:
        """A value as an operand or argument: an op's first result, a weight's tensor, a loop index's value."""
        if isinstance(value, OpResults):
            if not value:
                self.fail(f"`{value.op_name}` gives no value to use here", form)
            return value[0]
        return value

    def ssa(self, value: Any, form: Form) -> Any:
        """Like value_of, with what stands for an SSA value replaced by it."""
        value = self.value_of(value, form)
        if isinstance(value, LoopIndex):
            return value.comprehension.index(self, value, form)
        return value

    def name(self, symbol: Symbol, environment: Environment) -> Any:
        """What a name is bound to, or the type that it spells."""
        value = environment.lookup(symbol)
        if value is MISSING:
            value = self._unbound(symbol, environment)
        if type(value) is Weight and not value.stacked:
            if value.value is None:
                self.fail(f"the weight {value.name} has a value inside an entry only", symbol)
            return value.value
        return value

    def _unbound(self, symbol: Symbol, environment: Environment) -> Any:
        name = symbol.name
        if "/" in name[1:]:
            space, _, member = name.partition("/")
            alias = environment.lookup(Symbol(symbol.span, space, symbol.mark))
            if isinstance(alias, Alias):
                found = alias.environment.names.get(member, MISSING)
                if found is MISSING:
                    hint = did_you_mean(member, (n for n in alias.environment.names if isinstance(n, str)))
                    self.fail(f"{space} has no {member}{hint}", symbol)
                return found
        parsed = attributes.parse_symbol(self, symbol)
        if parsed is not None:
            return parsed
        a_type = re.fullmatch(r"[a-z]{1,4}\d+\w*", name)
        otherwise = "; types are i1, i8, i32, i64, f16, bf16, f32, f64, index" if a_type else ""
        self.fail(f"`{name}` is not defined{did_you_mean(name, environment.visible(), otherwise)}", symbol)

    def _list(self, form: List, environment: Environment) -> Any:
        self.spend(1, form)
        if not form.items:
            return ()
        head = form.items[0]
        if type(head) is Symbol:
            function = environment.lookup(head)
            if function is MISSING:
                function = functions.function(self, head.name) or MISSING
            if function is MISSING:
                op = op_names.full_name(self, head, environment)
                if op is not None:
                    return self.emitter.form(op, form, environment)
                function = self._head(head, form, environment)
        else:
            function = self.single(head, environment)
        kind = type(function)
        if kind is Special:
            return function.run(self, form, environment)
        if kind is Macro:
            return self.evaluate_expansion(function, form, environment)
        arguments = [self.value_of(self.evaluate(item, environment), item) for item in form.items[1:]]
        return self.call(function, arguments, form)

    def _head(self, head: Symbol, form: List, environment: Environment) -> Any:
        name = head.name
        if "." in name.strip(".") or "/" in name.strip("/"):
            try:
                return self._unbound(head, environment)
            except UserError:
                if "/" in name and "." not in name:
                    raise
            op_names.fail_unknown_op(self, head, environment)
        value = attributes.parse_symbol(self, head)
        if value is not None:
            return value
        here = op_names.IN_OTHER_LISPS.get(name)
        hint = f"; {here}" if here else did_you_mean(name, environment.visible())
        self.fail(f"there is no form, function or macro `{name}`{hint}", head)

    def spend(self, steps: int, form: Form) -> None:
        """Count work done while compiling, so that a program that never ends is told so."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            self.fail("this program is still computing after 5 million steps; does a loop never end?", form)

    # ---- calls

    def call(self, function: Any, arguments: list[Any], form: Form) -> Any:
        """Call anything that can be called with evaluated arguments; form is the call, for messages."""
        kind = type(function)
        if kind is Builtin:
            self.spend(1, form)
            count = len(arguments)
            if count < function.least or (function.most is not None and count > function.most):
                self.fail(registry.arity(function.name, function.least, function.most, count), form)
            return function.run(self, form, *arguments)
        if kind is Closure:
            scope = Environment(function.environment)
            bind(self, function.name, function.parameters, arguments, scope, form)
            with self.frame(function.name, form):
                return self.body(function.body, scope)
        if kind is Weight or kind is State:
            return model.indexed(self, function, arguments, form)
        if kind is Function:
            return calls.call(self, function, arguments, form)
        self.fail(f"{describe(function)} cannot be called", form)

    def evaluate_expansion(self, macro: Macro, form: List, environment: Environment) -> Any:
        """Expand a macro call and evaluate what it gives, where it was called."""
        scope = Environment(macro.environment, expands=True)
        arguments = [item.value if type(item) is Literal else item for item in form.items[1:]]
        bind(self, macro.name, macro.parameters, arguments, scope, form)
        with self.frame(macro.name, form):
            return self.evaluate(self.as_form(self.body(macro.body, scope), form.span), environment)

    def as_form(self, value: Any, span: Span) -> Form:
        """A compile-time value as code."""
        if isinstance(value, Form):
            return value
        if isinstance(value, OpResults):
            return Value(span, value)
        if isinstance(value, tuple):
            return List(span, tuple(self.as_form(item, span) for item in value))
        if value is None or isinstance(value, (bool, int, float, str)):
            return Literal(span, value)
        return Value(span, value)

    @contextmanager
    def frame(self, what: str, form: Form) -> Iterator[None]:
        """Remember for locations and messages that a call or an expansion is being evaluated."""
        if len(self.frames) >= DEEPEST_CALLS:
            self.fail(f"calls are {DEEPEST_CALLS} deep here; does `{what}` call itself without an end?", form)
        self._frame_count += 1
        self.frames.append(Frame(what, form, self.location(form), self._frame_count))
        try:
            yield
        finally:
            self.frames.pop()

    # ---- places and errors

    def location(self, form: Form) -> ir.Location:
        """file:line:column of a form, inside the calls and expansions around it."""
        span = form.span
        key = (span, self.frames[-1].number if self.frames else 0)
        location = self._locations.get(key)
        if location is None:
            line, column = span.source.line_column(span.start)
            self.sources.setdefault(span.source.name, span.source)
            location = ir.Location.file(span.source.name, line, column, self.context)
            if self.frames:
                location = ir.Location.callsite(location, [self.frames[-1].location], self.context)
            self._locations[key] = location
        return location

    def fail(self, message: str, form: Form | Span) -> NoReturn:
        """Raise the one error: at the form, or at the user's own call where the form stands in the library."""
        raise self.error(message, form)

    def error(self, message: str, form: Form | Span) -> UserError:
        span = form if isinstance(form, Span) else form.span
        return places.placed(message, span, [(frame.what, frame.form.span) for frame in reversed(self.frames)])

    def verify(self, operation: Any, form: Form) -> None:
        """MLIR's own verifier, its diagnostics turned into the error at the form they are about."""
        try:
            operation.verify()
        except ir.MLIRError as error:
            raise self.diagnosed(error, form) from None

    def diagnosed(self, error: ir.MLIRError, form: Form) -> UserError:
        """The user's error for MLIR's first diagnostic."""
        for diagnostic in error.error_diagnostics:
            spans = places.spans_of(str(diagnostic.location), self.sources)
            message = places.whole_message(diagnostic)
            return (
                places.placed(message, spans[0], [("here", s) for s in spans[1:]])
                if spans
                else self.error(message, form)
            )
        return self.error(str(error), form)
