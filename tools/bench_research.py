"""Times training steps of examples/research beside PyTorch's, one thread each and in turns, or records what it says.

    .venv/bin/python tools/bench_research.py --torch /tmp/torch/bin/python [--record] [NAME…]

PyTorch runs in an environment of its own (`python -m venv /tmp/torch; /tmp/torch/bin/pip install torch==2.13.0`).  A
step is loss, gradients, clipping and AdamW of tools/torch_research.py's same program.  Times are the least of the
rounds, of the processor, so that what else the machine does counts for neither; `ratio` is ours over PyTorch's.
Programs that do not learn are run, and what they give is held to PyTorch's.  Without names all are, by groups.
--record writes losses and gradients in float64 at the small size to tests/references/research.json, and times nothing.
T5 and Whisper are transformers' own there, which PyTorch's environment then has, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from recorded_research import ENTRIES, GROUPS, PROGRAMS, RECORDED, Size, drawn_weights, path_of, recorded  # noqa: E402

import lispgpt  # noqa: E402

ROUNDS = 12
RATES = {"lr": 1e-4, "warmup": 0.0, "steps": 1e6, "min-lr": 1e-4, "clip": 1.0, "weight-decay": 0.1}
RATES |= {"beta1": 0.9, "beta2": 0.95, "seed": 0}


class Torch:
    """tools/torch_research.py in a process of another Python's."""

    def __init__(self, python: str) -> None:
        command = [python, str(ROOT / "tools" / "torch_research.py")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **asked: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compared(name: str, size: Size, torch: Torch, dtype: str, times: bool) -> dict[str, Any]:
    """What PyTorch says of a program, or, where times are asked for, the least seconds of a step of both."""
    given = size.given(name)
    entry, numbers = ("train", RATES) if times else ("accumulate", {"seed": 0, "accumulate": 1.0})
    loaded = lispgpt.load(path_of(name), weights={}, settings=size.settings, cache=None, threads=1)
    with loaded as model, tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        model.run(entry, **given, step=1, **numbers)
        compiled = time.perf_counter() - begun
        facts = model.artifact.weights
        weights = drawn_weights(name, {key: tuple(facts[key]["shape"]) for key in facts})
        model.set(weights)
        suffix = ".m" if times else ".gradient"
        learns = [key.removesuffix(suffix) for key in model.session.held("state") if key.endswith(suffix)]
        learns = [key for key in learns if key in weights]
        arrays = {f"w:{key}": value for key, value in weights.items()} | {f"i:{k}": v for k, v in given.items()}
        np.savez(Path(folder) / "arrays.npz", allow_pickle=False, **arrays)
        config = {key: value for key, value in model.session.config.items() if type(value) is int}
        found = torch.ask(open=name, arrays=f"{folder}/arrays.npz", dtype=dtype, sizes=config, learns=learns)
        first = float(model.run(entry, **given, step=2, **numbers)["loss"].item())
        assert abs(first - found["loss"]) < 2e-3 * max(1, abs(found["loss"])), (name, first, found["loss"])
        if not times:
            return {"loss": found["loss"], "gradients": found["gradients"]}
        ours, theirs = [], []
        for step in range(3, 3 + ROUNDS):
            begun = time.process_time()
            model.run("train", **given, step=step, **RATES)
            ours.append(time.process_time() - begun)
            theirs.append(torch.ask(steps=1))
        return {"compile": compiled, "ours": min(ours), "theirs": min(theirs)}


def run(name: str, size: Size, torch: Torch) -> dict[str, Any]:
    """The least seconds of a run of an entry, of both, whose results are the same."""
    given, entry = size.given(name), ENTRIES[name][0]
    loaded = lispgpt.load(path_of(name), weights={}, settings=size.settings, cache=None, threads=1)
    with loaded as model, tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        model.run(entry, **given)
        compiled = time.perf_counter() - begun
        shapes = {key: tuple(facts["shape"]) for key, facts in model.artifact.weights.items()}
        weights = drawn_weights(name, shapes)
        if weights:
            model.set(weights)
        arrays = {f"w:{key}": value for key, value in weights.items()} | {f"i:{k}": v for k, v in given.items()}
        np.savez(Path(folder) / "arrays.npz", allow_pickle=False, **arrays)
        config = {key: value for key, value in model.session.config.items() if type(value) is int}
        wanted = torch.ask(open=name, arrays=f"{folder}/arrays.npz", dtype="float32", sizes=config, learns=[])
        for (key, found), right in zip(model.run(entry, **given).items(), wanted, strict=True):
            right = np.array(right)
            off = np.abs(found.reshape(right.shape).astype(np.float64) - right).max()
            assert off <= 2e-3 * max(1.0, float(np.abs(right).max())), (name, key, off)
        ours, theirs = [], []
        for _ in range(ROUNDS):
            begun = time.process_time()
            model.run(entry, **given)
            ours.append(time.process_time() - begun)
            theirs.append(torch.ask(steps=1))
        return {"compile": compiled, "ours": min(ours), "theirs": min(theirs)}


def row(name: str, which: str, torch: Torch) -> str:
    """A program's row of the table."""
    text = path_of(name).read_text().splitlines()
    lines = sum(bool(line.strip()) and not line.startswith(";") for line in text)
    sizes = ENTRIES[name][1:] if name in ENTRIES else PROGRAMS[name]
    size = sizes[which == "middle"]
    found = run(name, size, torch) if name in ENTRIES else compared(name, size, torch, "float32", True)
    ours, theirs = (1e3 * found[key] for key in ("ours", "theirs"))
    return f"{name} | {lines} | {which} | {found['compile']:.1f} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--torch", required=True, help="a Python that has torch")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    torch = Torch(asked.torch)
    if asked.record:
        made = recorded()
        for name in asked.names or list(PROGRAMS):
            made[name] = compared(name, PROGRAMS[name][0], torch, "float64", False)
            print(name, made[name]["loss"], flush=True)
        RECORDED.write_text(json.dumps(made, indent=1) + "\n")
    else:
        print("| group | program | lines | size | compiling and first step, s | ours, ms | PyTorch, ms | ratio |")
        print("|---" * 8 + "|")
        groups = {name: group for group, names in GROUPS.items() for name in names}
        for name in asked.names or groups:
            for which in ("small", "middle"):
                print(f"| {groups.get(name, '')} | {row(name, which, torch)} |", flush=True)
    torch.close()


if __name__ == "__main__":
    main()
