"""What a program computes, as a list of named values: their text in Lisp, and the same in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuzz.typed.approx import Approx, Unfit

MOST_ELEMENTS = 20_000

Dim = Any
"""A size: a number, the name of a free dimension, or ("*", a, b)."""


def size_of(dim: Dim, sizes: dict[str, int]) -> int:
    if isinstance(dim, tuple):
        return size_of(dim[1], sizes) * size_of(dim[2], sizes)
    return sizes[dim] if isinstance(dim, str) else dim


def dim_text(dim: Dim) -> str:
    return f"(* {dim_text(dim[1])} {dim_text(dim[2])})" if isinstance(dim, tuple) else str(dim)


def times(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if 1 in (a, b):
        return b if a == 1 else a
    return ("*", a, b)


def names_in(dim: Dim) -> set[str]:
    if isinstance(dim, tuple):
        return names_in(dim[1]) | names_in(dim[2])
    return {dim} if isinstance(dim, str) else set()


@dataclass
class Env:
    """One run of an entry.  sizes: of its free dimensions.  held: inputs, weights and states by name, as they are now.

    layer: which of the layers a function is called for.  smooth: whether what is not differentiable is Unfit.
    frozen: what stop-gradient keeps, by node.
    """

    sizes: dict[str, int]
    held: dict[str, Approx]
    layer: int = 0
    smooth: bool = False
    frozen: dict[Any, Approx] = field(default_factory=dict)


@dataclass(eq=False)
class Node:
    """A value.  write: its text, from the names of its parents.  compute: its value, from theirs.

    below: for an i32, what its elements are less than (they are at least 0); None where nothing is known.
    pinned: whether it must be computed where it stands, as updates change what it reads; writes: whether it is one.
    inside: of a call, the result in the function.
    """

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    parents: Sequence[Node]
    write: Callable[..., str]
    compute: Callable[..., Approx]
    below: Dim = None
    pinned: bool = False
    leaf: bool = False
    uses: int = 0
    inside: Node | None = None
    writes: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class Scope:
    """The values of an entry or of a function, in their order, and what they are in the first run."""

    env: Env
    prefix: str = "v"
    nodes: list[Node] = field(default_factory=list)
    values: dict[Node, Approx] = field(default_factory=dict)
    pool: list[Node] = field(default_factory=list)

    def add(
        self,
        shape: Sequence[Dim],
        dtype: str,
        parents: Sequence[Node],
        write: Callable[..., str],
        compute: Callable[..., Approx],
        **facts: Any,
    ) -> Node:
        """A further value; Unfit where it is not certain."""
        name = facts.pop("name", f"{self.prefix}{len(self.nodes)}")
        node = Node(name, tuple(shape), dtype, parents, write, compute, **facts)
        value = compute(self.env, *(self.values[p] for p in parents))
        wanted = tuple(size_of(d, self.env.sizes) for d in node.shape)
        assert value.shape == wanted, f"{write(*(p.name for p in parents))} is {value.shape}, and not {wanted}"
        if value.value.size > MOST_ELEMENTS:
            raise Unfit("a large tensor")
        if value.value.dtype.kind == "i" and abs(value.value).max(initial=0) >= 1 << 24:
            raise Unfit("a large integer")
        self.values[node] = value
        self.nodes.append(node)
        self.pool.append(node)
        for parent in parents:
            parent.uses += 1
        return node


def replay(nodes: Sequence[Node], env: Env, known: dict[Node, Approx] | None = None) -> dict[Node, Approx]:
    """What values are in another run."""
    values = dict(known or {})
    for node in nodes:
        if node not in values:
            values[node] = node.compute(env, *(values[p] for p in node.parents))
    return values


def written(nodes: Sequence[Node], body: Callable[[Callable[[Node], str]], str], rng: Any) -> str:
    """A let of the values around a body, which is told how to write each; some stand where they are used."""
    texts: dict[Node, str] = {}
    lines = []
    for node in nodes:
        text = node.write(*(texts.get(p, p.name) for p in node.parents))
        if node.leaf or (node.uses == 1 and not node.pinned and len(text) < 160 and rng.random() < 0.45):
            texts[node] = text
        else:
            lines.append(f"{node.name} {text}")
    inner = body(lambda node: texts.get(node, node.name))
    joined = "\n        ".join(lines)
    return f"(let [{joined}]\n    {inner})" if lines else inner
