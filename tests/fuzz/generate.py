"""Random programs, from a result down to the weights: every op family offers makers of nodes of a wanted kind."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from fuzz.program import Kind, Node, Program
from fuzz.real import REAL, SELDOM

SIZES = (1, 1, 2, 2, 3, 4, 4, 5, 7, 8, 12, 16, 16, 17, 24, 32, 33, 48, 64, 65, 96, 128)
MOST_ELEMENTS = 6000
MOST_NODES = 40
FAMILIES = ("elementwise", "comprehensions", "products", "views", "layers", "loops", "states", "named")

Maker = Callable[["Builder", Kind], "Node | None"]


@dataclass
class Offer:
    """A maker, the dtypes that it makes, and how often it is taken relative to others."""

    dtypes: tuple[str, ...]
    weight: float
    make: Maker


OFFERS: list[Offer] = []


def offers(*dtypes: str, weight: float = 1.0) -> Callable[[Maker], Maker]:
    """Register a maker: it gives a node of the wanted kind, or None where it cannot."""

    def register(make: Maker) -> Maker:
        OFFERS.append(Offer(dtypes, weight, make))
        return make

    return register


@dataclass
class Builder:
    """A program in the making.  depth: how many more ops a path may have."""

    random: random.Random
    depth: int
    nodes: list[Node] = field(default_factory=list)
    weights: dict[str, Kind] = field(default_factory=dict)
    states: dict[str, Kind] = field(default_factory=dict)

    def add(self, op: str, kind: Kind, *operands: Node, **facts: object) -> Node:
        node = Node(op, kind, operands, dict(facts))
        self.nodes.append(node)
        return node

    def need(self, shape: tuple[int, ...], dtype: str = "f32") -> Node:
        """A node of a kind: one that is there, or one made of others."""
        kind = Kind(shape, dtype)
        same = [node for node in self.nodes if node.kind == kind]
        if same and self.chance(0.25):
            return self.random.choice(same)
        tired = self.depth <= 0 or len(self.nodes) > MOST_NODES or self.chance(0.08)
        if not tired:
            fitting = [offer for offer in OFFERS if dtype in offer.dtypes]
            self.depth -= 1
            try:
                for _ in range(4):
                    (offer,) = self.random.choices(fitting, [o.weight for o in fitting])
                    found = offer.make(self, kind)
                    if found is not None:
                        assert found.kind == kind, (found.op, found.kind, kind)
                        return found
            finally:
                self.depth += 1
        return self.leaf(kind)

    def leaf(self, kind: Kind) -> Node:
        """A weight, or what is one op away from it where no weight has the kind."""
        if not kind.shape:
            return self.add("drop", kind, self.leaf(Kind((1,), kind.dtype)))
        if kind.dtype == "i1":
            return self.add("scalar", kind, self.leaf(Kind(kind.shape)), self.leaf(Kind(kind.shape)), name_of="<")
        if kind.dtype == "f32" and self.chance(0.2):
            return self.add("cast", kind, self.leaf(Kind(kind.shape, "bf16")), to="f32")
        return self.weight(kind)

    def weight(self, kind: Kind) -> Node:
        name = f"w{len(self.weights)}"
        self.weights[name] = kind
        return self.add("weight", kind, name=name)

    def size(self, most: int = 128) -> int:
        return self.random.choice([s for s in SIZES if s <= max(most, 1)])

    def summed_size(self, most: int) -> int:
        """Of a dimension that is summed over: small, or now and then a known model's."""
        return self.size(min(128, most)) if not self.chance(SELDOM) else real_size(self.random, most)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def room(self, shape: tuple[int, ...]) -> int:
        """How large one more dimension may be."""
        return max(1, MOST_ELEMENTS // max(1, prod(shape)))

    def shuffled(self, items: list[str]) -> list[str]:
        return self.random.sample(items, len(items))


def real_size(chance: random.Random, most: int) -> int:
    """One of REAL that is not larger, or else what is allowed."""
    return chance.choice([size for size in REAL if size <= most] or [max(1, most)])


def random_shape(chance: random.Random) -> tuple[int, ...]:
    """Mostly matrices; a few of other ranks, and a few rows of a known model's width."""
    if chance.random() < SELDOM:
        columns = real_size(chance, MOST_ELEMENTS)
        return (chance.choice([s for s in SIZES if s * columns <= MOST_ELEMENTS]), columns)
    rank = chance.choices([0, 1, 2, 3, 4], [0.02, 0.2, 0.5, 0.2, 0.08])[0]
    shape: list[int] = []
    for _ in range(rank):
        room = max(1, MOST_ELEMENTS // max(1, prod(shape)))
        shape.append(chance.choice([s for s in SIZES if s <= room]))
    return tuple(chance.sample(shape, len(shape)))


def program(seed: int) -> Program:
    """The program of a seed."""
    for family in FAMILIES:
        importlib.import_module(f"fuzz.{family}")
    chance = random.Random(seed)
    builder = Builder(chance, chance.choice([1, 2, 3, 3, 4, 5]))
    dtype = chance.choices(["f32", "bf16", "i32"], [0.85, 0.07, 0.08])[0]
    for _ in range(chance.choice([0, 0, 0, 1, 2])):
        shape = random_shape(chance)
        if shape:
            name = f"s{len(builder.states)}"
            builder.states[name] = Kind(shape, chance.choice(["f32", "f32", "bf16"]))
            builder.add("write-state", *_written(builder, name), name=name)
    result = builder.need(random_shape(chance), dtype)
    if result.op in ("weight", "read-state"):
        result = builder.add("scalar", Kind(result.kind.shape, "i32" if dtype == "i32" else "f32"), result,
                             name_of="neg-i" if dtype == "i32" else "neg")  # fmt: skip
    made = Program(tuple(builder.nodes), result, builder.weights, builder.states)
    return made.without_unused()


def _written(builder: Builder, name: str) -> tuple[Kind, Node]:
    """What a state gets: a value of its kind, with its batch of one."""
    kind = builder.states[name]
    shape = (kind.shape[0], 1, *kind.shape[1:]) if len(kind.shape) > 1 else (1, *kind.shape)
    value = builder.need(shape, kind.dtype)
    return value.kind, value
