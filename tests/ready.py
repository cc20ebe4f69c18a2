"""What compiling any program takes, there before the first one: processes that compile are forks of one that is ready,
and would each make the parser, read the library and import the passes anew."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from lispgpt.compiler.driver import compile_request
from lispgpt.compiler.request import Observer, Request
from lispgpt.language.reader import reader
from lispgpt.language.reader.forms import Form

TINY = "(require nn generation training)\n(entry out [(x [4] f32)] (exp x))\n"

_kept, _read = cache(reader._read.__wrapped__), reader._read


def read_library_once(name: str, text: str) -> tuple[Form, ...]:
    """A text's forms, those of the library the same for as long as this process lives."""
    return _kept(name, text) if name.startswith("lib/") else _read(name, text)


def compile_once() -> None:
    """A program for a CPU, and for GPUs of both vendors."""
    with tempfile.TemporaryDirectory() as folder:
        (program := Path(folder) / "tiny.lisp").write_text(TINY)
        for target in ("cpu", "rocm:gfx1151", "cuda:sm_90a"):
            compile_request(Request(program, target), Observer())
