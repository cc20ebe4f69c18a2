"""Entries of tile programs: the words that schedules are written with, and the ops that they become."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lispgpt.ir.tile_dialect import ARITIES
from lispgpt.passes import tile
from lispgpt.reference.entry import Entry
from lispgpt.reference.pages import said_in

PLACE = "passes/tile/__init__.py"
SHOW = "lispgpt compile product.lisp --target {} --print-ir-after choose-tiles"
SHOWN_FOR = {
    **dict.fromkeys(("fill", "wait", "member", "ring", "drain", "add_parts", "team", "keep", "ask"), "cuda:sm_80"),
    **dict.fromkeys(("role", "release", "clear", "meet", "fetch", "settle"), "cuda:sm_90a"),
    **dict.fromkeys(("reduce_rows", "reach", "weights"), "rocm:gfx942"),
    **dict.fromkeys(("limit", "visible", "mask", "reduce", "over_members", "broadcast", "as_operand"), "rocm:gfx1201"),
    **dict.fromkeys(("operand", "split"), "cuda:sm_90"),
}
"""For which chip an op is what a schedule becomes; others are for every chip."""


def words(only: str | None = None) -> Iterator[Entry]:
    """One for each word of schedules; or for one alone."""
    for name, about in said_in("tile.md").items():
        if only in (None, name):
            written = re.search(rf"\({re.escape(name)}[ )][^`]*", about.text)
            related = tuple(other for other in about.names if other != name)
            signature = written.group() if written else f"({name} p)"
            yield Entry(
                name, "tile", signature, about.text, about.example, "compiler/schedules.py", related, about.text
            )


def ops(only: str | None = None) -> Iterator[Entry]:
    """One for each op of the dialect; or for one alone."""
    page = re.search(r"\*\*Ops\*\*\n\n(.*?)\n\n\S", tile.__doc__ or "", re.DOTALL)
    said = re.split(r"^    (?=tile\.)", page.group(1) if page else "", flags=re.MULTILINE)
    lines = {line.split()[0].rstrip(":").removeprefix("tile."): " ".join(line.split()) for line in said if line.strip()}
    for name, (takes, gives) in ARITIES.items():
        if only not in (None, f"op tile.{name}"):
            continue
        signature = f"{gives} = tile.{name} {takes}" if gives else f"tile.{name} {takes}"
        example = SHOW.format(SHOWN_FOR.get(name, "rocm:gfx1151"))
        others = tuple(f"op tile.{other}" for other in ARITIES if set(ARITIES[other][0].split()) & set(gives.split()))
        yield Entry(f"op tile.{name}", "tile", signature.strip(), lines.get(name, ""), example, PLACE, others)
