"""`mgpuMemGetDeviceMemRef1dFloat` and the like, which Lispier's runtime has: the address at which a GPU sees memory of
the host, in a descriptor like the one given.  Their results are too large for callbacks, so they are compiled code.
"""

from __future__ import annotations

import re

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import operations

NAME = re.compile(r"mgpuMemGetDeviceMemRef([1-9])d(Float|Int32)")
ADDRESS_OF = "gpu_address_of"


def define(module: ir.Module) -> None:
    """Give those that a module in the LLVM dialect declares a body."""
    declared = [op for op in operations(module.body) if op.name == "llvm.func" and NAME.fullmatch(_name(op))]
    if not declared:
        return
    bodies = [_text(_name(op)) for op in declared]
    for op in declared:
        op.erase()
    made = ir.Module.parse("\n".join([f"llvm.func @{ADDRESS_OF}(!llvm.ptr) -> !llvm.ptr", *bodies]))
    for op in operations(made.body):
        module.body.append(op.clone())


def _name(op: ir.Operation) -> str:
    name: str = ir.StringAttr(op.attributes["sym_name"]).value
    return name


def _text(name: str) -> str:
    """The function: its arguments are a descriptor's words, and so is its result, but for the addresses."""
    found = NAME.fullmatch(name)
    assert found is not None
    rank = int(found[1])
    kind = f"!llvm.struct<(ptr, ptr, i64, array<{rank} x i64>, array<{rank} x i64>)>"
    words = [f"%n{i}" for i in range(2 * rank)]
    places = [f"{3 + i // rank}, {i % rank}" for i in range(2 * rank)]
    parts = [("%there", "0"), ("%there", "1"), ("%offset", "2"), *zip(words, places, strict=True)]
    taken = ", ".join(["%allocated: !llvm.ptr", "%aligned: !llvm.ptr", "%offset: i64", *(f"{w}: i64" for w in words)])
    inserted = [f"  %{i + 1} = llvm.insertvalue {part}, %{i}[{at}] : {kind}" for i, (part, at) in enumerate(parts)]
    return "\n".join(
        [
            f"llvm.func @{name}({taken}) -> {kind} {{",
            f"  %there = llvm.call @{ADDRESS_OF}(%aligned) : (!llvm.ptr) -> !llvm.ptr",
            f"  %0 = llvm.mlir.undef : {kind}",
            *inserted,
            f"  llvm.return %{len(parts)} : {kind}",
            "}",
        ]
    )
