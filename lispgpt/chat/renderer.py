"""The process that renders chat templates: a program of its own, which imports nothing of this package.

A template comes with a model, so it is not trusted: it runs in jinja2's sandbox, in a process that can open no file,
start no process and have no more memory than the first line of its input says; whoever started it ends it where it
takes too long.  Then each line of its input
is a JSON object {"template", "values", "now"}, and each line of its output {"text"} or {"error"}, after a first one
that says that it is ready.  Templates find what transformers gives them: `tojson`, `raise_exception`, `strftime_now`,
`break` and `continue`, and `{% generation %}`, which changes nothing.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

_NOW: list[datetime] = []
_FIRST = (
    "{% macro m(x) %}{{ x | tojson(indent=1) }}{% endmacro %}{{ m({'a': '\\u00e9'}) }}{{ '%s' | format(1) }}",
    "{{ lipsum(1) }}",
    "{{ nothing.there }}",
    "{{ raise_exception('x') }}",
    "{% if %}",
)
"""Templates that have Python and jinja2 load whatever they load when it is first needed."""


class _Generation(Extension):
    """`{% generation %} … {% endgeneration %}` marks what the model wrote, for those who train it."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own way to say it

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(jinja2.utils.Namespace):
    """One whose attributes are all the template's own."""

    def __init__(*given: Any, **named: Any) -> None:
        self, *rest = given
        found = dict(*rest, **named)
        for name in found:
            _check_name(name)
        jinja2.utils.Namespace.__init__(self, found)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace has no attribute {name!r}")


def _raise(message: Any) -> None:
    raise jinja2.exceptions.TemplateError(str(message))


def _json(value: Any, ensure_ascii: bool = False, **layout: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **layout)


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _json
    made.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda form: (_NOW[0] if _NOW else datetime.now()).strftime(form),
        "namespace": _Namespace,
    }
    return made


@lru_cache(16)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


def _answer(line: str, longest: int) -> dict[str, str]:
    try:
        asked = json.loads(line)
        _NOW[:] = [datetime.fromisoformat(asked["now"])] if asked.get("now") else []
        text = _compiled(asked["template"]).render(**asked["values"])
        return {"text": text} if len(text) <= longest else {"error": f"it makes {len(text):,} characters"}
    except MemoryError:
        return {"error": "it takes too much memory"}
    except RecursionError:
        return {"error": "it goes too deep"}
    except jinja2.TemplateSyntaxError as error:
        return {"error": f"line {error.lineno}: {error.message}"}
    except Exception as error:  # a template may raise whatever Python has
        return {"error": str(error) or type(error).__name__}


def main() -> None:
    limits = json.loads(sys.stdin.readline())
    time.localtime()  # which reads a file, once
    for template in _FIRST:
        _answer(json.dumps({"template": template, "values": {}}), 0)
    for kind, most in (
        (resource.RLIMIT_AS, limits["memory"]),
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    print("{}", flush=True)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(line, limits["longest"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
