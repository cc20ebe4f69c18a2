"""sums-in-registers, in a program's own pipeline: the same values, without memory in the loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from click.testing import CliRunner

from lispgpt.cli.compile import compile_

PROGRAM = """(require-dialect arith linalg memref scf)
(compilation (target cpu
  (pass convert-linalg-to-parallel-loops) (pass sums-in-registers {{:unroll {unroll}}}) (pass convert-scf-to-cf)
  (pass convert-func-to-llvm) (pass finalize-memref-to-llvm) (pass convert-arith-to-llvm) (pass convert-cf-to-llvm)
  (pass reconcile-unrealized-casts)))
(defn value [i j] (arith.sitofp {{:result f32}} (arith.index_cast {{:result i32}}
  (arith.subi (arith.remui (arith.addi (arith.muli i {a}) (arith.muli j {b})) 11) 5))))
(defn each [rows columns body]
  (scf.for (: 0 index) (: rows index) (: 1 index) (region (block [(: i index)]
    (scf.for (: 0 index) (: columns index) (: 1 index) (region (block [(: j index)] (body i j))))))))
(defn main [] -> f32
  (def a (memref.alloc {{:result memref<5x{k}xf32>}}))
  (def b (memref.alloc {{:result memref<{k}x6xf32>}}))
  (def c (memref.alloc {{:result memref<5x6xf32>}}))
  (each 5 {k} (fn [i j] (memref.store (value i j) a i j)))
  (each {k} 6 (fn [i j] (memref.store (value j i) b i j)))
  (each 5 6 (fn [i j] (memref.store (: 1.0 f32) c i j)))
  (linalg.matmul {{:ins 2 :outs 1}} a b c)
  (arith.addf (arith.mulf (memref.load c 4 5) (: 1000.0 f32)) (memref.load c 1 2)))
"""


@pytest.mark.drawn
@pytest.mark.parametrize(("extent", "unroll"), [(24, 8), (7, 8), (12, 4), (16, 1)])
def test_sums(tmp_path: Path, capfd: pytest.CaptureFixture[str], extent: int, unroll: int) -> None:
    from lispgpt.cli.run import run

    a, b = (int(n) for n in seeded.rng().integers(1, 11, 2))
    path = tmp_path / "product.lisp"
    path.write_text(PROGRAM.format(k=extent, unroll=unroll, a=a, b=b))
    told = {"started": 0.0, "environment": {}}
    asked = [str(path), "--dump-dir", str(tmp_path / "dump"), "-o", str(tmp_path / "o")]
    shown = CliRunner().invoke(compile_, asked, obj=told)
    assert shown.exit_code == 0, shown.output
    dumped = (tmp_path / "dump" / "02-sums-in-registers.mlir").read_text()
    unrolled = unroll > 1 and extent % unroll == 0
    assert dumped.count("iter_args") == 1
    assert dumped.count("arith.mulf") == 1 + (unroll if unrolled else 1)
    result = CliRunner().invoke(run, [str(path)], obj=told)
    assert result.exit_code == 0, result.output

    def value(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return (i * a + j * b) % 11 - 5

    left = np.fromfunction(value, (5, extent), dtype=np.int64)
    right = np.fromfunction(value, (6, extent), dtype=np.int64).T
    product = 1 + left @ right
    assert float(capfd.readouterr().out) == product[4, 5] * 1000 + product[1, 2]
