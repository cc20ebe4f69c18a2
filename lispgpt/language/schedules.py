"""Files of schedules: their text to functions that write tile programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lispgpt.base.reading import read_text
from lispgpt.base.source import Source, Span
from lispgpt.ir.mlir import ir
from lispgpt.language.core.library import LIBRARY
from lispgpt.language.core.values import Builtin
from lispgpt.language.forms import kernels, modules
from lispgpt.language.forms.schedules import ScheduleForm, Schedules
from lispgpt.language.program import begin
from lispgpt.language.reader.forms import List
from lispgpt.language.reader.reader import read, read_library

KERNELS = LIBRARY / "kernels"
"""The folder of the library's schedules."""


def read_schedules(path: Path, words: Mapping[str, Builtin], capabilities: Mapping[str, int]) -> list[ScheduleForm]:
    """The schedules of a file.  words: the functions that they are made of.

    Needs an active ir.Context and raises UserError for what is wrong with the file.
    """
    source = Source(modules.source_name(path), read_text(path))
    with ir.Location.unknown():
        evaluator, environment = begin(path.parent, List(Span(source, 0, 0), ()))
        evaluator.states.of(kernels.Chip).capabilities.update(capabilities)
        files = evaluator.states.of(modules.Files)
        files.prelude.names.update(words)
        files.loading.append(path.resolve())
        known = read_library(source.name, source.text) if path.is_relative_to(KERNELS) else read(source)
        modules.run(evaluator, known, environment)
    return evaluator.states.of(Schedules).found
