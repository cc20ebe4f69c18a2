"""A long row of an argument that a block of threads reads several times: brought to shared memory once.

Rows that are longer than what threads hold in registers are read again for each reduction and each result.  With a row
for every block that a chip holds, they do not stay in its cache meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    indexing_maps,
    is_elementwise,
    operations,
    shape_of,
)
from lispgpt.passes.kernels.block_memory import ALIGNMENT, BlockMemory
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import Team
from lispgpt.passes.targets import Gpu

BLOCKS = 2
"""That a core is to hold beside each other: while one waits for its row, the other computes."""

OTHER_BYTES = 1024
"""Of a block's shared memory, for reductions."""


def repeated_row(kernel: ir.Operation, rows: tuple[int, ...], longest: int, target: Gpu) -> ir.Value | None:
    """The tensor of an argument whose rows are worth keeping: read more than once, each by its own block, and short
    enough; None where there is none."""
    ops = operations(kernel.regions[0].blocks[0])
    over_rows = ("linalg.reduce", "linalg.softmax", "bufferization.materialize_in_destination")
    walked = [op.operands[0] for op in ops if op.name in over_rows and shape_of(op.operands[0]) == (*rows, longest)]
    for op in ops:
        if op.name != "bufferization.to_tensor" or shape_of(op.results[0]) != (*rows, longest):
            continue
        tensor = op.results[0]
        nbytes = b.item_bytes(tensor.type) * longest + ALIGNMENT + OTHER_BYTES
        repeats = sum(_reads(row, tensor) for row in walked) > 1
        in_place = all(_reads_in_place(use.owner.operation, tensor) for use in tensor.uses)
        if repeats and in_place and nbytes * BLOCKS <= target.dynamic_shared_bytes:
            return tensor
    return None


def _reads(row: ir.Value, tensor: ir.Value) -> bool:
    """Whether elements of a row are computed from those of a tensor's."""
    op = defining_op(row)
    return row == tensor or (is_elementwise(op) and any(_reads(operand, tensor) for operand in op.operands[:-1]))


def _reads_in_place(op: ir.Operation, tensor: ir.Value) -> bool:
    """Whether an op reads a tensor at the place that it computes."""
    if not is_elementwise(op):
        return op.name in ("linalg.reduce", "linalg.softmax")
    maps = [map_ for operand, map_ in zip(op.operands, indexing_maps(op), strict=True) if operand == tensor]
    return all(dim_positions(map_) == list(range(map_.n_dims)) for map_ in maps)


def keep_row(reader: Reader, tensor: ir.Value, row: Sequence[b.Index], target: Gpu) -> BlockMemory:
    """Bring the block's row of a tensor to shared memory, from where it is read from here on."""
    team, extent, element = reader.team, shape_of(tensor)[-1], b.element_of(tensor.type)
    assert isinstance(team, Team)
    memory = BlockMemory(target, b.item_bytes(tensor.type) * extent, True)
    kept = memory.view(0, [extent], element)
    width = b.largest_width(extent, team.item_bytes, target.vector_bytes)

    def bring(numbers: Sequence[b.Index]) -> list[ir.Value]:
        chunks = [team.chunk(number, extent, width) for number in numbers]
        values = [reader.read(tensor, [*row, chunk.start], width) for chunk in chunks]
        for chunk, value in zip(chunks, values, strict=True):
            b.if_live(chunk.live, partial(b.store, value, kept, [chunk.start]))
        return []

    with reader.scope():
        team.each_chunk(team.chunk_count(extent, width), [], bring)
    b.barrier()
    reader.bind(tensor, lambda index, width: b.load(kept, [index[-1]], width))
    return memory
