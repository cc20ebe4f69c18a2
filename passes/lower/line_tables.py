"""line-tables: have machine code say which lines of the program it is of, for debuggers and profilers.

Before: llvm.func @k … loc("gpt2.lisp":29:5) { … llvm.fadd … loc("lib/nn.lisp:25:3"("gpt2.lisp":28:13)) }
After:  the same, whose locations have a scope that LLVM makes a line table of: gpt2.lisp:29, gpt2.lisp:28

Requires: kernels in the LLVM dialect.  Ensures: the same; what has no place in a file is line 0.
"""

from __future__ import annotations

from lispgpt.ir.diagnostics import run_passes
from lispgpt.ir.mlir import ir
from lispgpt.passes.base import Pass
from lispgpt.passes.targets import Target


class LineTables(Pass):
    def run(self, module: ir.Module, target: Target) -> None:
        scopes = f"ensure-debug-info-scope-on-llvm-func{{emission-kind={target.line_tables}}}"
        run_passes(f"builtin.module({scopes})", module)
