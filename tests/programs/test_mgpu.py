"""Compiled GPU launches against a stand-in for AMD's driver that says what was called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """module {
  func.func @main() -> f32 {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %half = arith.constant 1.25 : f32
    %m = memref.alloc() : memref<8xf32>
    memref.store %half, %m[%c2] : memref<8xf32>
    %loaded = memref.load %m[%c2] : memref<8xf32>
    %x = arith.addf %loaded, %loaded : f32
    %u = memref.cast %m : memref<8xf32> to memref<*xf32>
    gpu.host_register %u : memref<*xf32>
    gpu.launch blocks(%bx, %by, %bz) in (%gx = %c2, %gy = %c1, %gz = %c1)
        threads(%t, %ty, %tz) in (%hx = %c4, %hy = %c1, %hz = %c1) {
      %i0 = arith.muli %bx, %c4 : index
      %i = arith.addi %i0, %t : index
      memref.store %x, %m[%i] : memref<8xf32>
      gpu.terminator
    }
    gpu.host_unregister %u : memref<*xf32>
    %r = memref.load %m[%c4] : memref<8xf32>
    return %r : f32
  }
}"""

RUNNER = """
import sys
from lispgpt.base.errors import UserError
from lispgpt.language.forms.compilation import Compilation, PassForm
from lispgpt.ir.mlir import ir, new_context
from lispgpt.programs.launch import Job, run
passes = tuple(PassForm(name) for name in sys.argv[2].split())
own = [Compilation("rocm", passes)] if passes else []
with new_context():
    module = ir.Module.parse(sys.stdin.read())
    try:
        sys.exit(run(Job(module, sys.argv[1], own), []))
    except UserError as error:
        print(error.render())
        sys.exit(101)
"""

OWN_PIPELINE = (
    "lower-affine convert-scf-to-cf gpu-kernel-outlining rocdl-attach-target convert-gpu-to-rocdl "
    "gpu-module-to-binary gpu-to-llvm convert-cf-to-llvm convert-arith-to-llvm convert-index-to-llvm "
    "convert-math-to-llvm finalize-memref-to-llvm convert-func-to-llvm reconcile-unrealized-casts"
)


def run(target: str, passes: str, **environment: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", RUNNER, target, passes]
    done = subprocess.run(
        command, input=PROGRAM, capture_output=True, text=True, timeout=120, env=os.environ | environment
    )
    return done.returncode, done.stdout.splitlines()


@pytest.fixture(scope="module")
def fake_hip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stand-in for libamdhip64.so."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("hip")
    source = Path(__file__).with_name("fake_hip.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libamdhip64.so", source], check=True)
    return folder


@pytest.mark.parametrize("passes", ["", OWN_PIPELINE], ids=["default", "own"])
def test_launches_reach_the_driver(fake_hip: Path, passes: str) -> None:
    code, lines = run("rocm:gfx1151", passes, LD_LIBRARY_PATH=str(fake_hip))
    assert code == 0, lines
    calls = [
        "init",
        "load 1",
        "register 32",
        "function main_kernel",
        "stream",
        "launch 2 1 1, 4 1 1, 0 bytes",
        "sync 48",
        "unregister",
        "2.5",
    ]
    assert [line for line in lines if line != "unload"] == calls


@pytest.mark.parametrize("target", ["rocm:gfx1151", "cuda:sm_90"])
def test_a_missing_driver_is_an_error_that_says_so(target: str) -> None:
    code, lines = run(target, OWN_PIPELINE)
    if code == 0:
        pytest.skip("this machine has such a GPU")
    assert code == 101
    assert "no " in lines[-1] and "GPU can be used here" in lines[-1]


LISP = """(require-dialect arith gpu memref)
(defn main [] -> f32
  (def m (memref.alloc {:result memref<8xf32>}))
  (memref.store (: 1.25 f32) m (: 2 index))
  (def x (arith.addf (memref.load m (: 2 index)) (memref.load m (: 2 index))))
  (gpu.host_register (memref.cast {:result memref<*xf32>} m))
  (def four (: 4 index))
  (gpu.launch (: 2 index) (: 1 index) (: 1 index) four (: 1 index) (: 1 index)
    (region
      (block [(: bx index) (: by index) (: bz index) (: tx index) (: ty index) (: tz index)
              (: gx index) (: gy index) (: gz index) (: sx index) (: sy index) (: sz index)]
        (memref.store x m (arith.addi (arith.muli bx four) tx))
        (gpu.terminator))))
  (memref.load m four))
"""


@pytest.mark.parametrize("target", ["rocm", "auto", "rocm:gfx1151"])
def test_a_program_runs_on_the_installed_gpu(target: str, fake_hip: Path, tmp_path: Path) -> None:
    """Whoever asks the driver which chip there is, the process that launches is no fork of it."""
    (tmp_path / "store.lisp").write_text(LISP)
    command = [sys.executable, "-m", "lispgpt", "run", "store.lisp", "--target", target]
    environment = os.environ | {"LD_LIBRARY_PATH": str(fake_hip), "LISPGPT_CACHE": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {"init", "launch 2 1 1, 4 1 1, 0 bytes", "2.5"} <= set(lines)
