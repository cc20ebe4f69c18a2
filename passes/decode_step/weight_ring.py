"""The weights' stream of a clustered launch: one thread of each block brings its chunks to a ring, in the order in
which they are used, ahead of all that is computed.

Few chunks are under way at once, as what clusters publish would queue behind them.  Of the lm head's it brings as
many as the ring has slots; the subgroups that read these bring the others (lm_head_ring.py).  Of several sequences,
and of BF16 that is walked through, it brings all, and while the lm head is multiplied more are under way.
"""

from __future__ import annotations

from typing import Any

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import each, either, lesser, loop, when, word
from lispgpt.passes.decode_step.kv_cache import bring_rows
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import LINE, RANKS
from lispgpt.passes.decode_step.lm_head_ring import chunks_ahead
from lispgpt.passes.decode_step.weight_copies import Copies, lasting_rows
from lispgpt.passes.targets import ptx

UNDER_WAY_IN_LM_HEAD = 8
"""Chunks of a block that are brought at once while the lm head of several sequences is multiplied; Layout.under_way:
ahead."""


class WeightCopier:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    def emit(self) -> None:
        """By one thread."""
        launch, layout = self.launch, self.launch.layout
        self.copies = Copies(launch)
        if self.launch.layout.near:
            self.row_hint = ptx.policy("evict_last", lasting_rows(launch))

        def run(number: Number, chunk: Number) -> list[Number]:
            def layers() -> list[Number]:
                def layer(layer: Number) -> None:
                    self._layer(number, layer, chunk + layer * layout.layer_chunks)

                each(0, layout.layers, layer)
                return [chunk + layout.layers * layout.layer_chunks]

            (chunk,) = either(launch.layered, "r", layers, lambda: [chunk])
            ahead = chunks_ahead(launch)
            each(0, ahead, lambda i: self._head(i, chunk + i))
            return [chunk + ahead]

        loop(0, launch.times, [word(0)], run)

    def _layer(self, run: Number, layer: Number, first_chunk: Number) -> None:
        launch, layout = self.launch, self.launch.layout
        where = [] if layout.layers == 1 else [layer]
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
            at = at if name in layout.packed else [*at, *where]
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

        def pace() -> None:
            past, phase = launch.slot(chunk - under_way)
            ptx.wait(launch.full(past), phase)

        when(chunk >= under_way, pace)
        self.copies.bring(name, at, slot, launch.full(slot), self.copies.passing, layer)
