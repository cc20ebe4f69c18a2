"""`(tensor [i n …] element)` and the library's gathers: elements read at loops' indices, computed or gathered ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz.elementwise import random_tree, tree_value, write_tree
from fuzz.exact import Exact
from fuzz.generate import Builder, offers
from fuzz.program import OPS, Kind, Node, Op, Run
from fuzz.scalars import DTYPES, LETTERS

LOOPS = "ijklm"
Read = dict[str, Any]
"""A leaf of an element: an operand at places, a loop's number, or two loops compared.

letter: its type.  what: "at" (operand and places), "iota" (loop) or "order" (loops).
"""


def write_place(place: tuple[Any, ...], names: list[str]) -> str:
    what, *rest = place
    if what == "fixed":
        return str(rest[0])
    loop = LOOPS[rest[0]]
    if what == "gather":
        return f"(max 0 (min {rest[2] - 1} (at {names[rest[1]]} {loop})))"
    return {
        "loop": "{0}", "flip": "(- {1} {0})", "stride": "(* {1} {0})", "shift": "(+ {0} {1})",
        "late": "(max (- {0} {1}) 0)", "mod": "(mod {0} {1})", "share": "(/ {0} {1})",
    }[what].format(loop, rest[1] if len(rest) > 1 else "")  # fmt: skip


def place_value(place: tuple[Any, ...], grid: list[np.ndarray], values: list[Exact]) -> Exact:
    what, *rest = place
    if what == "fixed":
        return Exact.of(rest[0])
    loop = grid[rest[0]]
    if what == "gather":
        ids = values[rest[1]][loop]
        return Exact(np.clip(ids.value, 0, rest[2] - 1), ids.error)
    step = rest[1] if len(rest) > 1 else 0
    compute: Any = {
        "loop": lambda d: d, "flip": lambda d: step - d, "stride": lambda d: d * step, "shift": lambda d: d + step,
        "late": lambda d: np.maximum(d - step, 0), "mod": lambda d: d % step, "share": lambda d: d // step,
    }[what]  # fmt: skip
    return Exact.of(compute(loop))


def _read_text(read: Read, names: list[str]) -> str:
    if read["what"] == "iota":
        inner = f"(cast {LOOPS[read['loop']]} i32)"
        return f"(cast {inner} f32)" if read["letter"] == "f" else inner
    if read["what"] == "order":
        return f"({read['relation']} {LOOPS[read['loops'][0]]} {LOOPS[read['loops'][1]]})"
    places = " ".join(write_place(place, names) for place in read["places"])
    return f"(at {names[read['operand']]} {places})"


def _read_value(read: Read, grid: list[np.ndarray], values: list[Exact]) -> Exact:
    if read["what"] == "iota":
        number = Exact.of(grid[read["loop"]])
        return Exact.of(number.value.astype(np.float64)) if read["letter"] == "f" else number
    if read["what"] == "order":
        left, right = (grid[d] for d in read["loops"])
        return Exact.of(left <= right if read["relation"] == "<=" else left == right)
    places = [place_value(place, grid, values) for place in read["places"]]
    found = values[read["operand"]][tuple(place.value for place in places)]
    unknown = sum((place.error for place in places), start=np.zeros(()))
    return Exact(found.value, np.where(unknown > 0, np.inf, found.error))


def _write(node: Node, names: list[str]) -> str:
    loops = " ".join(f"{LOOPS[d]} {size}" for d, size in enumerate(node.kind.shape))
    reads = [_read_text(read, names) for read in node.facts["reads"]]
    return f"(tensor [{loops}] {write_tree(node.facts['tree'], reads)})"


def _value(node: Node, operands: list[Exact], _: Run) -> Exact:
    grid = list(np.indices(node.kind.shape))
    found = tree_value(node.facts["tree"], [_read_value(read, grid, operands) for read in node.facts["reads"]])
    return Exact(np.broadcast_to(found.value, node.kind.shape), np.broadcast_to(found.error, node.kind.shape))


OPS["tensor"] = Op(_write, _value)


def _place(builder: Builder, shape: tuple[int, ...], loop: int, operands: list[Node]) -> tuple[tuple[Any, ...], int]:
    """An index made of a loop's, and the size that a dimension must have for it."""
    size = shape[loop]
    what = builder.random.choice(["loop"] * 8 + ["flip", "fixed", "stride", "shift", "late", "mod", "share", "gather"])
    step = builder.random.randint(1, 3)
    if what == "fixed":
        return (what, step - 1), step + builder.random.randint(0, 2)
    if what == "gather":
        rows = builder.size(12)
        operands.append(builder.need((size,), "i32"))
        return (what, loop, len(operands) - 1, rows), rows
    needed = {"stride": (size - 1) * step + 1, "shift": size + step, "mod": step, "share": -(-size // step)}
    if what == "flip":
        return (what, loop, size - 1), size
    if what == "loop":
        return (what, loop), size + (builder.random.randint(1, 3) if builder.chance(0.1) else 0)
    return (what, loop, step), needed.get(what, size)


def _random_read(builder: Builder, shape: tuple[int, ...], letter: str, operands: list[Node], covers: bool) -> Read:
    if not shape or letter == "b":
        loops = [builder.random.randrange(len(shape)) for _ in range(2)] if shape else []
        if letter == "b" and loops:
            return {"what": "order", "loops": loops, "letter": "b", "relation": builder.random.choice(["<=", "="])}
    elif builder.chance(0.1):
        return {"what": "iota", "loop": builder.random.randrange(len(shape)), "letter": letter}
    loops = list(range(len(shape)))
    if not covers and len(loops) > 1 and builder.chance(0.6):
        loops = builder.random.sample(loops, builder.random.randint(1, len(loops) - 1))
    builder.random.shuffle(loops)
    places, sizes = [], []
    for loop in loops:
        place, size = _place(builder, shape, loop, operands)
        places.append(place)
        sizes.append(size)
    operand = builder.need(tuple(sizes), {"f": "bf16" if builder.chance(0.1) else "f32"}.get(letter) or DTYPES[letter])
    operands.append(operand)
    return {"what": "at", "operand": len(operands) - 1, "places": places, "letter": letter}


@offers("f32", "i32", weight=3.0)
def make_comprehension(builder: Builder, kind: Kind) -> Node | None:
    if not kind.shape or len(kind.shape) > len(LOOPS):
        return None
    letters = [LETTERS[kind.dtype], *(builder.random.choice("ffffib") for _ in range(builder.random.randint(0, 2)))]
    operands: list[Node] = []
    reads = [_random_read(builder, kind.shape, letter, operands, i == 0) for i, letter in enumerate(letters)]
    tree = random_tree(builder, letters[0], letters, builder.random.randint(0, 3))
    return builder.add("tensor", kind, *operands, tree=tree, reads=reads)


def _rows_value(node: Node, operands: list[Exact], _: Run) -> Exact:
    table, ids = operands
    found = table[np.clip(ids.value, 0, table.shape[0] - 1)]
    return Exact(found.value, np.where(ids.error[:, None] > 0, np.inf, found.error))


OPS["rows"] = Op(
    lambda node, names: f"(rows {names[0]} (max 0 (min {node.operands[0].kind.shape[0] - 1} {names[1]})))", _rows_value
)


@offers("f32", weight=0.5)
def make_rows(builder: Builder, kind: Kind) -> Node | None:
    if len(kind.shape) != 2:
        return None
    table = builder.need((builder.size(32), kind.shape[1]), builder.random.choice(["f32", "bf16"]))
    return builder.add("rows", kind, table, builder.need(kind.shape[:1], "i32"))
