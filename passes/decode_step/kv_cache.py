"""Rows of the cache in a clustered launch that lie in a block's memory: brought there by bulk copies, a layer ahead.

They come with the stream of weights, behind what stands ahead of attention, once the rows of the layer ahead have been
read and its attention is over.  The heads of a cluster lie one behind the other, of each its keys and its values, of
these each line of 128 bytes of all rows: as tensor maps bring them, with pieces of 16 bytes changed for each other in
each line.
"""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import lesser, turns, when, word
from lispgpt.passes.decode_step.chain import Chain
from lispgpt.passes.decode_step.launch import Launch, box_map
from lispgpt.passes.decode_step.layout import LINE, RANKS, SUBGROUPS, Layout
from lispgpt.passes.targets import ptx

LINE_BYTES = 2 * LINE
KINDS = ("keys", "values")
BOX = 8
"""Rows that a copy brings, but the last few."""
ARRIVALS = {"read": SUBGROUPS}
"""How many arrive at a barrier that is not for one."""


def row_maps(kernel: ir.Operation, chain: Chain, layout: Layout, argument: int) -> dict[str, ir.Value]:
    """Maps of a rank's keys and values for boxes of one row and of several, as [layers, heads, rows of a rank, ranks,
    bytes of a row]; argument: the kernel's that is the cache."""
    rows, cache = layout.heads.rows, chain.cache
    assert rows is not None
    outer = [(layout.heads.kept, rows.head, 1), (layout.layers, cache.stride, 1)]
    found = {}
    for kind, first in zip(KINDS, rows.firsts, strict=True):
        for count in (1, BOX):
            own = [(RANKS, rows.position, 1), (layout.context // RANKS, RANKS * rows.position, count)]
            line = layout.heads.row_bytes // 2, LINE
            found[f"{kind} {count}"] = box_map(kernel, argument, cache.first + first, line, own, outer)
    return found


def bring_rows(launch: Launch, run: Number, layer: Number, hint: Number) -> None:
    """By the thread that brings weights: a layer's rows, once those of the layer ahead are read."""
    layout, parity = launch.layout, launch.at_layer(run, layer)
    ptx.wait(launch.barrier("read"), parity ^ 1)
    count = lesser(launch.past(launch.position + run), word(layout.near_rows))
    ptx.expect(launch.barrier("rows"), count * (2 * layout.kv * layout.heads.row_bytes))
    whole = count // BOX * BOX
    for size, start, end in ((BOX, 0, whole), (1, whole, count)):
        with turns(start, end, size) as first, turns(0, layout.kv) as shared:
            _bring(launch, layer, shared, first, size, hint)


def _bring(launch: Launch, layer: Number, shared: Number, first: Number, size: int, hint: Number) -> None:
    """So many rows of one head, from one on."""
    layout = launch.layout
    at: list[Number] = [launch.rank, first]
    if layout.heads.kept > 1:
        at.append(launch.head_of_keys(shared))
    if layout.layers > 1:
        at.append(layer)
    for kind, name in enumerate(KINDS):
        for line in range(layout.row_lines):
            place = _line(launch, shared, kind, word(line)) + first * LINE_BYTES
            ptx.copy_box(launch.maps[f"{name} {size}"], [word(LINE * line), *at], place, launch.barrier("rows"), hint)


def _line(launch: Launch, shared: Number, kind: int, line: Number) -> Number:
    """Where a line of all rows starts."""
    layout = launch.layout
    number = (shared * 2 + kind) * layout.row_lines + line
    return launch.place("rows") + number * (layout.near_rows * LINE_BYTES)


def rows_there(launch: Launch, parity: Number) -> None:
    """Wait for a layer's rows."""
    ptx.wait(launch.barrier("rows"), parity)


def row_words(launch: Launch, shared: Number, row: Number, byte: Number, count: int) -> list[Number]:
    """So many words of a row's key and value each, from a byte on."""
    words: list[Number] = []
    for kind in range(len(KINDS)):
        for more in range(0, 4 * count, 16):
            at = byte + more
            place = _line(launch, shared, kind, at // LINE_BYTES) + row * LINE_BYTES + at % LINE_BYTES
            words += ptx.load_words(place ^ ((place >> 7 & 7) << 4), 4)
    return words


def release_rows(launch: Launch, layer: Number) -> None:
    """By a subgroup that has read a layer's rows; what it has written to the cache is for the next run's copies, which
    come behind the last layer."""
    b.either((layer == launch.layout.layers - 1).value, ptx.fence_all_copies, ptx.fence_copies)
    ptx.subgroup_barrier()
    when(launch.lane == 0, lambda: ptx.arrive(launch.barrier("read"), 1))
