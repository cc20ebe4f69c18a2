"""plain-kernel-names: names inside GPU modules that assemblers take: letters, digits and underscores.

Before:  gpu.module @"sum-rows_kernel" { gpu.func @"sum-rows_kernel"() kernel … }
         gpu.launch_func @"sum-rows_kernel"::@"sum-rows_kernel" …
After:   the same with @sum_rows_kernel; a number is added where that name is taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lispgpt.mlir import ir
from lispgpt.passes.base import Pass
from lispgpt.passes.structure import operations

if TYPE_CHECKING:
    from lispgpt.passes.targets import Target


@dataclass(frozen=True)
class PlainKernelNames(Pass):
    name: ClassVar[str] = "plain-kernel-names"

    def run(self, module: ir.Module, target: Target) -> None:
        tops = [op for op in operations(module.body) if "sym_name" in op.attributes]
        outer = _rename([op for op in tops if op.name == "gpu.module"], {_name(op) for op in tops})
        inner: dict[str, dict[str, str]] = {}
        for op in operations(module.body):
            if op.name == "gpu.module":
                members = [o for o in operations(op.regions[0].blocks[0]) if "sym_name" in o.attributes]
                names = inner[_name(op)] = _rename(members, {_name(o) for o in members})
                for inside in _everything(op):
                    _follow(inside, names)
        for op in _everything(module.operation):
            _follow_launch(op, outer, inner)


def _name(op: ir.Operation) -> str:
    name: str = ir.StringAttr(op.attributes["sym_name"]).value
    return name


def _rename(symbols: list[ir.Operation], taken: set[str]) -> dict[str, str]:
    """Give symbols plain names; old to new for those that changed."""
    changed: dict[str, str] = {}
    for op in symbols:
        old = _name(op)
        plain = re.sub(r"\W", "_", old, flags=re.ASCII)
        if plain == old:
            continue
        number, new = 0, plain
        while new in taken:
            number += 1
            new = f"{plain}_{number}"
        taken.add(new)
        op.attributes["sym_name"] = ir.StringAttr.get(new)
        changed[old] = new
    return changed


def _follow(op: ir.Operation, names: dict[str, str]) -> None:
    for key, reference in list(op.attributes.items()):
        if isinstance(reference, ir.FlatSymbolRefAttr) and reference.value in names:
            op.attributes[key] = ir.FlatSymbolRefAttr.get(names[reference.value])


def _follow_launch(op: ir.Operation, outer: dict[str, str], inner: dict[str, dict[str, str]]) -> None:
    if op.name == "gpu.launch_func":
        module, kernel = ir.SymbolRefAttr(op.attributes["kernel"]).value
        module = outer.get(module, module)
        op.attributes["kernel"] = ir.SymbolRefAttr.get([module, inner.get(module, {}).get(kernel, kernel)])


def _everything(root: ir.Operation) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def look(op: Any) -> Any:
        found.append(op.operation)
        return ir.WalkResult.ADVANCE

    root.walk(look)
    return found
