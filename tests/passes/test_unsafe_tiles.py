"""Tile programs that a chip may not run: changed at random in what keeps them safe, and refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from changed_tiles import Change, moved, replaced, shifted, without
from tile_programs import WAYS, kernel_of

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir, new_context
from lispgpt.passes.targets import find_target
from lispgpt.passes.tile.check_types import Unsafe
from lispgpt.passes.tile.verify import verify

SWIZZLE = replaced(r"swizzle = (\d+)", lambda place, _: f"swizzle = {0 if place[1] == '128' else 128}")
TYPES = replaced(r"(memref<(?:\dx)?1x)(32|64)(?=x)", lambda place, _: f"{place[1]}{int(place[2]) + 16}")
CHANGES: dict[str, dict[str, Change]] = {
    "one slot": {"barrier": without("gpu.barrier"), "swizzle": SWIZZLE, "types": TYPES},
    "two slots": {
        "barrier": without("gpu.barrier"),
        "slot": shifted(r"tile\.slot\""),
        "swizzle": SWIZZLE,
        "types": TYPES,
    },
    "pieces": {
        "barrier": without("gpu.barrier"),
        "drain": without(r'"tile\.drain"'),
        "fill": without(r'"tile\.fill"'),
        "groups": replaced(
            r"(ahead = )(\d)", lambda place, rng: f"{place[1]}{int(place[2]) + int(rng.integers(1, 3))}"
        ),
        "numbers": shifted(r"tile\.(?:wait|fill)\""),
        "swizzle": SWIZZLE,
        "types": TYPES,
    },
    "boxes": {
        "release": without(r'"tile\.release"'),
        "early release": moved(r'"tile\.release"', r"tile\.mma"),
        "fill": without(r'"tile\.fill"'),
        "numbers": shifted(r"tile\.(?:wait|fill|release)\""),
        "bound": replaced(r"(%c)(\d+)(?=(?:_\d+)? step)", lambda place, _: "%short"),
        "swizzle": SWIZZLE,
        "types": TYPES,
    },
}
CHANGES["pieces beside loads"] = {**CHANGES["pieces"], "slot": CHANGES["two slots"]["slot"]}


def refused(name: str, kind: str, text: str, rng: np.random.Generator, context: ir.Context) -> None:
    changed = CHANGES[name][kind](text, rng)
    if kind == "bound":
        place = changed.index('"tile.ring"')
        start = changed.rindex("\n", 0, place) + 1
        changed = f"{changed[:start]}    %short = arith.constant 3 : index\n{changed[start:]}"
    assert changed != text
    try:
        module = ir.Module.parse(changed, context)
    except ir.MLIRError:
        return  # MLIR's own verifier has refused it
    with pytest.raises(Unsafe):
        verify(kernel_of(module), find_target(WAYS[name].target))
        print(f"not refused, changed by {kind}:\n{changed}")


@pytest.mark.parametrize("name", CHANGES)
def test_no_unsafe_program_is_taken(name: str, tmp_path: Path) -> None:
    rng = seeded.rng()
    with new_context() as context, ir.Location.unknown():
        text = str(WAYS[name].module(WAYS[name].product(40, 40, 6 * WAYS[name].step + 8), tmp_path))
        for kind in CHANGES[name]:
            for _ in range(3):
                refused(name, kind, text, rng, context)


@pytest.mark.slow
def test_none_of_a_thousand_unsafe_programs_is_taken(tmp_path: Path) -> None:
    rng = seeded.rng()
    for name, kinds in CHANGES.items():
        for steps in (4, 7, 40):
            with new_context() as context, ir.Location.unknown():
                text = str(WAYS[name].module(WAYS[name].product(40, 40, steps * WAYS[name].step + 8), tmp_path))
                for kind in kinds:
                    for _ in range(20):
                        refused(name, kind, text, rng, context)


def test_a_refusal_says_what_is_wrong_and_where(tmp_path: Path) -> None:
    with new_context() as context, ir.Location.unknown():
        text = str(WAYS["one slot"].module(WAYS["one slot"].product(40, 40, 256), tmp_path))
        module = ir.Module.parse(without("gpu.barrier")(text, seeded.rng()), context)
        with pytest.raises(UserError, match=r"tile\.\w+: it (reads|writes) a slot"):
            verify(kernel_of(module), find_target("rocm:gfx1151"))
