"""Whole numbers that compilers below ours take for something else: ptxas negated ones in minima, and LLVM for AMD those
whose sign is cleared or turned, among vectors of which one is chosen, for floats."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, compile_text
from emulated_cuda.device import EmulatedCuda

import lispgpt
from lispgpt.passes.targets.ptx_text import negations_kept
from lispgpt.runtime.session import Session

PROGRAM = """(require nn)
(entry f [(a [64] i32) (b [64] i32) (c [64] i32)]
  {:least (min (min a (- b)) c) :most (max c (max a (* b -1))) :own (min (min a (- a)) b) :apart (- c b)})
"""

SIGNS = """(require nn)
(require-dialect arith)
(entry f [(x [4 10] i32)]
  {:most (reduce max 0 (elementwise (fn [v] (arith.andi v 0x7fffffff)) x))
   :least (reduce min 0 (elementwise (fn [v] (arith.xori v -2147483648)) x))})
"""


def test_no_minimum_reads_a_negation(tmp_path: Path) -> None:
    artifact = compile_text(PROGRAM, tmp_path, target="cuda:sm_90a")
    text = artifact.code.decode()
    compared = set(" ".join(re.findall(r"(?:min|max)\.s32.*", text)).replace(",", " ").replace(";", " ").split())
    negated = set(re.findall(r"neg\.s32 \t(%r\d+)", text)) | set(re.findall(r"sub\.s32 \t(%r\d+), 0,", text))
    assert len(compared) > 8 and not negated & compared
    rng = seeded.rng()
    a, b, c = (rng.integers(-1000, 1000, 64).astype(np.int32) for _ in range(3))
    with Session(artifact, EmulatedCuda(), Weights({})) as session:
        found = session.run("f", a=a, b=b, c=c)
    assert (found["least"] == np.minimum(np.minimum(a, -b), c)).all()
    assert (found["most"] == np.maximum(c, np.maximum(a, -b))).all()
    assert (found["own"] == np.minimum(-abs(a), b)).all() and (found["apart"] == c - b).all()


@pytest.mark.parametrize("negation", ["neg.s32 \t%r2, %r1;", "sub.s32 \t%r2, 0, %r1;", "mul.lo.s32 \t%r2, %r1, -1;"])
def test_only_what_is_compared_is_written_anew(negation: str) -> None:
    anew = "\tnot.b32 \t%r2, %r1;\n\tadd.s32 \t%r2, %r2, 1;\n"
    for use, wanted in (("min.s32 \t%r4, %r3, %r2", anew), ("add.s32 \t%r4, %r3, %r2", f"\t{negation}\n")):
        assert negations_kept(f"\t{negation}\n\t{use};\n") == f"{wanted}\t{use};\n"


def test_signs_are_cleared_and_turned_in_sums_of_short_rows(tmp_path: Path) -> None:
    pytest.importorskip("tinygrad")
    (tmp_path / "signs.lisp").write_text(SIGNS)
    x = seeded.rng().integers(-(1 << 31), 1 << 31, (4, 10)).astype(np.int32)
    with lispgpt.load(tmp_path / "signs.lisp", target="emulated:gfx1151") as model:
        found = model.run("f", x=x)
    cleared, turned = x & np.int32(0x7FFFFFFF), x ^ np.int32(-(1 << 31))
    assert (found["most"] == cleared.max(1)).all() and (found["least"] == turned.min(1).clip(max=0)).all()
