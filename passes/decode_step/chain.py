"""A decode step as a chain that can be shared among clusters: what is recognised of it, from its kernels' bodies.

A residual stream x, of one row for each sequence, goes through layers.  In each a norm of x meets a product whose rows
are the heads' queries, keys and values, attention over a cache, and a product that sums over the heads and is added to
x; then a norm, one or two products whose rows are hidden units, elementwise ops, and a product that sums over the
hidden units and is added to x.  Behind the layers come a norm, a product whose rows are tokens, and the choice of the
largest or the draw of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir.mlir import ir

PACKED = ("int8", "q8_0")
"""Types of weights in blocks that are packed for such a launch."""
OF_COLUMNS = ("out_projection", "down")
"""Products that sum over what a cluster has, and whose sums are added to the residual stream."""


@dataclass(frozen=True)
class Series:
    """Where the layers' parts of an entry's buffer start: byte first + layer · stride of argument `buffer`."""

    buffer: int
    first: int
    stride: int = 0


@dataclass(frozen=True)
class Part:
    """A kernel of a chain.  arguments: those that are parts of the entry's buffers."""

    kernel: ir.Operation
    arguments: dict[int, Series]


@dataclass(frozen=True)
class Product(Part):
    """A product with weights [rows, depth].  residual stream: the argument that the sums are added to, if any.  kind:
    of the weights, BF16 or blocks; of blocks `arguments` has none.  sites: the calls' operands that are the weights."""

    weights: Series
    rows: int
    depth: int
    residual_stream: int | None
    kind: str = "bf16"
    sites: tuple[tuple[ir.Operation, int], ...] = ()

    @property
    def packed(self) -> bool:
        return self.kind != "bf16"


@dataclass(frozen=True)
class NormWeights:
    """gamma, beta: one f32 for each column, in each layer; beta: None where there is none."""

    gamma: Series
    beta: Series | None
    centred: bool
    epsilon: float

    @property
    def series(self) -> list[Series]:
        """All that there are."""
        return [self.gamma] if self.beta is None else [self.gamma, self.beta]


@dataclass(frozen=True)
class Hoisted(Part):
    """A kernel whose results all layers' attention reads.  results: for its argument the number of attention's."""

    results: dict[int, int]


@dataclass(frozen=True)
class HeadNorm(Part):
    """A kernel that norms the heads' rows in what a layer's first product makes, its argument `source`, by weights that
    are its argument `gamma`; attention reads them as its own argument `result`."""

    source: int
    gamma: int
    result: int


@dataclass(frozen=True)
class NextToken:
    """What comes behind the last product.  next: the token that is chosen.  report: how clearly it is the largest, and
    settings: by which it is drawn; the one or the other is None.  tokens, positions: the arguments that a run leaves
    for the next.  vocab: tokens that may be chosen."""

    next: Series
    report: Series | None
    settings: Series | None
    tokens: int
    positions: int
    vocab: int

    @property
    def chosen(self) -> list[Series]:
        """Where a run leaves what it has chosen."""
        return [self.next] if self.report is None else [self.next, self.report]


@dataclass(frozen=True)
class Chain(NextToken):
    """embedding: what makes the residual stream, `residual stream` the number of its result.  attention: a layer's, of
    whose arguments `cached` is the cache and `rows argument` what the product before it makes.  gate_up: products whose
    rows are hidden units; where there are two the second reads what the first has made, as its `residual stream`.
    sequences: rows of the residual stream."""

    calls: Sequence[ir.Operation]
    embedding: Part
    residual_stream: int
    hoisted: tuple[Hoisted, ...]
    head_norms: tuple[HeadNorm, ...]
    layers: int
    norms: tuple[NormWeights, NormWeights, NormWeights]
    qkv: Product
    attention: Part
    cached: int
    rows_argument: int
    out_projection: Product
    gate_up: tuple[Product, ...]
    down: Product
    lm_head: Product
    logits: Series
    sequences: int

    @property
    def width(self) -> int:
        return self.qkv.depth

    @property
    def cache(self) -> Series:
        return self.attention.arguments[self.cached]

    @property
    def products(self) -> dict[str, Product]:
        """By their names in a layout."""
        found = {name: getattr(self, name) for name in ("qkv", *OF_COLUMNS, "lm_head")}
        return found | {f"up{i}": one for i, one in enumerate(self.gate_up)}
