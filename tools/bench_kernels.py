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

from entry_timing import add_options, timing

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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    given = parser.parse_args()
    bench = timing(given, program(), 0.05)
    if bench is None:
        return
    print(f"{bench.device.name}: {ROWS} rows of {WIDTH}, microseconds a layer")
    for name in LAYERS:
        times: dict[str, list[float]] = {"hand": [], "library": []}
        for _ in range(given.rounds):
            for way, measured in times.items():
                entry = bench.entry(f"{name}-by-{way}", positions=ROWS)
                measured.append(bench.seconds(entry, given.repeats) / CHAIN * 1e6)
        for way, measured in times.items():
            launches = len(bench.entry(f"{name}-by-{way}", positions=ROWS).launches)
            print(f"{name:<12}{way:<9}{statistics.median(measured):9.1f}   {launches} launches for {CHAIN} layers")
    bench.device.close()


if __name__ == "__main__":
    main()
