"""`(compilation …)` forms: a program's own pipelines, kept as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lispgpt.base.source import Span
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import special
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Map, Symbol, Vector, head_name, show

SCOPES = {"passes": "any", "func-passes": "func", "gpu-passes": "gpu"}
ANCHORS = {"func.func": "func", "gpu.module": "gpu"}


@dataclass(frozen=True)
class PassForm:
    """`(pass name {:option value})`; scope is "func" or "gpu" for one in func-passes or gpu-passes, or after the name
    of the op that it runs on, as in `(pass gpu.module name)`; else "any"."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    scope: str = "any"
    span: Span | None = None

    def __str__(self) -> str:
        """As MLIR's pass pipelines write it."""
        options = " ".join(f"{key}={_spelled(value)}" for key, value in self.options.items())
        return self.name + ("{" + options + "}" if options else "")


@dataclass(frozen=True)
class Compilation:
    """One pipeline: the target that it is for, as written, and its passes in order."""

    target: str
    passes: tuple[PassForm, ...]
    span: Span | None = None


@dataclass
class Compilations:
    """The pipelines that a program has given so far."""

    found: list[Compilation] = field(default_factory=list)


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@special("compilation", 0, None)
def _compilation(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(compilation (target rocm (pass …) …) …)`"""
    for item in form.items[1:]:
        if head_name(item) != "target" or not isinstance(item, List) or len(item.items) < 2:
            evaluator.site.fail(f"`{show(item)}` is not (target name (pass …) …)", item)
        target = _word(evaluator, item.items[1])
        passes = tuple(found for part in item.items[2:] for found in _part(evaluator, part))
        evaluator.states.of(Compilations).found.append(Compilation(target, passes, item.span))
    return None


@special("compilation-gpu", 1, None)
def _compilation_gpu(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(compilation-gpu rocm (passes …) (func-passes …) (gpu-passes …) …)`"""
    passes = tuple(found for part in form.items[2:] for found in _part(evaluator, part))
    evaluator.states.of(Compilations).found.append(Compilation(_word(evaluator, form.items[1]), passes, form.span))
    return None


@special("compilation-cpu", 0, None)
def _compilation_cpu(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    parts = form.items[1:]
    if parts and isinstance(parts[0], (Symbol, Keyword)):
        parts = parts[1:]
    passes = tuple(found for part in parts for found in _part(evaluator, part))
    evaluator.states.of(Compilations).found.append(Compilation("cpu", passes, form.span))
    return None


def _part(evaluator: Evaluator, form: Form) -> list[PassForm]:
    head = head_name(form)
    if head in SCOPES and isinstance(form, List):
        return [_pass(evaluator, item, SCOPES[head]) for item in form.items[1:]]
    return [_pass(evaluator, form, "any")]


def _pass(evaluator: Evaluator, form: Form, scope: str) -> PassForm:
    items = form.items[1:] if head_name(form) == "pass" and isinstance(form, List) else ()
    if len(items) > 1 and isinstance(items[0], Symbol) and items[0].name in ANCHORS:
        scope, items = ANCHORS[items[0].name], items[1:]
    if not items:
        evaluator.site.fail(f"`{show(form)}` is not (pass name) or (pass name {{:option value}})", form)
    return PassForm(_word(evaluator, items[0]), _options(evaluator, items[1:]), scope, form.span)


def _options(evaluator: Evaluator, forms: tuple[Form, ...]) -> dict[str, Any]:
    """`{:option value …}`, or the same without braces."""
    given = forms[0].items if len(forms) == 1 and isinstance(forms[0], Map) else forms
    options: dict[str, Any] = {}
    if len(given) % 2:
        evaluator.site.fail("a pass's options are a map: {:option value}", forms[0])
    for key, value in zip(given[::2], given[1::2], strict=True):
        if not isinstance(key, Keyword):
            evaluator.site.fail(f"`{show(key)}` is not a :key", key)
        options[key.name] = _option(evaluator, value)
    return options


def _option(evaluator: Evaluator, form: Form) -> Any:
    if isinstance(form, Literal) and form.value is not None:
        return form.value
    if isinstance(form, Vector):
        return ",".join(str(_option(evaluator, item)) for item in form.items)
    return _word(evaluator, form)


def _word(evaluator: Evaluator, form: Form) -> str:
    if isinstance(form, (Symbol, Keyword)):
        return form.name
    if isinstance(form, Literal) and isinstance(form.value, str):
        return form.value
    evaluator.site.fail(f"`{show(form)}` is not a name", form)
