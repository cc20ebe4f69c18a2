"""link-library: the C library, the mathematics library, and a program's own beside it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import forked
import pytest

PROGRAM = """(require-dialect arith)
(link-library :c)
(link-library :m)
(link-library "libtwice.so")
(extern-fn twice (-> [f64] [f64]))
(extern-fn abs (-> [i32] [i32]))
(extern-fn hypot (-> [f64 f64] [f64]))
(defn main [] -> f64
  (twice (hypot (: 3.0 f64) (arith.sitofp {:result f64} (abs (: -4 i32))))))
"""


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.lisp").write_text(PROGRAM)
    return forked.lispgpt("run", folder / "program.lisp")


def test_functions_of_libraries_are_called(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "twice.c").write_text("double twice(double x) { return 2 * x; }")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libtwice.so", tmp_path / "twice.c"], check=True)
    done = run(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10.0\n", "")


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert "cannot open the library 'libtwice.so'" in done.stderr
