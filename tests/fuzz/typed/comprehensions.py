"""Random `tensor` forms, lambdas over whole tensors, and arithmetic of whole tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz.typed.approx import Approx, Unfit, exact
from fuzz.typed.graph import Dim, Env, Node, Scope, dim_text, size_of
from fuzz.typed.scalars import Scalars
from fuzz.typed.terms import Place, Term, arithmetic

DTYPES = {"f": "f32", "i": "i32"}


def read(node: Node, slot: int, indices: list[Term]) -> Term:
    """One element, `(at x i j)`, of the place's tensor of this number."""

    def run(place: Place) -> Approx:
        tensor = place.tensors[slot]
        where = tuple(np.asarray(i.compute(place).value) for i in indices)
        for index, size in zip(where, tensor.shape, strict=True):
            if index.min() < 0 or index.max() >= size:
                raise Unfit("outside of a tensor")
        value = tensor.value[where] if where else tensor.value
        error = np.broadcast_to(tensor.error, tensor.shape)
        return Approx(np.asarray(value), error[where] if where else error)

    spelled = " ".join([f"<{slot}>", *(i.text for i in indices)])
    return Term(f"(at {spelled})", "i" if node.dtype == "i32" else "f", run)


def loop_index(name: str, position: int, rank: int) -> Term:
    def run(place: Place) -> Approx:
        shape = [1] * rank
        shape[position] = place.extents[position]
        return exact(np.arange(place.extents[position]).reshape(shape))

    return Term(name, "x", run)


def constant_index(value: int) -> Term:
    return Term(str(value), "x", lambda place: exact(np.int64(value)), True)


def size_term(dim: Dim, less: int = 0) -> Term:
    text = dim_text(dim) if not less else f"(- {dim_text(dim)} {less})"
    return Term(text, "x", lambda place: exact(np.int64(size_of(dim, place.env.sizes) - less)), True)


class Comprehensions:
    """Adds tensors made by their elements to a scope."""

    def __init__(self, rng: np.random.Generator, scope: Scope) -> None:
        self.rng, self.scope = rng, scope

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def tensor(self, shape: tuple[Dim, ...], readable: list[Node], depth: int = 3, real: bool = False) -> Node:
        """`(tensor [i n …] …)` of this shape, which reads some of the nodes."""
        rng, rank = self.rng, len(shape)
        names = [str(n) for n in rng.permutation(list("ijkmpqrt"))[:rank]]
        loops = [loop_index(name, p, rank) for p, name in enumerate(names)]
        parents = [self.pick(readable) for _ in range(int(rng.integers(1, 4)))] if readable else []
        parents = list(dict.fromkeys(parents))
        env = self.scope.env
        extents = tuple(size_of(d, env.sizes) for d in shape)
        place = Place(env, [self.scope.values[p] for p in parents], extents)
        wholes: list[Term] = list(loops)
        reals: list[Term] = []
        for slot in sorted(range(len(parents)), key=lambda s: parents[s].dtype != "i32"):
            node = parents[slot]
            for _ in range(int(rng.integers(1, 3))):
                indices = [self.index(d, shape, loops, wholes, parents) for d in node.shape]
                term = read(node, slot, indices)
                (wholes if node.dtype == "i32" else reals).append(term)
        scalars = Scalars(
            rng, place, [t for t in reals if self.fits(t, place)], [t for t in wholes if self.fits(t, place)]
        )
        return self.finish(scalars, shape, names, parents, place, depth, real)

    def finish(
        self,
        scalars: Scalars,
        shape: tuple[Dim, ...],
        names: list[str],
        parents: list[Node],
        place: Place,
        depth: int,
        real: bool,
    ) -> Node:
        if scalars.wholes and not real and self.rng.random() < 0.12:
            term = scalars.integer(depth)
            if term.kind == "x":
                term = Term(f"(cast {term.text} i32)", "i", term.compute)
        elif scalars.reals and self.rng.random() < 0.25:
            term = self.pick(scalars.reals)
        else:
            term = scalars.real(depth)
        if term.constant and not shape:
            raise Unfit("a number")
        dims = " ".join(f"{n} {dim_text(d)}" for n, d in zip(names, shape, strict=True))

        used = [slot for slot in range(len(parents)) if f"<{slot}>" in term.text]

        def write(*texts: str) -> str:
            body = term.text
            for slot, text in zip(used, texts, strict=True):
                body = body.replace(f"<{slot}>", text)
            return f"(tensor [{dims}] {body})"

        def compute(env: Env, *tensors: Approx) -> Approx:
            extents = tuple(size_of(d, env.sizes) for d in shape)
            known: list[Any] = [None] * len(parents)
            for slot, tensor in zip(used, tensors, strict=True):
                known[slot] = tensor
            found = term.compute(Place(env, known, extents))
            return Approx(np.broadcast_to(found.value, extents), np.broadcast_to(found.error, extents))

        return self.scope.add(shape, DTYPES[term.kind], [parents[slot] for slot in used], write, compute)

    def fits(self, term: Term, place: Place) -> bool:
        try:
            term.compute(place)
        except Unfit:
            return False
        return True

    def index(
        self, dim: Dim, shape: tuple[Dim, ...], loops: list[Term], wholes: list[Term], parents: list[Node]
    ) -> Term:
        """An index within a dimension, for every size of the free ones."""
        rng = self.rng
        same = [loops[p] for p, d in enumerate(shape) if d == dim]
        if same and rng.random() < 0.6:
            return self.pick(same)
        options: list[Term] = [constant_index(0)]
        options += [arithmetic("-", size_term(dim, 1), index) for index in same]
        options += [arithmetic("mod", arithmetic("+", i, constant_index(1)), size_term(dim)) for i in same]
        gathers = [t for t in wholes if t.kind == "i"]
        for term in gathers:
            slot = int(term.text[5 : term.text.index(">")])
            if parents[slot].below == dim:
                options += [term] * 4
            elif isinstance(dim, int):
                low = arithmetic("max", Term("0", "i", constant_index(0).compute), term)
                options.append(arithmetic("min", Term(str(dim - 1), "i", constant_index(dim - 1).compute), low))
        for position, other in enumerate(shape):
            options += self.window(dim, other, loops[position])
        return self.pick(options)

    def window(self, dim: Dim, other: Dim, loop: Term) -> list[Term]:
        """Indices made of a loop of another size."""
        if not isinstance(dim, int):
            return [arithmetic("mod", loop, size_term(dim))]
        found = [constant_index(int(self.rng.integers(dim))), arithmetic("mod", loop, size_term(dim))]
        if isinstance(other, int):
            if other < dim:
                start = int(self.rng.integers(dim - other + 1))
                found += [loop if not start else arithmetic("+", loop, constant_index(start))] * 2
            if 2 * (other - 1) < dim:
                found.append(arithmetic("*", constant_index(2), loop))
            if -(-other // 2) <= dim:
                found.append(arithmetic("quot", loop, constant_index(2)))
            if other > dim:
                found.append(arithmetic("min", loop, constant_index(dim - 1)))
                found.append(arithmetic("max", arithmetic("-", loop, constant_index(other - dim)), constant_index(0)))
        return found

    # ---- whole tensors

    def elementwise(self, nodes: list[Node]) -> Node:
        """A lambda of elements, of tensors that broadcast."""
        rng = self.rng
        names = [str(n) for n in rng.permutation(list("abcduvw"))[: len(nodes)]]
        shape = broadcast([n.shape for n in nodes])
        env = self.scope.env
        place = Place(env, [self.scope.values[n] for n in nodes], ())
        atoms = [
            Term(name, "i" if n.dtype == "i32" else "f", slot_reader(k))
            for k, (name, n) in enumerate(zip(names, nodes, strict=True))
        ]
        reals, wholes = ([a for a in atoms if a.kind == kind] for kind in "fi")
        term = Scalars(rng, place, reals, wholes).real(3)
        if term.constant:
            raise Unfit("a number")

        def write(*texts: str) -> str:
            return f"(elementwise (fn [{' '.join(names)}] {term.text}) {' '.join(texts)})"

        def compute(env: Env, *tensors: Approx) -> Approx:
            extents = tuple(size_of(d, env.sizes) for d in shape)
            found = term.compute(Place(env, tensors, ()))
            return Approx(np.broadcast_to(found.value, extents), np.broadcast_to(found.error, extents))

        return self.scope.add(shape, "f32", nodes, write, compute)

    def operators(self, nodes: list[Node]) -> Node:
        """The same without a lambda: functions and operators of tensors and numbers."""
        rng = self.rng
        shape = broadcast([n.shape for n in nodes])
        env = self.scope.env
        place = Place(env, [self.scope.values[n] for n in nodes], ())
        atoms = [Term(f"<{k}>", "i" if n.dtype == "i32" else "f", slot_reader(k)) for k, n in enumerate(nodes)]
        reals = [a for a in atoms if a.kind == "f"]
        if not reals:
            raise Unfit("no reals")
        scalars = Scalars(rng, place, reals, [])
        term = scalars.whole_tensors(int(rng.integers(1, 4)), len(nodes))
        used = [k for k in range(len(nodes)) if f"<{k}>" in term.text]
        if len(used) < len(nodes):
            raise Unfit("not all are used")

        def write(*texts: str) -> str:
            body = term.text
            for slot, text in enumerate(texts):
                body = body.replace(f"<{slot}>", text)
            return body

        def compute(env: Env, *tensors: Approx) -> Approx:
            extents = tuple(size_of(d, env.sizes) for d in shape)
            found = term.compute(Place(env, tensors, ()))
            return Approx(np.broadcast_to(found.value, extents), np.broadcast_to(found.error, extents))

        return self.scope.add(shape, "f32", nodes, write, compute)


def slot_reader(slot: int) -> Any:
    return lambda place: place.tensors[slot]


def broadcast(shapes: list[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """The shape of tensors against each other, whatever the free sizes are; Unfit where there is none."""
    rank = max(map(len, shapes))
    result: list[Dim] = []
    for sizes in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True):
        larger = {s for s in sizes if s != 1}
        if len(larger) > 1:
            raise Unfit("no common shape")
        result.append(larger.pop() if larger else 1)
    return tuple(result)
