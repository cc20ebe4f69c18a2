"""Each word for arrays at many ranks, axes and sizes: its entry, its inputs, and numpy's float64 function of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Shape = tuple[int, ...]
SHAPES: list[Shape] = [(1,), (7,), (1, 1), (5, 1), (3, 7), (2, 1, 5), (3, 2, 7), (2, 3, 1, 5)]
KINDS = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
}
HEADER = "(require nn arrays algebra transforms gradients kernels)"


@dataclass(frozen=True)
class Case:
    """text: an expression of the inputs.  right: what it is of them in float64.  given: the inputs.  slopes: those that
    it has gradients for.  tolerance: beside the largest right number."""

    text: str
    right: Callable[..., Any]
    given: Arrays
    slopes: tuple[str, ...] = ()
    tolerance: float = 2e-5

    def entry(self, name: str) -> str:
        """The value as `y`, and gradients of the sum of its products with the input `k`."""
        inputs = " ".join(f"({n} [{' '.join(map(str, a.shape))}] {KINDS[a.dtype.name]})" for n, a in self.given.items())
        if not self.slopes:
            return f"(entry {name} [{inputs}] {{:y {self.text}}})"
        sizes = " ".join(map(str, self.value().shape))
        total = "(fn [x] (sum (reshape x [(fold * 1 (shape x))])))"
        found = " ".join(f"g{n}" for n in self.slopes)
        given = " ".join(f":g{n} g{n}" for n in self.slopes)
        return (
            f"(entry {name} [{inputs} (k [{sizes}] {self.kind})] (let [value {self.text} total {total}"
            f" [{found}] (gradients (total (* value k)) [{' '.join(self.slopes)}])] {{:y value {given}}}))"
        )

    @property
    def kind(self) -> str:
        """What gradients are summed in."""
        return KINDS[self.given[self.slopes[0]].dtype.name]

    def exact(self) -> Arrays:
        return {
            n: a if a.dtype.kind == "b" else a.astype(np.float64 if a.dtype.kind == "f" else np.int64)
            for n, a in self.given.items()
        }

    def value(self, **moved: np.ndarray) -> np.ndarray:
        return np.asarray(self.right(**{**self.exact(), **moved}))

    def inputs(self, rng: np.random.Generator) -> Arrays:
        if not self.slopes:
            return self.given
        return {**self.given, "k": rng.standard_normal(self.value().shape).astype(self.given[self.slopes[0]].dtype)}

    def problem(self, found: Arrays, given: Arrays, rng: np.random.Generator) -> str:
        """What is wrong with an entry's results; "" where nothing is."""
        right = self.value()
        if found["y"].shape != right.shape:
            return f"{self.text}: {found['y'].shape} should be {right.shape}"
        value = found["y"] * 1 if found["y"].dtype.kind == "b" else found["y"]
        right = right.astype(np.int64).astype(value.dtype) if value.dtype.kind in "iu" else right * 1
        off = np.abs(value - right.astype(np.float64)).max(initial=0.0)
        if not off <= self.tolerance * max(1.0, np.abs(right).max(initial=0.0)):
            return f"{self.text}: off by {off}"
        for name in self.slopes:
            gradient = found[f"g{name}"].astype(np.float64)
            along = rng.standard_normal(gradient.shape)
            ends = [
                (self.value(**{name: self.exact()[name] + sign * 1e-6 * along}) * given["k"]).sum() for sign in (1, -1)
            ]
            slope, by_gradient = (ends[0] - ends[1]) / 2e-6, (gradient * along).sum()
            if not abs(slope - by_gradient) <= (1e-6 if self.tolerance < 1e-9 else 2e-3) * max(
                1.0, np.linalg.norm(gradient) * np.linalg.norm(along)
            ):
                return f"{self.text}: a slope by {name} of {by_gradient} should be {slope}"
        return ""


def apart(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of which no two are near each other, and none is near a whole number or a half."""
    count = int(np.prod(shape, dtype=int))
    made = (rng.permutation(count) - count // 2) / max(4.0, count / 4) + 0.07
    return made.reshape(shape).astype(np.float32)


def axes(shape: Shape) -> list[int]:
    return [*range(len(shape)), -1]


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    power = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(power / power.sum(axis, keepdims=True))


def added(base: np.ndarray, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    made = base.copy()
    np.add.at(made, ids, rows)
    return made


def cross_entropy(x: np.ndarray, ids: np.ndarray, counts: np.ndarray, smoothing: float) -> Any:
    logs = x - x.max(-1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(-1, keepdims=True))
    own = logs[np.arange(len(ids)), np.clip(ids, 0, x.shape[1] - 1)]
    each = -((1 - smoothing) * own + smoothing * logs.mean(-1))
    return (each * counts).sum() / max(counts.sum(), 1e-9)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum-along": np.sum,
    "max-along": np.max,
    "min-along": np.min,
    "product-along": np.prod,
    "mean": np.mean,
    "variance": np.var,
    "vector-norm": lambda x, axis, keepdims: np.sqrt((x**2).sum(axis, keepdims=keepdims)),
}


def reductions(rng: np.random.Generator) -> Iterator[Case]:
    for (word, function), shape in itertools.product(REDUCTIONS.items(), SHAPES):
        axis = int(rng.choice(axes(shape)))
        keep = bool(rng.integers(2))
        text = f"({word} x {axis} true)" if keep else f"({word} x {axis})"

        def right(x: np.ndarray, function: Any = function, axis: int = axis, keep: bool = keep) -> Any:
            return function(x, axis=axis, keepdims=keep)

        yield Case(text, right, {"x": apart(rng, *shape)}, ("x",))


def joined(rng: np.random.Generator) -> Iterator[Case]:
    for shape in SHAPES:
        x, y, rank = apart(rng, *shape), apart(rng, *shape), len(shape)
        axis = int(rng.choice(axes(shape)))
        new = int(rng.choice([*range(rank + 1), -1]))
        yield Case(f"(stack [x y x] {new})", lambda x, y, a=new: np.stack([x, y, x], a), {"x": x, "y": y}, ("x", "y"))
        longer = list(shape)
        longer[axis] += 2
        z = apart(rng, *longer)
        yield Case(f"(join [x y] {axis})", lambda x, y, a=axis: np.concatenate([x, y], a), {"x": x, "y": z}, ("x", "y"))
        cut = int(rng.integers(1, longer[axis]))
        yield Case(
            f"(let [[a b] (split x [{cut} {longer[axis] - cut}] {axis})] (join [b a] {axis}))",
            lambda x, a=axis, c=cut: np.concatenate(np.split(x, [c], a)[::-1], a),
            {"x": z},
            ("x",),
        )
        before, behind = map(int, rng.integers(0, 4, 2))
        widths = [(0, 0)] * rank
        widths[axis] = (before, behind)
        yield Case(
            f"(pad x {axis} {before} {behind} -1.5)",
            lambda x, w=widths: np.pad(x, w, constant_values=-1.5),
            {"x": x},
            ("x",),
        )
        order = list(map(int, rng.permutation(rank)))
        yield Case(f"(transpose x [{' '.join(map(str, order))}])", lambda x, o=order: x.transpose(o), {"x": x}, ("x",))


def moved(rng: np.random.Generator) -> Iterator[Case]:
    for shape in SHAPES:
        x = apart(rng, *shape)
        axis = int(rng.choice(axes(shape)))
        by = int(rng.integers(-9, 10))
        ids = rng.integers(0, shape[axis], 5).astype(np.int32)
        yield Case(f"(flip x {axis})", lambda x, a=axis: np.flip(x, a), {"x": x}, ("x",))
        yield Case(f"(roll x {by} {axis})", lambda x, a=axis, b=by: np.roll(x, b, a), {"x": x}, ("x",))
        yield Case(f"(cumsum x {axis})", lambda x, a=axis: x.cumsum(a), {"x": x}, ("x",))
        yield Case(f"(cumprod x {axis})", lambda x, a=axis: x.cumprod(a), {"x": x}, ("x",))
        yield Case(f"(gather x ids {axis})", lambda x, ids, a=axis: x.take(ids, a), {"x": x, "ids": ids}, ("x",))


def ordered(rng: np.random.Generator) -> Iterator[Case]:
    for rows, columns in ((1, 1), (3, 1), (1, 7), (5, 13), (2, 64), (2, 257), (1, 701)):
        x = apart(rng, rows, columns)
        equal = np.round(x * 2).astype(np.float32)
        yield Case("(sort x)", lambda x: np.sort(x, -1), {"x": x}, ("x",))
        yield Case("(argsort x)", lambda x: np.argsort(x, -1, kind="stable"), {"x": equal})
        k = int(rng.integers(1, min(columns, 9) + 1))
        yield Case(f"(first (top-k x {k}))", lambda x, k=k: -np.sort(-x, -1)[:, :k], {"x": x}, ("x",))
        yield Case(f"(nth (top-k x {k}) 1)", lambda x, k=k: np.argsort(-x, -1, kind="stable")[:, :k], {"x": equal})


def counted(rng: np.random.Generator) -> Iterator[Case]:
    for shape in ((1,), (7,), (5, 1), (3, 7), (5, 2, 3)):
        count, rows = shape[0], int(rng.integers(1, 12))
        ids = rng.integers(0, count, rows).astype(np.int32)
        base, more = apart(rng, *shape), apart(rng, rows, *shape[1:])
        given = {"x": base, "y": more, "ids": ids}
        yield Case("(scatter-add x y ids)", lambda x, y, ids: added(x, y, ids), given, ("x", "y"))
        zeros = np.zeros(shape)
        yield Case(
            f"(segment-sum y ids {count})", lambda y, ids, z=zeros: added(z, y, ids), {"y": more, "ids": ids}, ("y",)
        )
        yield Case(f"(bincount ids {count})", lambda ids, n=count: np.bincount(ids, minlength=n), {"ids": ids})
        yield Case(f"(one-hot ids {count})", lambda ids, n=count: np.eye(n)[ids], {"ids": ids})
        for k in range(1, len(shape) + 1):
            places = np.stack([rng.integers(0, n, rows) for n in shape[:k]], -1).astype(np.int32)
            yield Case("(gather-nd x p)", lambda x, p: x[tuple(p.T)], {"x": base, "p": places}, ("x",))
    x, y = apart(rng, 5), apart(rng, 7)
    yield Case("(outer x y)", lambda x, y: np.outer(x, y), {"x": x, "y": y}, ("x", "y"))
    yield Case("(outer x y)", lambda x, y: np.outer(x, y), {"x": x[:1], "y": y}, ("x", "y"))


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "(floor x)": lambda x: np.floor(x),
    "(ceil x)": lambda x: np.ceil(x),
    "(round x)": lambda x: np.round(x),
    "(abs x)": lambda x: np.abs(x),
    "(sqrt (abs x))": lambda x: np.sqrt(np.abs(x)),
    "(pow (abs x) 2.3)": lambda x: np.abs(x) ** 2.3,
    "(pow (abs x) x)": lambda x: np.abs(x) ** x,
    "(log2 (abs x))": lambda x: np.log2(np.abs(x)),
    "(log1p (abs x))": lambda x: np.log1p(np.abs(x)),
    "(expm1 x)": lambda x: np.expm1(x),
    "(tanh x)": lambda x: np.tanh(x),
    "(erf x)": lambda x: np.vectorize(erf, otypes=[float])(x),
    "(select (and (> x -0.5) (not (> x 0.5))) (* x x) (+ x 1.0))": lambda x: np.where(
        (x > -0.5) & ~(x > 0.5), x * x, x + 1
    ),
    "(select (or (< x -0.5) (>= x 0.5)) 2.0 x)": lambda x: np.where((x < -0.5) | (x >= 0.5), 2, x),
    "(log-softmax x)": lambda x: np.log(softmax(x)),
    "(softmax x)": softmax,
}


def elementwise(rng: np.random.Generator) -> Iterator[Case]:
    for (text, right), shape in itertools.product(ELEMENTWISE.items(), [(1,), (7,), (3, 7), (2, 1, 5)]):
        slopes = () if text.startswith(("(floor", "(ceil", "(round")) else ("x",)
        yield Case(text, right, {"x": 3 * apart(rng, *shape)}, slopes)
    x = (4 * rng.standard_normal((3, 7))).astype(np.float32)
    yield Case("(cast (> x 0.5) i32)", lambda x: x > 0.5, {"x": x})
    yield Case("(cast (!= (round x) 1.0) i32)", lambda x: np.round(x) != 1, {"x": x})
    whole = rng.integers(-50, 50, (3, 7)).astype(np.int32)
    yield Case("(mod n 7)", lambda n: n % 7, {"n": whole})
    yield Case("(quot n 7)", lambda n: np.trunc(n / 7), {"n": whole})
    yield Case("(abs n)", lambda n: np.abs(n), {"n": whole})
    yield Case("(max n 3)", lambda n: np.maximum(n, 3), {"n": whole})
    yield Case("(saturate (* 60.0 x) i8)", lambda x: np.clip(np.round(60 * x), -128, 127), {"x": x.round(2)})
    yield Case("(saturate (* 60.0 x) u8)", lambda x: np.clip(np.round(60 * x), 0, 255), {"x": x.round(2)})
    truth = rng.integers(0, 2, (3, 7)).astype(bool)
    other = rng.integers(0, 2, (3, 7)).astype(bool)
    for text, right in (("(and p q)", np.logical_and), ("(or p q)", np.logical_or)):
        yield Case(f"(cast {text} i32)", lambda p, q, f=right: f(p, q), {"p": truth, "q": other})
    yield Case("(cast (not p) i32)", lambda p: ~p, {"p": truth})


def losses(rng: np.random.Generator) -> Iterator[Case]:
    for rows, columns in ((1, 1), (1, 7), (5, 1), (7, 11)):
        x, ids = apart(rng, rows, columns), rng.integers(0, columns, rows).astype(np.int32)
        ignored = np.where(rng.random(rows) < 0.4, -100, ids).astype(np.int32)
        for smoothing in (0.0, 0.1):
            yield Case(
                f"(label-loss x ids {smoothing} -100)",
                lambda x, ids, s=smoothing: cross_entropy(x, ids, ids != -100, s),
                {"x": x, "ids": ignored},
                ("x",),
            )
            mask = rng.integers(0, 3, rows).astype(np.float32)
            yield Case(
                f"(masked-loss x ids mask {smoothing})",
                lambda x, ids, mask, s=smoothing: cross_entropy(x, ids, mask, s),
                {"x": x, "ids": ids, "mask": mask},
                ("x",),
            )


EINSUMS = (
    "ij,jk,kl->il",
    "ij,j,i->",
    "i,j,k->kij",
    "bij,bjk->bik",
    "ij->ji",
    "ijk->j",
    "ij,ij->ij",
    "a,ab,bc,cd->d",
    "ij->",
    "ii->i",
    "ii->",
    "bii,bij->bj",
    "ijij,ki->jk",
    "iii,ij->j",
)


def contracted(rng: np.random.Generator) -> Iterator[Case]:
    for spelled, sizes in itertools.product(EINSUMS, ({}, {"i": 1, "b": 1}, {"j": 1, "a": 1})):
        known = {"a": 3, "b": 2, "c": 5, "d": 2, "i": 3, "j": 5, "k": 2, "l": 7, **sizes}
        inputs, result = spelled.split("->")
        names = "xyzw"
        given = {
            n: apart(rng, *(known[letter] for letter in part))
            for n, part in zip(names, inputs.split(","), strict=False)
        }
        parts = " ".join(f"{n} [{' '.join(part)}]" for n, part in zip(names, inputs.split(","), strict=False))
        yield Case(
            f"(einsum [{' '.join(result)}] {parts})",
            lambda spelled=spelled, **given: np.einsum(spelled, *given.values()),
            given,
            tuple(given),
        )


def matrices(rng: np.random.Generator) -> Iterator[Case]:
    for n in (1, 2, 5):
        x, y = rng.standard_normal((n, n)).astype(np.float32), rng.standard_normal((n, 3)).astype(np.float32)
        regular = f"(+ (product x (transposed x)) (* 2.0 (identity-matrix {n})))"

        def of(x: np.ndarray, n: int = n) -> np.ndarray:
            return x @ x.T + 2 * np.eye(n)

        yield Case(
            "(dot (reshape x [-1]) (reshape x [-1]))".replace("-1", str(n * n)),
            lambda x: (x * x).sum(),
            {"x": x},
            ("x",),
        )
        yield Case(f"(cholesky {regular})", lambda x, of=of: np.linalg.cholesky(of(x)), {"x": x}, ("x",), 1e-4)
        yield Case(
            f"(solve {regular} y)", lambda x, y, of=of: np.linalg.solve(of(x), y), {"x": x, "y": y}, ("x", "y"), 1e-4
        )
        yield Case(f"(inverse {regular})", lambda x, of=of: np.linalg.inv(of(x)), {"x": x}, ("x",), 1e-4)
        yield Case(
            f"(let [[q r] (qr {regular})] (* q q))",
            lambda x, of=of: np.linalg.qr(of(x))[0] ** 2,
            {"x": x},
            ("x",),
            1e-4,
        )
        yield Case(
            f"(let [[q r] (qr {regular})] (* r r))", lambda x, of=of: np.linalg.qr(of(x))[1] ** 2, {"x": x}, (), 1e-4
        )
        yield Case(
            f"(sort (reshape (first (symmetric-eigen {regular})) [1 {n}]))",
            lambda x, of=of: np.linalg.eigvalsh(of(x))[None],
            {"x": x},
            ("x",),
            1e-4,
        )
        distinct = np.diag(np.arange(1.0, n + 1)).astype(np.float32) + (n > 2) * np.float32(0.1) * (x + x.T)
        given = {"x": distinct, "y": apart(rng, n)}  # a function of the matrix: of values and vectors, in any order
        yield Case(
            "(let [[values vectors] (symmetric-eigen (+ (* 0.5 x) (* 0.5 (transposed x))))]"
            " (contract [i] (* vectors (sin values)) [i j] (contract [j] vectors [i j] y [i]) [j]))",
            lambda x, y: (lambda w, v: v @ (np.sin(w) * (v.T @ y)))(*np.linalg.eigh((x + x.T) / 2)),
            given,
            ("x", "y"),
            1e-4,
        )


def loop_of(dtype: np.dtype[Any]) -> Callable[[np.ndarray], np.ndarray]:
    """Four rounds of a loop, on numbers of a type."""

    def value(x: np.ndarray) -> np.ndarray:
        y = x
        for _ in range(4):
            y = x + (np.trunc(y / 2).astype(x.dtype) if dtype.kind == "i" else 0.5 * y)
        return y

    return value


def kinds(rng: np.random.Generator) -> Iterator[Case]:
    """What moves and adds numbers, of every type."""
    for name in ("float64", "float16", "int64", "int32", "int16", "int8", "bool"):
        dtype = np.dtype(name)
        x = (rng.integers(0, 2, (3, 5)) if dtype.kind == "b" else rng.integers(-4, 5, (3, 5))).astype(dtype)
        x = x + dtype.type(0.25) if dtype.kind == "f" else x
        ids = rng.integers(0, 5, 4).astype(np.int32)
        slopes, tolerance = (("x",), 1e-13) if name == "float64" else ((), 2e-5)
        moves: dict[str, Callable[..., Any]] = {
            "(flip x 1)": lambda x: np.flip(x, 1),
            "(roll x 2 0)": lambda x: np.roll(x, 2, 0),
            "(transpose x [1 0])": lambda x: x.T,
            "(stack [x x] 1)": lambda x: np.stack([x, x], 1),
            "(join [x x] 0)": lambda x: np.concatenate([x, x]),
            "(first (split x [2 3] 1))": lambda x: x[:, :2],
            "(pad x 0 1 2 1)": lambda x: np.pad(x, ((1, 2), (0, 0)), constant_values=1),
            "(select (> (cast x f32) 0.0) x (flip x 1))": lambda x: np.where(x > 0, x, np.flip(x, 1)),
        }
        for text, right in moves.items():
            yield Case(text, right, {"x": x}, slopes, tolerance)
        yield Case("(gather x ids 1)", lambda x, ids: x.take(ids, 1), {"x": x, "ids": ids}, slopes, tolerance)
        if dtype.kind == "b":
            yield Case("(and x (not (flip x 0)))", lambda x: x & ~np.flip(x, 0), {"x": x})
            continue
        sums: dict[str, Callable[..., Any]] = {
            "(sum-along x 0)": lambda x: x.sum(0),
            "(max-along x 1 true)": lambda x: x.max(1, keepdims=True),
            "(min-along x 0)": lambda x: x.min(0),
            "(product-along x 1)": lambda x: x.prod(1),
            "(cumsum x 1)": lambda x: x.cumsum(1),
            **({} if name == "float16" else {"(cumprod x 1)": lambda x: x.cumprod(1)}),
            "(+ x (* 2 x))": lambda x: 3 * x,
            "(max x 1)": lambda x: np.maximum(x, 1),
            "(abs x)": lambda x: np.abs(x),
            "(contract [i j] x [i k] x [j k])": lambda x: x @ x.T,
            "(over [n 0 4 1] [y x] (+ x (quot y 2)))"
            if dtype.kind == "i"
            else f"(over [n 0 4 1] [y x] (cast (+ x (* 0.5 y)) {KINDS[name]}))": loop_of(dtype),
        }
        for text, right in sums.items():
            yield Case(text, right, {"x": x}, slopes if not text.startswith(("(m", "(abs", "(pr")) else (), tolerance)
        yield Case("(sort x)", lambda x: np.sort(x, -1), {"x": x})
        yield Case("(argsort x)", lambda x: np.argsort(x, -1, kind="stable"), {"x": x})
        yield Case("(first (top-k x 2))", lambda x: -np.sort(-x, -1)[:, :2], {"x": x})


def functions(rng: np.random.Generator) -> Iterator[Case]:
    """Functions of functions."""
    for shape in ((1, 1), (5, 1), (3, 7), (2, 3, 5)):
        x, y = apart(rng, *shape), apart(rng, *shape)
        axis = tuple(range(1, len(shape)))
        total = "(fn [z] (sum (reshape z [(fold * 1 (shape z))])))"
        yield Case(
            f"(vmap (fn [r] (sin (* r ({total} r)))) x)",
            lambda x, a=axis: np.sin(x * x.sum(a, keepdims=True)),
            {"x": x},
            ("x",),
        )
        yield Case("(vmap (fn [[r s]] (* r s)) [x y])", lambda x, y: x * y, {"x": x, "y": y}, ("x", "y"))
        yield Case(
            f"(nth (jvp (fn [z] (sin (* z ({total} z)))) x y) 1)",
            lambda x, y: np.cos(x * x.sum()) * (y * x.sum() + x * y.sum()),
            {"x": x, "y": y},
            (),
            1e-4,
        )

        def slopes(x: np.ndarray) -> np.ndarray:
            flat = x.ravel()
            made = np.diag(np.cos(flat * flat.sum()) * flat.sum()) + np.outer(
                np.cos(flat * flat.sum()) * flat, 1 + 0 * flat
            )
            return made.reshape(x.shape * 2)

        yield Case(f"(jacobian (fn [z] (sin (* z ({total} z)))) x)", slopes, {"x": x}, (), 1e-4)
        yield Case(
            "(* x (fold + 0 (concat (filter (fn [n] (> n 1)) [1 2 3]) (reverse (take 2 [4 5 6])) (drop 2 [4 5 6]))))",
            lambda x: 20 * x,
            {"x": x},
            ("x",),
        )


GROUPS: dict[str, Callable[[np.random.Generator], Iterator[Case]]] = {
    "reductions": reductions,
    "joined": joined,
    "moved": moved,
    "ordered": ordered,
    "counted": counted,
    "elementwise": elementwise,
    "losses": losses,
    "contracted": contracted,
    "matrices": matrices,
    "kinds": kinds,
    "functions": functions,
}


def cases(group: str, rng: np.random.Generator) -> list[Case]:
    return list(GROUPS[group](rng))


def program(made: Sequence[Case]) -> str:
    return "\n".join([HEADER, *(case.entry(f"e{n}") for n, case in enumerate(made))])
