"""Program texts to MLIR, as the tests of this folder evaluate them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lispgpt.base.source import Source
from lispgpt.ir.mlir import new_context
from lispgpt.language.model.sizes import Wanted
from lispgpt.language.program import Program, evaluate

DIALECTS = "(require-dialect arith memref scf func tensor linalg cf gpu vector llvm affine math)\n"


def evaluated(text: str, root: Path = Path("/none"), name: str = "t.lisp", **options: Any) -> tuple[Program, str]:
    with new_context():
        given = {"overrides": {}, "checkpoint_config": {}, **options}
        given["wanted"] = Wanted(given.pop("shapes", ()))
        program = evaluate(Source(name, text), root=root, **given)
        return program, str(program.module)


def module(text: str) -> str:
    return evaluated(DIALECTS + text)[1]


def body(text: str) -> list[str]:
    """The ops of `(defn f [(: x i32) (: y f32) (: m memref<8xf32>)] -> i32 …)`, without their types' spelling."""
    lines = module(f"(defn f [(: x i32) (: y f32) (: m memref<8xf32>) (: c i1)] -> i32 {text})").splitlines()
    inside = [line.strip() for line in lines[2:]]
    return [line for line in inside if line not in ("}", "")]
