"""Reading a pipeline from its file: `(pipeline name (stage name (pass name {:option value}) …) …)`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.reading import read_text
from lispgpt.base.source import Source
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Map, Symbol, head_name, show
from lispgpt.language.reader.reader import read
from lispgpt.passes.effects import refuse_effects
from lispgpt.passes.pipeline import PassCall, Pipeline, Stage

PIPELINES = Path(__file__).resolve().parents[1] / "passes" / "pipelines"


def pipeline_path(name: str) -> Path:
    """The file of one of the pipelines that come with the compiler, such as a target's own."""
    return PIPELINES / f"{name}.lisp"


def read_pipeline(path: Path) -> Pipeline:
    """A pipeline from a file; UserError points at what is wrong in it."""
    text = read_text(path)
    forms = read(Source(str(path), text))
    if len(forms) != 1 or head_name(forms[0]) != "pipeline":
        where = forms[0].span if forms else None
        raise UserError(f"{path} should hold one (pipeline NAME (stage NAME (pass NAME …) …) …)", where)
    name, *stages = _named(forms[0], "pipeline")
    return Pipeline(_symbol(name), tuple(_stage(form) for form in stages))


def _named(form: Form, head: str) -> list[Form]:
    """The items of `(head name …)` after its head."""
    if not isinstance(form, List) or head_name(form) != head or len(form.items) < 2:
        raise UserError(f"this should be ({head} NAME …), not `{show(form)}`", form.span)
    return list(form.items[1:])


def _stage(form: Form) -> Stage:
    name, *calls = _named(form, "stage")
    return Stage(_symbol(name), tuple(pass_call(call) for call in calls))


def pass_call(form: Form) -> PassCall:
    """One `(pass name {:option value …})`."""
    name, *options = _named(form, "pass")
    if len(options) > 1 or (options and not isinstance(options[0], Map)):
        raise UserError("a pass takes one map of options: (pass NAME {:option value})", form.span)
    items = options[0].items if options and isinstance(options[0], Map) else ()
    if len(items) % 2:
        raise UserError("an option has no value", options[0].span)
    pairs = tuple((_option_name(k), _option_value(v)) for k, v in zip(items[::2], items[1::2], strict=True))
    refuse_effects(_symbol(name), pairs, form.span)
    return PassCall(_symbol(name), pairs, form.span)


def _symbol(form: Form) -> str:
    if not isinstance(form, Symbol):
        raise UserError(f"this should be a name, not `{show(form)}`", form.span)
    return form.name


def _option_name(form: Form) -> str:
    if not isinstance(form, Keyword):
        raise UserError(f"an option's name is a keyword such as :level, not `{show(form)}`", form.span)
    return form.name


def _option_value(form: Form) -> Any:
    if isinstance(form, Literal) and form.value is not None:
        return form.value
    if isinstance(form, Symbol):
        return form.name
    raise UserError(f"an option's value is a number, string, name, true or false, not `{show(form)}`", form.span)
