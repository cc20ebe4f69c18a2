"""Copies of weights to slots of a block's ring, and how long they stay in the cache of all cores."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.tensor_maps import address_of_map
from lispgpt.ir.threads import lesser, word
from lispgpt.passes.decode_step.chain import Product
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import LINE
from lispgpt.passes.targets import ptx

LASTING = 0.43
"""Of the cache of all cores, what rows of keys and values and the lm head's weights may fill: of more each would drive
out another before it is read again.  The lm head's are those that do not come ahead of it, in what rows leave.  GPT-2
of 124M on an H100, of BF16, at 64: 95.3 us a token, without 99.6; 97.6 with a half of that, 96.1 with a half more."""

LARGEST = 2**31 - 1
"""Number in a word."""


def weight_map(kernel: ir.Operation, product: Product, layers: int, argument: int, rows: int, lines: int) -> ir.Value:
    """The address of a map of a product's weights, for boxes of rows: of some lines of 64 from a tensor's as [layers,
    lines, rows, 64], or, where lines is 0, of 64 columns from one's as [layers, rows, columns]."""
    i64 = ir.IntegerType.get_signless(64)
    pitch = 2 * product.depth
    if lines:
        extents, strides, box = [LINE, product.rows, product.depth // LINE], [pitch, 2 * LINE], [LINE, rows, lines]
    else:
        extents, strides, box = [product.depth, product.rows], [pitch], [LINE, rows]
    if layers > 1:
        extents, strides, box = [*extents, layers], [*strides, product.weights.stride], [*box, 1]
    fields: dict[str, ir.Attribute] = {
        "argument": ir.IntegerAttr.get(i64, argument),
        "offset": ir.IntegerAttr.get(i64, product.weights.first),
        "dtype": ir.StringAttr.get("bf16"),
        "extents": ir.DenseI64ArrayAttr.get(extents),
        "strides": ir.DenseI64ArrayAttr.get(strides),
        "box": ir.DenseI64ArrayAttr.get(box),
    }
    return address_of_map(kernel, ir.DictAttr.get(fields))


class Copies:
    """By one thread.  passing, lasting: what copies say of bytes that are read once a run."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.passing, self.lasting = ptx.policy("evict_first"), ptx.policy("evict_last")

    def rows_at(self, name: str, row: Number) -> Any:
        """Where a product's box of 8 rows starts, or the number of their packed chunk."""
        packed = self.launch.layout.packed.get(name)
        return [0, row, 0] if packed is None else lesser((row + 7) // 8, word(packed.chunks - 1))

    def lm_head_at(self, number: Number) -> Any:
        """The same of the block's number-th chunk of the lm head."""
        return self.rows_at("lm_head", self.launch.row_of_lm_head(number * 8))

    def bring(self, name: str, at: Any, slot: Number, barrier: Number, hint: Number, layer: Number) -> None:
        """Start to bring a product's chunk to a slot; the barrier counts its bytes."""
        launch, layout = self.launch, self.launch.layout
        ptx.expect(barrier, layout.chunk_bytes(name))
        packed, to = layout.packed.get(name), launch.start + slot * layout.chunk
        if packed is None:
            ptx.copy_box(launch.maps[name], at, to, barrier, hint)
            return
        offset = ptx.wide(at) * packed.chunk
        if packed.parts > 1:
            offset = offset + ptx.wide(launch.rank) * packed.part
        if layout.layers_of(name) > 1:
            offset = offset + ptx.wide(layer) * (packed.parts * packed.part)
        source = ptx.pointer(launch.memories[layout.packed_at[name]], offset)
        ptx.copy_bytes(source, packed.chunk, to, barrier, hint)


def lasting_rows(launch: Launch) -> float:
    """The share of the cache's rows that can wait in the cache of all cores for the next run."""
    every = launch.layout.context * _position_bytes(launch)
    return min(1.0, max(0.01, LASTING * launch.target.l2_bytes / every))


def lasting_lm_chunks(launch: Launch, position: Number) -> Number:
    """How many chunks of the lm head a block leaves there, beside rows of all positions ahead of one."""
    layout, room = launch.layout, LASTING * launch.target.l2_bytes
    most = int(room / (layout.blocks * layout.chunk_bytes("lm_head")))
    positions = max(1, min(int(room / _position_bytes(launch)), LARGEST // max(1, most)))
    return (positions - lesser(position, word(positions))) * most // positions


def _position_bytes(launch: Launch) -> int:
    """Of a position's keys and values, of all heads in all layers."""
    layout = launch.layout
    return 2 * layout.layers * layout.heads.kept * layout.heads.row_bytes
