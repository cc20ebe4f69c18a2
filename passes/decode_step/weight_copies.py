"""Copies of weights to slots of a block's ring, and how long they stay in the cache of all cores.

One thread of each block brings its chunks to the ring, in the order in which they are used, ahead of all that is
computed.  Few chunks are under way at once, as what clusters publish would queue behind them.  Of the lm head's it
brings as many as the ring has slots; the subgroups that read these bring the others (lm_head.py).  Of several
sequences, and of BF16 that is walked through, it brings all, and while the lm head is multiplied more are under way.
"""

from __future__ import annotations

from typing import Any

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import each, either, given, lesser, loop, turns, word
from lispgpt.passes.decode_step.chain import Product
from lispgpt.passes.decode_step.kv_cache import bring_rows
from lispgpt.passes.decode_step.launch import Launch, Role, box_map
from lispgpt.passes.decode_step.layout import LINE, RANKS
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
    pitch, weights = 2 * product.depth, product.weights
    line, own = (LINE, LINE), [(product.rows, pitch, rows), (product.depth // LINE, 2 * LINE, lines)]
    if not lines:
        line, own = (product.depth, LINE), own[:1]
    return box_map(kernel, argument, weights.first, line, own, [(layers, weights.stride, 1)])


def chunks_ahead(launch: Launch) -> Number:
    """How many of the lm head's chunks the weight copier brings."""
    return lesser(launch.heads, word(launch.layout.stages)) if launch.layout.brings else launch.heads


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
            at = [*at, layer] if layout.layers_of(name) > 1 else at
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


UNDER_WAY_IN_LM_HEAD = 8
"""Chunks of a block that are brought at once while the lm head of several sequences is multiplied; Layout.under_way:
ahead."""


class WeightCopier(Role):
    def emit(self) -> None:
        """By one thread."""
        launch, layout = self.launch, self.launch.layout
        self.copies = Copies(launch)
        if self.launch.layout.near:
            self.row_hint = ptx.policy("evict_last", lasting_rows(launch))

        def run(number: Number, chunk: Number) -> list[Number]:
            def layers() -> list[Number]:
                with turns(0, layout.layers) as layer:
                    self._layer(number, layer, chunk + layer * layout.layer_chunks)
                return [chunk + layout.layers * layout.layer_chunks]

            (chunk,) = either(launch.layered, "r", layers, lambda: [chunk])
            ahead = chunks_ahead(launch)
            each(0, ahead, lambda i: self._head(i, chunk + i))
            return [chunk + ahead]

        loop(0, launch.times, [word(0)], run)

    def _layer(self, run: Number, layer: Number, first_chunk: Number) -> None:
        launch, layout = self.launch, self.launch.layout
        boxes: list[tuple[str, Any]] = []
        for i in range(layout.qkv_tiles):
            row = launch.row_of_heads(word(8 * RANKS * i) + launch.rank * 8)
            boxes.append(("qkv", self.copies.rows_at("qkv", row)))
        column = launch.rank * layout.columns
        first = launch.share * (layout.each * layout.depth) if layout.head_clusters > 1 else word(0)
        first = (launch.cluster < layout.head_clusters).where(first, launch.chain.out_projection.depth)
        if "out_projection" in layout.packed:
            begin, end = launch.share * (layout.attended // LINE), word(layout.packed["out_projection"].chunks - 1)
            own = launch.cluster < layout.head_clusters
            boxes += [
                ("out_projection", own.where(lesser(begin + i, end), end)) for i in range(layout.attended // LINE)
            ]
        else:
            boxes += [("out_projection", [first + LINE * i, column]) for i in range(layout.attended // LINE)]
        up = launch.cluster * layout.hidden + launch.rank * layout.hidden_rows
        for number in range(len(launch.chain.gate_up)):
            name = f"up{number}"
            boxes += [(name, self.copies.rows_at(name, up + 8 * i)) for i in range(layout.hidden_rows // 8)]
        for i in range(layout.hidden // LINE):
            if "down" in layout.packed:
                place = launch.cluster * (layout.hidden // LINE) + i
                boxes.append(("down", lesser(place, word(layout.packed["down"].chunks - 1))))
            else:
                boxes.append(("down", [launch.cluster * layout.hidden + LINE * i, column]))
        for i, (name, at) in enumerate(boxes):
            if i == layout.first_up and layout.near:
                bring_rows(launch, run, layer, self.row_hint)
            self._bring(first_chunk + i, name, at, layer, word(layout.under_way))

    def _head(self, number: Number, chunk: Number) -> None:
        under_way, stages = word(self.launch.layout.under_way), self.launch.layout.stages
        if not self.launch.layout.brings:
            under_way = (number < stages).where(under_way, min(UNDER_WAY_IN_LM_HEAD, stages - 1))
        self._bring(chunk, "lm_head", self.copies.lm_head_at(number), word(0), under_way)

    def _bring(self, chunk: Number, name: str, at: Any, layer: Number, under_way: Number) -> None:
        """Bring a chunk, once its slot is empty and all but so many ahead of it are there."""
        launch = self.launch
        slot, parity = launch.slot(chunk)
        ptx.wait(launch.empty(slot), parity ^ 1)
        with given(chunk >= under_way):
            past, phase = launch.slot(chunk - under_way)
            ptx.wait(launch.full(past), phase)
        self.copies.bring(name, at, slot, launch.full(slot), self.copies.passing, layer)
