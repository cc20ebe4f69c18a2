"""The evaluator: walks forms, computes at compile time, and emits MLIR at the builder's insertion point."""

from __future__ import annotations

import re
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.source import Span
from lispgpt.ir.mlir import ir
from lispgpt.language.core import attributes
from lispgpt.language.core.builder import Builder
from lispgpt.language.core.elsewhere import hint
from lispgpt.language.core.environment import MISSING, Environment, did_you_mean
from lispgpt.language.core.language import Language
from lispgpt.language.core.parameters import arity, bind
from lispgpt.language.core.site import Site
from lispgpt.language.core.states import States
from lispgpt.language.core.values import (
    Alias,
    Builtin,
    Closure,
    LoopIndex,
    Macro,
    OpResults,
    Record,
    Special,
    Variable,
    Weight,
    WeightReference,
    describe,
)
from lispgpt.language.reader.forms import Form, Keyword, Later, List, Literal, Map, Sequence, Symbol, Value, Vector

MOST_STEPS = 5_000_000
MOST_FORMS = 1_000_000
"""Of one expansion of a macro."""


class Evaluator:
    """One evaluation of a program.  Needs an active ir.Context and location.

    site: where it stands in the program.  builder: where it stands in the module.  states: what features keep.
    """

    def __init__(self, language: Language) -> None:
        self.language = language
        self.site = Site()
        self.builder = Builder(self.site)
        self.states = States()
        self.steps = 0

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
            self.site.fail("a map is {:key value …}, and the last key of this one has no value", form)
        if isinstance(form, Vector):
            return tuple(self.evaluate(item, environment) for item in form.items)
        if isinstance(form, Map) and all(isinstance(key, Keyword) for key in form.items[::2]):
            names = [key.name for key in form.items[::2] if isinstance(key, Keyword)]
            return Record(dict(zip(names, (self.single(v, environment) for v in form.items[1::2]), strict=True)))
        return self.body(form.read(), environment) if isinstance(form, Later) else form

    def body(self, forms: tuple[Form, ...], environment: Environment) -> Any:
        """The forms in turn; the value of the last one."""
        value = None
        for form in forms:
            value = self.evaluate(form, environment)
        return value

    def body_in(self, block: ir.Block, forms: tuple[Form, ...], environment: Environment) -> Any:
        """The forms in turn, their ops at the end of a block; the value of the last one."""
        with self.builder.at(block):
            return self.body(forms, environment)

    def single(self, form: Form, environment: Environment) -> Any:
        """The one value of a form: an op's first result, a weight's tensor."""
        return self.value_of(self.evaluate(form, environment), form)

    def value_of(self, value: Any, form: Form) -> Any:
        """A value as an operand or argument: an op's first result, a weight's tensor, a loop index's value."""
        if isinstance(value, OpResults):
            if not value:
                self.site.fail(f"`{value.op_name}` gives no value to use here", form)
            return value[0]
        return value

    def ssa(self, value: Any, form: Form) -> Any:
        """Like value_of, with what stands for an SSA value replaced by it."""
        value = self.value_of(value, form)
        if isinstance(value, LoopIndex):
            return value.comprehension.index(self, value, form)
        return self.language.template(self, value, form) if isinstance(value, Form) else value

    def name(self, symbol: Symbol, environment: Environment) -> Any:
        """What a name is bound to, or the type that it spells."""
        value = environment.lookup(symbol)
        if value is MISSING:
            value = self._unbound(symbol, environment)
        if type(value) is Variable or (type(value) is Weight and not value.stacked):
            if value.value is None and type(value) is Variable:
                self.site.fail(f"the input {value.name} has a value inside its entry only", symbol)
            return WeightReference(value) if value.value is None else value.value  # type: ignore[arg-type]
        return value

    def _unbound(self, symbol: Symbol, environment: Environment) -> Any:
        name = symbol.name
        if "/" in name[1:]:
            space, _, member = name.partition("/")
            alias = environment.lookup(Symbol(symbol.span, space, symbol.mark))
            if isinstance(alias, Alias):
                found = alias.environment.names.get(member, MISSING)
                if found is MISSING:
                    near = did_you_mean(member, (n for n in alias.environment.names if isinstance(n, str)))
                    self.site.fail(f"{space} has no {member}{near}", symbol)
                return found
        parsed = attributes.parse_symbol(self.builder, symbol)
        if parsed is not None:
            return parsed
        a_type = re.fullmatch(r"[a-z]{1,4}\d+\w*", name)
        types = "; types are i1, i8, i16, i32, i64, f16, bf16, f32, f64, index" if a_type else ""
        said = hint(name, environment.visible()) or did_you_mean(name, environment.visible(), types)
        self.site.fail(f"`{name}` is not defined{said}", symbol)

    def _list(self, form: List, environment: Environment) -> Any:
        self.spend(1, form)
        if not form.items:
            return ()
        head = form.items[0]
        if type(head) is Symbol:
            function = environment.lookup(head)
            if function is MISSING:
                function = self._head(head, environment)
        else:
            function = self.single(head, environment)
        kind = type(function)
        if kind is Special:
            count = len(form.items) - 1
            if count < function.least or (function.most is not None and count > function.most):
                self.site.fail(arity(function.name, function.least, function.most, count), form)
            return function.run(self, form, environment)
        if kind is Macro:
            return self.evaluate_expansion(function, form, environment)
        arguments = [self.value_of(self.evaluate(item, environment), item) for item in form.items[1:]]
        return self.call(function, arguments, form)

    def _head(self, head: Symbol, environment: Environment) -> Any:
        """What a list's head stands for where no name is bound."""
        for known in self.language.heads:
            found = known(self, head, environment)
            if found is not MISSING:
                return found
        name = head.name
        if "." in name.strip(".") or "/" in name.strip("/"):
            try:
                return self._unbound(head, environment)
            except UserError:
                if "/" in name and "." not in name:
                    raise
            self.language.fail_unknown(self, head, environment)
        value = attributes.parse_symbol(self.builder, head)
        if value is not None:
            return value
        self.language.fail_unknown(self, head, environment)

    def spend(self, steps: int, form: Form) -> None:
        """Count work done while compiling, so that a program that never ends is told so."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            self.site.fail("this program is still computing after 5 million steps; does a loop never end?", form)

    # ---- calls

    def call(self, function: Any, arguments: list[Any], form: Form) -> Any:
        """Call anything that can be called with evaluated arguments; form is the call, for messages."""
        kind = type(function)
        if kind is Builtin:
            self.spend(1, form)
            count = len(arguments)
            if count < function.least or (function.most is not None and count > function.most):
                self.site.fail(arity(function.name, function.least, function.most, count), form)
            return function.run(self, form, *arguments)
        if kind is Closure:
            scope = Environment(function.environment)
            bind(self.site, function.name, function.parameters, arguments, scope, form)
            with self.site.frame(function.name, form):
                return self.body(function.body, scope)
        call = self.language.calls.get(kind)
        if call is None:
            self.site.fail(f"{describe(function)} cannot be called", form)
        return call(self, function, arguments, form)

    def expanded(self, form: List, expansion: Form) -> None:
        """Told what each macro call becomes, where somebody watches."""

    def evaluate_expansion(self, macro: Macro, form: List, environment: Environment) -> Any:
        """Expand a macro call and evaluate what it gives, where it was called."""
        scope = Environment(macro.environment, expands=True)
        arguments = [item.value if type(item) is Literal else item for item in form.items[1:]]
        bind(self.site, macro.name, macro.parameters, arguments, scope, form)
        with self.site.frame(macro.name, form):
            expansion = as_form(self.body(macro.body, scope), form.span)
            if isinstance(expansion, Sequence) and expansion.weight > MOST_FORMS:
                self.site.fail(f"`{macro.name}` expands to more than {MOST_FORMS:,} forms; does it ever end?", form)
            self.expanded(form, expansion)
            return self.evaluate(expansion, environment)


def as_form(value: Any, span: Span) -> Form:
    """A compile-time value as code."""
    if isinstance(value, Form):
        return value
    if isinstance(value, OpResults):
        return Value(span, value)
    if isinstance(value, tuple):
        return List(span, tuple(as_form(item, span) for item in value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return Literal(span, value)
    return Value(span, value)
