"""From a program's module to the LLVM dialect: by its own compilation form, or by passes/pipelines/program.lisp."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lispgpt.errors import UserError
from lispgpt.mlir import ir, passmanager
from lispgpt.passes.base import find_pass, make_pass
from lispgpt.passes.targets import Target
from lispgpt.source import Span

ANCHORS = {"any": "builtin.module", "func": "func.func", "gpu": "gpu.module"}
"""What a pass of each scope runs on, inside the program's module."""


@dataclass(frozen=True)
class PassForm:
    """One `(pass name {:option value})` of a program or a pipeline file.

    scope: "any", or "func" and "gpu" for a pass written in func-passes and gpu-passes.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    scope: str = "any"
    span: Span | None = None

    def __str__(self) -> str:
        options = " ".join(f"{key}={_option(value)}" for key, value in self.options.items())
        return self.name + ("{" + options + "}" if options else "")


def run_passes(
    module: ir.Module, forms: Iterable[PassForm], target: Target, report: Callable[[str], None] = lambda _: None
) -> None:
    """Run passes in order; report is told each one's name before it starts.

    A pass goes where MLIR lets it run: on the module, else on each function, else on each gpu.module.  UserError for a
    pass that does not exist, is given an option that it lacks, or fails on this program.
    """
    for form in forms:
        report(form.name)
        written_here = find_pass(form.name)
        try:
            if written_here is not None:
                make_pass(written_here, form.options).run(module, target)
                module.operation.verify()
            else:
                _manager(form).run(module.operation)
        except ir.MLIRError as error:
            raise UserError(f"pass {form.name} fails on this program: {_first_message(error)}", form.span) from None


def _manager(form: PassForm) -> passmanager.PassManager:
    wanted = [form.scope] if form.scope != "any" else ["any", "func", "gpu"]
    for scope in [*wanted, *(s for s in ("func", "gpu", "any") if s not in wanted)]:
        text = f"{form}" if scope == "any" else f"{ANCHORS[scope]}({form})"
        try:
            return passmanager.PassManager.parse(f"builtin.module({text})")
        except ValueError as error:
            problem = str(error)
            if "restricted to" not in problem:
                break
    raise UserError(_explain(form, problem), form.span)


def _explain(form: PassForm, problem: str) -> str:
    if "does not refer to a registered pass" in problem:
        return f"there is no pass {form.name!r}"
    option = re.search(r"no such option (\S+)", problem)
    if option:
        return f"pass {form.name} has no option {option[1]!r}"
    return f"pass {form.name} cannot be added: {' '.join(problem.split())}"


def _first_message(error: ir.MLIRError) -> str:
    diagnostics = error.error_diagnostics
    return f"{diagnostics[0].message} ({diagnostics[0].location})" if diagnostics else str(error)


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return "{" + text + "}" if " " in text else text


def pipeline_file(name: str) -> list[PassForm]:
    """The passes of passes/pipelines/NAME.lisp, in order."""
    text = (Path(__file__).parent.parent / "passes" / "pipelines" / f"{name}.lisp").read_text()
    forms = re.finditer(r"\(pass ([\w-]+)(?: \{(.*?)\})?\)", text)
    return [PassForm(m[1], dict(re.findall(r':([\w-]+) "?([\w,]+)"?', m[2] or ""))) for m in forms]


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
            raise UserError(f"the pipeline leaves {op.name} ({op.location}), which has no machine code")
    if left:
        users = sorted({use.owner.operation.name for result in left[0].results for use in result.uses})
        raise UserError(f"the pipeline leaves a value of {left[0].location} between two types, for {', '.join(users)}")
