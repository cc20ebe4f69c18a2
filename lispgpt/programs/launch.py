"""What the command line does with a program: run it, compile it to object files, or show a stage of its compilation."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lispgpt.base.child import Outcome, Reporter, compiled, run_in_child
from lispgpt.base.errors import UserError
from lispgpt.base.machine import ended_from_outside
from lispgpt.base.observer import Observer
from lispgpt.base.source import Source, Span
from lispgpt.ir.diagnostics import span_of
from lispgpt.ir.mlir import ir
from lispgpt.language.forms.compilation import Compilation
from lispgpt.passes.pipeline import PassCall, Pipeline, Runner
from lispgpt.passes.targets import Gpu, Target, find_target
from lispgpt.passes.targets.binary import object_bytes
from lispgpt.passes.value_names import Names
from lispgpt.pipelines.pipeline_file import read_pipeline
from lispgpt.programs import host_loops
from lispgpt.programs.adaptation import choose_pipeline
from lispgpt.programs.execution import describe_main, object_code, run_lowered
from lispgpt.programs.externals import Externals


@dataclass(frozen=True)
class Job:
    """A module with a main, and how to compile it.

    The module's context has to live as long as the job.  compilations: the program's own pipelines.  libraries: what
    link-library named, found relative to root.  pipeline: a file in place of them all.
    """

    module: ir.Module
    target: str = "cpu"
    compilations: Sequence[Compilation] = ()
    libraries: Sequence[str] = ()
    root: Path | None = None
    pipeline: Path | None = None
    observer: Observer = field(default_factory=Observer)

    def plan(self) -> tuple[Target, Pipeline]:
        """The target and the pipeline, its passes and options checked."""
        target = find_target(self.target)
        given = read_pipeline(self.pipeline) if self.pipeline else None
        pipeline = choose_pipeline(self.compilations, target, given)
        with self.module.context:
            pipeline.check()
        return target, pipeline

    def lower(self, target: Target, pipeline: Pipeline, reporter: Reporter) -> bool:
        """Run the pipeline, in the child; whether loops meant for a GPU stay on the host, each with a warning."""
        warned = False

        def before(call: PassCall) -> None:
            nonlocal warned
            if runner.ran and runner.ran[-1] == host_loops.TO_GPU:
                for warning in host_loops.warnings(self.module):
                    warned = True
                    print(warning.render("warning"), file=sys.stderr)
            reporter.step(f"pass {call.name}")

        runner = Runner(target, self.observer, before)
        runner.run(self.module, pipeline)
        self.observer.tell_times()
        return warned


def run(job: Job, arguments: Sequence[str]) -> int:
    """Compile and run in a child process; returns its exit code.

    main's result is printed after its output.  arguments: what main finds in argv.  UserError when main is missing or
    of another type, when compiling fails, when a function that it declares is nowhere, and when the program crashes.
    """
    main = describe_main(job.module)
    target, pipeline = job.plan()

    def work(reporter: Reporter) -> int:
        with job.module.context, ir.Location.unknown():
            job.lower(target, pipeline, reporter)
            check_lowered(job.module)
            run_lowered(job.module, main, target, Externals(job.libraries, job.root), arguments, reporter)
        return 0

    return _checked(run_in_child(work)).code


def build(job: Job) -> dict[str, bytes]:
    """Object files by name: one for each of the program's GPU modules, or the program's own for the CPU, which is also
    what there is where no loop of a GPU's became a kernel."""
    target, pipeline = job.plan()

    def work(reporter: Reporter) -> int:
        with job.module.context, ir.Location.unknown():
            stays = job.lower(target, pipeline, reporter)
            check_lowered(job.module)
            reporter.step("code generation")
            objects = _gpu_objects(job.module, target) if isinstance(target, Gpu) else {}
            if not isinstance(target, Gpu) or (stays and not objects):
                objects = {"program.o": object_code(job.module)}
        reporter.give(objects)
        return 0

    objects: dict[str, bytes] = _checked(run_in_child(work)).value
    if not objects:
        raise UserError(f"the program has no GPU kernel to compile for {target}")
    return objects


def emit(job: Job, stage: str) -> str:
    """The module's text after a stage of the pipeline, or for "asm" what GPU kernels become; UserError lists stages."""
    target, pipeline = job.plan()
    if stage == "asm" and isinstance(target, Gpu) and target.object_is_text:
        return "\n".join(code.decode(errors="replace") for code in build(job).values())
    part = pipeline.until(stage)

    def work(reporter: Reporter) -> int:
        with job.module.context, ir.Location.unknown():
            job.lower(target, part, reporter)
        reporter.give(Names().name(str(job.module)))
        return 0

    text: str = _checked(run_in_child(work)).value
    return text


def _gpu_objects(module: ir.Module, target: Gpu) -> dict[str, bytes]:
    objects = {}
    for op in module.body.operations:
        if op.operation.name == "gpu.binary":
            name = ir.StringAttr(op.operation.attributes["sym_name"]).value
            objects[name + target.object_suffix] = object_bytes(str(op.operation.attributes["objects"][0]))
    return objects


def _checked(outcome: Outcome) -> Outcome:
    """The outcome; an error where a signal ended the child, or something before the program began."""
    if outcome.signal_number:
        where = "" if outcome.step == "run" else f" during {outcome.step}"
        outside = ended_from_outside(outcome.signal_number)
        if outside is not None:
            raise UserError(f"the program was ended{where} ({signal.Signals(outcome.signal_number).name}: {outside})")
        span = _line(*outcome.value) if outcome.step == "run" and outcome.value else None
        raise UserError(f"the program crashed{where} ({outcome.reason})", span)
    return outcome if outcome.step == "run" else compiled(outcome)


def _line(file: str, line: int) -> Span | None:
    """The whole line of a file, where it still has it."""
    path = Path(file)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    if not 0 < line <= len(lines):
        return None
    source = Source(file, "\n".join(lines))
    start = source.offset(line, 1) + len(lines[line - 1]) - len(lines[line - 1].lstrip())
    return Span(source, start, source.offset(line, 1) + len(lines[line - 1]))


def check_lowered(module: ir.Module) -> None:
    """UserError naming the first op that is not in the LLVM dialect: nothing here lowers it."""
    left: list[ir.Operation] = []

    def look(op: Any) -> Any:
        name = op.operation.name
        types = [v.type for v in op.operation.operands]
        launches = name == "gpu.launch_func" and not any(isinstance(t, (ir.IndexType, ir.MemRefType)) for t in types)
        if not name.startswith("llvm.") and name not in ("builtin.module", "gpu.binary") and not launches:
            left.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look, ir.WalkOrder.PRE_ORDER)
    for op in left:
        if op.name != "builtin.unrealized_conversion_cast":
            raise UserError(f"the pipeline leaves {op.name}, which has no machine code", span_of(op.location))
    if left:
        users = sorted({use.owner.operation.name for result in left[0].results for use in result.uses})
        message = f"the pipeline leaves this value between two types, for {', '.join(users)}"
        raise UserError(message, span_of(left[0].location))
