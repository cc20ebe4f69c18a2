"""Programs with pipelines of their own: used as written, fitted to the chip and the vendor asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import forked
import pytest

pytestmark = pytest.mark.drawn

MACHINES = {"rocm:gfx1151": 0x4A, "rocm:gfx942": 0x4C}
"""What the low byte of an AMDGPU ELF file's flags says about the chip."""

KERNEL = """
(defn main [] -> f32
  (def m (memref.alloc {:result memref<32xf32>}))
  (gpu.host_register (memref.cast {:result memref<*xf32>} m))
  (gpu.launch (: 1 index) (: 1 index) (: 1 index) (: 32 index) (: 1 index) (: 1 index)
    (region
      (block [(: bx index) (: by index) (: bz index) (: t index) (: ty index) (: tz index)
              (: gx index) (: gy index) (: gz index) (: sx index) (: sy index) (: sz index)]
        (def x (arith.sitofp {:result f32} (arith.index_cast {:result i32} t)))
        (memref.store (MATH (math.sqrt (math.exp x))) m t)
        (gpu.terminator))))
  (memref.load m (: 4 index)))
"""

FORMS = {
    "rocm": """(compilation (target rocm
  (pass convert-scf-to-cf) (pass gpu-kernel-outlining) (pass rocdl-attach-target {:chip "gfx90a"})
  (pass convert-gpu-to-rocdl {:use-bare-ptr-memref-call-conv true :runtime HIP}) (pass gpu-module-to-binary)
  (pass gpu-to-llvm {:use-bare-pointers-for-kernels true}) (pass convert-cf-to-llvm) (pass convert-arith-to-llvm)
  (pass convert-math-to-llvm) (pass finalize-memref-to-llvm) (pass convert-func-to-llvm)
  (pass reconcile-unrealized-casts)))""",
    "cuda": """(compilation-gpu cuda
  (passes (pass convert-scf-to-cf) (pass gpu-kernel-outlining)
    (pass nvvm-attach-target {:chip "sm_70" :features "+ptx60"}))
  (gpu-passes (pass convert-gpu-to-nvvm {:has-redux true}))
  (passes (pass gpu-module-to-binary) (pass gpu-to-llvm) (pass convert-cf-to-llvm) (pass convert-arith-to-llvm)
    (pass convert-math-to-llvm) (pass finalize-memref-to-llvm) (pass convert-func-to-llvm)
    (pass reconcile-unrealized-casts)))""",
    "none": "",
}


def lispgpt(tmp_path: Path, form: str, *arguments: str, math: str = "math.log") -> subprocess.CompletedProcess[str]:
    path = tmp_path / "program.lisp"
    path.write_text(f"(require-dialect arith gpu memref math)\n{form}\n{KERNEL.replace('MATH', math)}")
    return forked.lispgpt(arguments[0], path, *arguments[1:])


@pytest.mark.parametrize("form", FORMS)
def test_gpu_pipelines_run_on_the_cpu(tmp_path: Path, form: str) -> None:
    done = lispgpt(tmp_path, FORMS[form], "run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2.0\n", "")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", ["rocm:gfx1151", "rocm:gfx942", "cuda:sm_90", "cuda:sm_80"])
def test_gpu_pipelines_fit_either_vendor(tmp_path: Path, form: str, target: str) -> None:
    output = tmp_path / "code"
    done = lispgpt(tmp_path, FORMS[form], "compile", "--target", target, "-o", str(output))
    assert done.returncode == 0, done.stderr
    code = output.read_bytes()
    if target.startswith("rocm"):
        assert code.startswith(b"\x7fELF")
        assert code[48] == MACHINES[target]
    else:
        assert f".target {target[5:]}".encode() in code
        assert b".extern" not in code


def test_a_pipeline_for_the_cpu_is_used_as_written(tmp_path: Path) -> None:
    form = "(compilation-cpu (func-passes (pass affine-parallelize)) (passes (pass convert-func-to-llvm)))"
    done = lispgpt(tmp_path, form, "run")
    assert done.returncode == 1
    assert "the pipeline leaves gpu.host_register" in done.stderr or "the pipeline leaves memref.alloc" in done.stderr


@pytest.mark.parametrize("math", ["math.erf", "math.log", "math.cbrt"])
def test_functions_without_an_instruction_are_arithmetic(math: str, tmp_path: Path) -> None:
    """They need no library of the vendor's."""
    done = lispgpt(tmp_path, FORMS["rocm"], "compile", "--target", "cuda:sm_90", "-o", str(tmp_path / "o"), math=math)
    assert done.returncode == 0, done.stderr


def test_a_pass_that_is_none_is_pointed_at(tmp_path: Path) -> None:
    done = lispgpt(tmp_path, "(compilation (target cpu (pass convert-everything)))", "run")
    assert done.returncode == 1
    assert "program.lisp:2:26: error: there is no pass 'convert-everything'" in done.stderr
