"""The example programs with something in them changed: each is compiled up to MLIR or refused, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import seeded

from lispgpt.base.child import Reporter, compile_in_child
from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Request, evaluate_request
from lispgpt.ir.mlir import new_context

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS = [path for path in [*EXAMPLES.glob("*.lisp"), *EXAMPLES.glob("tour/*.lisp")] if "explicit" not in path.stem]
TOKEN = re.compile(r';[^\n]*|"(?:[^"\\]|\\.)*"|[()\[\]{}]|[^\s()\[\]{}";]+|\s+')
STRANGE = ["0", "1", "-1", "7", "1024", "-9223372036854775808", "1e30", "1.5", "nil", "true", "()", "[]", "{}"]
TYPES = ["f32", "i64", "index", "tensor<2xf32>", "memref<?xf32>"]


def mutated(text: str, rng: np.random.Generator) -> str:
    """A program with a few of its words changed, doubled, swapped or left out, or with a whole form left out."""
    tokens = TOKEN.findall(text)
    words = [i for i, t in enumerate(tokens) if not t.isspace() and t[0] not in ";()[]{}"]
    for _ in range(rng.integers(1, 4)):
        i, j = rng.choice(words, 2)
        kind = rng.integers(6)
        if kind == 5:
            start = int(rng.choice([k for k, t in enumerate(tokens) if t in ("(", "[", "{")] or [0]))
            tokens[start : _end(tokens, start)] = ["x"]
            return "".join(tokens)
        swapped = (tokens[j], tokens[i])
        tokens[i] = [str(rng.choice(STRANGE + TYPES)), tokens[j], "", f"{tokens[i]} {tokens[j]}", tokens[j]][kind]
        if kind == 4:
            tokens[i], tokens[j] = swapped
    return "".join(tokens)


def _end(tokens: list[str], start: int) -> int:
    """Past the form that opens at a token."""
    depth = 0
    for i in range(start, len(tokens)):
        depth += (tokens[i] in ("(", "[", "{")) - (tokens[i] in (")", "]", "}"))
        if depth == 0:
            return i + 1
    return len(tokens)


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_changed_example_is_evaluated_or_refused(part: int, tmp_path: Path) -> None:
    rng = seeded.rng()
    for example in EXAMPLES.glob("*.lisp"):
        (tmp_path / example.name).write_bytes(example.read_bytes())
    for _ in range(12):
        text = mutated(PROGRAMS[rng.integers(len(PROGRAMS))].read_text(), rng)
        (tmp_path / "changed.lisp").write_text(text)

        def work(_: Reporter) -> int:
            with new_context():
                evaluate_request(Request(tmp_path / "changed.lisp", sizes=[{"batch": 2, "length": 4}]))
            return 0

        try:
            compile_in_child(work)
        except UserError as error:
            assert error.message
        except Exception as error:
            raise AssertionError(text) from error
