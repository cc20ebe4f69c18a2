"""Golden IR: a pass's input and what it makes of it, in one file, as text that renumbered values do not change.

    // pass: schedule-generic{kind=elementwise}
    // target: cpu:x86-64-v3
    // show: text                 or `summary`: each function's attributes, and how many ops of each name it has;
                                  or `error`: what the pass has against the input
                                  or `places`: where each function stands
    …MLIR…
    // ----- becomes
    …MLIR, or the summary…

`pytest --update-golden` writes the second part anew.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.compiler.runners import runner_for
from lispgpt.ir.mlir import ir, new_context
from lispgpt.passes.pipeline import Pipeline, Stage, parse_calls
from lispgpt.passes.targets import find_target

FOLDER = Path(__file__).parent / "golden"
BECOMES = "// ----- becomes\n"


@dataclass(frozen=True)
class Golden:
    """One file: the pass as it is written for `lispgpt opt`, the target, how the result is shown, and both parts."""

    path: Path
    call: str
    target: str
    show: str
    before: str
    after: str

    @staticmethod
    def read(path: Path) -> Golden:
        text, _, after = path.read_text().partition(BECOMES)
        header = dict(re.findall(r"^// (pass|target|show): (.*)$", text, re.MULTILINE))
        before = re.sub(r"^// .*\n", "", text, flags=re.MULTILINE)
        return Golden(path, header["pass"], header["target"], header["show"], before, after)

    def write(self, after: str) -> None:
        header = f"// pass: {self.call}\n// target: {self.target}\n// show: {self.show}\n"
        self.path.write_text(f"{header}{self.before}{BECOMES}{after}")

    def made(self) -> str:
        """What the pass makes of the input."""
        with new_context() as context, ir.Location.unknown():
            module = ir.Module.parse(self.before, context)
            pipeline = Pipeline("golden", (Stage("passes", parse_calls(self.call)),))
            try:
                runner_for(find_target(self.target)).run(module, pipeline)
            except UserError as error:
                if self.show != "error":
                    raise
                return error.message.splitlines()[0] + "\n"
            if self.show == "places":
                return "".join(f"{f.attributes['sym_name']} {f.location}\n" for f in _functions(module.operation))
            return summary(module) if self.show == "summary" else text_of(module)


def text_of(module: ir.Module) -> str:
    """A module's text with attributes where they are used and values named by the op that makes them."""
    lines = module.operation.get_asm(use_local_scope=True).splitlines()
    return "\n".join(_renamed(lines)) + "\n"


def _renamed(lines: list[str]) -> list[str]:
    """`%7 = arith.addf …` as `%addf_2 = …`: an op more or less changes no name but those of its own kind after it."""
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()
    found = []
    for line in lines:
        if re.search(r"\bfunc\b.*\{$", line) and "=" not in line.split("(")[0]:
            names.clear()
            counts.clear()
        definition = re.match(r'\s*(%[\w#]+)(?::\d+)?(?:, %\w+(?::\d+)?)* = "?([\w.]+)', line)
        if definition:
            for value in re.findall(r"%\w+", line.split(" = ", 1)[0]):
                kind = definition[2].rpartition(".")[2]
                names[value] = f"%{kind}_{counts[kind]}"
                counts[kind] += 1
        found.append(re.sub(r"%\w+", lambda use: names.get(use[0], use[0]), line))
    return found


def summary(module: ir.Module) -> str:
    """Each function's type and attributes, and the ops in it."""
    parts = []
    for function in _functions(module.operation):
        lines = [f"{function.name} {function.attributes['sym_name']}"]
        shown = [name for name in function.attributes if name not in ("sym_name", "arg_attrs", "res_attrs")]
        lines += [f"  {name} = {function.attributes[name]}" for name in sorted(shown)]
        counts = Counter(_ops_of(function))
        lines += [f"  {count} {name}" for name, count in sorted(counts.items())]
        parts.append("\n".join(lines))
    return "\n".join(parts) + "\n"


def _functions(root: Any) -> list[Any]:
    found: list[Any] = []

    def look(op: Any) -> ir.WalkResult:
        if op.operation.name in ("func.func", "gpu.func", "llvm.func"):
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    root.walk(look)
    return found


def _ops_of(function: Any) -> list[str]:
    """Names of the ops in a function; loads, stores and what makes vectors with their types."""
    found: list[str] = []

    def look(op: Any) -> ir.WalkResult:
        operation = op.operation
        kinds = [str(v.type) for v in (*operation.results, *operation.operands) if "vector<" in str(v.type)]
        found.append(f"{operation.name} {kinds[0]}" if kinds else operation.name)
        return ir.WalkResult.ADVANCE

    for region in function.regions:
        for block in region.blocks:
            for op in block.operations:
                op.operation.walk(look)
    return found
