"""Measures the library's hand-written kernels (lispgpt/lib/kernels.lisp) beside the layers they stand for.

    .venv/bin/python tools/bench_kernels.py [--target cpu|rocm:CHIP|cuda:CHIP] [--rounds 7]
    .venv/bin/python tools/bench_kernels.py --target cuda --compile kernels.lgpt       here, and on the GPU's machine:
    python tools/bench_kernels.py --artifact kernels.lgpt

The two of a pair take turns, and every figure is the median over the rounds.  On a CPU a hand-written kernel runs
thread by thread, which is for testing it; its time there says so.
"""

from __future__ import annotations

import argparse
import statistics
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

ROWS, WIDTH, CHAIN = 128, 768, 8
"""Each entry runs its layer CHAIN times, so that what a launch costs by itself weighs less; the library's layers over
rows then become one kernel."""

LAYERS = {
    "softmax": ("(hand-softmax x)", "(softmax x)"),
    "layer-norm": ("(hand-layer-norm x scale shift)", "(layer-norm x scale shift)"),
    "linear": ("(hand-linear x w)", "(linear x w)"),
}


def program() -> str:
    """One entry for each layer and way."""
    lines = [
        "(require nn kernels)",
        f"(config context {ROWS})",
        f"(weights (table [64 {WIDTH}]) (scale [{WIDTH}]) (shift [{WIDTH}]) (w [{WIDTH} {WIDTH}] bf16))",
    ]
    for name, ways in LAYERS.items():
        for way, layer in zip(("hand", "library"), ways, strict=True):
            body = f"(fold (fn [x i] {layer}) (rows table tokens) (range {CHAIN}))"
            lines.append(f"(entry {name}-by-{way} [tokens positions] {body})")
    return "\n".join(lines)


def compiled(target: str) -> Artifact:
    from lispgpt.compiler.driver import Observer, Request, compile_request

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.lisp"
        path.write_text(program())
        return compile_request(Request(path, target=target), Observer())[0]


class Bench:
    """The artifact's entries on a device, on random numbers."""

    def __init__(self, artifact: Artifact) -> None:
        self.plan = artifact.plan
        self.device = open_device(artifact.target)
        self.device.load(artifact.code, artifact.kernels)
        rng = np.random.default_rng(0)
        self.buffers: dict[str, Any] = {}
        for buffer in artifact.plan.buffers:
            if buffer.kind == "weight":
                values = rng.normal(0, 0.05, buffer.shape).astype(np.float32)
                narrow = (values.view(np.uint32) >> 16).astype(np.uint16)
                self.buffers[buffer.name] = self.device.adopt(narrow if buffer.dtype == "bf16" else values)
            else:
                self.buffers[buffer.name] = self.device.alloc(buffer.nbytes)

    def entry(self, name: str) -> Entry:
        return next(e for e in self.plan.entries if e.name == name and e.sizes["positions"] == ROWS)

    def seconds(self, name: str, repeats: int) -> float:
        """Of one layer."""
        entry = self.entry(name)
        executable = self.device.prepare(entry, self.buffers)
        self.device.launch(executable)
        self.device.sync()
        started = time.perf_counter()
        for _ in range(repeats):
            self.device.launch(executable)
        self.device.sync()
        return (time.perf_counter() - started) / repeats / CHAIN


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=20, help="launches in each round")
    parser.add_argument("--compile", type=Path, help="only compile, to this file")
    parser.add_argument("--artifact", type=Path, help="measure what --compile wrote")
    given = parser.parse_args()
    if given.compile:
        compiled(given.target).save(given.compile)
        return
    bench = Bench(load_artifact(given.artifact) if given.artifact else compiled(given.target))
    print(f"{bench.device.name}: {ROWS} rows of {WIDTH}, microseconds a layer")
    for name in LAYERS:
        times: dict[str, list[float]] = {"hand": [], "library": []}
        for _ in range(given.rounds):
            for way, measured in times.items():
                measured.append(bench.seconds(f"{name}-by-{way}", given.repeats) * 1e6)
        for way, measured in times.items():
            launches = len(bench.entry(f"{name}-by-{way}").launches)
            print(f"{name:<12}{way:<9}{statistics.median(measured):9.1f}   {launches} launches for {CHAIN} layers")
    bench.device.close()


if __name__ == "__main__":
    main()
