"""An artifact's entries on a device, on random numbers: what benchmarks of layers and of products measure."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from lispgpt.runtime.devices import open_device  # noqa: E402
from lispgpt.runtime.plan.artifact import Artifact, load_artifact  # noqa: E402
from lispgpt.runtime.plan.plan import Entry  # noqa: E402


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that `timing` reads, and how often to measure."""
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=20, help="launches in each round")
    parser.add_argument("--compile", type=Path, help="only compile, to this file")
    parser.add_argument("--artifact", type=Path, help="measure what --compile wrote")


def timing(given: argparse.Namespace, text: str, scale: float = 1.0) -> EntryTiming | None:
    """The entries of a program's text, or of the artifact that is given; None where only compiling is asked for."""
    artifact = load_artifact(given.artifact) if given.artifact else _compiled(given.target, text)
    if given.compile:
        artifact.save(given.compile)
        return None
    return EntryTiming(artifact, scale)


def _compiled(target: str, text: str) -> Artifact:
    from lispgpt.compiler.driver import Observer, Request, compile_request

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.lisp"
        path.write_text(text)
        return compile_request(Request(path, target=target), Observer())[0]


class EntryTiming:
    """scale: the deviation of the weights, which are normal."""

    def __init__(self, artifact: Artifact, scale: float) -> None:
        self.plan = artifact.plan
        self.device = open_device(artifact.target)
        self.device.load(artifact.code, artifact.kernels)
        rng = np.random.default_rng(0)
        self.buffers: dict[str, Any] = {}
        for buffer in artifact.plan.buffers:
            if buffer.kind == "weight":
                values = rng.standard_normal(buffer.shape, np.float32) * np.float32(scale)
                narrow = (values.view(np.uint32) >> 16).astype(np.uint16)
                self.buffers[buffer.name] = self.device.adopt(narrow if buffer.dtype == "bf16" else values)
            else:
                self.buffers[buffer.name] = self.device.alloc(buffer.nbytes)
        if self.plan.making is not None:
            self.device.launch(self.device.prepare(self.plan.making, self.buffers))

    def entry(self, name: str, **sizes: int) -> Entry:
        """The entry of that name, for these sizes."""
        return next(e for e in self.plan.entries if e.name == name and e.sizes | sizes == e.sizes)

    def seconds(self, entry: Entry, repeats: int) -> float:
        """One run's, over that many behind one that warms up."""
        executable = self.device.prepare(entry, self.buffers)
        self.device.launch(executable)
        self.device.sync()
        started = time.perf_counter()
        for _ in range(repeats):
            self.device.launch(executable)
        self.device.sync()
        return (time.perf_counter() - started) / repeats
