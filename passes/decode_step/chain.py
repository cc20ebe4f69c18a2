"""A decode step as a chain that can be shared among clusters: what is recognised of it, from its kernels' bodies.

A stream x, of one row for each text, goes through layers.  In each a norm of x meets a product whose rows are the
heads' queries, keys and values, attention over a cache, and a product that sums over the heads and is added to x; then
a norm, one or two products whose rows are hidden units, elementwise ops, and a product that sums over the hidden units
and is added to x.  Behind the layers come a norm, a product whose rows are tokens, and the choice of the largest or the
draw of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir.mlir import ir

PACKED = ("int8", "q8_0")
"""Types of weights in blocks that are packed for such a launch."""


@dataclass(frozen=True)
class Series:
    """Where the layers' parts of an entry's buffer start: byte first + layer · stride of argument `buffer`."""

    buffer: int
    first: int
    stride: int


@dataclass(frozen=True)
class Product:
    """A product with weights [rows, depth] in a kernel.  arguments: of the kernel, where they are parts of the entry's
    buffers.  stream: the argument that the sums are added to, if any.  kind: of the weights, BF16 or blocks; of blocks
    `arguments` has none.  sites: the calls' operands that are the weights."""

    kernel: ir.Operation
    arguments: dict[int, Series]
    weights: Series
    rows: int
    depth: int
    stream: int | None
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


@dataclass(frozen=True)
class Ahead:
    """A kernel whose results all layers' attention reads.  results: for its argument the number of attention's."""

    kernel: ir.Operation
    arguments: dict[int, Series]
    results: dict[int, int]


@dataclass(frozen=True)
class HeadNorm:
    """A kernel that norms the heads' rows in what a layer's first product makes, its argument `source`; attention
    reads them as its own argument `result`."""

    kernel: ir.Operation
    arguments: dict[int, Series]
    source: int
    result: int


@dataclass(frozen=True)
class Chain:
    """The tokens' and positions' arguments are inputs that a run leaves for the next; embedding: the kernel that makes
    the stream, `stream` the number of its result, embedded: its arguments.  ups: products whose rows are hidden units;
    where there are two the second reads what the first has made, as its `stream`.  vocab: tokens that may be chosen.
    settings: by which the next token is drawn; report: how clearly the largest is that, where that is taken.
    texts: rows of the stream."""

    calls: Sequence[ir.Operation]
    embedding: ir.Operation
    stream: int
    embedded: dict[int, Series]
    aheads: tuple[Ahead, ...]
    head_norms: tuple[HeadNorm, ...]
    layers: int
    norms: tuple[NormWeights, NormWeights, NormWeights]
    into: Product
    attention: ir.Operation
    attended: dict[int, Series]
    cached: int
    rows_argument: int
    out: Product
    ups: tuple[Product, ...]
    down: Product
    head: Product
    logits: Series
    next: Series
    report: Series | None
    settings: Series | None
    tokens: int
    positions: int
    vocab: int
    texts: int

    @property
    def width(self) -> int:
        return self.into.depth

    @property
    def chosen(self) -> list[Series]:
        """Where a run leaves what it has chosen."""
        return [self.next] if self.report is None else [self.next, self.report]
