"""Measures the products of a training step of GPT-2 in their three layouts, beside torch.mm where that is installed.

    .venv/bin/python tools/bench_products.py [--target cpu|rocm:CHIP|cuda:CHIP] [--rows 8192] [--dtypes bf16,bf16]
    .venv/bin/python tools/bench_products.py --target cuda:sm_90a --compile p.lgpt     here, and on the GPU's machine:
    python tools/bench_products.py --artifact p.lgpt

For a layer of `inputs` to `outputs`: forward x [rows inputs] · w [outputs inputs], and from dy [rows outputs] the
gradients dx = dy · w, which sums over outputs, and dw = dy · x, which sums over rows.  --dtypes: of x and dy, and of w
(for dw: of x); forward products and dx are in the type of x and dy, and dw is in f32, while torch.mm has bf16 results.
Layouts take turns, and every figure is the median over the rounds, in which CHAIN products in one graph are run;
`relative` is to the forward product of the same layer.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

from entry_timing import EntryTiming, add_options, timing

LAYERS = {"proj": (768, 768), "qkv": (768, 2304), "fc": (768, 3072), "out": (3072, 768), "head": (768, 50304)}
"""(inputs, outputs) of GPT-2 124M's products."""

CHAIN = 20
"""Products in one graph, whose launch takes as long as a small one."""

LAYOUTS = {
    "forward": "(cast (contract [n o] x{l} [n i] w{l} [o i]) {d})",
    "dx": "(cast (contract [n i] dy{l} [n o] w{l} [o i]) {d})",
    "dw": "(contract [o i] dy{l} [n o] x{l} [n i])",
}


def program(rows: int, layers: list[str], dtypes: tuple[str, str]) -> str:
    """An entry for each layer and layout; operands are weights, and results are those of the kernels themselves."""
    lines = ["(require nn)", "(config context 1)"]
    for layer in layers:
        inputs, outputs = LAYERS[layer]
        shapes = {"x": (rows, inputs, dtypes[0]), "dy": (rows, outputs, dtypes[0]), "w": (outputs, inputs, dtypes[1])}
        lines += [f"(weights ({name}{layer} [{n} {k}] {dtype}))" for name, (n, k, dtype) in shapes.items()]
        for layout, form in LAYOUTS.items():
            lines.append(f"(entry {layout}-{layer} [tokens positions] {form.format(l=layer, d=dtypes[0])})")
    return "\n".join(lines)


class TorchProduct:
    """torch.mm on bf16 operands, CHAIN of them in a graph, which does not keep the tensors alive by itself."""

    def __init__(self, torch: Any, left: Any, right: Any) -> None:
        self.torch, self.tensors = torch, (left, right)
        self.result, self.graph = torch.mm(left, right), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for _ in range(CHAIN):
                torch.mm(left, right, out=self.result)

    def seconds(self, repeats: int) -> float:
        self.graph.replay()
        self.torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(repeats):
            self.graph.replay()
        self.torch.cuda.synchronize()
        return (time.perf_counter() - started) / repeats / CHAIN


def torch_products(rows: int, layer: str) -> dict[str, TorchProduct]:
    """For each layout torch.mm; empty without torch and a GPU for it."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    inputs, outputs = LAYERS[layer]
    shapes = {"x": (rows, inputs), "dy": (rows, outputs), "w": (outputs, inputs)}
    x, dy, w = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes.values())
    pairs = {"forward": (x, w.T), "dx": (dy, w), "dw": (dy.T, x)}
    return {layout: TorchProduct(torch, *pair) for layout, pair in pairs.items()}


def rows_of(bench: EntryTiming) -> dict[str, int]:
    """The rows of each layer that was compiled."""
    shapes = {buffer.name: buffer.shape for buffer in bench.plan.buffers}
    return {layer: shapes[f"x{layer}"][0] for layer in LAYERS if f"x{layer}" in shapes}


def measure(bench: EntryTiming, layer: str, rounds: int, repeats: int) -> None:
    rows, (inputs, outputs) = rows_of(bench)[layer], LAYERS[layer]
    others = torch_products(rows, layer)
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for layout in LAYOUTS:
            entry = bench.entry(f"{layout}-{layer}")
            chain = replace(entry, steps=entry.steps * CHAIN)
            times.setdefault((layout, "own"), []).append(bench.seconds(chain, repeats) / CHAIN)
            if layout in others:
                times.setdefault((layout, "torch"), []).append(others[layout].seconds(repeats))
    operations = 2 * rows * inputs * outputs
    medians = {key: statistics.median(values) for key, values in times.items()}
    for layout in LAYOUTS:
        own = medians[layout, "own"]
        line = f"{layer:<6}{layout:<9}{own * 1e6:10.1f} us {operations / own / 1e9:9.1f} GFLOP/s"
        line += f"  relative {medians['forward', 'own'] / own:5.2f}"
        if (layout, "torch") in medians:
            other = medians[layout, "torch"]
            line += f"   torch.mm {operations / other / 1e9:9.1f} GFLOP/s, {other / own:5.2f} of it"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--dtypes", default="bf16,bf16")
    parser.add_argument("--layers", default=",".join(LAYERS))
    given = parser.parse_args()
    left, right = given.dtypes.split(",")
    bench = timing(given, program(given.rows, given.layers.split(","), (left, right)))
    if bench is None:
        return
    rows = rows_of(bench)
    print(f"{bench.device.name}: {max(rows.values())} rows")
    for layer in rows:
        measure(bench, layer, given.rounds, given.repeats)
    bench.device.close()


if __name__ == "__main__":
    main()
