"""expand-math over the whole range of F32: as near as its page says, and right at the ends."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from lispgpt.ir.mlir import execution_engine, ir, new_context, passmanager
from lispgpt.passes.lower.expand_math import ExpandMath

COUNT = 1 << 14
LOWERING = (
    "builtin.module(convert-scf-to-cf,convert-vector-to-llvm,convert-math-to-llvm,convert-math-to-libm,convert-to-llvm,"
    "reconcile-unrealized-casts)"
)


def compiled(op: str, lanes: int, x: np.ndarray) -> np.ndarray:
    """Apply an expanded math op to COUNT values, as scalars or as vectors."""
    kind = "f32" if lanes == 1 else f"vector<{lanes}xf32>"
    load, store = ("memref.load", "memref.store") if lanes == 1 else ("vector.load", "vector.store")
    text = f"""
    func.func @f(%x: memref<{COUNT}xf32>, %y: memref<{COUNT}xf32>) attributes {{llvm.emit_c_interface}} {{
      %zero = arith.constant 0 : index
      %count = arith.constant {COUNT} : index
      %step = arith.constant {lanes} : index
      scf.for %i = %zero to %count step %step {{
        %a = {load} %x[%i] : memref<{COUNT}xf32>{"" if lanes == 1 else f", {kind}"}
        %b = {op} %a : {kind}
        {store} %b, %y[%i] : memref<{COUNT}xf32>{"" if lanes == 1 else f", {kind}"}
      }}
      return
    }}"""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        ExpandMath().run(module, None)
        assert op not in str(module)
        passmanager.PassManager.parse(LOWERING).run(module.operation)
        engine = execution_engine.ExecutionEngine(module, opt_level=2)
        y = np.full(COUNT, 7e7, np.float32)
        engine.invoke("f", *(ctypes.pointer(ctypes.pointer(descriptor(a))) for a in (x, y)))
    return y


def descriptor(array: np.ndarray) -> ctypes.Array:
    return (ctypes.c_int64 * 5)(array.ctypes.data, array.ctypes.data, 0, array.size, 1)


def any_floats() -> np.ndarray:
    """Random bit patterns, values of middling size, and the ends of the range."""
    rng = np.random.default_rng()
    bits = rng.integers(0, 1 << 32, COUNT // 2, np.uint32).view(np.float32)
    ends = np.array(
        [0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, 88.7, 88.8, -87.4, -103.9, -104.1, 128.0, -149.0, -150.0]
    )
    near = rng.normal(0, 20, COUNT - bits.size - ends.size - 3)
    special = np.array([np.inf, -np.inf, np.nan])
    return np.concatenate([bits, *(a.astype(np.float32) for a in (ends, near, special))])


def units_in_the_last_place(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)


EXACT = {
    "math.exp": (np.exp, 2.0),
    "math.exp2": (np.exp2, 2.0),
    "math.tanh": (np.tanh, 2.0),
    "math.rsqrt": (lambda x: 1 / np.sqrt(x), 2.0),
}


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("op", EXACT)
def test_it_is_as_near_as_it_says(op: str, lanes: int) -> None:
    function, units = EXACT[op]
    x = any_floats()
    found = compiled(op, lanes, x)
    with np.errstate(all="ignore"):
        wanted = function(x.astype(np.float64))
        rounded = wanted.astype(np.float32)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded), err_msg=op)
        odd = ~np.isfinite(rounded) & ~np.isnan(rounded)
        np.testing.assert_array_equal(
            found[odd], rounded[odd], err_msg=f"{op} at {x[odd][found[odd] != rounded[odd]][:5]}"
        )
        plain = np.isfinite(rounded)
        wrong = units_in_the_last_place(found[plain].astype(np.float64), wanted[plain])
    worst = int(np.argmax(wrong))
    assert wrong[worst] <= units, f"{op}({x[plain][worst]!r}) = {found[plain][worst]!r}, {wrong[worst]} units off"


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("op", "function"), [("math.sin", np.sin), ("math.cos", np.cos)])
def test_sines_are_near_up_to_its_limit(op: str, function: Callable[[np.ndarray], np.ndarray], lanes: int) -> None:
    rng = np.random.default_rng()
    quarters = np.arange(-64, 64) * (np.pi / 2)
    wide = 10 ** rng.uniform(-8, 6, COUNT - quarters.size - 2) * rng.choice([-1, 1], COUNT - quarters.size - 2)
    x = np.concatenate([quarters, [0.0, np.nan], wide]).astype(np.float32)
    found, wanted = compiled(op, lanes, x), function(x.astype(np.float64))
    wrong = np.abs(found - wanted)
    wrong[np.isnan(x) & np.isnan(found)] = 0
    worst = int(np.argmax(wrong))
    assert wrong[worst] <= 1.5e-7, f"{op}({x[worst]!r}) = {found[worst]!r}, not {wanted[worst]!r}"
