"""The front end's one door: a program's text to its MLIR and what the program declares."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap
from lispgpt.base.source import Source, Span
from lispgpt.ir.mlir import ir
from lispgpt.language.core import registry
from lispgpt.language.core.environment import Dialects, Environment, did_you_mean
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.language import Language
from lispgpt.language.core.library import LIBRARY
from lispgpt.language.core.values import BlockType, Builtin, Function, LaterFunction, State, Weight
from lispgpt.language.forms import (
    arithmetic,
    calls,
    choice,
    compilation,
    contractions,
    core_forms,
    functions,
    kernels,
    lists,
    modules,
    native_macros,
    schedules,
    shapes,
    structs,
    tensors,
)
from lispgpt.language.model import (
    adapting,
    array_forms,
    building,
    declarations,
    entries,
    every_weight,
    folders,
    generation,
    gradient_rules,
    gradients,
    memory,
    narrow,
    norms,
    reports,
    scans,
    sizes,
    up_to,
    whole_texts,
)
from lispgpt.language.model.gradient_checks import GradientChecks
from lispgpt.language.model.sizes import Wanted
from lispgpt.language.model.table import Entry, Model
from lispgpt.language.ops import op_names, ops
from lispgpt.language.ops.function_table import Functions
from lispgpt.language.reader.forms import List
from lispgpt.language.reader.reader import read

__all__ = ["Generate", "Program", "TensorDecl", "begin", "evaluate"]

_REGISTERED = (
    adapting,
    arithmetic,
    array_forms,
    choice,
    contractions,
    core_forms,
    declarations,
    every_weight,
    folders,
    generation,
    gradients,
    lists,
    narrow,
    norms,
    reports,
    scans,
    schedules,
    shapes,
    structs,
    tensors,
    whole_texts,
)
"""Modules that are imported for the forms that they register."""

LANGUAGE = Language(
    names=registry.NAMES,
    heads=(functions.head, ops.head),
    fail_unknown=op_names.fail_unknown,
    template=native_macros.template,
    calls={
        Function: calls.call,
        LaterFunction: functions.call_later,
        Weight: memory.indexed,
        State: memory.indexed,
        Entry: entries.call,
        int: memory.called_size,
        gradient_rules.Differentiable: gradient_rules.call,
    },
)


@dataclass(frozen=True)
class TensorDecl:
    """A weight or a state; dtype is "f32", "bf16" or "i32"; free dimensions of a state are names.  stacked: whether the
    first dimension counts layers.  initial: what `{:init …}` says, as ("normal", 0.02).  layers: those that a stack is
    of, where not all have one."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    stacked: bool = False
    initial: tuple[str, float] | None = None
    layers: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Generate:
    """What `(generate entry {options})` says; options are named as in the program: max-new-tokens, top-k …"""

    entry: str
    options: dict[str, int | float | bool]


@dataclass(frozen=True)
class Program:
    """An evaluated program.  warnings: what its user should know, to be rendered as such."""

    module: ir.Module
    config: dict[str, Any]
    weights: tuple[TensorDecl, ...]
    states: tuple[TensorDecl, ...]
    entries: tuple[str, ...]
    generate: Generate | None
    has_main: bool
    compilations: tuple[compilation.Compilation, ...] = ()
    libraries: tuple[str, ...] = ()
    warnings: tuple[UserError, ...] = ()
    folder: FolderMap | None = None
    schedules: tuple[schedules.ScheduleForm, ...] = ()


def evaluate(
    source: Source,
    *,
    overrides: dict[str, int | float | str | bool],
    checkpoint_config: dict[str, Any],
    wanted: Wanted,
    root: Path,
    capabilities: dict[str, int] | None = None,
    devices: int = 1,
    words: Callable[[], Mapping[str, Builtin]] | None = None,
    float64: bool = False,
    checks_gradients: bool = False,
    kind: type[Evaluator] = Evaluator,
    more: str = "",
) -> Program:
    """Evaluate a program inside the active ir.Context.

    overrides: config values that win over checkpoint_config's, which win over the program's own; every name in
    overrides has to be one of the program's config.  wanted: which entries are built, for what sizes.  root: where
    `(require "@path")` starts.  capabilities: what kernels are told of the chip, by the names in kernels.CAPABILITIES.
    devices: how many will share the batch, which entries are built for as a whole.  words: gives what schedules are
    made of.  float64: whether all floats are of 64 bits.  checks_gradients: see `gradient_checks`.  kind: of evaluator,
    where somebody watches.  more: forms that are evaluated behind the program's.
    Raises UserError for whatever is wrong with the program.
    """
    with ir.Location.unknown():
        place = List(Span(source, 0, 0), ())
        evaluator, environment = begin(root, place, kind, float64)
        evaluator.states.of(GradientChecks).on = checks_gradients
        model, files = evaluator.states.of(Model), evaluator.states.of(modules.Files)
        evaluator.states.of(schedules.Words).give = words
        evaluator.states.of(kernels.Chip).capabilities.update(capabilities or {})
        model.overrides, model.checkpoint, model.devices = dict(overrides), dict(checkpoint_config), devices
        files.loading.append(Path(source.name).resolve())
        modules.run(evaluator, read(source), environment)
        if more:
            modules.run(evaluator, read(Source("(what is added to the program)", more)), environment)
        _check_overrides(model)
        tried: list[ir.Operation] = []
        for entry, chosen in sizes.choices(evaluator, model, wanted):
            growing = sizes.growing(entry, wanted.up_to)
            if growing is None:
                building.build(evaluator, entry, chosen)
            else:
                tried += up_to.build(evaluator, entry, chosen, growing)
        for function in tried:
            function.erase()
        native_macros.take_out(evaluator)
        evaluator.site.verify(evaluator.builder.module.operation, place)
        return _program(evaluator)


def begin(
    root: Path, place: List, kind: type[Evaluator] = Evaluator, float64: bool = False
) -> tuple[Evaluator, Environment]:
    """An evaluator with an empty module, and the environment of a program's top level; place is for messages about the
    core library.  kind: of evaluator, where somebody watches.  float64: see `evaluate`.  Needs an active ir.Context and
    location."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))
    evaluator = kind(LANGUAGE)
    if float64:
        evaluator.builder.widen()
    files = evaluator.states.of(modules.Files)
    files.root = root
    files.prelude.names.update(LANGUAGE.names)
    core = modules.load(evaluator, LIBRARY / "core.lisp", place)
    files.prelude.names.update(core.names)
    return evaluator, Environment(files.prelude, Dialects())


def _check_overrides(model: Model) -> None:
    config = model.config
    for name in model.overrides:
        if name not in config:
            known = f"; it has {', '.join(config)}" if config else "; it has no `config`"
            hint = did_you_mean(name, config, known)
            raise UserError(f"--set {name}: the program has no config value of this name{hint}")


def _plain(value: Any) -> Any:
    """A config value as JSON has it."""
    return str(value) if isinstance(value, (ir.Type, BlockType)) else list(value) if isinstance(value, tuple) else value


def _program(evaluator: Evaluator) -> Program:
    declared = evaluator.states.of(Model)
    generation = declared.generation
    return Program(
        module=evaluator.builder.module,
        config={k: _plain(v) for k, v in declared.config.items()},
        weights=tuple(
            TensorDecl(w.name, w.shape, w.dtype, w.stacked, w.initial, w.layers) for w in declared.weights.values()
        ),
        states=tuple(TensorDecl(s.name, s.shape, s.dtype) for s in declared.states.values()),
        entries=tuple(declared.entries),
        generate=Generate(generation.entry, generation.options) if generation else None,
        has_main="main" in evaluator.states.of(Functions).defined,
        compilations=tuple(evaluator.states.of(compilation.Compilations).found),
        libraries=tuple(evaluator.states.of(functions.Libraries).linked),
        warnings=tuple(evaluator.site.warnings),
        folder=declared.folder,
        schedules=tuple(evaluator.states.of(schedules.Schedules).found),
    )
