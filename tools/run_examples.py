"""Run the example models that are not GPT-2 or Llama by `lispgpt run`, and compare with float64 numpy.

.venv/bin/python tools/run_examples.py --target cuda                  compile and run each by one command
    .venv/bin/python tools/run_examples.py --target cuda:sm_90a --prepare made   compile here, with inputs and results
PYTHONPATH=. python3 tools/run_examples.py --target cuda --prepared made       run them where there is no compiler
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import reference_models as reference  # noqa: E402

Arrays = dict[str, np.ndarray]
RNG = np.random.default_rng(1)
TOLERANCE = 1e-3
"""Of the largest value: matrix instructions take F32 in pieces of BF16."""


@dataclass(frozen=True)
class Case:
    """An example's entry, a result of it, its inputs, and that result in numpy by the weights and the inputs."""

    entry: str
    result: str
    inputs: Arrays
    expected: Callable[[Arrays, Arrays], np.ndarray]


PLACES = np.arange(16, dtype=np.int32)[None]
TEXT = RNG.integers(0, 512, (1, 16)).astype(np.int32)
CASES = {
    "classifier": Case(
        "classify", "scores", {"x": RNG.standard_normal((64, 784), np.float32)},
        lambda w, given: reference.classify(w, given["x"].astype(np.float64)),
    ),
    "experts": Case(
        "mixture", "mixture", {"x": RNG.standard_normal((24, 64), np.float32)},
        lambda w, given: reference.mixture(w, given["x"].astype(np.float64), 2)[0],
    ),
    "sliding_window": Case(
        "score", "score", {"tokens": RNG.integers(0, 512, (3, 24)).astype(np.int32)},
        lambda w, given: reference.score(w, given["tokens"], heads=4, window=16),
    ),
    "alibi": Case(
        "logits", "logits", {"tokens": TEXT, "positions": PLACES},
        lambda w, given: reference.alibi(w, given["tokens"][0], heads=4)[-1:],
    ),
    "recurrence": Case(
        "logits", "logits", {"tokens": TEXT, "positions": PLACES},
        lambda w, given: reference.recurrence(w, given["tokens"][0])[0][-1:],
    ),
}  # fmt: skip


def lispgpt(*arguments: object) -> None:
    """One command; its failure ends this."""
    command = [sys.executable, "-m", "lispgpt", *map(str, arguments)]
    print("lispgpt " + " ".join(map(str, arguments)), flush=True)
    subprocess.run(command, check=True)


def prepare(folder: Path, target: str | None) -> None:
    """Weights, inputs and expected values of every example, and with a target their artifacts."""
    from lispgpt.runtime import checkpoints

    for name, case in CASES.items():
        program, weights = ROOT / f"examples/{name}.lisp", folder / f"{name}.safetensors"
        lispgpt("checkpoint", "make", weights, "--for", program)
        if target:
            lispgpt("compile", program, "--target", target, "-o", folder / f"{name}.lgpt")
        checkpoint = checkpoints.open(weights)
        exact: Arrays = {}
        for tensor in checkpoint.names():
            exact[tensor] = np.empty(checkpoint.info(tensor).shape, np.float32)
            checkpoint.read_into(tensor, exact[tensor], "f32")
        exact = {tensor: values.astype(np.float64) for tensor, values in exact.items()}
        for given, array in case.inputs.items():
            np.save(folder / f"{name}.{given}.npy", array)
        np.save(folder / f"{name}.expected.npy", case.expected(exact, case.inputs))


def run(folder: Path, target: str) -> bool:
    """Run every example, from its artifact where there is one; whether all are right."""
    right = True
    for name, case in CASES.items():
        artifact, output = folder / f"{name}.lgpt", folder / f"{name}.npz"
        program = artifact if artifact.exists() else ROOT / f"examples/{name}.lisp"
        given = [f"--input={n}={folder / f'{name}.{n}.npy'}" for n in case.inputs]
        device = [] if artifact.exists() else ["--target", target]
        weights = folder / f"{name}.safetensors"
        lispgpt("run", program, "--checkpoint", weights, *device, "--entry", case.entry, *given, "--output", output)
        found, wanted = np.load(output)[case.result], np.load(folder / f"{name}.expected.npy")
        error = np.abs(found - wanted).max() / np.abs(wanted).max() if found.shape == wanted.shape else np.inf
        fine = bool(error < TOLERANCE)  # a NaN is not
        right &= fine
        print(f"{'right' if fine else 'WRONG'}: {name} on {target}, {error:.2g} of the largest value off", flush=True)
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--prepare", type=Path, metavar="FOLDER", help="only compile into this folder")
    parser.add_argument("--prepared", type=Path, metavar="FOLDER", help="run what is in this folder")
    options = parser.parse_args()
    if options.prepare:
        options.prepare.mkdir(parents=True, exist_ok=True)
        prepare(options.prepare, options.target)
        return 0
    if options.prepared:
        return 0 if run(options.prepared, options.target) else 1
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), None)
        return 0 if run(Path(folder), options.target) else 1


if __name__ == "__main__":
    sys.exit(main())
