"""Running a program that is given as MLIR text, in a process whose output can be read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

RUNNER = """
import sys
from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir, new_context
from lispgpt.programs.launch import Job, run
with new_context():
    try:
        module = ir.Module.parse(sys.stdin.read())
        sys.exit(run(Job(module), sys.argv[1:]))
    except UserError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(101)
"""


@dataclass(frozen=True)
class Ran:
    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


RunMlir = Callable[..., Ran]


def _run(text: str, *arguments: str) -> Ran:
    command = [sys.executable, "-c", RUNNER, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run_mlir() -> RunMlir:
    """Runs a module in text, with arguments; a UserError ends with exit code 101 and its text in `errors`."""
    return _run


@pytest.fixture
def run_main() -> RunMlir:
    """Runs (body, type, declarations): a main of that body that returns its %r."""

    def run(body: str, type_: str, declarations: str = "") -> Ran:
        main = f"func.func @main() -> {type_} {{\n{body}\nreturn %r : {type_} }}"
        return _run(f"module {{ {declarations}\n{main} }}")

    return run
