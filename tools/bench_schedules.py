"""Measures products as a target's own pipeline makes them beside the schedules of the library that it leaves out.

    .venv/bin/python tools/bench_schedules.py --target cuda:sm_90a --compile FOLDER     here, and on the GPU's machine:
    python tools/bench_schedules.py --artifact FOLDER [--rounds 7] [--repeats 20]

Without either it compiles and measures.  For each product x [rows inputs] · w [outputs inputs] the two take turns, and
every figure is the median over the rounds, in which CHAIN products in one graph are run.  --dtype: of x; w is in BF16.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from entry_timing import EntryTiming, add_options

from lispgpt.runtime.plan.artifact import Artifact, load_artifact

PRODUCTS = {
    "square": (4096, 4096, 4096),
    **{f"qkv-{n}": (n, 2048, 3072) for n in (4, 8, 32, 64)},
    **{f"out-{n}": (n, 2048, 2048) for n in (4, 8, 32, 64)},
    **{f"up-{n}": (n, 2048, 16384) for n in (4, 8, 32, 64)},
    **{f"down-{n}": (n, 8192, 2048) for n in (4, 8, 32, 64)},
    **{f"prompt-{n}": (1024, n, o) for n, o in ((2048, 16384), (8192, 2048))},
}
"""(rows, inputs, outputs): of a matrix product near the peak, and of a Llama of a billion weights."""

CHAIN = 20
"""Products in one graph, whose launch takes as long as a small one."""

EVERY = '(pass choose-tiles {:use "skinny warpgroups matmul" :copies "bulk"})'


def program(products: list[str], dtype: str) -> str:
    """An entry for each product; operands are weights, and results are those of the kernels themselves."""
    lines = ["(require nn)", "(config context 1)"]
    for name in products:
        rows, inputs, outputs = PRODUCTS[name]
        lines.append(f"(weights (x-{name} [{rows} {inputs}] {dtype}) (w-{name} [{outputs} {inputs}] bf16))")
        lines.append(f"(entry {name} [tokens positions] (cast (contract [n o] x-{name} [n i] w-{name} [o i]) {dtype}))")
    return "\n".join(lines)


def compiled(target: str, text: str) -> dict[str, Artifact]:
    """The program by the target's own pipeline, and by the library's schedules ahead of all others."""
    from lispgpt.compiler.driver import Observer, Request, compile_request
    from lispgpt.pipelines.pipeline_file import pipeline_path

    with tempfile.TemporaryDirectory() as folder:
        path, pipeline = Path(folder) / "program.lisp", Path(folder) / "tiles.lisp"
        path.write_text(text)
        pipeline.write_text(pipeline_path("gpu").read_text().replace("(pass choose-tiles)", EVERY, 1))
        requests = {"own": Request(path, target), "tiles": Request(path, target, pipeline=pipeline)}
        return {name: compile_request(request, Observer())[0] for name, request in requests.items()}


def measure(benches: dict[str, EntryTiming], name: str, rounds: int, repeats: int) -> None:
    times: dict[str, list[float]] = {which: [] for which in benches}
    for _ in range(rounds):
        for which, bench in benches.items():
            entry = bench.entry(name)
            chain = replace(entry, steps=entry.steps * CHAIN)
            times[which].append(bench.seconds(chain, repeats) / CHAIN)
    rows, inputs, outputs = PRODUCTS[name]
    own, tiles = (statistics.median(times[which]) for which in ("own", "tiles"))
    print(
        f"{name:<12} own {own * 1e6:9.2f} us   tiles {tiles * 1e6:9.2f} us   {own / tiles:5.2f} times as fast   "
        f"{2 * rows * inputs * outputs / tiles / 1e12:7.1f} TFLOP/s   {2 * inputs * outputs / tiles / 1e9:7.0f} GB/s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--products", default=",".join(PRODUCTS))
    given = parser.parse_args()
    products = given.products.split(",")
    if given.artifact:
        made = {which: load_artifact(given.artifact / f"{which}.lgpt") for which in ("own", "tiles")}
        products = [entry.name for entry in made["own"].plan.entries]
    else:
        made = compiled(given.target, program(products, given.dtype))
    if given.compile:
        given.compile.mkdir(parents=True, exist_ok=True)
        for which, artifact in made.items():
            artifact.save(given.compile / f"{which}.lgpt")
        return
    benches = {which: EntryTiming(artifact, 1.0) for which, artifact in made.items()}
    print(benches["own"].device.name)
    for name in products:
        measure(benches, name, given.rounds, given.repeats)
    for bench in benches.values():
        bench.device.close()


if __name__ == "__main__":
    main()
