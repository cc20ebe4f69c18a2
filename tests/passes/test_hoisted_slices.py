"""What is read of a slice alone is made for that slice alone: on the CPU, against numpy in float64."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from compiled_models import compile_text, open_poisoned, random_weights

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.plan.work import Work

ROWS, WIDTH, CPU = 6, 8, Path(__file__).parents[2] / "passes" / "pipelines" / "cpu.lisp"
EXAMPLES = Path(__file__).parents[2] / "examples"
PASS = "(pass hoist-slices)"
Arrays = dict[str, np.ndarray]
PROGRAM = """
(require nn)
(config context 1)
(weights (x [6 8]) (w [12 8]) (b [12]) (u [8 12]) (gamma [8]))
(entry out [tokens positions]
  (let [h (linear x w b)
        y (+ x (matmul-transposed (square h) u))]
    {made}))
"""


def hidden(a: Arrays) -> np.ndarray:
    return a["x"] @ a["w"].T + a["b"]


def rows(a: Arrays) -> np.ndarray:
    return a["x"] + hidden(a) ** 2 @ a["u"].T


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def normed(y: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    return y / np.sqrt((y**2).mean(-1, keepdims=True) + 0.01) * gamma


@dataclass(frozen=True)
class Case:
    """kept: of the rows that the products make, how many are needed."""

    made: str
    right: Callable[[Arrays], np.ndarray]
    kept: int


CASES = {
    "the last row": Case("(slice y [5 0] [1 8])", lambda a: rows(a)[5:], 1),
    "of a norm": Case(
        "(slice (rms-norm y gamma 1e-2) [3 0] [2 8])", lambda a: normed(rows(a)[3:5], a["gamma"]), 2
    ),
    "of a softmax": Case("(slice (softmax y) [0 0] [3 8])", lambda a: softmax(rows(a)[:3]), 3),
    "of columns, too": Case("(slice y [1 2] [2 4])", lambda a: rows(a)[1:3, 2:6], 2),
    "of two dimensions that were one": Case(
        "(slice (reshape y [2 3 8]) [1 1 0] [1 2 8])", lambda a: rows(a).reshape(2, 3, 8)[1:, 1:], 2
    ),
    "of one that was two": Case(
        "(slice (reshape (reshape y [2 3 8]) [6 8]) [4 0] [1 8])", lambda a: rows(a)[4:5], 1
    ),
    "of parts of rows": Case(
        "(slice (reshape y [6 2 4]) [2 1 0] [2 1 4])", lambda a: rows(a)[2:4, 4:].reshape(2, 1, 4), 2
    ),
    "of a slice": Case("(slice (slice y [1 0] [4 8]) [2 0] [1 8])", lambda a: rows(a)[3:4], 1),
    "without the dimension": Case("(slice y [4 0] [nil 8])", lambda a: rows(a)[4], 1),
    "that counts": Case(
        "(slice (tensor [i 6 j 8] (* (at y i j) (cast (cast i i32) f32))) [2 0] [2 8])",
        lambda a: rows(a)[2:4] * np.array([[2], [3]]), 2,
    ),
    "the same twice": Case(
        "(+ (slice y [5 0] [1 8]) (* 2.0 (slice y [5 0] [1 8])))", lambda a: 3 * rows(a)[5:], 1
    ),
    "no two parts": Case("(+ (slice y [5 0] [1 8]) (slice y [4 0] [1 8]))", lambda a: rows(a)[5:] + rows(a)[4:5], 6),
    "not most of it": Case("(slice y [0 0] [5 8])", lambda a: rows(a)[:5], 6),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_parts_are_those_of_the_whole(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    artifact = compile_text(PROGRAM.replace("{made}", case.made), tmp_path)
    weights = random_weights(artifact)
    with open_poisoned(artifact, weights) as session:
        given = np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int32)
        (found,) = session.run("out", *given).values()
    right = case.right(weights.exact())
    np.testing.assert_allclose(found.reshape(right.shape), right, rtol=1e-4, atol=1e-5)
    made = {int(n) for n in re.findall(r"contraction_(\d+)x12", " ".join(artifact.kernels))}
    assert made == {case.kept}


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a", "rocm:gfx1151"])
@pytest.mark.parametrize("program", [pytest.param("gpt2_generate", marks=pytest.mark.slow), "llama_tiny"])
def test_a_prompt_has_one_row_behind_its_last_keys(program: str, target: str, tmp_path: Path) -> None:
    """All products of the last layer but that of queries, keys and values are of a row, and so is attention."""
    work, kind = {}, "cpu" if target == "cpu" else "gpu"
    whole = (CPU.parent / f"{kind}.lisp").read_text()
    assert PASS in whole
    overrides = {"layers": 1, "heads": 4, "width": 256, "context": 64, "vocab": 500}
    for name, text in (("with", whole), ("without", whole.replace(PASS, ""))):
        pipeline = tmp_path / f"{name}.lisp"
        pipeline.write_text(text)
        sizes = ({"batch": 1, "positions": 64},)
        facts = {"entries": ("prefill",), "sizes": sizes, "pipeline": pipeline}
        artifact = compile_request(Request(EXAMPLES / f"{program}.lisp", target, overrides, **facts), Observer())[0]
        (entry,) = artifact.plan.entries
        amounts = [Work.of(artifact.kernels[launch.kernel]) for launch in entry.launches]
        work[name] = sum(amount.operations for amount in amounts if amount is not None)
    assert work["with"] < 0.5 * work["without"]
