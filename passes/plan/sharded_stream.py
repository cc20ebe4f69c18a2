"""The weights' stream of a sharded launch: one thread of each block brings its chunks to a ring, in the order in which
they are used, ahead of all that is computed.

While the stream's exchanges go on few chunks are under way at once, as what clusters tell each other would queue behind
them; while the head is multiplied, more.
"""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.tensor_maps import address_of_map
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, each, either, lesser, loop, when, word
from lispgpt.passes.plan.sharded_cache import bring_rows
from lispgpt.passes.plan.sharded_chain import Product
from lispgpt.passes.plan.sharded_launch import Launch
from lispgpt.passes.plan.sharded_layout import LINE, RANKS

UNDER_WAY_IN_HEAD = 8
"""Chunks of a block that are brought at once while the head is multiplied; Layout.under_way: ahead of it."""
LASTING = 0.43
"""Of the cache of all cores, what rows may fill: of more each would drive out another before it is read again."""


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


class Streamer:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.most = launch.layout.stages - 1

    def emit(self) -> None:
        """By one thread."""
        launch, layout = self.launch, self.launch.layout
        self.hint = c.policy("evict_first")
        if self.launch.layout.near:
            self.row_hint = c.policy("evict_last", self._lasting())

        def run(number: Word, chunk: Word) -> list[Word]:
            def layers() -> list[Word]:
                def layer(layer: Word) -> None:
                    self._layer(number, layer, chunk + layer * layout.layer_chunks)

                each(0, layout.layers, layer)
                return [chunk + layout.layers * layout.layer_chunks]

            (chunk,) = either(launch.layered, "r", layers, lambda: [chunk])
            each(0, launch.heads, lambda i: self._head(i, chunk + i))
            return [chunk + launch.heads]

        loop(0, launch.times, [word(0)], run)

    def _lasting(self) -> float:
        """The share of the cache's rows that can wait in the cache of all cores for the next run."""
        layout, rows = self.launch.layout, self.launch.layout.heads.rows
        assert rows is not None
        every = 2 * layout.layers * layout.heads.kept * layout.context * rows.row_bytes
        return min(1.0, max(0.01, LASTING * self.launch.target.l2_bytes / every))

    def _layer(self, run: Word, layer: Word, first_chunk: Word) -> None:
        launch, layout = self.launch, self.launch.layout
        where = [] if layout.layers == 1 else [layer]
        boxes: list[tuple[str, Any]] = []
        for i in range(layout.into_tiles):
            boxes.append(("into", self._rows("into", launch.row_of_heads(word(8 * RANKS * i) + launch.rank * 8))))
        column = launch.rank * layout.columns
        first = launch.share * (layout.each * layout.depth) if layout.head_clusters > 1 else word(0)
        first = (launch.cluster < layout.head_clusters).where(first, launch.chain.out.depth)
        if "out" in layout.packed:
            begin, end = launch.share * (layout.attended // LINE), word(layout.packed["out"].chunks - 1)
            own = launch.cluster < layout.head_clusters
            boxes += [("out", own.where(lesser(begin + i, end), end)) for i in range(layout.attended // LINE)]
        else:
            boxes += [("out", [first + LINE * i, column]) for i in range(layout.attended // LINE)]
        up = launch.cluster * layout.hidden + launch.rank * layout.hidden_rows
        for number in range(len(launch.chain.ups)):
            name = f"up{number}"
            boxes += [(name, self._rows(name, up + 8 * i)) for i in range(layout.hidden_rows // 8)]
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
            under_way = word(min(layout.under_way * self._share(name), self.most))
            self._bring(first_chunk + i, name, at, under_way, layer)

    def _rows(self, name: str, row: Word) -> Any:
        """Where a box of 8 rows starts, or the number of their packed chunk."""
        packed = self.launch.layout.packed.get(name)
        return [0, row, 0] if packed is None else lesser((row + 7) // 8, word(packed.chunks - 1))

    def _share(self, name: str) -> int:
        """How many of a product's chunks are as many bytes as one of BF16."""
        return 2 if name in self.launch.layout.packed else 1

    def _head(self, number: Word, chunk: Word) -> None:
        row = self.launch.row_of_head(number * 8)
        begins = number < self.launch.layout.stages
        self._bring(chunk, "head", self._rows("head", row), self._paced(begins), word(0))

    def _paced(self, begins: Word) -> Word:
        few, many = (min(n * self._share("head"), self.most) for n in (self.launch.layout.under_way, UNDER_WAY_IN_HEAD))
        return begins.where(word(few), many)

    def _bring(self, chunk: Word, name: str, at: Any, under_way: Word, layer: Word) -> None:
        """Bring a chunk, once its slot is empty and all but so many ahead of it are there."""
        launch, layout = self.launch, self.launch.layout
        slot, parity = launch.slot(chunk)
        c.wait(launch.empty(slot), parity ^ 1)

        def pace() -> None:
            earlier, phase = launch.slot(chunk - under_way)
            c.wait(launch.full(earlier), phase)

        when(chunk >= under_way, pace)
        full = launch.full(slot)
        c.expect(full, layout.chunk_bytes(name))
        packed = layout.packed.get(name)
        if packed is None:
            c.copy_box(launch.maps[name], at, launch.start + slot * layout.chunk, full, self.hint)
            return
        offset = c.wide(at) * packed.chunk
        if packed.parts > 1:
            offset = offset + c.wide(launch.rank) * packed.part
        if layout.layers_of(name) > 1:
            offset = offset + c.wide(layer) * (packed.parts * packed.part)
        source = c.pointer(launch.memories[layout.packed_at[name]], offset)
        c.copy_bytes(source, packed.chunk, launch.start + slot * layout.chunk, full, self.hint)
