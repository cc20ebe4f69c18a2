"""Code for another CPU than the one that compiles: with that chip's instructions, no more and no fewer."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from lispgpt.compiler.driver import Observer, Request, emit

PROGRAM = """
(require nn)
(weights (w [64 96] bf16) (v [64 96]))
(entry out [(x [64 96] f32)] (+ (contract [n o] x [n k] w [o k]) (contract [n o] (gelu x) [n k] v [o k])))
"""
REGISTERS = {"x86-64-v2": "xmm", "x86-64-v3": "ymm", "x86-64-v4": "zmm", "sapphirerapids": "tmm"}
"""The widest that each has."""

pytestmark = pytest.mark.skipif(
    not (shutil.which("llvm-objdump") or shutil.which("objdump")), reason="no objdump to read machine code with"
)


@pytest.mark.parametrize("chip", REGISTERS)
def test_code_has_the_registers_of_its_chip_whatever_compiles_it(chip: str, tmp_path: Path) -> None:
    (tmp_path / "both.lisp").write_text(PROGRAM)
    code = emit(Request(tmp_path / "both.lisp", f"cpu:{chip}"), "asm", Observer())
    widest = list(REGISTERS.values())
    allowed = widest[: widest.index(REGISTERS[chip]) + 1]
    found = {register for register in widest if re.search(rf"%{register}\d", code)}
    assert REGISTERS[chip] in found and found <= set(allowed)
    if "zmm" not in allowed:  # registers that came with AVX-512, of the shorter vectors, too
        assert not re.search(r"%[xy]mm(1[6-9]|2\d|3[01])\b|%k[0-7]\b", code)


@pytest.mark.parametrize("chip", ["x86-64-v3", "sapphirerapids", "znver4"])
def test_elements_that_lie_apart_make_vectors_of_bf16(chip: str, tmp_path: Path) -> None:
    """LLVM aborts at vectors of single BF16, where a CPU has instructions for pairs of them."""
    operands = "(w [17 32 7] bf16) (v [7 17 5 16] bf16)"
    product = "(contract [a b c] w [l c k] v [k l b a])"
    (tmp_path / "apart.lisp").write_text(f"(weights {operands}) (entry out [(x [1])] (+ {product} x))")
    assert "contraction" in emit(Request(tmp_path / "apart.lisp", f"cpu:{chip}"), "asm", Observer())
