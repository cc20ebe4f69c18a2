"""Matrix products as vector loops, against numpy, in every layout that the pass knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import seeded

pytestmark = pytest.mark.drawn

CASES = {
    "rows and columns that fill tiles": ("mk,kn->mn", {"m": 8, "k": 24, "n": 64}, "f32"),
    "what is left over in every direction": ("mk,kn->mn", {"m": 7, "k": 13, "n": 75}, "bf16"),
    "fewer columns than a tile": ("mk,kn->mn", {"m": 33, "k": 19, "n": 10}, "f32"),
    "transposed second operand": ("mk,nk->mn", {"m": 5, "k": 50, "n": 31}, "bf16"),
    "transposed first operand": ("km,kn->mn", {"m": 6, "k": 17, "n": 64}, "f32"),
    "operands in the other order": ("kn,mk->mn", {"m": 9, "k": 16, "n": 40}, "f32"),
    "vector times matrix": ("k,kn->n", {"k": 70, "n": 100}, "f32"),
    "matrix times vector": ("nk,k->n", {"k": 48, "n": 101}, "bf16"),
    "matrix times vector, in blocks of rows": ("unk,k->un", {"u": 5, "n": 9, "k": 120}, "bf16"),
    "a batch": ("bmk,bkn->bmn", {"b": 3, "m": 5, "k": 16, "n": 36}, "f32"),
    "attention scores": ("thd,shd->hts", {"h": 2, "t": 6, "s": 9, "d": 48}, "f32"),
    "attention sums": ("hts,shd->htd", {"h": 2, "t": 5, "s": 11, "d": 64}, "f32"),
}


def memref(dims: str, extents: dict[str, int], element: str, unknown: str = "") -> str:
    shape = "".join("?x" if d in unknown else f"{extents[d]}x" for d in dims)
    return f"memref<{shape}{element}>"


def constant(name: str, dims: str, extents: dict[str, int], element: str, values: np.ndarray) -> str:
    numbers = values.astype(np.float64).tolist()
    return f"memref.global constant @{name} : {memref(dims, extents, element)} = dense<{numbers}>"


def product(spec: str, extents: dict[str, int], element: str, unknown: str = "") -> str:
    """main's body: %o starts at 1 and gets the product added."""
    first, second, out = re.split(",|->", spec)
    loops = "".join(dict.fromkeys(out + first + second))
    maps = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(dims)})>" for dims in (first, second, out))
    kinds = ", ".join('"parallel"' if d in out else '"reduction"' for d in loops)
    types = [memref(dims, extents, e, unknown) for dims, e in ((first, element), (second, element), (out, "f32"))]
    static = [memref(dims, extents, e) for dims, e in ((first, element), (second, element), (out, "f32"))]
    extend = (
        "" if element == "f32" else f"%xe = arith.extf %x : {element} to f32\n%ye = arith.extf %y : {element} to f32"
    )
    x, y = ("%x", "%y") if element == "f32" else ("%xe", "%ye")
    return f"""
      %one = arith.constant 1.0 : f32
      %a0 = memref.get_global @a : {static[0]}
      %b0 = memref.get_global @b : {static[1]}
      %o0 = memref.alloc() : {static[2]}
      linalg.fill ins(%one : f32) outs(%o0 : {static[2]})
      %a = memref.cast %a0 : {static[0]} to {types[0]}
      %b = memref.cast %b0 : {static[1]} to {types[1]}
      %o = memref.cast %o0 : {static[2]} to {types[2]}
      linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
          ins(%a, %b : {types[0]}, {types[1]}) outs(%o : {types[2]}) {{
      ^bb0(%x: {element}, %y: {element}, %z: f32):
        {extend}
        %p = arith.mulf {x}, {y} : f32
        %s = arith.addf %p, %z : f32
        linalg.yield %s : f32
      }}
      %u = memref.cast %o : {types[2]} to memref<*xf32>
      func.call @printMemrefF32(%u) : (memref<*xf32>) -> ()
      %r = arith.constant 0 : i32"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "-"))
@pytest.mark.parametrize("unknown", ["", "m"], ids=["static", "dynamic"])
def test_products(run_main: Callable[..., Any], case: str, unknown: str) -> None:
    spec, extents, element = CASES[case]
    if unknown and "m" not in spec:
        pytest.skip("no rows")
    generator = seeded.rng()
    first, second, _ = re.split(",|->", spec)
    a, b = (generator.integers(-8, 9, [extents[d] for d in dims]) for dims in (first, second))
    declarations = "\n".join(
        [
            "func.func private @printMemrefF32(memref<*xf32>)",
            constant("a", first, extents, element, a),
            constant("b", second, extents, element, b),
        ]
    )
    body = product(spec, extents, element, unknown)
    ran = run_main(body, "i32", declarations)
    assert ran.code == 0, ran.errors
    data = ran.output.split("data = ")[1].rsplit("]", 1)[0]
    got = np.array([float(n) for n in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", data)])
    np.testing.assert_array_equal(got, 1 + np.einsum(spec, a, b).ravel())
