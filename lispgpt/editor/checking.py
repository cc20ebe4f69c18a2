"""Checking a program as far as it goes: every error that can be told, and what its forms come to.

A process of its own does this (`python -m lispgpt.editor.checking`): it reads one JSON object a line and answers each
with one, so that whatever a half-typed program makes of the compiler, the editor's server goes on.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lispgpt.base.errors import InternalError, UserError
from lispgpt.base.project import project_root
from lispgpt.base.source import Source, Span
from lispgpt.compiler.schedules import WORDS
from lispgpt.editor.binders import index_of
from lispgpt.editor.recovery import recover
from lispgpt.editor.watching import Watching
from lispgpt.ir.mlir import ir, new_context
from lispgpt.language.core.environment import Environment
from lispgpt.language.forms import functions, kernels, modules
from lispgpt.language.model import building, sizes
from lispgpt.language.model.table import Entry, Model
from lispgpt.language.program import begin
from lispgpt.language.reader.forms import Form, List
from lispgpt.passes.targets import find_target

TARGET = "cpu"
"""Whose capabilities kernels are told of."""

ROWS = 8
"""Positions of the one sequence that entries of rows are checked with."""

FREE_SIZE = 4
"""What other free dimensions are where nothing says what."""

ERROR, WARNING, INFORMATION = 1, 2, 3
"""Severities, as the Language Server Protocol numbers them."""


@dataclass
class Check:
    """The check of one text."""

    source: Source
    evaluator: Watching
    environment: Environment
    found: list[dict[str, Any]] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)

    def attempt(self, form: Form, act: Callable[[], Any], severity: int = ERROR) -> bool:
        """Do something for a form; where it fails, tell why, and take back what it put into the module."""
        module = self.evaluator.builder.module
        before = {op.operation for op in module.body.operations}
        try:
            act()
            return True
        except UserError as error:
            self.tell(error, form, severity)
        except RecursionError:
            self.tell(UserError("this is nested too deeply to evaluate", form.span), form, severity)
        except InternalError as error:
            self.tell(UserError(f"this is a bug in lispgpt: {error}", form.span), form, severity)
        except (ir.MLIRError, RuntimeError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            what = f"this is a bug in lispgpt, which half-typed text may have met: {type(error).__name__}: {error}"
            self.tell(UserError(what[:500], form.span), form, INFORMATION)
        self.lost |= set(index_of((form,), len(self.source.text)).top.names)
        for op in reversed([op.operation for op in module.body.operations]):
            if op not in before:
                op.erase()
        del self.evaluator.states.of(modules.Files).loading[1:]
        return False

    def tell(self, error: UserError, form: Form, severity: int) -> None:
        """Note an error of a form, unless it only says that what failed before is missing."""
        unknown = re.search(r"`([^`]+)` is not defined|there is no form, function or macro `([^`]+)`", error.message)
        if unknown is not None and (unknown[1] or unknown[2]) in self.lost:
            return
        around = [(message, span) for message, span in error.expanded_from]
        place = error.span or form.span
        if place.source.name != self.source.name:
            around.insert(0, (error.message, place))
            place = next((span for _, span in around if span.source.name == self.source.name), form.span)
        said = {
            "start": place.start,
            "end": place.end,
            "severity": severity,
            "message": error.message,
            "around": [
                {"file": span.source.name, "line": span.source.line_column(span.start)[0], "message": message}
                for message, span in around
            ],
        }
        if all(known["start"] != said["start"] or known["message"] != said["message"] for known in self.found):
            self.found.append(said)


def check(name: str, text: str) -> dict[str, Any]:
    """What is wrong with a text, and what its forms come to: errors and warnings by character offsets; `seen`, by start
    and end; `expansions`, the names that only macros define, with the macro that does and what they are."""
    source = Source(name, text)
    recovered = recover(source)
    Watching.watched = source.name
    with new_context(), ir.Location.unknown():
        evaluator, environment = begin(project_root(Path(name)), List(Span(source, 0, 0), ()), Watching)
        assert isinstance(evaluator, Watching)
        made = Check(source, evaluator, environment)
        evaluator.states.of(modules.Files).prelude.names.update(WORDS)
        evaluator.states.of(kernels.Chip).capabilities.update(find_target(TARGET).capabilities())
        evaluator.states.of(modules.Files).loading.append(Path(name).resolve())
        _evaluate(made, recovered.forms, recovered.broken)
        _build(made)
        for warning in evaluator.site.warnings:
            made.tell(warning, List(Span(source, 0, 0), ()), WARNING)
        return {
            "errors": made.found,
            "seen": [[*place, s.kinds, s.times, s.operations, s.moved] for place, s in evaluator.seen.items()],
            "expansions": {name: [head.name, kind] for name, (head, kind) in evaluator.expansions.items()},
        }


def _evaluate(made: Check, forms: tuple[Form, ...], broken: frozenset[int]) -> None:
    """Evaluate each form of the file that reads."""
    whole = tuple(form for form in forms if form.span.start not in broken)
    for form in forms:
        if form.span.start in broken:
            made.lost |= set(index_of((form,), len(made.source.text)).top.names)
    for form in whole:
        made.attempt(form, partial(functions.declare_ahead, made.evaluator, (form,), made.environment))
    for form in whole:
        made.attempt(form, partial(made.evaluator.evaluate, form, made.environment))


def _build(made: Check) -> None:
    """Build every entry of the file for the first sizes that it is compiled for, and where nothing says which, for
    ours; those that the library makes of an entry say the same again."""
    model = made.evaluator.states.of(Model)
    context = model.config.get("context")
    rows = (1, min(ROWS, context) if isinstance(context, int) and context > 0 else ROWS)
    for entry in [each for each in model.entries.values() if each.form.span.source.name == made.source.name]:
        wanted = sizes.Wanted(rows=[rows], entries=[entry.name], unsized=True)
        chosen: list[tuple[Entry, dict[str, int]]] = []
        if not made.attempt(entry.form, partial(_choose, made, wanted, chosen)):
            continue
        _, given = chosen[0] if chosen else (entry, dict.fromkeys(entry.dimensions, FREE_SIZE))
        severity = ERROR if chosen else INFORMATION
        made.attempt(entry.form, partial(building.build, made.evaluator, entry, given), severity)


def _choose(made: Check, wanted: sizes.Wanted, chosen: list[tuple[Entry, dict[str, int]]]) -> None:
    chosen += sizes.choices(made.evaluator, made.evaluator.states.of(Model), wanted)


def main() -> None:
    """Answer checks until the input ends; what programs print while they are compiled goes nowhere."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.nice(5)
    for line in sys.stdin:
        asked = json.loads(line)
        json.dump(check(asked["name"], asked["text"]), answers)
        answers.write("\n")
        answers.flush()


if __name__ == "__main__":
    main()
