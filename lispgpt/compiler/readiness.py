"""What every compilation takes, there before it is asked for, where more than one is to be expected.

A fork of a process without the compiler imports it anew, and a fresh interpreter, which threads make necessary, starts
and imports it.  A program of a notebook or a script is evaluated once when it is loaded, and then compiled for each
size that its entries are run at: from the first on, that is done by forks of a process that has the compiler.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lispgpt.base.fork_server import ForkServer, ServerBusy
from lispgpt.base.fresh import call_fresh

if TYPE_CHECKING:
    from lispgpt.language.reader.forms import Form

USUAL = ("core", "nn", "attention", "gradients", "random", "rotary", "texts")
"""The files that most programs require."""


def prepare() -> Iterator[None]:
    """Import what evaluating takes, and read what most programs require; then import what compiling for CPUs takes,
    read the rest of the library, make what all machine code for this CPU has in common, and read the bodies of the
    library's functions, one at a time."""
    importlib.import_module("lispgpt.compiler.evaluation")
    from lispgpt.ir.mlir import without_op_classes
    from lispgpt.language.core.library import LIBRARY
    from lispgpt.language.forms.modules import source_name
    from lispgpt.language.reader.reader import read_bodies, read_library

    def read(names: Iterable[str]) -> list[Form]:
        paths = [LIBRARY / f"{name}.lisp" for name in names]
        return [form for path in paths for form in read_library(source_name(path), path.read_text(encoding="utf-8"))]

    without_op_classes()
    read(USUAL)
    yield
    importlib.import_module("lispgpt.compiler.driver")
    from lispgpt.passes.base import find_pass
    from lispgpt.passes.targets import CHIPS, Cpu
    from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline

    for call in read_pipeline(pipeline_path("cpu")).calls:
        find_pass(call.name)
    yield
    rest = sorted({path.stem for path in LIBRARY.glob("*.lisp")} - set(USUAL))
    read(rest)
    yield
    for cpu in (CHIPS["cpu"][""], CHIPS["cpu"][""].quick()):
        assert isinstance(cpu, Cpu)
        cpu.prepare()
        yield
    yield from read_bodies(read((*USUAL, *rest)))


@dataclass
class _Expected:
    """Whether more compilations are to be expected."""

    more: bool = False


_EXPECTED = _Expected()
SERVER = ForkServer(prepare)


def expect_more() -> None:
    """Have compilations done by a server from now on: more than one is to be expected."""
    _EXPECTED.more = True


def has_compiler() -> bool:
    """Whether this process has imported the compiler, so that its forks are as ready as the server's."""
    return "lispgpt.compiler.driver" in sys.modules


def expects_more() -> bool:
    """Whether `expect_more` was called."""
    return _EXPECTED.more


def call_ready(function: Callable[..., Any], *arguments: Any) -> Any:
    """What `call_fresh` gives, by the server where more is expected."""
    if _EXPECTED.more:
        try:
            return SERVER.call(function, *arguments)
        except ServerBusy:
            pass
    return call_fresh(function, *arguments)
