"""Random loops in entries: a body over what is carried, as a loop, written out, and in float64.

    (entry a [tokens positions] (let [before …] (over [i 0 4 1] [x start] body)))
    (entry a-unrolled [tokens positions] (let [before …] (fold (fn [x i] body) start (range 0 4 1))))

Several values may be carried, numbers among them, and something may be made of them behind the loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from fuzz.real import real_or
from fuzz.rounds import elements, places  # noqa: F401  (what they offer is drawn)
from fuzz.rounds.expressions import Draw, Term, Unfit

HEADER = "(require nn) (require kernels) (require gradients) (require-dialect linalg tensor scf arith)"
LARGEST = 200.0
MOST_REAL = 4096
"""The largest dimension of a known model that a carried value has."""


@dataclass(frozen=True)
class Rounds:
    """A program.  body: what each carried value is next; behind: what is made of them in the end.  by: the weight by
    which the sum of all that is differentiated; "" where nothing is."""

    seed: int
    weights: dict[str, np.ndarray]
    before: tuple[tuple[str, Term], ...]
    names: tuple[str, ...]
    starts: tuple[Term, ...]
    rounds: tuple[int, int, int]
    body: tuple[Term, ...]
    behind: tuple[Term, ...]
    by: str = ""

    def entries(self) -> dict[str, str]:
        """The looped and the unrolled entry by name."""
        stem = f"p{self.seed}"
        inputs = " ".join(f"({n} [{' '.join(map(str, a.shape))}] f32)" for n, a in self.weights.items())
        found = {
            f"{stem}{suffix}": f"(entry {stem}{suffix} [{inputs}] {self._whole(loop)})"
            for suffix, loop in (("", self._looped()), ("-unrolled", self._unrolled()))
        }
        if self.by:
            sums = [f"(sum (reshape {t.text} [{math.prod(t.shape)}]))" if t.shape else t.text for t in self.behind]
            slope = f"(first (gradients (+ {' '.join(sums)} 0.0) [{self.by}]))"
            whole = self._whole(self._looped(), slope)
            found[f"{stem}-gradient"] = f"(entry {stem}-gradient [{inputs}] {whole})"
        return found

    @property
    def text(self) -> str:
        return "\n".join([HEADER, *self.entries().values()])

    def _whole(self, loop: str, result: str = "") -> str:
        before = " ".join(f"{name} {term.text}" for name, term in self.before)
        listed = self.names[0] if len(self.names) == 1 else f"[{' '.join(self.names)}]"
        results = " ".join(f":y{i} {term.text}" for i, term in enumerate(self.behind))
        return f"(let [{before} {listed} {loop}] {result or f'{{{results}}}'})"

    def _looped(self) -> str:
        low, high, step = self.rounds
        if len(self.names) == 1 and self.starts[0].shape:
            return f"(over [i {low} {high} {step}] [{self.names[0]} {self.starts[0].text}] {self.body[0].text})"
        types = [_type(t.shape) for t in self.starts]
        block = " ".join(f"(: {n} {kind})" for n, kind in zip(self.names, types, strict=True))
        bounds = " ".join(f"(: {n} index)" for n in (low, high, step))
        op = (
            f"(scf.for {{:result [{' '.join(types)}]}} {bounds} {' '.join(_start(t) for t in self.starts)} "
            f"(region (block [(: i index) {block}] (scf.yield {' '.join(_start(t) for t in self.body)}))))"
        )
        if len(self.names) == 1:
            return op
        listed = " ".join(self.names)
        return f"(do (def [{listed}] {op}) [{listed}])"

    def _unrolled(self) -> str:
        low, high, step = self.rounds
        listed = self.names[0] if len(self.names) == 1 else f"[{' '.join(self.names)}]"
        body, start = (" ".join(_start(t) for t in terms) for terms in (self.body, self.starts))
        body, start = (body, start) if len(self.names) == 1 else (f"[{body}]", f"[{start}]")
        return f"(fold (fn [{listed} i] {body}) {start} (range {low} {high} {step}))"

    def slopes(self) -> np.ndarray:
        """The gradient by `by`, of central differences in float64."""
        found = np.zeros(self.weights[self.by].shape)
        for place in np.ndindex(found.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = self.weights[self.by].astype(np.float64)
                moved[place] += step
                ends.append(sum(float(r.sum()) for r in self.evaluate(np.float64, {self.by: moved})))
            found[place] = (ends[0] - ends[1]) / 2e-6
        return found

    def evaluate(self, dtype: Any, moved: dict[str, np.ndarray] | None = None) -> list[np.ndarray]:
        """The results in a type of numpy's.  moved: what weights are instead."""
        given = self.weights | (moved or {})
        values: dict[str, Any] = {name: array.astype(dtype) for name, array in given.items()}
        for name, term in self.before:
            values[name] = _checked(term.value(values), dtype)
        carried = [_checked(t.value(values), dtype) for t in self.starts]
        for number in range(*self.rounds):
            inside = values | dict(zip(self.names, carried, strict=True)) | {"i": number}
            carried = [_checked(t.value(inside), dtype) for t in self.body]
        values |= dict(zip(self.names, carried, strict=True))
        return [_checked(t.value(values), dtype) for t in self.behind]


def _type(shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>" if shape else "f32"


def _start(term: Term) -> str:
    """A value to carry: plain numbers say their type."""
    return term.text if term.shape else f"(* (: 1.0 f32) {term.text})"


def _checked(value: Any, dtype: Any) -> np.ndarray:
    made = np.asarray(value, dtype)
    if not np.isfinite(made).all() or np.abs(made).max(initial=0) > LARGEST:
        raise Unfit
    return made


def generate(seed: int) -> Rounds:
    """The program of a seed."""
    for attempt in range(200):
        try:
            made = _drawn(seed, np.random.default_rng([seed, attempt]))
            exact, single = made.evaluate(np.float64), made.evaluate(np.float32)
        except Unfit:
            continue
        if all(_off(a, b) < 1e-4 for a, b in zip(exact, single, strict=True)):
            return replace(made, by=_differentiated(made, exact))
    raise AssertionError(f"no program for seed {seed}")


def _differentiated(made: Rounds, exact: list[np.ndarray]) -> str:
    """A weight that the results change with, of a loop of few rounds."""
    rng = np.random.default_rng(made.seed)
    for name in rng.permutation(list(made.weights)) if len(range(*made.rounds)) <= 10 else ():
        near = made.weights[name] + 1e-3 * rng.normal(size=made.weights[name].shape)
        try:
            apart = [np.abs(a - b).max() for a, b in zip(exact, made.evaluate(np.float64, {name: near}), strict=True)]
        except Unfit:
            continue
        if max(apart) > 1e-7:
            return str(name)
    return ""


def _off(exact: np.ndarray, found: np.ndarray) -> float:
    return float(np.abs(found - exact).max(initial=0.0) / max(np.abs(exact).max(initial=0.0), 1e-2))


def _drawn(seed: int, rng: np.random.Generator) -> Rounds:
    d = Draw(rng, {}, f"p{seed}-")
    shapes = [tuple(d.one_of([2, 3, 4, 6, 8]) for _ in range(d.one_of([1, 2, 2, 2, 3]))) for _ in range(d.whole(1, 2))]
    if real := real_or(0, MOST_REAL, [seed]):
        shapes[0] = (*(min(n, 3) for n in shapes[0][:-1]), real)
    if d.chance(0.3):
        shapes[-1] = ()
    before = []
    for _ in range(d.whole(0, 2)):
        name, term = d.fresh("before"), d.draw(d.one_of([s for s in shapes if s] or [(3,)]), 2)
        before.append((name, term))
        d.scope[name] = term.shape
    starts = [d.draw(s, d.whole(0, 2)) if s else _number(d) for s in shapes]
    names = [d.fresh("x" if s else "s") for s in shapes]
    low, step = d.one_of([0, 0, 0, 1]), d.one_of([1, 1, 1, 2])
    long = d.chance(0.05)
    rounds = range(low, low + (d.whole(65, 80) if long else d.whole(1, 5)), step)
    tensors = {n: s for n, s in zip(names, shapes, strict=True) if s}
    numbers = [n for n, s in zip(names, shapes, strict=True) if not s]
    d.scope |= tensors
    d.scalars += numbers
    d.rounds = rounds.stop
    body = [d.draw(s, d.whole(1, 2 if long else 4)) if s else _number(d) for s in shapes]
    d.rounds = None
    behind = [d.draw(s, d.whole(0, 2)) if s else _behind(d, n) for n, s in zip(names, shapes, strict=True)]
    listed = (rounds.start, rounds.stop, rounds.step)
    return Rounds(seed, d.weights, tuple(before), tuple(names), tuple(starts), listed, tuple(body), tuple(behind))


def _number(d: Draw) -> Term:
    """A number that is computed of numbers and tensors in reach."""
    text, value = d.scalar()
    if d.chance(0.5):
        other, more = d.scalar()
        if d.chance(0.4):
            inner = d.draw((d.whole(2, 4),), 2)
            other, more = f"(at (sum {inner.text}))", lambda values: inner.value(values).sum()
        return Term(f"(+ (* 0.5 {text}) {other})", (), lambda values: 0.5 * value(values) + more(values))
    return Term(text, (), value)


def _behind(d: Draw, name: str) -> Term:
    if d.chance(0.4):
        return Term(name, (), lambda values: values[name])
    inner = d.draw((d.whole(2, 4),), 1)
    return Term(f"(* {inner.text} {name})", inner.shape, lambda values: inner.value(values) * values[name])
