"""Code for another CPU than the one that compiles: with that chip's instructions, no more and no fewer."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_text

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


def test_numbers_are_rounded_to_bf16_where_no_instruction_does(tmp_path: Path) -> None:
    """The nearest, the even one of two, and NaN for NaN: LLVM's code calls a function, which is in the code."""
    artifact = compile_text("(weights (w [3])) (entry out [(x [1])] (sum w))", tmp_path, target="cpu:x86-64-v3")
    path = tmp_path / "kernels.so"
    path.write_bytes(artifact.code)
    function, found = ctypes.CDLL(str(path))["__truncsfbf2"], ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_float)
    rounds = found(ctypes.cast(function, ctypes.c_void_p).value or 0)  # in the lowest bits of where a double returns
    rng = seeded.rng()
    bits = rng.integers(0, 1 << 32, 2000, np.uint32)
    bits = np.concatenate([bits, bits & 0xFFFF0000 | 0x8000, np.array([0, 0x7F7FFFFF, 0x7F800000], np.uint32)])
    values = bits[~np.isnan(bits.view(np.float32))].view(np.float32)
    lowest = [int(np.float64(rounds(float(x))).view(np.uint64)) & 0xFFFF for x in values]
    exact = values.view(np.uint32).astype(np.uint64)
    assert lowest == ((exact + 0x7FFF + (exact >> 16 & 1)) >> 16).tolist()
    made = int(np.float64(rounds(float("nan"))).view(np.uint64)) & 0xFFFF
    assert np.isnan(np.array([made << 16], np.uint32).view(np.float32)[0])
