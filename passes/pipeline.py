"""Pipelines as data, and the runner that shows the IR after every pass.

A pipeline is named stages of pass calls; `pipelines/*.lisp` hold them in the language itself.  A pass call prints as
`name{option=value}`; it is one of this package's Python passes where one has the name, else one of MLIR's.
"""

from __future__ import annotations

import re
import shlex
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from inspect import signature
from typing import Any, ClassVar

from lispgpt.base import scratch
from lispgpt.base.bugs import cause
from lispgpt.base.errors import InternalError, UserError
from lispgpt.base.observer import Observer
from lispgpt.base.source import Span
from lispgpt.ir.diagnostics import Diagnostics, mlir_message, run_passes
from lispgpt.ir.mlir import ir, passmanager
from lispgpt.passes.base import find_pass, is_own, make_pass, why_unknown
from lispgpt.passes.culprit import culprit
from lispgpt.passes.effects import refuse_effects
from lispgpt.passes.library import NO_SCHEDULES, Library
from lispgpt.passes.states import State
from lispgpt.passes.targets import Target
from lispgpt.passes.value_names import Names
from lispgpt.passes.watch import Ran, Watch

ANCHORS = ("", "func.func", "gpu.module", "gpu.module(gpu.func", "llvm.func")
TARGET_CLASSES = {"Gpu": "GPUs", "Cpu": "CPUs"}
"""What a pass's `run` may declare its target to be, where not any will do."""
SCOPES = {"any": "", "func": "func.func", "gpu": "gpu.module"}


@dataclass(frozen=True)
class PassCall:
    """A pass by its name, its options as written, and where that was.

    scope: "func" or "gpu" where it is to run on each function or each gpu.module; "any" leaves that to the pass.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    span: Span | None = None
    scope: str = "any"

    def __str__(self) -> str:
        values = (f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in self.options)
        return self.name + ("{" + " ".join(values) + "}" if self.options else "")


@dataclass(frozen=True)
class Stage:
    """A run of passes that ends in IR worth naming: `--emit NAME` stops after it."""

    name: str
    calls: tuple[PassCall, ...]


@dataclass(frozen=True)
class Pipeline:
    """Stages in order."""

    name: str
    stages: tuple[Stage, ...]

    @property
    def calls(self) -> tuple[PassCall, ...]:
        return tuple(call for stage in self.stages for call in stage.calls)

    def until(self, stage: str) -> Pipeline:
        """The stages up to and including one; UserError lists them when there is no such one."""
        names = [s.name for s in self.stages]
        if stage not in names:
            raise UserError(f"pipeline {self.name} has no stage {stage!r} (its stages: {', '.join(names)})")
        return Pipeline(self.name, self.stages[: names.index(stage) + 1])

    def before(self, count: int) -> Pipeline:
        """The first `count` passes, as one stage."""
        return Pipeline(self.name, (Stage("first", self.calls[:count]),))

    def after(self, count: int) -> Pipeline:
        """What is left after the first `count` passes, as one stage."""
        return Pipeline(self.name, (Stage("rest", self.calls[count:]),))

    def with_option(self, name: str, option: str, value: Any) -> Pipeline:
        """The same with another value of an option of a pass; UserError where it has no such pass."""
        if all(call.name != name for call in self.calls):
            raise UserError(f"pipeline {self.name} has no {name} pass, which {option} = {value} needs")

        def changed(call: PassCall) -> PassCall:
            options = tuple((key, old) for key, old in call.options if key != option)
            return replace(call, options=(*options, (option, value))) if call.name == name else call

        stages = (replace(stage, calls=tuple(map(changed, stage.calls))) for stage in self.stages)
        return Pipeline(self.name, tuple(stages))

    def quick(self) -> Pipeline:
        """The same without the passes that only make faster code than others behind them."""

        def kept(call: PassCall) -> bool:
            cls = find_pass(call.name)
            return cls is None or not cls.only_faster

        stages = (replace(stage, calls=tuple(filter(kept, stage.calls))) for stage in self.stages)
        return Pipeline(self.name, tuple(stages))

    def check(self) -> None:
        """Fail before anything runs where a pass or an option does not exist; needs an active context."""
        for call in self.calls:
            _resolve(call)


@dataclass
class Runner:
    """Runs pipelines on a module.

    observer: what to show on the way.  before: told of every pass before it starts.  library: what passes that choose
    among schedules are given, by the pipeline.  names: of values, those in the text that the module was read from.
    """

    target: Target
    observer: Observer = field(default_factory=Observer)
    before: Callable[[PassCall], None] = lambda _: None
    library: Callable[[Pipeline], Library] = lambda _: NO_SCHEDULES
    names: Names = field(default_factory=Names)
    ran: list[str] = field(default_factory=list)

    def run(self, module: ir.Module, pipeline: Pipeline) -> None:
        """Run every pass; UserError for diagnostics about the program.

        MLIR verifies what its passes leave.  What ours leave is verified before the next of MLIR's and at the end, and
        where somebody watches after each: verifying takes longer than most passes.
        """
        names = dict.fromkeys(call.name for call in pipeline.calls)
        for name in self.observer.print_after:
            if name != "all" and name not in names:
                raise UserError(f"no pass {name!r} runs, so nothing comes after it (these do: {', '.join(names)})")
        watch = Watch(self.observer, partial(self._print, module), self.names)
        watch.begin()
        if self.observer.watch is not None:
            self.observer.watch(module, None, 0.0)
        calls, library = list(pipeline.calls), self.library(pipeline)
        unverified: list[str] = []
        for number, call in enumerate(calls, start=1):
            self.before(call)
            started = time.perf_counter()
            with Diagnostics(module.context) as diagnostics:
                try:
                    pass_ = _resolve(call)
                    _run(pass_, module, self.target, library)
                    diagnostics.check()
                    seconds = time.perf_counter() - started
                    unverified = [] if isinstance(pass_, _MlirPass) else [*unverified, call.name]
                    if unverified and (self.watched or number == len(calls) or find_pass(calls[number].name) is None):
                        _verify(module, unverified)
                        unverified = []
                except Exception as error:  # whatever it is, the user gets the IR and the command that repeats it
                    raise self._failure(module, number, call, error, diagnostics, watch) from error
            self.ran.append(call.name)
            watch.after(Ran(number, call.name, str(call), seconds))
            if self.observer.watch is not None:
                self.observer.watch(module, call, seconds)

    @property
    def watched(self) -> bool:
        """Whether somebody looks at the IR between passes."""
        return self.observer.watches

    def text(self, module: ir.Module) -> str:
        """A module's text, with names after those that were shown last."""
        return self.names.name(self._print(module))

    def _print(self, module: ir.Module) -> str:
        return str(module.operation.get_asm(assume_verified=True, enable_debug_info=self.observer.locations))

    def _failure(
        self,
        module: ir.Module,
        number: int,
        call: PassCall,
        error: Exception,
        diagnostics: Diagnostics,
        watch: Watch,
    ) -> Exception:
        """The error to raise: the program's place where MLIR gave one, and how to run the pass again."""
        again = "\n--dump-dir FOLDER keeps the IR before it and says how to run it again"
        if isinstance(error, UserError) and error.span is not None:
            again = ""  # what is wrong stands in the user's text
        if is_own(call.name) and not isinstance(error, UserError):
            return UserError(f"pass {call.name}, of a file of yours, failed: {cause(error)}", call.span)
        if watch.last is not None:
            watch.failed(number, call.name, _generic_text(module))
            command = ["lispgpt", "opt", str(watch.last), "--target", str(self.target), "--pipeline", str(call)]
            again = f"\nto see it again: {shlex.join(command)}"
        if isinstance(error, UserError):
            if error.span is not None:
                return UserError(f"{error.message}{again}", error.span, error.expanded_from)
            return UserError(f"pass {call.name} failed: {error.message}{again}", diagnostics.span() or call.span)
        if isinstance(error, ir.MLIRError) and (find_pass(call.name) is None or _of_mlirs_passes(error, diagnostics)):
            what = diagnostics.text() or mlir_message(error)
            return UserError(f"pass {call.name} failed: {what}{again}", diagnostics.span() or call.span)
        what = diagnostics.text() or mlir_message(error) if isinstance(error, ir.MLIRError) else cause(error)
        report = "".join(traceback.format_exception(error))
        return InternalError(f"pass {call.name}{culprit(error, module)}: {what}{again}", report)


def _run(pass_: Any, module: ir.Module, target: Target, library: Library) -> None:
    """Run a pass on a module that is as the pass wants it; UserError where it is not."""
    wanted = _wanted_target(type(pass_).run)
    if wanted in TARGET_CLASSES and wanted not in [cls.__name__ for cls in type(target).__mro__]:
        raise UserError(f"it is for {TARGET_CLASSES[wanted]}, and --target {target} is none")
    for state in pass_.starts_from:
        missing = state.missing(module)
        if missing is not None:
            raise UserError(f"it cannot run here: {missing}")
    more = [library] if "library" in signature(type(pass_).run).parameters else []
    pass_.run(module, target, *more)


@cache
def _wanted_target(run: Callable[..., None]) -> Any:
    """What a pass's `run` declares its target to be."""
    return signature(run).parameters["target"].annotation


def _verify(module: ir.Module, passes: Sequence[str]) -> None:
    """InternalError with the verifier's words where passes have left something that MLIR does not take."""
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        earlier = f" ({', '.join(passes[:-1])} ran before it; --dump-dir says which it was)" if passes[1:] else ""
        raise InternalError(f"it left IR that does not verify{earlier}: {mlir_message(error)}") from error


def _of_mlirs_passes(error: ir.MLIRError, diagnostics: Diagnostics) -> bool:
    """Whether a pass of MLIR's, run by one of ours, failed at a place in the user's file."""
    return "pass pipeline" in str(error) and diagnostics.span() is not None


@dataclass(frozen=True)
class _MlirPass:
    """One of MLIR's passes, nested in the op that it wants."""

    pipeline: str
    starts_from: ClassVar[tuple[State, ...]] = ()

    def run(self, module: ir.Module, target: object) -> None:
        with scratch.kept_to("gpu-module-to-binary" in self.pipeline):
            run_passes(self.pipeline, module)


def _resolve(call: PassCall) -> Any:
    cls = find_pass(call.name)
    if cls is not None:
        try:
            return make_pass(cls, dict(call.options))
        except UserError as error:
            raise UserError(error.message, call.span) from None
    text, problem = _mlir_pipeline(str(call), call.scope)
    if text:
        return _MlirPass(text)
    if "does not refer to a registered pass" in problem:
        raise UserError(f"there is no pass {call.name!r}{why_unknown(call.name)}", call.span)
    reason = re.sub(r"^.*?error: ", "", problem.replace("\n", " "))
    raise UserError(f"pass {call} cannot be used: {reason[:200]}", call.span)


@cache
def _mlir_pipeline(call: str, scope: str) -> tuple[str, str]:
    """(the textual pipeline of one of MLIR's passes, nested in the op that it wants, or "", what MLIR has against it);
    needs an active context."""
    problem = ""
    for anchor in sorted(ANCHORS, key=lambda a: a != SCOPES[scope]):
        inner = f"{anchor}({call})" if anchor else call
        text = f"builtin.module({inner}{')' * anchor.count('(')})"
        try:
            passmanager.PassManager.parse(text)
        except (ir.MLIRError, ValueError) as error:
            problem = str(error)
            if "restricted to" not in problem:
                break
        else:
            return text, ""
    return "", problem


def parse_calls(text: str) -> tuple[PassCall, ...]:
    """Pass calls from MLIR's own notation: `first,second{a=1 b=2},third`; UserError for those that reach beyond the
    module."""
    calls = []
    for match in _split_calls(text):
        found = re.fullmatch(r"([\w.-]+)(?:\{(.*)\})?", match.strip(), re.DOTALL)
        if found is None:
            raise UserError(f"{match.strip()!r} is not a pass: write name or name{{option=value}}")
        options = tuple(re.findall(r"([\w-]+)=(\{[^}]*\}|\S+)", found.group(2) or ""))
        refuse_effects(found.group(1), options)
        calls.append(PassCall(found.group(1), options))
    return tuple(calls)


def _split_calls(text: str) -> Iterable[str]:
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c == "{") - (c == "}")
        if c == "," and depth == 0:
            yield text[start:i]
            start = i + 1
    yield text[start:]


def _generic_text(module: ir.Module) -> str:
    """The module's text even where it does not verify."""
    return module.operation.get_asm(print_generic_op_form=True, assume_verified=True)
