"""The kernels of a target, one by one, as a CPU computes them: what a device's own can be compared with.

The passes of the target decide what its kernels are.  Then, instead of becoming loops for the chip, their bodies as
linear algebra are handed to the passes of the CPU.  What comes out has the entries, steps and arguments of the device's
plan, launch by launch, and shares nothing with how a chip's kernels are made of these bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import AS_ONE, artifact_from, evaluate_request, load_pipeline
from lispgpt.compiler.request import Observer, Request
from lispgpt.compiler.runners import runner_for
from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import kernel_functions, symbol_of
from lispgpt.passes.kernels.kernel import calls_of
from lispgpt.passes.pipeline import PassCall, Pipeline, Stage
from lispgpt.passes.targets import find_target
from lispgpt.runtime.plan.artifact import Artifact

PLACES, DIVIDES, HAND = "place-hand-kernels", "divide-kernels", "hand-kernels-to-cpu"


def compile_counterpart(request: Request) -> tuple[Artifact, Mapping[str, tuple[str, ...]]]:
    """(an artifact for the CPU of the kernels of a request's target; what each kernel's arguments hold, such as "f32").

    UserError where the target's pipeline has no pass behind which its kernels can be handed over.
    """
    on_cpu = replace(request, target="cpu", pipeline=None, schedules=())
    with new_context():
        program = evaluate_request(request)
        target, cpu = find_target(request.target), find_target(on_cpu.target)
        own, cpus = load_pipeline(request, target), load_pipeline(on_cpu, cpu)
        cpus = cpus.with_option(HAND, "subgroup-size", target.capabilities().get("subgroup-size", 32))
        place, divide = _number_of(PLACES, own), _number_of(DIVIDES, own)
        behind = _number_of(PLACES, cpus) + 1
        with ir.Location.unknown():
            runner = runner_for(target, request.schedules, program.schedules)
            runner.run(program.module, own.before(place))
            runner_for(cpu).run(program.module, _stage(cpus.calls[behind - 1 : behind]))
            kept = _kernels_alone(program.module)
            divided = _stage([call for call in own.calls[place + 1 : divide + 1] if call.name != AS_ONE])
            runner.run(program.module, divided)
            _restore(program.module, kept)
            elements = {symbol_of(kernel): _elements(kernel) for kernel in kernel_functions(program.module)}
        rest = [call for call in cpus.calls[behind:] if call.name != DIVIDES]
        return artifact_from(program, on_cpu, _stage(rest), Observer()), elements


def _number_of(name: str, pipeline: Pipeline) -> int:
    """Where a pass stands among a pipeline's."""
    names = [call.name for call in pipeline.calls]
    if name not in names:
        raise UserError(f"the pipeline {pipeline.name} has no pass {name}, behind which kernels could be compared")
    return names.index(name)


def _stage(calls: tuple[PassCall, ...] | list[PassCall]) -> Pipeline:
    return Pipeline("counterpart", (Stage("counterpart", tuple(calls)),))


def _kernels_alone(module: ir.Module) -> ir.Module:
    """A module of copies of the kernels as they are."""
    kept = ir.Module.create()
    for kernel in kernel_functions(module):
        kernel.clone(ip=ir.InsertionPoint(kept.body))
    return kept


def _restore(module: ir.Module, kept: ir.Module) -> None:
    """Give kernels that were scheduled for the chip the bodies and arguments that they had before, and have what was
    split off them done by them again."""
    bodies = {symbol_of(kernel): kernel for kernel in kernel_functions(kept)}
    for kernel in kernel_functions(module):
        body, calls = bodies.get(symbol_of(kernel)), calls_of(module, kernel)
        if body is not None:
            count = len(_elements(body))
            for call in calls:
                with ir.InsertionPoint(call), call.location:
                    b.call(symbol_of(kernel), list(call.operands)[:count])
            body.clone(ip=ir.InsertionPoint(kernel))
        elif "grid" not in kernel.attributes:
            continue  # a part of a kernel that no schedule of the chip took
        for call in calls:
            call.erase()
        kernel.erase()


def _elements(kernel: ir.Operation) -> tuple[str, ...]:
    """What a kernel's arguments hold."""
    kind = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    return tuple(str(type_.element_type) for type_ in kind.inputs)
