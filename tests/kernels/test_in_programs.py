"""The library's kernels launched from a program's main, on the CPU, against float64."""

from __future__ import annotations

from pathlib import Path

import forked
import numpy as np
import pytest

PROGRAM = """
(require-dialect arith memref scf)
(require kernels)

(defmacro each-element [[i j m] & body]
  `(scf.for (: 0 index) (: (dim ~m 0) index) (: 1 index)
     (region
       (block [(: ~i index)]
         (scf.for (: 0 index) (: (dim ~m 1) index) (: 1 index)
           (region (block [(: ~j index)] ~@body)))))))

; (a i + b j) mod 13 - 5
(defn filled [type a b]
  (let [m (memref.alloc {:result type})]
    (each-element [i j m]
      (def number (arith.remui (+ (* i a) (* j b)) 13))
      (memref.store (- (cast (cast number i32) f32) 5.0) m i j))
    m))

(defn print-all [m]
  (each-element [i j m]
    (println "%.9g" (memref.load m i j))))

(defn main []
  (def a (filled memref<16x24xf32> 3 5))
  (def b (filled memref<24x16xf32> 7 2))
  (def product (memref.alloc {:result memref<16x16xf32>}))
  (launch tiled-product [2 2] [8 8] a b product 24 8)
  (print-all product)
  (def w (filled memref<11x24xf32> 4 9))
  (def odd (memref.alloc {:result memref<16x11xf32>}))
  (launch tiled-linear [2 2] [8 8] a w odd 8)
  (print-all odd)
  (def scale (memref.alloc {:result memref<24xf32>}))
  (scf.for (: 0 index) (: 24 index) (: 1 index)
    (region (block [(: i index)] (memref.store (cast (cast i i32) f32) scale i))))
  (def normal (memref.alloc {:result memref<16x24xf32>}))
  (launch row-layer-norm [16] [(capability subgroup-size)] a scale scale normal 24 1e-5)
  (print-all normal))
"""


LAUNCH_FUNC = """
(require-dialect arith gpu memref math)
(gpu.module {:sym_name "kernels"}
  (region
    (gpu.func {:sym_name "roots" :function_type (-> [memref<8xf32>] []) :gpu.kernel true}
      (region
        (block [(: m memref<8xf32>)]
          (def i (gpu.thread_id {:dimension "#gpu<dim x>"}))
          (memref.store (math.sqrt (memref.load m i)) m i)
          (gpu.return))))))
(defn main [] -> f32
  (def m (memref.alloc {:result memref<8xf32>}))
  (gpu.host_register (memref.cast {:result memref<*xf32>} m))
  (memref.store (: 49.0 f32) m 3)
  (def one (: 1 index))
  (gpu.launch_func {:kernel @kernels::@roots} one one one (: 8 index) one one m)
  (memref.load m 3))
"""


def filled(rows: int, columns: int, a: int, b: int) -> np.ndarray:
    i, j = np.indices((rows, columns))
    return (i * a + j * b) % 13 - 5.0


def lispgpt(command: str, text: str, folder: Path, *options: str) -> str:
    (folder / "program.lisp").write_text(text)
    done = forked.lispgpt(command, "program.lisp", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("target", ["rocm:gfx1151", "cuda:sm_90"])
def test_a_kernel_of_a_gpu_module(target: str, tmp_path: Path) -> None:
    assert lispgpt("run", LAUNCH_FUNC, tmp_path, "--target", "cpu") == "7.0\n"
    lispgpt("compile", LAUNCH_FUNC, tmp_path, "--target", target, "-o", "out")
    assert (tmp_path / "out").exists()


def test_kernels_launched_from_main(tmp_path: Path) -> None:
    told = lispgpt("run", PROGRAM, tmp_path, "--target", "cpu")
    a, b, w = filled(16, 24, 3, 5), filled(24, 16, 7, 2), filled(11, 24, 4, 9)
    centred = a - a.mean(1, keepdims=True)
    scale = np.arange(24.0)
    normal = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * scale + scale
    wanted = np.concatenate([x.ravel() for x in (a @ b, a @ w.T, normal)])
    np.testing.assert_allclose(np.array(told.split(), float), wanted, rtol=1e-5, atol=1e-4)
