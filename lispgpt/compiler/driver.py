"""From a program's file to an artifact: evaluate, run the target's pipeline, make machine code."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lispgpt.base.errors import UserError
from lispgpt.base.precisions import EXACT
from lispgpt.base.project import project_root
from lispgpt.base.reading import read_text
from lispgpt.compiler.evaluation import check_has_entries, evaluate_request, is_program, read_source
from lispgpt.compiler.kernel_code import make_code, split_at_plan
from lispgpt.compiler.request import Observer, Request
from lispgpt.compiler.runners import check_chooses, runner_for
from lispgpt.ir.mlir import ir, new_context
from lispgpt.language.program import Program, TensorDecl
from lispgpt.language.reader.reader import read
from lispgpt.language.reader.tree import tree
from lispgpt.passes.pipeline import Pipeline, Runner
from lispgpt.passes.plan.emit_plan import take_plan
from lispgpt.passes.targets import Target, find_target
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Plan
from lispgpt.runtime.plan.room import check_room
from lispgpt.runtime.plan.work import Rates

if TYPE_CHECKING:
    from lispgpt.programs.launch import Job

__all__ = [
    "Observer",
    "Request",
    "artifact_from",
    "check_has_entries",
    "compile_program",
    "compile_request",
    "emit",
    "evaluate_request",
    "is_program",
    "job_of",
    "load_pipeline",
    "project_root",
    "read_source",
]


DIVIDES, SHARES = "shard-batch", "shard-states"
"""The passes that several devices need, for their parts of the batch and of the states."""

ROUNDS = "round-activations"
"""The pass that a precision is an option of."""

AS_ONE = "split-decode"
"""The pass that makes one launch of many."""


OUTLINES = "outline-kernels"
"""The pass that says what kernels are made of."""


def load_pipeline(request: Request, target: Target) -> Pipeline:
    """The pipeline that a request runs."""
    found = read_pipeline(request.pipeline or pipeline_path(target.pipeline))
    check_chooses(found, request.schedules)
    if request.quick:
        if request.schedules:
            raise UserError("code that is made quickly has no schedules of your own: give them or ask for quick code")
        found = found.quick()
    if request.precision != EXACT:
        found = found.with_option(ROUNDS, "precision", request.precision)
    if (request.apart or request.each_op) and any(call.name == AS_ONE for call in found.calls):
        found = found.with_option(AS_ONE, "when", "never")
    if request.each_op:
        found = found.with_option(OUTLINES, "apart", True)
    if request.devices == 1:
        return found
    for name in (DIVIDES, SHARES) if request.shares_states else (DIVIDES,):
        found = found.with_option(name, "devices", request.devices)
    return found


def precision_of(pipeline: Pipeline) -> str:
    """What a pipeline makes of activations, as its own options say."""
    found = [dict(call.options).get("precision", EXACT) for call in pipeline.calls if call.name == ROUNDS]
    return str(found[-1]) if found else EXACT


def compile_program(program: Program, request: Request, observer: Observer) -> Artifact:
    """An artifact from an evaluated model program; UserError where it declares no entry."""
    check_has_entries(program, request)
    pipeline = load_pipeline(request, find_target(request.target))
    pipeline.check()
    return artifact_from(program, request, pipeline, observer)


def artifact_from(program: Program, request: Request, pipeline: Pipeline, observer: Observer) -> Artifact:
    """The artifact that a pipeline, all of it or what is left to run, makes of a program's module."""
    target = find_target(request.target)
    runner = _runner(program, request, observer)
    first, rest = (pipeline, pipeline.after(len(pipeline.calls))) if runner.watched else split_at_plan(pipeline)
    with ir.Location.unknown():
        runner.run(program.module, first)
        plan = take_plan(program.module)
        parsed = Plan.from_json(plan)
        check_room(parsed, request.room)
        with observer.timing("machine code"):
            made = make_code(program.module, rest, target.quick() if request.quick else target)
    if made.problem:
        print(f"warning: the artifact has no code for {target} itself: {made.problem}", file=sys.stderr)
    launches = {launch.kernel: launch for entry in parsed.every for launch in entry.first_launches}
    kernels = {
        name: {**launch.facts(), **plan["kernels"][name], **target.kernel_facts(program.module, name)}
        for name, launch in launches.items()
    }
    parsed.validate(kernels)
    observer.tell_times()
    generate, rates = program.generate, target.rates
    return Artifact(
        target=str(target),
        host=target.host(),
        precision=precision_of(pipeline),
        config=program.config,
        weights={w.name: _declaration(w) for w in program.weights},
        states={s.name: {"shape": list(s.shape), "dtype": s.dtype} for s in program.states},
        generate={"entry": generate.entry, "options": generate.options} if generate else None,
        kernels=kernels,
        plan=parsed,
        code=made.code,
        code_name=target.code_name,
        objects=made.objects,
        rates=Rates(**asdict(rates)) if rates else None,
        folder=program.folder,
        sources={request.program.name.encode(errors="backslashreplace").decode(): read_text(request.program)},
    )


def _runner(program: Program, request: Request, observer: Observer) -> Runner:
    """What runs passes on a program, and shows of them what its observer wants to see."""
    return runner_for(find_target(request.target), request.schedules, program.schedules, observer, request.tuned)


def _declaration(weight: TensorDecl) -> dict[str, Any]:
    """What an artifact says of a weight."""
    layers = {} if weight.layers is None else {"layers": list(weight.layers)}
    begins = {} if weight.initial is None else {"init": list(weight.initial)}
    stacked = {"stacked": True} if weight.stacked else {}
    return {"shape": list(weight.shape), "dtype": weight.dtype, **layers, **stacked, **begins}


def compile_request(request: Request, observer: Observer) -> tuple[Artifact, Program]:
    """Evaluate and compile in a context of its own."""
    with new_context():
        program = evaluate_request(request)
        return compile_program(program, request, observer), program


def emit(request: Request, stage: str, observer: Observer) -> str:
    """The text of one stage: forms, mlir, a stage of the pipeline, or asm.  Checked before anything runs."""
    if stage == "forms":
        return tree(read(read_source(request.program)))
    with new_context():
        target = find_target(request.target)
        with observer.timing("evaluate"):
            program = evaluate_request(request)
        if stage == "mlir":
            return _runner(program, request, observer).text(program.module)
        if not program.entries:  # a program, or functions that are to be looked at
            from lispgpt.programs import launch

            return launch.emit(job_of(program, request, observer), stage)
        pipeline = load_pipeline(request, target)
        names = ["forms", "mlir", *(s.name for s in pipeline.stages), "asm", "artifact"]
        if stage not in names:
            raise UserError(f"there is nothing to emit under {stage!r}; there are {', '.join(names)}")
        runner = _runner(program, request, observer)
        with ir.Location.unknown():
            runner.run(program.module, pipeline if stage == "asm" else pipeline.until(stage))
            with observer.timing("text"):
                text = target.assembly(program.module) if stage == "asm" else runner.text(program.module)
            observer.tell_times()
            return text


def job_of(program: Program, request: Request, observer: Observer) -> Job:
    """The job that a command line asks for."""
    from lispgpt.programs.launch import Job

    return Job(
        program.module,
        request.target,
        program.compilations,
        program.libraries,
        request.program.resolve().parent,
        request.pipeline,
        observer,
    )
