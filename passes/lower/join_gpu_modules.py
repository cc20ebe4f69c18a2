"""join-gpu-modules: all of a program's kernels in one gpu.module, by names that assemblers take.

Before:  gpu.module @"sum-rows_kernel" { gpu.func @"sum-rows_kernel"() kernel … }
         gpu.module @main_kernel { gpu.func @main_kernel() kernel … }
         gpu.launch_func @"sum-rows_kernel"::@"sum-rows_kernel" …
After:   gpu.module @kernels { gpu.func @sum_rows_kernel() kernel …   gpu.func @main_kernel() kernel … }
         gpu.launch_func @kernels::@sum_rows_kernel …

Names become letters, digits and underscores, with a number where that name is taken.  A single module keeps its name.
Ensures: one module, so that a program becomes one code object.  Modules for different targets are left apart.
"""

from __future__ import annotations

import re

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import everything_in, operations, symbol_of
from lispgpt.passes.base import Pass


class JoinGpuModules(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        modules = [op for op in operations(module.body) if op.name == "gpu.module"]
        if not modules:
            return
        joined = len(modules) > 1 and len({str(op.attributes.get("targets")) for op in modules}) == 1
        outside = {symbol_of(op) for op in operations(module.body) if "sym_name" in op.attributes}
        renamed: dict[tuple[str, str], tuple[str, str]] = {}
        shared_home = _free("kernels", outside) if joined else ""
        taken: set[str] = set()
        for op in modules:
            old_home, home = symbol_of(op), shared_home or _free(symbol_of(op), outside - {symbol_of(op)})
            names = _rename(op, taken if joined else set())
            renamed |= {(old_home, old): (home, new) for old, new in names.items()}
            op.attributes["sym_name"] = ir.StringAttr.get(home)
            if joined and op != modules[0]:
                for member in operations(op.regions[0].blocks[0]):
                    modules[0].regions[0].blocks[0].append(member)
                op.erase()
        for op in everything_in(module.operation):
            if op.name == "gpu.launch_func":
                home, kernel = ir.SymbolRefAttr(op.attributes["kernel"]).value
                op.attributes["kernel"] = ir.SymbolRefAttr.get(list(renamed[home, kernel]))


def _free(name: str, taken: set[str]) -> str:
    """The name in plain letters, with a number where it is taken."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    number, new = 0, plain
    while new in taken:
        number += 1
        new = f"{plain}_{number}"
    return new


def _rename(gpu_module: ir.Operation, taken: set[str]) -> dict[str, str]:
    """Give a module's symbols plain names that are not taken, and take them; returns old to new."""
    names: dict[str, str] = {}
    for op in operations(gpu_module.regions[0].blocks[0]):
        if "sym_name" in op.attributes:
            names[symbol_of(op)] = _free(symbol_of(op), taken)
            taken.add(names[symbol_of(op)])
            op.attributes["sym_name"] = ir.StringAttr.get(names[symbol_of(op)])
    for op in everything_in(gpu_module):
        for key, reference in list(op.attributes.items()):
            if isinstance(reference, ir.FlatSymbolRefAttr) and reference.value in names:
                op.attributes[key] = ir.FlatSymbolRefAttr.get(names[reference.value])
    return names
