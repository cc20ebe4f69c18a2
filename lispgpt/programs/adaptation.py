"""Which pipeline a program is compiled with, and a program's own one fitted to the chip.

A program's passes are used as written, in their order; where none of them lowers to LLVM, the default follows.  What is
filled in is what it cannot know: the chip, the linker,
and, for a pipeline that was written for the other vendor, the two passes that only this vendor has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lispgpt.language.forms.compilation import Compilation
from lispgpt.passes.pipeline import PassCall, Pipeline, Stage
from lispgpt.passes.targets import GPU_CHIPS, Gpu, Target
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline

TO_BINARY, TO_CALLS = "gpu-module-to-binary", "gpu-to-llvm"
VENDORS = {kind: next(iter(chips.values())) for kind, chips in GPU_CHIPS.items()}
"""A target of each kind of GPUs, for what all of that kind have."""


def choose_pipeline(compilations: Sequence[Compilation], target: Target, given: Pipeline | None = None) -> Pipeline:
    """The pipeline for a target: the one given, else the program's own for it, else its own for another GPU, fitted.

    A program without one has the default.  On the CPU that is also what a program with only GPU pipelines has; it runs
    kernels on the CPU.
    """
    if given is not None:
        return adapt(given, target)
    own = [c for c in compilations if c.target == target.kind]
    if not isinstance(target, Gpu):
        return _own(own[0], "program") if own else read_pipeline(pipeline_path("program"))
    others = own or [c for c in compilations if c.target in VENDORS]
    return adapt(_own(others[0], "program_gpu") if others else read_pipeline(pipeline_path("program_gpu")), target)


def _own(compilation: Compilation, default: str) -> Pipeline:
    """A program's own pipeline; one that lowers nothing to LLVM goes on with the default one of that name."""
    calls = tuple(PassCall(f.name, tuple(f.options.items()), f.span, f.scope) for f in compilation.passes)
    if any(call.name.endswith("-to-llvm") for call in calls):
        return Pipeline(compilation.target, (Stage("llvm", calls),))
    rest = read_pipeline(pipeline_path(default))
    return Pipeline(compilation.target, (Stage("own", calls), *rest.stages))


def adapt(pipeline: Pipeline, target: Target) -> Pipeline:
    """A pipeline for any GPU, made to fit the target's vendor and chip."""
    if not isinstance(target, Gpu):
        return pipeline
    stages = (Stage(s.name, tuple(c for call in s.calls for c in _fit(call, target))) for s in pipeline.stages)
    return Pipeline(pipeline.name, tuple(stages))


def _fit(call: PassCall, target: Gpu) -> list[PassCall]:
    if any(call.name == vendor.attach_pass for vendor in VENDORS.values()):
        return [_attach(call, target)]
    if any(call.name == vendor.convert_pass for vendor in VENDORS.values()):
        options = _options_of(call, target) | target.convert_options()
        # Vendors' conversions turn what is left of math into calls of their device libraries.
        before = [PassCall("join-gpu-modules"), PassCall("expand-math"), PassCall("math-intrinsics")]
        return [*before, replace(call, name=target.convert_pass, options=tuple(options.items()))]
    if call.name == TO_BINARY:
        options = {k: v for k, v in call.options if k not in ("toolkit", "format")} | target.binary_options()
        return [PassCall("check-device-calls"), replace(call, options=tuple(options.items()))]
    if call.name == TO_CALLS:
        # With bare pointers on the host MLIR aborts on unranked memrefs; only the kernels have to be called so.
        return [replace(call, options=tuple((k, v) for k, v in call.options if k != "use-bare-pointers-for-host"))]
    return [call]


def _attach(call: PassCall, target: Gpu) -> PassCall:
    """The chip asked for on the command line wins over one that the program names, whose features then go, too."""
    options = _options_of(call, target)
    if options.get("chip", target.chip) != target.chip:
        options.pop("features", None)
    options = {"O": 3, **target.attach_options(), **options, "chip": target.chip}
    return replace(call, name=target.attach_pass, options=tuple(options.items()))


def _options_of(call: PassCall, target: Gpu) -> dict[str, Any]:
    """A pass's options, without those that only the other vendor knows where it was written for that one."""
    written_for = next(v for v in VENDORS.values() if call.name in (v.attach_pass, v.convert_pass))
    foreign = frozenset[str]() if written_for.kind == target.kind else written_for.own_options
    return {key: value for key, value in call.options if key not in foreign}
