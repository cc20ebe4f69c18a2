"""What follows a product in its kernel: elementwise ops on the sums, and the stores of the kernel's results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.mlir import ir
from lispgpt.passes.gpu import build as b
from lispgpt.passes.gpu.build import Index
from lispgpt.passes.gpu.read import Reader
from lispgpt.passes.structure import shape_of

BATCH = 16
"""Pieces whose operands are loaded together: a load cannot pass the store ahead of it, and each would wait alone."""


@dataclass(frozen=True)
class Piece:
    """Neighbouring sums of one row, and where in the product they stand."""

    row: Index
    output: Index
    value: ir.Value

    def lane(self, number: int) -> Piece:
        return Piece(self.row, b.add(self.output, number), b.lane_of(self.value, number))


@dataclass(frozen=True)
class Epilogue:
    """Finishes a product [rows, outputs] whose blocks compute tiles of `tile`: (rows, outputs).

    Sums past the last row must be those of the last row (they are stored as it); past the last output they may be
    anything.  results: (tensor computed from the product, the buffer it goes to).
    """

    reader: Reader
    product: ir.Value
    results: Sequence[tuple[ir.Value, ir.Value]]
    tile: tuple[int, int]

    def write(self, pieces: Sequence[Piece]) -> None:
        """Emit all of a thread's pieces."""
        width = b.width_of(pieces[0].value)
        if self._extent(1) % width:
            pieces = [piece.lane(i) for piece in pieces for i in range(width)]
        for start in range(0, len(pieces), BATCH):
            with self.reader.scope():
                batch = [self._within_rows(piece) for piece in pieces[start : start + BATCH]]
                finished = [self._finished(piece) for piece in batch]
            for piece, values in zip(batch, finished, strict=True):
                self._store(piece, values)

    def _extent(self, dimension: int) -> int:
        return shape_of(self.product)[dimension]

    def _within_rows(self, piece: Piece) -> Piece:
        if self._extent(0) % self.tile[0] == 0:
            return piece
        return Piece(b.at_most(piece.row, self._extent(0) - 1), piece.output, piece.value)

    def _finished(self, piece: Piece) -> list[ir.Value]:
        width, output = b.width_of(piece.value), piece.output
        if self._extent(1) % self.tile[1]:
            output = b.at_most(output, self._extent(1) - width)
        self.reader.bind(self.product, lambda index, width: piece.value)
        return [self.reader.read(tensor, [piece.row, output], width) for tensor, _ in self.results]

    def _store(self, piece: Piece, values: list[ir.Value]) -> None:
        def store() -> None:
            for value, (_, buffer) in zip(values, self.results, strict=True):
                b.store(value, buffer, [piece.row, piece.output])

        if self._extent(1) % self.tile[1]:
            b.if_then(b.less(piece.output, self._extent(1)), store)
        else:
            store()
