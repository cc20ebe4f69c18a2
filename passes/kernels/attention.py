"""What an attention kernel's body says: queries, cache, mask and weighted sum, in the terms that schedules need."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, dim_positions, indexing_maps, integers, operations, shape_of
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.views import sliced_index
from lispgpt.passes.model.attention_pattern import match_attention


@dataclass(frozen=True)
class CacheWrite:
    """One loop that writes rows into the cache: `insert` puts row `counter` of `source` at its position."""

    counter: ir.Value
    insert: ir.Operation

    @property
    def source(self) -> ir.Value:
        return self.insert.operands[0]

    def place(self, reader: Reader, row: Index, index: list[Index]) -> list[Index]:
        """Where in the cache element `index` of row `row` goes."""
        reader.indices[self.counter] = row
        return sliced_index(self.insert, list(self.insert.operands[2:]), shape_of(self.source), index, reader)

    def read(self, reader: Reader, row: Index, index: list[Index], width: int) -> ir.Value:
        """Elements of row `row`, as they are stored."""
        reader.indices[self.counter] = row
        return reader.read(self.source, index, width)


@dataclass(frozen=True)
class Attention:
    """scores[rows…, heads…, t] = q · k, then elementwise ops, softmax over t, and the sum weighted by it with v.

    writes: how the rows' own keys and values enter the cache, keys first.  cache: the buffer.
    bound: the tensor whose element bounds t for a row (t <= it), and the map from the scores' loops to it.
    within: that comparison, in the body of the op that masks.
    """

    scores: ir.Operation
    softmax: ir.Operation
    weighted: ir.Operation
    writes: tuple[CacheWrite, ...]
    cache: ir.Value
    updated: tuple[ir.Value, ...]
    bound: tuple[ir.Value, ir.AffineMap] | None
    within: ir.Value | None
    out: ir.Value
    out_buffer: ir.Value

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the loops that one output row has: sequence, position, heads…"""
        return shape_of(self.scores.results[0])[:-1]

    @property
    def length(self) -> int:
        return shape_of(self.scores.results[0])[-1]

    @property
    def depth(self) -> int:
        return shape_of(self.out)[-1]

    def query_index(self, place: list[Index], d: Index) -> list[Index]:
        return self._operand_index(self.scores, 0, place, None, d)

    def key_index(self, place: list[Index], t: Index, d: Index) -> list[Index]:
        return self._operand_index(self.scores, 1, place, t, d)

    def value_index(self, place: list[Index], t: Index, d: Index) -> list[Index]:
        return self._operand_index(self.weighted, 1, place, d, t)

    def _operand_index(
        self, op: ir.Operation, number: int, place: list[Index], last: Index | None, reduced: Index
    ) -> list[Index]:
        """An operand's index from the output's (place…, last) and the reduced loop's."""
        operand, out = indexing_maps(op)[number], indexing_maps(op)[2]
        loops: list[Index | None] = [reduced] * out.n_dims
        for position, index in zip(dim_positions(out), [*place, last], strict=True):
            if position is not None:
                loops[position] = index
        found = [loops[p] for p in dim_positions(operand) if p is not None]
        if any(i is None for i in found):
            raise Refused("attention: a query is indexed by the position it looks at")
        return found

    def last_position(self, reader: Reader, place: list[Index]) -> Index:
        """The largest t that the mask lets through for a row."""
        if self.bound is None:
            return self.length - 1
        tensor, map_ = self.bound
        index = [place[p] for p in dim_positions(map_) if p is not None]
        return b.emit("arith.index_cast", [reader.read(tensor, index)], [ir.IndexType.get()])


def parse_attention(kernel: ir.Operation) -> Attention:
    """Refused where the body is no attention."""
    ops = operations(kernel.regions[0].blocks[0])
    pattern = match_attention(ops)
    if pattern is None:
        raise Refused("an attention kernel has another form than the GPU schedules know")
    tied = integers(kernel.attributes["tied"])
    arguments = list(kernel.regions[0].blocks[0].arguments)
    writes, updated, cache = _cache_writes(ops, tied, arguments)
    result = pattern.weighted.results[0]
    out_buffer = next(buffer for tensor, buffer in outputs_of(kernel) if tensor == result)
    mask = pattern.position_bound()
    bound = (mask[0].operands[mask[1]], indexing_maps(mask[0])[mask[1]]) if mask is not None else None
    return Attention(
        pattern.scores,
        pattern.softmax,
        pattern.weighted,
        writes,
        cache,
        updated,
        bound,
        _chooser(mask[0]) if mask is not None else None,
        result,
        out_buffer,
    )


def _chooser(masked: ir.Operation) -> ir.Value:
    """The condition of the select that an elementwise op ends with."""
    select = defining_op(operations(masked.regions[0].blocks[0])[-1].operands[0])
    assert select is not None
    return select.operands[0]


def _cache_writes(
    ops: list[ir.Operation], tied: list[int], arguments: list[ir.Value]
) -> tuple[tuple[CacheWrite, ...], tuple[ir.Value, ...], ir.Value]:
    """The loops that write keys and values, the cache after each, and its buffer."""
    writes, updated = [], []
    for op in ops:
        if op.name == "scf.for":
            body = op.regions[0].blocks[0]
            insert = next(o for o in operations(body) if o.name == "tensor.insert_slice")
            writes.append(CacheWrite(body.arguments[0], insert))
            updated.append(op.results[0])
    position = next((t for t in tied if t >= 0), None)
    if position is None or len(writes) != 2:
        raise Refused("an attention kernel does not write keys and values to a cache")
    return tuple(writes), tuple(updated), arguments[position]
