"""Measures GPT-2 124M on this machine's CPU, beside llama.cpp in the same run where an interpreter has it.

    .venv/bin/python tools/bench.py [--peer-python PYTHON] [--threads 2] [--rounds 5] [--json FILE]

The two take turns, and every figure is the median over the rounds; times hold only beside each other.  PYTHON is an
interpreter that can import `llama_cpp` and `gguf`.  The checkpoint (seeded random weights) is made where it is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.host import cpu_name
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.checkpoints.seeded import PRESETS
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "bench"
PROGRAM = ROOT / "examples" / "gpt2_generate.lisp"
PREFILL, DECODE = 512, 64
"""Tokens of the prompt, and tokens decoded after a prompt of one."""


class Ours:
    """A fresh session for every measurement: its waiting threads would take time from the peer."""

    def __init__(self, checkpoint: Path, threads: int) -> None:
        self.checkpoint = checkpoints.open(checkpoint)
        self.threads = threads
        request = Request(PROGRAM, checkpoint_config=dict(self.checkpoint.config))
        self.artifact: Artifact = compile_request(request, Observer())[0]

    def measure(self, what: str) -> float:
        """Seconds of a prefill, or of one decoded token."""
        with Session(self.artifact, CpuDevice(self.threads), self.checkpoint) as session:
            for _ in Generator(session, "logits").generate([1], 8):  # code and weights in memory
                continue
            generator = Generator(session, "logits")
            if what == "prefill":
                prompt = [int(t) for t in np.random.default_rng(0).integers(0, 50257, PREFILL)]
                Generator(session, "logits").prefill(prompt)
                started = time.perf_counter()
                generator.prefill(prompt)
                return time.perf_counter() - started
            tokens = generator.generate([1], DECODE + 1)
            next(tokens)
            started = time.perf_counter()
            count = sum(1 for _ in tokens)
            return (time.perf_counter() - started) / count


class Peer:
    """llama.cpp in a process of its own, which measures when it is told to."""

    def __init__(self, python: str, threads: int) -> None:
        words = [python, str(Path(__file__).with_name("bench_llamacpp.py")), str(FOLDER / "peer.gguf")]
        words += [str(threads), str(PREFILL), str(DECODE)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = self._read()["name"]

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the peer's process ended with code {self.process.wait()}")
        return json.loads(line)

    def measure(self, what: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return float(self._read()["seconds"])


def run_whole(checkpoint: Path, threads: int, *options: str) -> tuple[dict[str, Any], float, int]:
    """`lispgpt run` in a process of its own: its report, seconds from its start to its end, peak bytes in memory."""
    words = [sys.executable, "-m", "lispgpt", "run", str(PROGRAM), "--checkpoint", str(checkpoint), "--greedy"]
    words += ["--prompt-tokens", "1,2,3", "--threads", str(threads), "--format", "json", *options]
    environment = {**os.environ, "LISPGPT_CACHE": str(FOLDER / "cache")}
    started = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        sys.exit(f"{' '.join(words)} failed")
    return json.loads(out.splitlines()[-1]), seconds, usage.ru_maxrss * 1024


def weight_bytes(artifact: Artifact) -> int:
    """What one decoded token reads: all weights but the position table, of which it reads a row."""
    return sum(b.nbytes for b in artifact.plan.buffers if b.kind == "weight" and b.name != "wpe")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer-python", help="an interpreter with llama_cpp and gguf")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--checkpoint", type=Path, default=FOLDER / "gpt2-124m.bin")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not given.checkpoint.exists():
        make(given.checkpoint, PRESETS["gpt2-124m"], "llmc", "bf16", 0)
    figures = measure(given.checkpoint, given.threads, given.rounds, given.peer_python)
    show(figures)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(checkpoint: Path, threads: int, rounds: int, peer_python: str | None) -> dict[str, Any]:
    """All figures, in seconds and bytes."""
    run_whole(checkpoint, threads, "--max-new-tokens", "1")  # fills the cache and the system's file cache
    compiles, firsts, peaks = [], [], []
    for _ in range(max(1, rounds // 2)):
        compiles.append(run_whole(checkpoint, threads, "--max-new-tokens", "1", "--no-cache")[0]["timing"]["compile_s"])
        firsts.append(run_whole(checkpoint, threads, "--max-new-tokens", "1")[1])
        peaks.append(run_whole(checkpoint, threads, "--max-new-tokens", "64")[2])
    ours = Ours(checkpoint, threads)
    peer = Peer(peer_python, threads) if peer_python else None
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for what in ("decode", "prefill"):
            times.setdefault(what, []).append(ours.measure(what))
            if peer:
                times.setdefault(f"peer {what}", []).append(peer.measure(what))
    return {
        "cpu": cpu_name(),
        "system": platform.platform(),
        "threads": threads,
        "compile": statistics.median(compiles),
        "first token": statistics.median(firsts),
        "peak memory": statistics.median(peaks),
        "weights": checkpoint.stat().st_size,
        "weights read": weight_bytes(ours.artifact),
        "peer": peer.name if peer else None,
        **{what: statistics.median(values) for what, values in times.items()},
    }


def show(figures: dict[str, Any]) -> None:
    read = figures["weights read"]

    def beside(what: str, line: str, peer_line: str) -> None:
        ratio = figures[what] / figures[f"peer {what}"] if figures["peer"] else None
        print(line + (f"   {figures['peer']}: {peer_line}   ratio {ratio:.2f}" if ratio else ""))

    def decode(seconds: float) -> str:
        return f"{seconds * 1e3:.2f} ms/token, {read / seconds / 1e9:.1f} GB/s of weights"

    print(f"GPT-2 124M, BF16 weights, {figures['threads']} threads on {figures['cpu']}")
    print(f"compile from nothing     {figures['compile']:.2f} s (all shapes)")
    print(f"first token, warm cache  {figures['first token']:.2f} s (the whole process)")
    print(f"peak memory              {figures['peak memory'] / figures['weights']:.2f} times the weights")
    peer_prefill, peer_decode = figures.get("peer prefill", 0.0), figures.get("peer decode", 1.0)
    beside(
        "prefill", f"prefill of {PREFILL}           {figures['prefill'] * 1e3:.0f} ms", f"{peer_prefill * 1e3:.0f} ms"
    )
    beside("decode", f"decode                   {decode(figures['decode'])}", decode(peer_decode))


if __name__ == "__main__":
    main()
