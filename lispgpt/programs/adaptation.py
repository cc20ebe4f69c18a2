"""Which pipeline a program is compiled with, and a program's own one fitted to the chip.

A program's passes are used as written, in their order.  What is filled in is what it cannot know: the chip, the linker,
and, for a pipeline that was written for the other vendor, the two passes that only this vendor has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lispgpt.language.forms.compilation import Compilation
from lispgpt.passes.pipeline import PassCall, Pipeline, Stage
from lispgpt.passes.targets import Target
from lispgpt.passes.targets.binary import linker_toolkit
from lispgpt.pipeline_file import pipeline_path, read_pipeline

ATTACH = {"rocm": "rocdl-attach-target", "cuda": "nvvm-attach-target"}
CONVERT = {"rocm": "convert-gpu-to-rocdl", "cuda": "convert-gpu-to-nvvm"}
TO_BINARY = "gpu-module-to-binary"
OF_ONE_VENDOR = {
    "rocm": {"chip", "features", "chipset", "runtime", "triple", "abi", "wave64", "finite-only", "unsafe-math"},
    "cuda": {"chip", "features", "triple", "ftz", "fast", "ptxas-cmd-options", "has-redux"},
}


def choose_pipeline(compilations: Sequence[Compilation], target: Target, given: Pipeline | None = None) -> Pipeline:
    """The pipeline for a target: the one given, else the program's own for it, else its own for another GPU, fitted.

    A program without one has the default.  On the CPU that is also what a program with only GPU pipelines has; it runs
    kernels on the CPU.
    """
    if given is not None:
        return adapt(given, target)
    own = [c for c in compilations if c.target == target.kind]
    if target.kind == "cpu":
        return _own(own[0]) if own else read_pipeline(pipeline_path("program"))
    others = own or [c for c in compilations if c.target in ATTACH]
    return adapt(_own(others[0]) if others else read_pipeline(pipeline_path("program_gpu")), target)


def _own(compilation: Compilation) -> Pipeline:
    calls = tuple(PassCall(f.name, tuple(f.options.items()), f.span, f.scope) for f in compilation.passes)
    return Pipeline(compilation.target, (Stage("llvm", calls),))


def adapt(pipeline: Pipeline, target: Target) -> Pipeline:
    """A pipeline for any GPU, made to fit the target's vendor and chip."""
    if target.kind not in ATTACH:
        return pipeline
    stages = (Stage(s.name, tuple(c for call in s.calls for c in _fit(call, target))) for s in pipeline.stages)
    return Pipeline(pipeline.name, tuple(stages))


def _fit(call: PassCall, target: Target) -> list[PassCall]:
    kind = target.kind
    if call.name in ATTACH.values():
        return [_attach(call, target)]
    if call.name in CONVERT.values():
        options = _options_of(call, CONVERT, kind) | ({"chipset": target.chip} if kind == "rocm" else {})
        # Vendors' conversions turn what is left of math into calls of their device libraries.
        before = [PassCall("join-gpu-modules"), PassCall("expand-math"), PassCall("math-intrinsics")]
        return [*before, replace(call, name=CONVERT[kind], options=tuple(options.items()))]
    if call.name == TO_BINARY:
        options = {k: v for k, v in call.options if k not in ("toolkit", "format")}
        options |= {"toolkit": str(linker_toolkit()), "format": "bin"} if kind == "rocm" else {"format": "isa"}
        return [PassCall("check-device-calls"), replace(call, options=tuple(options.items()))]
    return [call]


def _attach(call: PassCall, target: Target) -> PassCall:
    """The chip asked for on the command line wins over one that the program names, whose features then go, too."""
    options = _options_of(call, ATTACH, target.kind)
    if options.get("chip", target.chip) != target.chip:
        options.pop("features", None)
    options["chip"] = target.chip
    options.setdefault("O", 3)
    if target.kind == "rocm":
        wide = target.chip.startswith("gfx9")
        options.setdefault("wave64", wide)
        if not wide:
            options.setdefault("features", "+wavefrontsize32")
    else:
        options.setdefault("features", "+ptx80")
    return replace(call, name=ATTACH[target.kind], options=tuple(options.items()))


def _options_of(call: PassCall, names: dict[str, str], kind: str) -> dict[str, Any]:
    """A pass's options, without those that only the other vendor knows where it was written for that one."""
    written_for = next(k for k, name in names.items() if name == call.name)
    foreign = set() if written_for == kind else OF_ONE_VENDOR[written_for]
    return {key: value for key, value in call.options if key not in foreign}
