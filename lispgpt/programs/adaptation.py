"""A program's own GPU pipeline, fitted to the chip that it is compiled for.

Passes are used as written, in their order.  What is filled in is what the program cannot know: the chip, the linker,
and, for a pipeline that was written for the other vendor, the two passes that only this vendor has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lispgpt.errors import UserError
from lispgpt.passes.targets import Target
from lispgpt.passes.targets.binary import linker_toolkit
from lispgpt.programs.lowering import PassForm, pipeline_file
from lispgpt.source import Span


@dataclass(frozen=True)
class Compilation:
    """A compilation form: the target that it names and its passes in written order."""

    target: str
    passes: tuple[PassForm, ...]
    span: Span | None = None


ATTACH = {"rocm": "rocdl-attach-target", "cuda": "nvvm-attach-target"}
CONVERT = {"rocm": "convert-gpu-to-rocdl", "cuda": "convert-gpu-to-nvvm"}
TO_BINARY = "gpu-module-to-binary"
ONLY_ONE_VENDORS_OPTIONS = {
    "rocm": {"chipset", "runtime", "triple", "abi", "wave64", "finite-only", "unsafe-math", "correct-sqrt"},
    "cuda": {"triple", "ftz", "fast", "ptxas-cmd-options"},
}


def choose_passes(compilations: Sequence[Compilation], target: Target) -> list[PassForm]:
    """The pipeline for a target: the program's own for it, else another GPU's fitted to it, else the default.

    On the CPU a program that has only GPU pipelines takes the default, which runs its kernels on the CPU.
    """
    own = [c for c in compilations if c.target == target.kind]
    if target.kind == "cpu":
        return list(own[0].passes) if own else pipeline_file("program")
    others = [c for c in compilations if c.target in ATTACH]
    if not own and not others:
        return adapt(pipeline_file("program_gpu"), target)
    return adapt((own or others)[0].passes, target)


def adapt(passes: Iterable[PassForm], target: Target) -> list[PassForm]:
    """Passes of any GPU's pipeline, made to fit the target's vendor and chip."""
    adapted: list[PassForm] = []
    for form in passes:
        if form.name in CONVERT.values():
            adapted.append(PassForm("expand-math"))  # exp and tanh would call a vendor's library
        adapted.append(_fit(form, target))
    return adapted


def _fit(form: PassForm, target: Target) -> PassForm:
    kind = target.kind
    if form.name in ATTACH.values():
        return _attach(form, target)
    if form.name in CONVERT.values():
        options = _options_of(form, CONVERT, kind)
        return replace(form, name=CONVERT[kind], options=options | ({"chipset": target.chip} if kind == "rocm" else {}))
    if form.name == TO_BINARY:
        options = {k: v for k, v in form.options.items() if k not in ("toolkit", "format")}
        if kind == "rocm":
            return replace(form, options=options | {"toolkit": str(linker_toolkit()), "format": "bin"})
        return replace(form, options=options | {"format": "isa"})
    return form


def _attach(form: PassForm, target: Target) -> PassForm:
    """The chip asked for on the command line wins over one that the program names."""
    options = _options_of(form, ATTACH, target.kind) | {"chip": target.chip}
    options.setdefault("O", 3)
    if target.kind == "rocm":
        wide = target.chip.startswith("gfx9")
        options.setdefault("wave64", wide)
        if not wide:
            options.setdefault("features", "+wavefrontsize32")
    else:
        options.setdefault("features", "+ptx80")
    return replace(form, name=ATTACH[target.kind], options=options)


def _options_of(form: PassForm, names: dict[str, str], kind: str) -> dict[str, Any]:
    """form's options without those that only the vendor it was written for knows."""
    written_for = next((k for k, name in names.items() if name == form.name), None)
    if written_for is None:
        raise UserError(f"{form.name} is no pass of a GPU", form.span)
    foreign = set() if written_for == kind else ONLY_ONE_VENDORS_OPTIONS[written_for] | {"chip", "features"}
    return {key: value for key, value in form.options.items() if key not in foreign}
