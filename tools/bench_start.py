"""How long it takes to the first result of each program of examples/research, in quick code: the processors' time of
evaluating and of compiling in a process that is ready and in those that make machine code for it, and of the command
from nothing.

    PYTHONPATH=tests:. python tools/bench_start.py [NAME …]
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from recorded_research import PROGRAMS, ROOT

from lispgpt.base.child import Reporter, run_in_child
from lispgpt.compiler import compiled, readiness
from lispgpt.compiler.request import Request

TURNS = 3
SMALL = "(require nn)\n(entry e [(x [2 8] f32)] (relu (matmul-transposed x x)))\n"


def _used() -> float:
    """Seconds of the processors that this process has taken, and those that it waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def seconds(work: Callable[[], object]) -> float:
    """Of the processors, in a fork; the least of some."""

    def timed(reporter: Reporter) -> int:
        gc.enable()
        started = _used()
        work()
        reporter.give(_used() - started)
        return 0

    return min(float(run_in_child(timed).value) for _ in range(TURNS))


def of_program(name: str) -> tuple[float, float]:
    """Of evaluating a program as `lispgpt.load` does, and of compiling its first entry."""
    small = PROGRAMS[name][0]
    request = Request(ROOT / f"examples/research/{name}.lisp", overrides=small.settings, quick=True)
    with warnings.catch_warnings(action="ignore"):
        entry = compiled.declared(request, trial=True).entries[0]
        shapes = {key: value.shape for key, value in small.given(name).items()}
        whole = Request(request.program, overrides=small.settings, quick=True, entries=(entry,), inputs={entry: shapes})
        return seconds(lambda: compiled._declared(request, True)), seconds(lambda: compiled._compile(whole, None))


def from_nothing(*words: str) -> tuple[float, float]:
    """Seconds of the processors, and on the clock, of a command; the least of some."""
    found = []
    for _ in range(TURNS):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "lispgpt", *words], check=True, stdout=subprocess.DEVNULL)
        after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append((used, ended - started))
    return min(used for used, _ in found), min(passed for _, passed in found)


def main() -> None:
    for _ in readiness.prepare():
        continue
    gc.disable()
    gc.freeze()
    for name in sys.argv[1:] or PROGRAMS:
        evaluating, compiling = of_program(name)
        print(
            f"{name:12} evaluated {evaluating:.3f}, compiled {compiling:.3f}: {evaluating + compiling:.3f} s",
            flush=True,
        )
    with tempfile.TemporaryDirectory() as folder:
        (program := Path(folder) / "small.lisp").write_text(SMALL, encoding="utf-8")
        given = ("--entry", "e", "--input", f"x={[[1.0] * 8] * 2}", "--quick", "--no-cache")
        used, passed = from_nothing("run", str(program), *given)
    print(f"a small program by the command, from nothing: {used:.3f} s of processors, {passed:.3f} s")


if __name__ == "__main__":
    main()
