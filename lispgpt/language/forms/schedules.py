"""`schedule` forms: how kernels are written by tiles, kept for whoever chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir
from lispgpt.language.core import parameters
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import special
from lispgpt.language.core.values import Builtin, Closure
from lispgpt.language.reader.forms import Form, Keyword, List, Map, Symbol, Vector, show

KINDS = ("product", "attention", "attention-gradient", "rows")
"""What kernels are."""


@dataclass(frozen=True)
class ScheduleForm:
    """evaluator: which calls its functions.  takes: whether it is for a kernel.  body: writes its program.  asks: the
    form of `takes`, for messages.  of: one of KINDS.  products: how many a kernel has that it is for; 0: any number."""

    evaluator: Evaluator
    name: str
    takes: Closure
    body: Closure
    asks: Form
    of: str = "product"
    products: int = 1


@dataclass
class Schedules:
    """Those that a file has given so far."""

    found: list[ScheduleForm] = field(default_factory=list)


@dataclass
class Words:
    """Gives the functions that schedules are made of, which every file knows once there is a schedule."""

    give: Callable[[], Mapping[str, Builtin]] | None = None


@special("schedule", 4, None)
def _schedule(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(schedule name [kernel] {:takes expression} body…)`, of a product, or of what `:of` names: attention, rows, …

    With several names it is for kernels of so many products, each of which has one; `[& products]` is any number.
    """
    words, prelude = evaluator.states.of(Words), environment.top().outer
    if words.give is not None and prelude is not None:
        prelude.names.update(words.give())
        words.give = None
    _, name, taken, options, *body = form.items
    if not isinstance(name, Symbol) or not isinstance(taken, Vector) or not taken.items:
        evaluator.site.fail("a schedule is (schedule name [kernel] {:takes expression} body…)", form)
    given = _options(options)
    if given is None:
        says = (
            "a schedule's options are :takes, with an expression that says which kernels it is for, and, where these "
            "are no products, :of attention, attention-gradient or rows"
        )
        evaluator.site.fail(says, options)
    bound = parameters.parse_parameters(evaluator.site, taken, "schedule")
    asks, of = given
    takes, writes = (Closure(name.name, bound, b, environment.capture(), form) for b in ((asks,), tuple(body)))
    products = 0 if bound.rest is not None else len(bound.names)
    if of != "product" and (products, len(bound.names)) != (1, 1):
        evaluator.site.fail(f"a schedule of {of} is given one kernel", taken)
    found = evaluator.states.of(Schedules).found
    if any(one.name == name.name for one in found):
        evaluator.site.fail(f"there is a schedule `{name.name}` already", name)
    found.append(ScheduleForm(evaluator, name.name, takes, writes, asks, of, products))
    return None


def _options(options: Form) -> tuple[Form, str] | None:
    """`:takes` and `:of`; None where they are none, or others."""
    if not isinstance(options, Map):
        return None
    keys, values = options.items[::2], options.items[1::2]
    given = {key.name: value for key, value in zip(keys, values, strict=True) if isinstance(key, Keyword)}
    of = given.pop("of", None)
    kind = of.name if isinstance(of, Symbol) else "product" if of is None else ""
    if set(given) != {"takes"} or kind not in KINDS or len(keys) != 1 + (of is not None):
        return None
    return given["takes"], kind


def call(evaluator: Evaluator, closure: Closure, *arguments: Any) -> Any:
    """Call a function of a schedule where MLIR's current insertion point is, at whose ops its own are put."""
    with evaluator.builder.at(ir.InsertionPoint.current):
        return evaluator.value_of(evaluator.call(closure, list(arguments), closure.form), closure.form)


def word(name: str, kinds: tuple[Kind, ...], does: Callable[..., Any]) -> Builtin:
    """A function of schedules: `does` is called with arguments that are of these kinds, and emits at the insertion
    point; functions among them are Python's by then."""

    def run(evaluator: Evaluator, form: Form, *arguments: Any) -> Any:
        for kind, argument in zip(kinds, arguments, strict=True):
            if not kind.holds(argument):
                evaluator.site.fail(f"`{name}` wants {kind.says} here: {show(form)}", form)
        given = [Callback(a.form, evaluator, a) if isinstance(a, Closure) else a for a in arguments]
        with evaluator.builder.insertion, evaluator.site.location(form):
            try:
                return does(*given)
            except UserError as error:
                if error.span is not None:
                    raise
                evaluator.site.fail(error.message, form)

    return Builtin(name, run, len(kinds), len(kinds))


@dataclass(frozen=True)
class Kind:
    """What an argument has to be, and in words."""

    holds: Callable[[Any], bool]
    says: str


@dataclass(frozen=True)
class Callback:
    """A function among the arguments of a word; functions of one place in the text are equal, whatever they see."""

    form: Form
    evaluator: Evaluator = field(compare=False)
    closure: Closure = field(compare=False)

    def __call__(self, *arguments: Any) -> Any:
        return call(self.evaluator, self.closure, *arguments)
