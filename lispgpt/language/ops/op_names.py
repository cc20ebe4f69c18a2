"""Names of ops: from what a file declares, and what to say when there is no such op."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_lowercase
from typing import NoReturn

from lispgpt.language.core.elsewhere import hint
from lispgpt.language.core.environment import Dialects, Environment, did_you_mean
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.reader.forms import Symbol

DIALECTS = (
    "acc", "affine", "amdgpu", "arith", "arm_neon", "arm_sme", "arm_sve", "async", "bufferization", "builtin",
    "cf", "complex", "dlti", "emitc", "func", "gpu", "index", "irdl", "linalg", "llvm", "math", "memref",
    "ml_program", "mpi", "nvgpu", "nvvm", "omp", "pdl", "pdl_interp", "ptr", "quant", "rocdl", "scf", "shape",
    "shard", "smt", "sparse_tensor", "spirv", "tensor", "tosa", "transform", "ub", "vcix", "vector", "wasmssa",
    "x86", "xegpu", "xevm",
)  # fmt: skip


def full_name(evaluator: Evaluator, symbol: Symbol, environment: Environment) -> str | None:
    """The name of the op that a list's head stands for, aliases replaced; None where it is not a registered op of a
    dialect that the file declares."""
    mark = symbol.mark
    while mark is not None:
        found = _resolve(evaluator, symbol.name, mark.environment.dialects)
        if found is not None:
            return found
        mark = mark.outer
    return _resolve(evaluator, symbol.name, environment.dialects)


def _resolve(evaluator: Evaluator, name: str, dialects: Dialects | None) -> str | None:
    if dialects is None:
        return None
    if name in dialects.ops:
        return dialects.ops[name]
    space, op = _split(name)
    full = f"{dialects.names.get(space)}.{op}"
    known = space in dialects.names and bool(op) and evaluator.builder.context.is_registered_operation(full)
    dialects.ops[name] = full if known else None
    return dialects.ops[name]


def _split(name: str) -> tuple[str, str]:
    """`dialect.op` or `alias/op`; the rest may hold either."""
    match = re.match(r"([^./]+)[./](.+)", name)
    return (match[1], match[2]) if match else (name, "")


def fail_unknown(evaluator: Evaluator, symbol: Symbol, environment: Environment) -> NoReturn:
    """Say what is wrong with a list's head that stands for nothing."""
    name = symbol.name
    if "." in name.strip(".") or "/" in name.strip("/"):
        _fail_unknown_op(evaluator, symbol, environment)
    said = hint(name, environment.visible()) or did_you_mean(name, environment.visible())
    evaluator.site.fail(f"there is no form, function or macro `{name}`{said}", symbol)


def _fail_unknown_op(evaluator: Evaluator, symbol: Symbol, environment: Environment) -> NoReturn:
    """Say what is wrong with a name that looks like an op's."""
    dialect, op = _split(symbol.name)
    declared = environment.dialects.names if environment.dialects else {}
    registered = evaluator.builder.context.is_registered_operation
    if dialect not in declared:
        if registered(f"{dialect}.{op}") or dialect in DIALECTS:
            evaluator.site.fail(
                f"the dialect `{dialect}` is not declared; write (require-dialect {dialect}) first", symbol
            )
        if words := [name for name in environment.visible() if name.startswith(f"{dialect}.")]:
            evaluator.site.fail(f"there is no `{symbol.name}`{did_you_mean(symbol.name, words)}", symbol)
        if said := hint(symbol.name, environment.visible()):
            evaluator.site.fail(f"there is no `{symbol.name}`{said}", symbol)
        said = did_you_mean(dialect, [*declared, *DIALECTS])
        evaluator.site.fail(f"there is no dialect `{dialect}`{said}", symbol)
    full = declared[dialect]
    near = [f"{full}.{op}{s}" for s in ("i", "f", "si", "ui") if registered(f"{full}.{op}{s}")]
    near += [f"{full}.{c}" for c in _one_edit(op) if registered(f"{full}.{c}")]
    near += [f"{d}.{op}" for d in DIALECTS if registered(f"{d}.{op}")]
    meant = " or ".join(f"`{n}`" for n in list(dict.fromkeys(near))[:3])
    evaluator.site.fail(
        f"the dialect `{full}` has no op `{op}`" + (f"; did you mean {meant}?" if meant else ""), symbol
    )


def _one_edit(word: str) -> Sequence[str]:
    letters = ascii_lowercase + "_."
    splits = [(word[:i], word[i:]) for i in range(len(word) + 1)] if len(word) < 60 else []
    found = [a + b[1:] for a, b in splits if b] + [a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1]
    found += [a + c + b[1:] for a, b in splits if b for c in letters] + [a + c + b for a, b in splits for c in letters]
    return found
