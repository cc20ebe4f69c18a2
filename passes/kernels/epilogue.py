"""What follows a product in its kernel: elementwise ops on the sums, and the stores of the kernel's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import shape_of
from lispgpt.passes.kernels.read import Reader

BATCH = 16
"""Pieces whose operands are loaded together: a load cannot pass the store ahead of it, and each would wait alone."""


@dataclass(frozen=True)
class ResultRun:
    """Neighbouring sums of one row, and where in their block's tile they stand.  beside: the same of the kernel's
    other products."""

    row: Index
    output: Index
    value: ir.Value
    beside: tuple[ir.Value, ...] = ()

    def lane(self, number: int) -> ResultRun:
        beside = tuple(b.lane_of(value, number) for value in self.beside)
        return ResultRun(self.row, b.add(self.output, number), b.lane_of(self.value, number), beside)


Placed = tuple[ResultRun, list[Index]]
"""A piece at its place in the product, and where that is in the results."""


def valued(pieces: Sequence[Placed], values: Sequence[ir.Value]) -> list[Placed]:
    """Pieces with values of their own."""
    return [(replace(piece, value=value), at) for (piece, at), value in zip(pieces, values, strict=True)]


def places(
    thread: Index, threads: int, count: int, outputs: int, width: int, first: Index = 0
) -> Iterator[tuple[Index, Index]]:
    """(row, output) of this thread's vectors of `width` among `count` of a tile, from its first-th on.

    Threads for which there is none left take the last one, too.
    """
    for number in range(-(-count // threads)):
        vector = b.add(thread, number * threads)
        if (number + 1) * threads > count:
            vector = b.at_most(vector, count - 1)
        place = b.add(first, vector)
        yield b.div(place, outputs // width), b.mul(b.mod(place, outputs // width), width)


@dataclass(frozen=True)
class Span:
    """So many columns of a tile, of which each of a subgroup's threads has its pairs: every four threads eight
    neighbours, one row after another, as a warpgroup instruction's results lie."""

    first: Index
    count: int


class OtherPart(Protocol):
    """One thread's part of a result that has another shape than the product, of one tile."""

    @property
    def tensor(self) -> ir.Value:
        """What the result is made of: a tensor of the product's shape, computed from the product."""

    def put(self, pieces: Sequence[ResultRun], values: Sequence[ir.Value], span: Span | None) -> None:
        """Take the tensor's elements where the pieces are, in the product.  span: of the tile's columns, in which all
        of the subgroup's are; None: they may be anywhere."""


class Whole(Protocol):
    """What a tile is a part of, such as a Product: [batch, row, column], of which a kernel's results are made."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def batches(self) -> int: ...

    @property
    def along_columns(self) -> int: ...

    @property
    def result(self) -> ir.Value: ...

    def place(self, batch: Index, row: Index, column: Index) -> list[Index]: ...


@dataclass(frozen=True)
class Epilogue:
    """Finishes a product: this block its tile of `tile` (rows, columns), from `first` on, in one batch.

    Sums past the last row or column may be anything.  results: (tensor computed from the product, its buffer), of the
    product's shape.  others: what becomes of this tile in other results.  beside: of the kernel's other products the
    results, of which each piece has sums, too.
    """

    reader: Reader
    product: Whole
    results: Sequence[tuple[ir.Value, ir.Value]]
    tile: tuple[int, int]
    first: tuple[Index, Index]
    batch: Index = 0
    others: list[OtherPart] = field(default_factory=list)
    beside: Sequence[ir.Value] = ()
    rows: dict[Index, Index] = field(default_factory=dict)
    insides: dict[Index, Index] = field(default_factory=dict)

    def without_results(self) -> Epilogue:
        """The same for others alone."""
        return replace(self, results=())

    def write(self, pieces: Sequence[Placed], span: Span | None = None) -> None:
        """Emit all of a thread's pieces.  span: of the tile's columns, in which they are, if it is known."""
        for start in range(0, len(pieces), BATCH):
            batch = pieces[start : start + BATCH]
            finished = self.finished(batch)
            for (piece, _), values in zip(batch, finished, strict=True):
                self._store(piece, values[: len(self.results)])
            self.hand_on(batch, finished, span)

    def hand_on(self, pieces: Sequence[Placed], finished: Sequence[Sequence[ir.Value]], span: Span | None) -> None:
        """Let others take what is finished of some pieces."""
        for number, other in enumerate(self.others, len(self.results)):
            other.put([piece for piece, _ in pieces], [values[number] for values in finished], span)

    def placed(self, pieces: Sequence[ResultRun]) -> list[Placed]:
        """Pieces of the tile at their places, in such as lie together there."""
        width = b.width_of(pieces[0].value) if pieces else 1
        if self.product.along_columns % width:
            pieces = [piece.lane(i) for piece in pieces for i in range(width)]
        found = [replace(x, row=self.row(x.row), output=b.add(self.first[1], x.output)) for x in pieces]
        return [(piece, self._where(piece)) for piece in found]

    def asked(self, pieces: Sequence[ResultRun]) -> list[Placed]:
        """The same, for which reads of what results are made of beside sums are under way."""
        found = self.placed(pieces)
        for piece, where in found:
            for tensor in self._tensors():
                self.reader.preload(tensor, where, b.width_of(piece.value), lambda _: True)
        return found

    def finished(self, pieces: Sequence[Placed]) -> list[list[ir.Value]]:
        """For each piece what becomes of it in each result, and for each of the others."""
        with self.reader.scope():
            return [self._finished(*piece) for piece in pieces]

    def row(self, number: Index) -> Index:
        """Where a row of the tile is in the product: one value for all pieces of it."""
        if number not in self.rows:
            self.rows[number] = b.add(self.first[0], number)
        return self.rows[number]

    def _extents(self) -> tuple[int, int]:
        return self.product.rows, self.product.columns

    def _ragged(self, dimension: int) -> bool:
        """Whether the last tile along rows (0) or columns (1) is not full."""
        return self._extents()[dimension] % self.tile[dimension] != 0

    def _inside(self, row: Index) -> Index:
        """A row, or the last where that is past the end."""
        if row not in self.insides:
            self.insides[row] = b.at_most(row, self.product.rows - 1)
        return self.insides[row]

    def _where(self, piece: ResultRun) -> list[Index]:
        """Where in the results a piece is, or if it is past their end, somewhere where there are operands."""
        width, (_, columns) = b.width_of(piece.value), self._extents()
        row = self._inside(piece.row) if self._ragged(0) else piece.row
        column = b.at_most(piece.output, columns - width) if self._ragged(1) else piece.output
        return self.product.place(self.batch, row, column)

    def prepare(self, rows: Sequence[Index]) -> None:
        """Have what results are made of that is one number for each row read for these rows of the tile."""
        if self.product.batches == 1 and len(shape_of(self.product.result)) == 2:
            for row in rows:
                for tensor in self._tensors():
                    self.reader.prepare(tensor, [self._inside(self.row(row)) if self._ragged(0) else self.row(row)])

    def _finished(self, piece: ResultRun, where: list[Index]) -> list[ir.Value]:
        """The results of a piece."""
        self.reader.bind(self.product.result, lambda index, width: piece.value)
        for result, value in zip(self.beside, piece.beside, strict=True):
            self.reader.hold(result, value)
        return [self.reader.read(tensor, where, b.width_of(piece.value)) for tensor in self._tensors()]

    def _tensors(self) -> list[ir.Value]:
        return [*(tensor for tensor, _ in self.results), *(other.tensor for other in self.others)]

    def _store(self, piece: ResultRun, values: Sequence[ir.Value]) -> None:
        if not self.results:
            return
        place = partial(self.product.place, self.batch, piece.row, piece.output)
        store_results(values, self.results, place, self.live(piece))

    def live(self, piece: ResultRun) -> ir.Value | None:
        """Whether a piece that is placed is in the product; None: it is."""
        inside = [b.less((piece.row, piece.output)[i], self._extents()[i]) for i in (0, 1) if self._ragged(i)]
        return b.both(*inside)


def store_results(
    values: Sequence[ir.Value],
    results: Sequence[tuple[ir.Value, ir.Value]],
    place: list[Index] | Callable[[], list[Index]],
    live: ir.Value | None,
) -> None:
    """Store what a thread has of each result, (tensor, its buffer), at a place, where there is one (None: always)."""

    def store() -> None:
        where = place() if callable(place) else place
        for value, (_, buffer) in zip(values, results, strict=True):
            b.store(value, buffer, where)

    b.if_live(live, store)
