"""`generate`: which entry text is generated from, and by what options.

What is compiled for it is the library's business (generation.lisp): entries like any other.
"""

from __future__ import annotations

from typing import Any

from lispgpt.language.core.environment import Environment, did_you_mean
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.library import LIBRARY
from lispgpt.language.core.registry import special
from lispgpt.language.core.values import describe
from lispgpt.language.forms import modules
from lispgpt.language.model.table import Generation, Model
from lispgpt.language.reader.forms import Keyword, List, Map, Symbol, show

COUNTS = ("max-new-tokens", "top-k", "seed")
PENALTIES = ("repeat-penalty", "presence-penalty", "frequency-penalty")
OPTIONS = (*COUNTS, "temperature", "top-p", "min-p", "greedy", *PENALTIES)
POSITIONS = "positions"
FILE, DECODING = "generation.lisp", "decoding"


@special("generate", 1, 2)
def _generate(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(generate entry {:temperature 0.8})`: has the library make the entries that decode, and records the options."""
    model, name = evaluator.states.of(Model), form.items[1]
    if not isinstance(name, Symbol) or name.name not in model.entries:
        evaluator.site.fail(f"`{show(name)}` is not an entry{did_you_mean(show(name), model.entries)}", name)
    first = next((each.name.name for each in model.entries[name.name].inputs), "")
    if first == POSITIONS:
        evaluator.site.fail(
            f"`generate` gives an entry its tokens first, and their positions behind them: {name.name} calls the first "
            f"of its inputs {POSITIONS}",
            name,
        )
    if model.generation is not None:
        evaluator.site.fail("a program has one `generate`", form)
    model.generation = Generation(name.name, _options(evaluator, form, environment), form)
    library = modules.load(evaluator, LIBRARY / FILE, form)
    evaluator.call(library.lookup(Symbol(form.span, DECODING)), [model.entries[name.name]], form)
    return None


def _options(evaluator: Evaluator, form: List, environment: Environment) -> dict[str, int | float | bool]:
    options: dict[str, int | float | bool] = {}
    given = form.items[2].items if len(form.items) > 2 and isinstance(form.items[2], Map) else ()
    if len(form.items) > 2 and not isinstance(form.items[2], Map):
        evaluator.site.fail("the options of `generate` are a map: {:max-new-tokens 64 :top-k 50}", form.items[2])
    for index in range(0, len(given), 2):
        key = given[index]
        if not isinstance(key, Keyword) or index + 1 == len(given):
            evaluator.site.fail(f"`{show(key)}` is not a :key with a value", key)
        if key.name not in OPTIONS:
            hint = did_you_mean(key.name, OPTIONS, f"; there are {', '.join(OPTIONS)}")
            evaluator.site.fail(f"`generate` has no option :{key.name}{hint}", key)
        value = evaluator.single(given[index + 1], environment)
        if not isinstance(value, (int, float)):
            evaluator.site.fail(f"`:{key.name}` is a number, and not {describe(value)}", given[index + 1])
        if key.name in COUNTS and (type(value) is not int or value < 0):
            evaluator.site.fail(f"`:{key.name}` is a whole number from 0, and not {describe(value)}", given[index + 1])
        options[key.name] = value
    return options
