"""Random chains of products, norms, reshapes and slices: on the CPU, with hoist-slices and without."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, compile_text, open_poisoned, random_weights

from lispgpt.pipelines.pipeline_file import pipeline_path
from lispgpt.runtime.plan.artifact import Artifact

PASS, PROGRAMS = "(pass hoist-slices)", 8
Shape = tuple[int, ...]
Named = tuple[str, Shape]


class Chain:
    """Tensors by name, each made of one or two of the last before it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.weights: dict[str, Shape] = {"x": (rng.choice([4, 6, 8, 12]), rng.choice([4, 6, 8]))}
        self.forms, self.tensors = ["t0 x"], [("t0", self.weights["x"])]
        for _ in range(rng.randint(4, 9)):
            self._grow()

    def _grow(self) -> None:
        steps = (self._linear, self._norm, self._curve, self._counted, self._sum, self._split, self._merged)
        made = self.rng.choice([*steps, *[self._sliced] * 4])(*self.rng.choice(self.tensors[-3:]))
        if made is not None:
            name = f"t{len(self.tensors)}"
            self.forms.append(f"{name} {made[0]}")
            self.tensors.append((name, made[1]))

    def _weight(self, shape: Shape) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = shape
        return name

    def _linear(self, name: str, shape: Shape) -> Named | None:
        outputs = self.rng.choice([4, 8, 12])
        if len(shape) != 2:
            return None
        return f"(linear {name} {self._weight((outputs, shape[1]))})", (shape[0], outputs)

    def _norm(self, name: str, shape: Shape) -> Named | None:
        return (f"(rms-norm {name} {self._weight(shape[1:])} 1e-2)", shape) if len(shape) == 2 else None

    def _curve(self, name: str, shape: Shape) -> Named:
        return self.rng.choice([f"(softmax {name})", f"(tanh (* 0.5 {name}))"]), shape

    def _counted(self, name: str, shape: Shape) -> Named:
        loops = "ijkl"[: len(shape)]
        sizes = " ".join(f"{loop} {n}" for loop, n in zip(loops, shape, strict=True))
        number = f"(cast (cast (+ 1 {self.rng.choice(loops)}) i32) f32)"
        return f"(tensor [{sizes}] (* (at {name} {' '.join(loops)}) {number}))", shape

    def _sum(self, name: str, shape: Shape) -> Named | None:
        others = [other for other, its in self.tensors if its == shape and other != name]
        return (f"(+ {name} {self.rng.choice(others)})", shape) if others else None

    def _split(self, name: str, shape: Shape) -> Named | None:
        d = self.rng.randrange(len(shape))
        factors = [n for n in range(2, shape[d]) if shape[d] % n == 0]
        if not factors or len(shape) > 3:
            return None
        n = self.rng.choice(factors)
        return _reshaped(name, (*shape[:d], n, shape[d] // n, *shape[d + 1 :]))

    def _merged(self, name: str, shape: Shape) -> Named | None:
        if len(shape) < 2:
            return None
        d = self.rng.randrange(len(shape) - 1)
        return _reshaped(name, (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :]))

    def _sliced(self, name: str, shape: Shape) -> Named:
        offsets, sizes, kept = [], [], []
        for n in shape:
            size = self.rng.choice([1, n, max(1, n // 2), max(1, n // 3)])
            offsets.append(str(self.rng.randint(0, n - size)))
            dropped = size == 1 and bool(kept) and self.rng.random() < 0.5
            sizes.append("nil" if dropped else str(size))
            kept += [] if dropped else [size]
        return f"(slice {name} [{' '.join(offsets)}] [{' '.join(sizes)}])", tuple(kept)

    def text(self) -> str:
        """A program that gives the last tensor, and now and then another one."""
        given = [self.tensors[-1], *([self.rng.choice(self.tensors)] if self.rng.random() < 0.3 else [])]
        weights = " ".join(f"({name} {_sizes(shape)})" for name, shape in self.weights.items())
        results = " ".join(f":r{number} {name}" for number, (name, _) in enumerate(given))
        body = f"(let [{' '.join(self.forms)}] {{{results}}})"
        return f"(require nn)(config context 1)(weights {weights})(entry out [tokens positions] {body})"


def _sizes(shape: Shape) -> str:
    return f"[{' '.join(map(str, shape))}]"


def _reshaped(name: str, shape: Shape) -> Named:
    return f"(reshape {name} {_sizes(shape)})", shape


def results(artifact: Artifact, weights: Weights) -> dict[str, np.ndarray]:
    with open_poisoned(artifact, weights) as session:
        return session.run("out", np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int32))


@pytest.mark.parametrize("number", range(PROGRAMS))
def test_what_is_made_for_slices_alone_is_the_same(number: int, tmp_path: Path) -> None:
    text = Chain(random.Random(int(seeded.rng().integers(1 << 30)))).text()
    without = tmp_path / "without.lisp"
    assert PASS in pipeline_path("cpu").read_text()
    without.write_text(pipeline_path("cpu").read_text().replace(PASS, ""))
    artifacts = [compile_text(text, tmp_path), compile_text(text, tmp_path, pipeline=without)]
    weights = random_weights(artifacts[0], 0.5)
    found, right = (results(artifact, weights) for artifact in artifacts)
    for name, value in right.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=text)
