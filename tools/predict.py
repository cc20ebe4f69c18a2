"""Predicts how long a decode step of GPT-2 124M takes on an AMD GPU, from the instructions that it executes.

    .venv/bin/python tools/predict.py [--target rocm:gfx1151] [--position 64]

How, and on which assumptions, is said in lispgpt/bench/prediction.py; `lispgpt bench --kernels --target rocm` on such a
chip checks it, kernel by kernel.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from lispgpt.bench.prediction import ASSUMPTIONS, Predicted, predict, rates_of
from lispgpt.compiler.driver import Observer, Request, compile_request

PROGRAM = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
SIZES = {"layers": 12, "heads": 12, "width": 768, "vocab": 50257, "padded-vocab": 50304, "context": 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="rocm:gfx1151")
    parser.add_argument("--position", type=int, default=64)
    options = parser.parse_args()
    artifact, _ = compile_request(Request(PROGRAM, options.target, {**SIZES, "weight-type": "bf16"}), Observer())
    entry = next(e for e in artifact.plan.entries if e.name == "decode-greedy")
    place, known = np.full((1, 1), options.position, np.int32), rates_of(artifact)
    if known is None:
        raise SystemExit(f"{options.target}: nothing is known of its rates")
    rows: dict[str, list[Predicted]] = {}
    for launch, guess in predict(artifact, entry, {"positions": place}, [[options.position]]):
        rows.setdefault(launch.kernel, []).append(guess)
    print(f"a decode step at position {options.position} on {known[0].part} ({options.target}), predicted")
    print(f"{'kernel':28} launches       MB   vector  matrix  memory  waits  bound by      us")
    for kernel, guesses in rows.items():
        last, total = guesses[-1], sum(guess.seconds for guess in guesses)
        assert last.count is not None
        kinds = "".join(f"{last.count.kinds[kind]:8}" for kind in ("vector", "matrix", "memory"))
        work = f"{last.count.line_bytes / 1e6:9.3f} {kinds} {last.count.trips:6}"
        print(f"{kernel:28} {len(guesses):8}{work}  {last.bound:8} {total * 1e6:8.1f}")
    every = [guess for guesses in rows.values() for guess in guesses]
    least = sum(guess.count.line_bytes for guess in every if guess.count is not None)
    floor = f"{least / 1e6:.0f} MB at the datasheet's bandwidth take {least / known[0].bandwidth * 1e6:.0f} us"
    print(f"together {sum(guess.seconds for guess in every) * 1e6:.0f} us a token; {floor}; assuming that")
    print("\n".join(f"  - {text}" for text in ASSUMPTIONS))


if __name__ == "__main__":
    main()
