"""A model in processes of their own: compiling, the first token, memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lispgpt.base.errors import InternalError, UserError


@dataclass(frozen=True)
class Whole:
    """Of `lispgpt run`.  compile_s: from nothing, for a short prompt.  first_token_s: from the start of a process that
    finds its program compiled.  peak_bytes: of that process's memory on the host."""

    compile_s: float
    first_token_s: float
    peak_bytes: int


def measure_whole(words: Sequence[str], rounds: int) -> Whole:
    """words: the program and the options of `lispgpt run` that say what to run."""
    _run(words)  # fills the cache, and the system's of files
    compiles = [_run([*words, "--no-cache"])[0]["timing"]["compile_s"] for _ in range(max(1, rounds // 3))]
    found = [_run(words) for _ in range(rounds)]
    firsts = [report["timing"]["first_token_s"] for report, _ in found]
    return Whole(statistics.median(compiles), statistics.median(firsts), max(peak for _, peak in found))


def _run(words: Sequence[str]) -> tuple[dict[str, Any], int]:
    """(what `lispgpt run` reports of a token, the most bytes that it had)"""
    options = ["--greedy", "--prompt-tokens", "1,2,3", "--max-new-tokens", "1", "--format", "json"]
    command = [sys.executable, "-m", "lispgpt", "run", *words, *options]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().removeprefix("error: ")
            if process.returncode != 1:
                raise InternalError(said)
            if said.endswith("is a program with a `main`"):  # which has no use for what `_run` asks for
                said = f"{words[0]} generates no tokens: it is a program with a `main`"
            raise UserError(said)
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    return report, usage.ru_maxrss * 1024
