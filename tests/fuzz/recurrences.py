"""Random recurrences and their gradients: a loop, the same written out, and float64 agree.

    cd tests; PYTHONPATH=.:.. python -m fuzz.recurrences --count 200 --first 1 --target emulated:gfx1151

A program has several entries; each makes a random step, goes through it by `scan` (backwards, in chunks, with an inner
loop, some), and once more written out by `fold`, and differentiates both by what they start from, read and multiply by.
Slopes along a random direction are compared with central differences of the same step in numpy.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from compiled_models import compile_text

from lispgpt.compiler.present import compiled_target
from lispgpt.execution.model import Model

ROWS, COLUMNS = 2, 3
Arrays = dict[str, np.ndarray]
Value = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Of the state, what a step reads, and the matrix."""
CHAOTIC, ROUNDING = 2e-5, 6e-8
"""How far numpy's f32, and float64 of inputs that are moved by a rounding, may be from float64 in recurrences that say
anything: others blow rounding up, step by step."""
TOLERANCE = 2e-3
"""Of a slope, beside the gradient's length."""


@dataclass(frozen=True)
class Expression:
    text: str
    value: Value


def softmax(x: np.ndarray) -> np.ndarray:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


UNARY: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [
    ("(tanh {})", np.tanh),
    ("(sin {})", np.sin),
    ("(* 0.7 {})", lambda a: 0.7 * a),
    ("(sigmoid {})", lambda a: 1 / (1 + np.exp(-a))),
    ("(softmax {})", softmax),
    ("(let [a (sin {})] (* a (reshape (sum a) [2 1])))", lambda a: np.sin(a) * np.sin(a).sum(-1, keepdims=True)),
    ("(let [a {}] (tensor [i 2 j 3] (at a i (- 2 j))))", lambda a: a[:, ::-1]),
    ("(let [a {}] (insert (slice a [0 0] [1 3]) a [1 0] [1 3]))", lambda a: np.stack([a[0], a[0]])),
    ("(transpose (reshape (transpose {} [1 0]) [3 2]) [1 0])", lambda a: a),
]
BINARY: list[tuple[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = [
    ("(+ {} {})", np.add),
    ("(- {} {})", np.subtract),
    ("(* {} {})", np.multiply),
]


def drawn(rng: random.Random, depth: int) -> Expression:
    """A random expression of h, x and w."""
    if depth == 0:
        name = rng.choice(["h", "h", "x"])
        return Expression(name, (lambda h, x, w: h) if name == "h" else (lambda h, x, w: x))
    kind = rng.random()
    if kind < 0.25:
        inner = drawn(rng, depth - 1)
        return Expression(f"(linear {inner.text} w)", lambda h, x, w: inner.value(h, x, w) @ w.T)
    if kind < 0.6:
        text, of = rng.choice(UNARY)
        inner = drawn(rng, depth - 1)
        return Expression(text.format(inner.text), lambda h, x, w: of(inner.value(h, x, w)))
    text, of_two = rng.choice(BINARY)
    one, two = drawn(rng, depth - 1), drawn(rng, depth - 1)
    return Expression(text.format(one.text, two.text), lambda h, x, w: of_two(one.value(h, x, w), two.value(h, x, w)))


@dataclass(frozen=True)
class Recurrence:
    """step: the next state.  kept: what is kept of a step.  inner: how often each step takes the step itself."""

    steps: int
    step: Expression
    kept: Expression
    reverse: bool
    chunk: int
    inner: int

    @staticmethod
    def of(seed: int) -> Recurrence:
        rng = random.Random(seed)
        steps = rng.choice([1, 2, 3, 4, 6])
        chunks = [n for n in range(1, steps + 1) if steps % n == 0]
        chunk = rng.choice(chunks) if rng.random() < 0.4 else 0
        free, kept = drawn(rng, rng.randint(1, 4)), drawn(rng, rng.randint(0, 3))
        text = f"(+ (* 0.5 x) (linear h w) {free.text})"  # which depends on all of them
        step = Expression(text, lambda h, x, w: 0.5 * x + h @ w.T + free.value(h, x, w))
        return Recurrence(steps, step, kept, rng.random() < 0.3, chunk, rng.choice([1, 1, 1, 2, 3]))

    def entry(self, name: str) -> str:
        options = " :reverse true" * self.reverse + f" :chunk {self.chunk}" * bool(self.chunk)
        order = f"(reverse (range {self.steps}))" if self.reverse else f"(range {self.steps})"
        places = "(reverse kept)" if self.reverse else "kept"
        one = f"(tanh {self.step.text})"
        looped = one if self.inner == 1 else f"(over [k 0 {self.inner} 1] [h h] {one})"
        written = one if self.inner == 1 else f"(fold (fn [h k] {one}) h (range {self.inner}))"
        return f"""(entry {name} [(xs [{self.steps} 2 3] f32) (h0 [2 3] f32) (w [3 3] f32) (v [{self.steps} 2 3] f32)]
          (let [loss (fn [last all] (+ (sum (reshape (square last) [6])) (sum (reshape (* v all) [{6 * self.steps}]))))
                [last all] (scan (fn [h x] (let [new {looped}] [new {self.kept.text}])) h0 xs {{{options}}})
                [g-xs g-h0 g-w] (gradients (loss last all) [xs h0 w])
                [end kept] (fold (fn [[h kept] i] (let [x (slice xs [i 0 0] [nil 2 3])]
                                   [{written} (concat kept [{self.kept.text}])])) [h0 []] {order})
                every (stack {places} 0)
                [u-xs u-h0 u-w] (gradients (loss end every) [xs h0 w])]
            {{:last last :all all :end end :every every
              :g-xs g-xs :g-h0 g-h0 :g-w g-w :u-xs u-xs :u-h0 u-h0 :u-w u-w}}))"""

    def values(self, xs: np.ndarray, h0: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        h, kept = h0, np.zeros(xs.shape, xs.dtype)
        for i in reversed(range(self.steps)) if self.reverse else range(self.steps):
            kept[i] = self.kept.value(h, xs[i], w)
            for _ in range(self.inner):
                h = np.tanh(self.step.value(h, xs[i], w))
        return h, kept

    def given(self, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        shapes = {"xs": (self.steps, 2, 3), "h0": (2, 3), "w": (3, 3), "v": (self.steps, 2, 3)}
        return {name: rng.normal(0, 0.7, shape).astype(np.float32) for name, shape in shapes.items()}

    def problem(self, found: Arrays, given: Arrays, seed: int) -> str:
        """What is wrong with what an entry gave; "" where nothing is."""
        exact = {name: array.astype(np.float64) for name, array in given.items()}
        last, kept = self.values(exact["xs"], exact["h0"], exact["w"])
        rng = np.random.default_rng(seed + 2)
        moved = [{n: a * (1 + ROUNDING * rng.standard_normal(a.shape)) for n, a in exact.items()} for _ in range(4)]
        for rough in (given, *moved):  # chaos has no right f32 result
            rough_last, rough_kept = self.values(rough["xs"], rough["h0"], rough["w"])
            if max(np.abs(rough_last - last).max(), np.abs(rough_kept - kept).max()) > CHAOTIC:
                return ""
        for name, right in (("last", last), ("end", last), ("all", kept), ("every", kept)):
            if not np.allclose(found[name], right, rtol=1e-4, atol=1e-4):
                return f"{name} is off by {np.abs(found[name] - right).max()}"
        rng = np.random.default_rng(seed + 1)

        def loss(held: Arrays) -> float:
            end, every = self.values(held["xs"], held["h0"], held["w"])
            return float((end**2).sum() + (exact["v"] * every).sum())

        for name in ("xs", "h0", "w"):
            along = rng.normal(size=exact[name].shape)
            along /= np.linalg.norm(along)
            ends = [loss({**exact, name: exact[name] + sign * 1e-6 * along}) for sign in (1, -1)]
            slope = (ends[0] - ends[1]) / 2e-6
            for kind in ("g", "u"):
                gradient = found[f"{kind}-{name}"].astype(np.float64)
                off = abs((gradient * along).sum() - slope)
                if not off <= TOLERANCE * max(np.linalg.norm(gradient), 1.0):
                    return f"{kind}-{name}: a slope of {(gradient * along).sum()} should be {slope}"
        return ""


def check(seeds: list[int], target: str = "cpu") -> list[str]:
    """What is wrong with the recurrences of these seeds, in one program."""
    made = {seed: Recurrence.of(seed) for seed in seeds}
    header = "(require nn) (require arrays) (require gradients) (require kernels) (require-dialect scf linalg tensor)"
    text = "\n".join([header, *(recurrence.entry(f"e{seed}") for seed, recurrence in made.items())])
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        artifact = compile_text(text, Path(folder), target=compiled_target(target))
        with Model(artifact, None, device=target) as model:
            for seed, recurrence in made.items():
                given = recurrence.given(seed)
                try:
                    said = recurrence.problem(model.run(f"e{seed}", **given), given, seed)
                except Exception as error:
                    said = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                if said:
                    wrong.append(f"seed {seed} on {target}: {said}\n{recurrence.entry(f'e{seed}')}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--target", default="cpu")
    asked: Any = parser.parse_args()
    wrong = 0
    for seed in range(asked.first, asked.first + asked.count):
        for line in check([seed], asked.target):
            wrong += 1
            print(line, flush=True)
        if (seed - asked.first) % 20 == 19:
            print(f"{seed - asked.first + 1} programs, {wrong} wrong", flush=True)
    print(f"{asked.count} programs on {asked.target}, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
