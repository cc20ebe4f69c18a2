"""Random expressions of scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fuzz.typed.approx import Unfit, exact
from fuzz.typed.terms import (
    COMPARISONS,
    EVERYWHERE,
    FUNCTIONS,
    Place,
    Term,
    apply,
    arithmetic,
    as_real,
    as_whole,
    compare,
    fused,
    logic,
    negated,
    real,
    select,
    through_bf16,
)


class Scalars:
    """Makes random expressions; `fits` says of each whether it has a certain value where it stands."""

    def __init__(self, rng: np.random.Generator, place: Place, reals: list[Term], wholes: list[Term]) -> None:
        self.rng, self.place, self.reals, self.wholes = rng, place, reals, wholes

    def fits(self, term: Term) -> bool:
        try:
            term.compute(self.place)
        except Unfit:
            return False
        return True

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def tried(self, make: Callable[[int], Term], depth: int) -> Term | None:
        """The first that fits of some that a function makes."""
        for _ in range(6):
            try:
                term = make(depth)
            except Unfit:
                continue
            if self.fits(term):
                return term
        return None

    def real(self, depth: int) -> Term:
        return self.tried(self._real, depth) or (self.pick(self.reals) if self.reals else real(self.rng))

    def varied(self, depth: int) -> Term:
        """One that is no number known while compiling."""
        for _ in range(6):
            term = self.real(depth)
            if not term.constant:
                return term
        return self.pick(self.reals) if self.reals else as_real(self.pick(self.wholes))

    def _real(self, depth: int) -> Term:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.1:
            if self.reals and rng.random() < 0.75:
                return self.pick(self.reals)
            return as_real(self.pick(self.wholes)) if self.wholes and rng.random() < 0.5 else real(rng)
        choice = rng.random()
        if choice < 0.3:
            name = self.pick(EVERYWHERE) if rng.random() < 0.5 else self.pick(list(FUNCTIONS))
            return apply(name, self.varied(depth - 1))
        if choice < 0.72:
            name = self.pick(["+", "-", "*", "*", "+", "/", "max", "min", "mod" if rng.random() < 0.2 else "-"])
            a, b = self.varied(depth - 1), self.real(depth - 1)
            return arithmetic(name, *((a, b) if rng.random() < 0.7 else (b, a)))
        if choice < 0.77:
            return fused(*(self.varied(depth - 1) for _ in range(3)))
        if choice < 0.91:
            form = "if" if rng.random() < 0.2 else "select"
            a, b = self.varied(depth - 1), self.real(depth - 1)
            a, b = (a, b) if rng.random() < 0.7 else (b, a)
            return select(form, self.condition(depth - 1), a, b)
        if choice < 0.96 and self.wholes:
            return as_real(self.integer(depth - 1))
        return through_bf16(self.varied(depth - 1))

    def condition(self, depth: int) -> Term:
        term = self.tried(self._condition, depth)
        if term is not None:
            return term
        if self.wholes:
            return compare("<", Term("0", "i", lambda p: exact(np.int64(0))), self.pick(self.wholes))
        raise Unfit("no condition")

    def _condition(self, depth: int) -> Term:
        rng = self.rng
        if depth > 0 and rng.random() < 0.3:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return negated(a) if rng.random() < 0.3 else logic(self.pick(["and", "or"]), a, b)
        name = self.pick(list(COMPARISONS))
        if self.wholes and rng.random() < 0.5:
            return compare(name, self.integer(depth - 1), self.integer(depth - 1))
        return compare(name, self.real(depth - 1), self.real(depth - 1))

    def integer(self, depth: int) -> Term:
        for _ in range(6):
            term = self._integer(depth)
            if self.fits(term):
                return term
        return self.pick(self.wholes)

    def _integer(self, depth: int) -> Term:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.3:
            term = self.pick(self.wholes)
            return as_whole(term) if term.kind == "x" and rng.random() < 0.8 else term
        a = self.integer(depth - 1)
        if a.kind == "x":
            a = as_whole(a)
        if rng.random() < 0.5:
            known = int(rng.integers(1, 8))
            b = Term(str(known), "i", lambda p: exact(np.int64(known)))
            return arithmetic(self.pick(["+", "-", "*", "mod", "quot", "min", "max", "/"]), a, b)
        b = self.integer(depth - 1)
        return arithmetic(self.pick(["+", "-", "*", "min", "max"]), a, as_whole(b) if b.kind == "x" else b)

    def whole_tensors(self, depth: int, count: int) -> Term:
        """Operators and library functions, which take whole tensors too."""
        rng = self.rng
        order = [self.reals[int(i)] for i in rng.permutation(len(self.reals))]
        term = order[0]
        for other in [*order[1:], *([None] * depth)]:
            for _ in range(8):
                made = self._joined(term, other)
                if self.fits(made):
                    term = made
                    break
        return term

    def _joined(self, term: Term, other: Term | None) -> Term:
        rng = self.rng
        if other is None and rng.random() < 0.5:
            name = self.pick([n for n in FUNCTIONS if not n.startswith("math.")])
            return apply(name, term)
        other = other or (real(rng) if rng.random() < 0.7 else self.pick(self.reals))
        a, b = (term, other) if rng.random() < 0.7 else (other, term)
        if rng.random() < 0.15:
            return select("select", compare(self.pick(["<", "<=", ">", ">="]), a, b), a, b)
        return arithmetic(self.pick(["+", "-", "*", "/", "min", "max", "+", "*"]), a, b)
