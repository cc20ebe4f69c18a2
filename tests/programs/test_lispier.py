"""What programs written for Lispier rely on beyond the core: its printing, its runtime's functions, its pipelines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import forked
import pytest

HEAD = "(require-dialect arith func llvm memref scf linalg gpu)\n"

TEXT = """(llvm.mlir.global {:sym_name "text" :linkage 0 :global_type !llvm.array<NUMBER x i8> :constant true}
  (region (block [] (llvm.return (llvm.mlir.constant {:value "FORMAT" :result !llvm.array<NUMBER x i8>})))))
"""

REDUCE = """(compilation (target rocm
  (pass convert-linalg-to-parallel-loops) (pass scf-parallel-loop-tiling {:parallel-loop-tile-sizes "16,16"})
  (pass gpu-map-parallel-loops) (pass convert-parallel-loops-to-gpu) (pass lower-affine) (pass convert-scf-to-cf)
  (pass gpu-kernel-outlining) (pass rocdl-attach-target) (pass convert-gpu-to-rocdl) (pass gpu-module-to-binary)
  (pass gpu-to-llvm) (pass convert-cf-to-llvm) (pass convert-arith-to-llvm) (pass convert-index-to-llvm)
  (pass finalize-memref-to-llvm) (pass convert-func-to-llvm) (pass reconcile-unrealized-casts)))
(defn main [] -> f32
  (def x (memref.alloc {:result memref<ROWSx16xf32>}))
  (linalg.fill {:ins 1 :outs 1} (: 2.5 f32) x)
  (memref.load x 3 4))
"""

REGISTERED = """(compilation (target TARGET
  (pass gpu-kernel-outlining) (pass rocdl-attach-target)
  (pass convert-gpu-to-rocdl {:use-bare-ptr-memref-call-conv true}) (pass gpu-module-to-binary)
  (pass convert-scf-to-cf) (pass convert-cf-to-llvm) (pass convert-arith-to-llvm) (pass convert-func-to-llvm)
  (pass finalize-memref-to-llvm)
  (pass gpu-to-llvm {:use-bare-pointers-for-kernels true :use-bare-pointers-for-host true})
  (pass reconcile-unrealized-casts)))
(extern-fn mgpuMemGetDeviceMemRef1dFloat (-> [memref<?xf32>] [memref<?xf32>]))
(extern-fn mgpuMemGetDeviceMemRef2dInt32 (-> [memref<?x?xi32>] [memref<?x?xi32>]))
(extern-fn mgpuMemGetDeviceMemRef1dInt32 (-> [memref<?xi32>] [memref<?xi32>]))
(defn main [] -> f32
  (def whole (memref.alloc {:result memref<32xf32>}))
  (def counts (memref.alloc {:result memref<4xi32>}))
  (gpu.host_register (memref.cast {:result memref<*xf32>} whole))
  (def there (memref.cast {:result memref<32xf32>}
    (mgpuMemGetDeviceMemRef1dFloat (memref.cast {:result memref<?xf32>} whole))))
  (def them (mgpuMemGetDeviceMemRef1dInt32 (memref.cast {:result memref<?xi32>} counts)))
  (def square (memref.alloc {:result memref<2x3xi32>}))
  (memref.store (: 7 i32) square 1 2)
  (def same (mgpuMemGetDeviceMemRef2dInt32 (memref.cast {:result memref<?x?xi32>} square)))
  (memref.store (: 5 i32) counts 3)
  (def c1 (: 1 index))
  (def more (arith.sitofp {:result f32} (arith.maxsi (memref.load them 3) (memref.load same 1 2))))
  (gpu.launch c1 c1 c1 (: 32 index) c1 c1
    (region
      (block [(: bx index) (: by index) (: bz index) (: t index) (: ty index) (: tz index)
              (: gx index) (: gy index) (: gz index) (: sx index) (: sy index) (: sz index)]
        (memref.store more there t)
        (gpu.terminator))))
  (memref.load whole 31))
"""


def lispgpt(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = folder / "program.lisp"
    path.write_text(HEAD + text)
    return forked.lispgpt(arguments[0], path, *arguments[1:], cwd=folder)


def output(folder: Path, text: str) -> str:
    done = lispgpt(folder, text, "run")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_surplus_arguments_of_print_are_a_warning(tmp_path: Path) -> None:
    done = lispgpt(tmp_path, '(defn main [] -> i64 (print "a %d\\n" (: 1 i32) (: 2 i32)) 0)', "run")
    assert (done.returncode, done.stdout) == (0, "a 1\n0\n")
    assert "program.lisp:2:22: warning: the format asks for 1 argument and gets 2" in done.stderr
    missing = lispgpt(tmp_path, '(defn main [] -> i64 (print "a %d %d\\n" (: 1 i32)) 0)', "run")
    assert missing.returncode == 1 and "error: the format asks for 2 arguments and gets 1" in missing.stderr


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("text", "arguments", "printed"),
    [("* 100%%", "", "* 100%"), ("%*d|%-6.2f|%%", "(: 4 i32) (: 7 i32) (: 1.5 f64)", "   7|1.50  |%"),
     ("%lld %zu %c", "(: 1 i64) (: 2 i64) (: 65 i32)", "1 2 A"), ("%5.*f", "(: 1 i32) (: 2.25 f64)", "  2.2")],
)  # fmt: skip
def test_formats(tmp_path: Path, text: str, arguments: str, printed: str) -> None:
    assert output(tmp_path, f'(defn main [] -> i64 (println "{text}" {arguments}) 0)') == f"{printed}\n0\n"


def test_println_takes_a_list(tmp_path: Path) -> None:
    assert output(tmp_path, '(defn main [] -> i64 (println ["x %d %d" (: 1 i32) (: 2 i32)]) 0)') == "x 1 2\n0\n"


@pytest.mark.drawn
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_printf_of_so_many(tmp_path: Path, count: int) -> None:
    text = TEXT.replace("FORMAT", "%ld " * count + "\\n\\0").replace("NUMBER", str(4 * count + 2))
    call = f"(call i32 printf_{count} at {' '.join(f'(: {n} i64)' for n in range(count))})"
    program = f"""(extern-fn printf_{count} (-> [!llvm.ptr {"i64 " * count}] [i32])) {text}
      (defn main [] -> i64 (def at (llvm.mlir.addressof {{:global_name @text :result !llvm.ptr}})) {call} 5)"""
    assert output(tmp_path, program) == f"{''.join(f'{n} ' for n in range(count))}\n5\n"


def test_an_llvm_function_has_a_type_with_an_arrow(tmp_path: Path) -> None:
    program = """(llvm.func {:sym_name "abs" :function_type (-> [i32] [i32]) :linkage 10})
      (llvm.func {:sym_name "printf" :function_type (-> [!llvm.ptr] [i32]) :vararg_ true})
      (llvm.func {:sym_name "snprintf" :function_type (-> [!llvm.ptr i64 !llvm.ptr ...] [i32])})
      (llvm.func {:sym_name "nothing" :function_type (-> [] [])} (region (block [] (llvm.return))))
      (defn main [] -> i32 (nothing) (print "%d\\n" (: 4 i32)) (abs (: -5 i32)))"""
    assert output(tmp_path, program) == "4\n5\n"


@pytest.mark.drawn
@pytest.mark.parametrize("mark", ["lispier.toml", "pyproject.toml", "Cargo.toml", ".git"])
def test_a_projects_root(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).touch()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "two.lisp").write_text("(def two 2)")
    inner = tmp_path / "programs" / "first"
    inner.mkdir(parents=True)
    assert output(inner, '(require "@lib/two.lisp") (defn main [] -> i64 (: (+ two 40) i64))') == "42\n"


def test_a_file_without_main_is_pointed_to_its_mlir(tmp_path: Path) -> None:
    done = lispgpt(tmp_path, "(defn f [(: x i64)] -> i64 x)", "run")
    assert done.returncode == 1
    assert "`lispgpt compile --emit mlir`" in done.stderr
    assert "func.func @f" in lispgpt(tmp_path, "(defn f [(: x i64)] -> i64 x)", "compile", "--emit", "mlir").stdout


def test_functions_of_lispiers_own_program_are_left_to_a_library(tmp_path: Path) -> None:
    done = lispgpt(tmp_path, "(extern :other-ffi) (defn main [] (: 3 i64))", "run")
    assert done.returncode == 1 and "bug" not in done.stderr
    assert "no functions but :value-ffi are built in" in done.stderr and "(link-library" in done.stderr


def test_a_buffer_grows(tmp_path: Path) -> None:
    program = """(defn main [] -> f32
      (def small (memref.alloc {:result memref<?xf32>} 2))
      (memref.store 1.5 small 1)
      (def large (memref.realloc {:result memref<?xf32>} small (: 1000 index)))
      (memref.store 2.0 large 999)
      (arith.addf (memref.load large 1) (memref.load large 999)))"""
    assert output(tmp_path, program) == "3.5\n"


@pytest.mark.parametrize("form", ["(compilation-cpu (passes PASS))", "(compilation (target cpu PASS))"])
def test_a_pipeline_that_lowers_nothing_to_llvm_is_completed(tmp_path: Path, form: str) -> None:
    program = """(defn main [] -> f32 (def m (memref.alloc {:result memref<4xf32>}))
      (linalg.fill {:ins 1 :outs 1} (: 2.5 f32) m) (memref.load m 2))"""
    assert output(tmp_path, form.replace("PASS", "(pass convert-linalg-to-loops)") + program) == "2.5\n"
    other = lispgpt(tmp_path, form.replace("PASS", "(pass convert-arith-to-llvm)") + program, "run")
    assert other.returncode == 1 and "the pipeline leaves" in other.stderr


def test_loops_that_stay_on_the_host_are_named(tmp_path: Path) -> None:
    uneven = lispgpt(tmp_path, REDUCE.replace("ROWS", "12"), "compile", "--target", "rocm:gfx942")
    assert uneven.returncode == 0
    reason = "this loop stays on the host: its tiles of 16 do not divide the 12 iterations of its dimension 1"
    assert f"program.lisp:10:3: warning: {reason}" in uneven.stderr
    assert (tmp_path / "program.rocm-gfx942" / "program.o").stat().st_size > 0
    even = lispgpt(tmp_path, REDUCE.replace("ROWS", "32"), "compile", "--target", "rocm:gfx942")
    assert even.returncode == 0 and "warning" not in even.stderr and ".hsaco" in even.stderr
    assert output(tmp_path, REDUCE.replace("ROWS", "12")) == "2.5\n"


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["rocm:gfx942", "cuda:sm_90a"])
def test_registered_memory_of_programs_with_bare_pointers(tmp_path: Path, target: str) -> None:
    program = REGISTERED.replace("TARGET", target.partition(":")[0])
    if target.startswith("cuda"):
        program = program.replace("rocdl", "nvvm")
    assert output(tmp_path, program) == "7.0\n"
    done = lispgpt(tmp_path, program, "compile", "--target", target)
    assert done.returncode == 0, done.stderr


def test_tuples_are_made_taken_apart_and_passed(tmp_path: Path) -> None:
    program = """(require-dialect builtin)
      (func.func {:sym_name "make" :function_type (-> [i32 f32 index] [tuple<tuple<i32, f32>, index>])}
        (region (block [(: a i32) (: b f32) (: n index)]
          (def inner (builtin.unrealized_conversion_cast {:result tuple<i32, f32>} a b))
          (func.return (builtin.unrealized_conversion_cast {:result tuple<tuple<i32, f32>, index>} inner n)))))
      (defn main [] -> i64
        (def whole (make (: 3 i32) (: 2.5 f32) (: 7 index)))
        (def [inner n] (builtin.unrealized_conversion_cast {:result [tuple<i32, f32> index]} whole))
        (def a (builtin.unrealized_conversion_cast {:result i32} inner))
        (def b (builtin.unrealized_conversion_cast {:result f32} inner))
        (def chosen (if (<i a (: 5 i32)) whole (make (: 9 i32) (: 0.0 f32) (: 0 index))))
        (def m (builtin.unrealized_conversion_cast {:result index} chosen))
        (print "%d %g\\n" a b)
        (arith.index_cast {:result i64} (arith.addi n m)))"""
    assert output(tmp_path, program) == "3 2.5\n14\n"
    wrong = program.replace("(print", "(def c (builtin.unrealized_conversion_cast {:result i8} inner)) (print")
    done = lispgpt(tmp_path, wrong, "run")
    assert done.returncode == 1 and "program.lisp:14:" in done.stderr and "no element of type i8" in done.stderr


FUNCTIONS = """(require-dialect [func :as f] [memref :as m])
(f/func {:sym_name "get_dim" :function_type (-> [memref<?xf32>] [index])}
  (region (block [(: mem memref<?xf32>)] (f/return (m/dim {:result index} mem (: 0 index))))))
(f/func {:sym_name "grown" :function_type (-> ["memref<?xf32>" index] ["memref<?xf32>"])}
  (region (block [(: mem "memref<?xf32>") (: size index)]
    (f/return (m/realloc {:result "memref<?xf32>"} mem size)))))
(f/func {:sym_name "reshaped" :function_type (-> [memref<16xf32> memref<2xindex>] ["memref<?x?xf32>"])}
  (region (block [(: mem memref<16xf32>) (: to memref<2xindex>)]
    (f/return (m/reshape {:result "memref<?x?xf32>"} mem to)))))
(f/func {:sym_name "pair" :function_type (-> [tuple<i32, f32>] [tuple<i32, f32>])}
  (region (block [(: t tuple<i32, f32>)] (f/return t))))
"""


def test_functions_without_a_main_become_what_a_programs_do(tmp_path: Path) -> None:
    (tmp_path / "functions.lisp").write_text(FUNCTIONS)
    words = [sys.executable, "-m", "lispgpt", "compile", "functions.lisp"]
    shown = subprocess.run([*words, "--emit", "llvm"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert all(f"llvm.func @{name}(" in shown.stdout for name in ("get_dim", "grown", "reshaped", "pair"))
    made = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 1 and "`lispgpt compile --emit mlir` shows what it becomes" in made.stderr
