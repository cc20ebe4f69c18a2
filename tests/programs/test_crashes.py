"""A program's crash is one message with the signal and, on x86-64, the line of the Lisp."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """(require-dialect arith llvm func)
(extern-fn strlen (-> [!llvm.ptr] [i64]))
(extern-fn abort (-> [] []))
(defn peek [(: p !llvm.ptr)] -> i64
  (llvm.load {:result i64} p))
(defn down [(: n i64)] -> i64
  (def here (llvm.alloca {:elem_type i64 :result !llvm.ptr} (: 1 i64)))
  (llvm.store {:volatile_ true} n here)
  (def below (call i64 down (arith.addi n 1)))
  (arith.addi below (llvm.load {:volatile_ true :result i64} here)))
(defn main [(: argc i64) (: argv !llvm.ptr)] -> i64
  (println "before")
  CALL)
"""

CASES = {
    "a wild pointer": ("(peek (llvm.inttoptr {:result !llvm.ptr} argc))", "SIGSEGV", 5),
    "a wild pointer in a library": ("(arith.addi (strlen (llvm.inttoptr {:result !llvm.ptr} argc)) 1)", "SIGSEGV", 13),
    "endless recursion": ("(down argc)", "SIGSEGV", 9),
    "division by zero": ("(arith.divsi (: 7 i64) (arith.subi argc 2))", "SIGFPE", 13),
}


def run(folder: Path, call: str) -> subprocess.CompletedProcess[str]:
    path = folder / "crash.lisp"
    path.write_text(PROGRAM.replace("CALL", call))
    command = [sys.executable, "-m", "lispgpt", "run", str(path), "one", "two"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "-"))
def test_crash_names_the_signal_and_the_line(tmp_path: Path, case: str) -> None:
    call, signal, line = CASES[case]
    done = run(tmp_path, call)
    assert done.returncode == 1
    assert f"the program crashed ({signal}: " in done.stderr
    if platform.machine() == "x86_64":
        assert f"crash.lisp:{line}:" in done.stderr


def test_abort_names_the_signal(tmp_path: Path) -> None:
    done = run(tmp_path, "(do (abort) argc)")
    assert done.returncode == 1
    assert "the program crashed (SIGABRT: it called abort" in done.stderr


@pytest.mark.parametrize("limit", ["-S -t 2", "-t 2"])
def test_a_program_without_an_end_is_told_of_the_limit(limit: str, tmp_path: Path) -> None:
    """A soft limit on time is told by a signal of its own, a hard one by the signal of a lack of memory."""
    path = tmp_path / "endless.lisp"
    path.write_text(
        "(require-dialect scf)\n(extern-fn getppid (-> [] [i32]))\n(defn main []\n"
        "  (scf.while (region (block [] (getppid) (scf.condition (: true i1)))) (region (block [] (scf.yield)))))\n"
    )
    command = ["bash", "-c", f"ulimit {limit}; exec {sys.executable} -m lispgpt run {path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the program was ended (SIG") and "(ulimit -t)" in done.stderr


def test_no_crash_no_message(tmp_path: Path) -> None:
    done = run(tmp_path, "argc")
    assert (done.returncode, done.stdout, done.stderr) == (0, "before\n2\n", "")
