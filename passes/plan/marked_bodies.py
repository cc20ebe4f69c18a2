"""A step's body with marked words (see marked_words.py) in the place of some of its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, operations
from lispgpt.passes.kernels.marked_words import WIDEST, Layout, MarkedWords

LOADS = ("memref.load", "vector.load")
RECKONED = ("arith.", "gpu.thread_id", "gpu.block_id")
"""How ops are called that are the same wherever they stand."""


@dataclass(frozen=True)
class Place:
    """Words from `first` on of those that lie from byte address `start` on."""

    start: Index
    first: int
    layout: Layout


def mark_arguments(body: ir.Block, places: Mapping[ir.Value, Place], words: MarkedWords) -> None:
    """Let a body load and store marked words in place of these arguments, which it does nothing else with.

    Loads that can stand together wait together.
    """
    for block in _blocks(body):
        used = [op for op in operations(block) if _memory(op) in places]
        loads = [op for op in used if op.name in LOADS]
        for store in [op for op in used if op not in loads]:
            _store(store, places, words)
        while loads:
            first, *rest = loads
            order = {op: i for i, op in enumerate(operations(block))}
            group = [first, *(op for op in rest if lift(op, first, order))]
            loads = [op for op in rest if op not in group]
            _poll(group, places, words)


def _blocks(block: ir.Block) -> Iterator[ir.Block]:
    yield block
    for op in operations(block):
        for region in op.regions:
            for inner in region.blocks:
                yield from _blocks(inner)


def _memory(op: ir.Operation) -> ir.Value | None:
    if op.name in LOADS:
        return op.operands[0]
    return op.operands[1] if op.name in ("memref.store", "vector.store") else None


def lift(op: ir.Operation, first: ir.Operation, order: dict[ir.Operation, int]) -> bool:
    """Make an op's indices ahead of `first`, where they depend on nothing else behind it than such; whether they do.

    order: the numbers of the ops of their block, by which those that have been moved come first.
    """
    moved: dict[ir.Operation, None] = {}
    waiting = list(op.operands)[1:]
    while waiting:
        made = defining_op(waiting.pop())
        if made is None or order.get(made, -1) < order[first] or made in moved:
            continue
        if not made.name.startswith(RECKONED):
            return False
        moved[made] = None
        waiting += list(made.operands)
    for made in sorted(moved, key=order.__getitem__):
        made.move_before(first)
        order[made] = -1
    return True


def _poll(group: Sequence[ir.Operation], places: Mapping[ir.Value, Place], words: MarkedWords) -> None:
    """Load what a group loads, each of it once."""
    known: dict[object, list[ir.Operation]] = {}
    for op in group:
        indices = tuple(_key(index) for index in list(op.operands)[1:])
        known.setdefault((op.operands[0], str(op.results[0].type), indices), []).append(op)
    alike = list(known.values())
    with ir.InsertionPoint(group[0]):
        wanted = [_parts(same[0], places[same[0].operands[0]]) for same in alike]
        for same, value in zip(alike, words.poll(wanted), strict=True):
            if isinstance(same[0].results[0].type, ir.VectorType) and not isinstance(value.type, ir.VectorType):
                value = b.emit("vector.broadcast", [value], [same[0].results[0].type])
            for op in same:
                op.results[0].replace_all_uses_with(value)
    for op in group:
        op.erase()


def _key(value: ir.Value) -> object:
    """Equal for values that are reckoned alike."""
    op = defining_op(value)
    if op is None or not op.name.startswith("arith."):
        return value
    attributes = tuple((name, str(op.attributes[name])) for name in op.attributes)
    return op.name, attributes, str(value.type), tuple(map(_key, op.operands))


def _parts(load: ir.Operation, place: Place) -> list[tuple[Index, int]]:
    """Where the words of a load are, as addresses and how many can be loaded at once from there."""
    width, number = b.width_of(load.results[0]), _number(list(load.operands), place)
    aligned = load.name == "vector.load" and "alignment" in load.attributes
    step = min(width, WIDEST)
    if not aligned or ir.IntegerAttr(load.attributes["alignment"]).value < 4 * step or place.first % step:
        step = 1
    step = step if step in (2, WIDEST) else 1
    return [(_address(b.add(number, i), place), step) for i in range(0, width, step)]


def _store(op: ir.Operation, places: Mapping[ir.Value, Place], words: MarkedWords) -> None:
    value, memory, *indices = op.operands
    with ir.InsertionPoint(op):
        number = _number([memory, *indices], places[memory])
        for i in range(b.width_of(value)):
            words.store(b.lane_of(value, i), _address(b.add(number, i), places[memory]))
    op.erase()


def _number(operands: Sequence[ir.Value], place: Place) -> Index:
    """Of a word, by an argument and indices into it."""
    memory, *indices = operands
    found: Index = 0
    for index, extent in zip(indices, memory.type.shape, strict=True):
        found = b.add(b.mul(found, extent), index)
    return b.add(found, place.first)


def _address(number: Index, place: Place) -> Index:
    return b.add(place.start, b.mul(place.layout.place(number), 4))
