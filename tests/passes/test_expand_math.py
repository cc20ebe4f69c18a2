"""expand-math over the whole range of F32: as near as its page says, and right at the ends."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import pytest
import seeded

from lispgpt.ir.mlir import execution_engine, ir, new_context, passmanager
from lispgpt.passes.lower.expand_math import ExpandMath
from lispgpt.passes.targets import find_target

COUNT = 1 << 14
LOWERING = (
    "builtin.module(convert-scf-to-cf,convert-vector-to-llvm,convert-math-to-llvm,convert-math-to-libm,convert-to-llvm,"
    "reconcile-unrealized-casts)"
)


def compiled(op: str, lanes: int, x: np.ndarray, second: np.ndarray | None = None) -> np.ndarray:
    """Apply an expanded math op of one operand or two to COUNT values, as scalars or as vectors."""
    operands = "%a, %c" if op in BINARY else "%a"
    return mapped(lambda kind: f"%b = {op} {operands} : {kind}", f"{op} ", ExpandMath(), lanes, x, second)


def mapped(
    ops: Callable[[str], str],
    gone: str,
    expands: ExpandMath,
    lanes: int,
    x: np.ndarray,
    second: np.ndarray | None = None,
) -> np.ndarray:
    """Apply ops that make %b of %a and %c, of a type that they are told, once they are expanded for a CPU of AVX2."""
    kind = "f32" if lanes == 1 else f"vector<{lanes}xf32>"
    second = x if second is None else second
    load, store = ("memref.load", "memref.store") if lanes == 1 else ("vector.load", "vector.store")
    arguments = ", ".join(f"%{name}: memref<{COUNT}xf32>" for name in "xzy")
    text = f"""
    func.func @f({arguments}) attributes {{llvm.emit_c_interface}} {{
      %zero = arith.constant 0 : index
      %count = arith.constant {COUNT} : index
      %step = arith.constant {lanes} : index
      scf.for %i = %zero to %count step %step {{
        %a = {load} %x[%i] : memref<{COUNT}xf32>{"" if lanes == 1 else f", {kind}"}
        %c = {load} %z[%i] : memref<{COUNT}xf32>{"" if lanes == 1 else f", {kind}"}
        {ops(kind)}
        {store} %b, %y[%i] : memref<{COUNT}xf32>{"" if lanes == 1 else f", {kind}"}
      }}
      return
    }}"""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        expands.run(module, find_target("cpu:x86-64-v3"))
        assert gone not in str(module)
        passmanager.PassManager.parse(LOWERING).run(module.operation)
        engine = execution_engine.ExecutionEngine(module, opt_level=2)
        y = np.full(COUNT, 7e7, np.float32)
        engine.invoke("f", *(ctypes.pointer(ctypes.pointer(descriptor(a))) for a in (x, second, y)))
    return y


def descriptor(array: np.ndarray) -> ctypes.Array:
    return (ctypes.c_int64 * 5)(array.ctypes.data, array.ctypes.data, 0, array.size, 1)


ENDS = [
    0.0,
    1e-45,
    1.2e-38,
    0.5,
    1.0,
    1.5,
    2.5,
    3.4e38,
    88.7,
    88.8,
    89.3,
    89.5,
    87.4,
    103.9,
    104.1,
    128.0,
    149.0,
    150.0,
]


def any_floats(seed: int) -> np.ndarray:
    """Random bit patterns, values of small and middling size, and the ends of the range."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, COUNT // 2, np.uint32).view(np.float32)
    ends = np.array([*ENDS, *(-e for e in ENDS), np.inf, -np.inf, np.nan])
    small = rng.normal(0, 1, COUNT // 4)
    near = rng.normal(0, 20, COUNT - bits.size - ends.size - small.size)
    return np.concatenate([bits, *(a.astype(np.float32) for a in (ends, small, near))])


def units_in_the_last_place(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)


EXACT: dict[str, tuple[Callable[..., np.ndarray], float]] = {
    "math.exp": (np.exp, 2.0),
    "math.exp2": (np.exp2, 2.0),
    "math.expm1": (np.expm1, 4.0),
    "math.tanh": (np.tanh, 2.0),
    "math.sinh": (np.sinh, 4.0),
    "math.cosh": (np.cosh, 4.0),
    "math.rsqrt": (lambda x: 1 / np.sqrt(x), 2.0),
    "math.log": (np.log, 2.0),
    "math.log2": (np.log2, 2.0),
    "math.log10": (np.log10, 2.0),
    "math.log1p": (np.log1p, 4.0),
    "math.asinh": (np.arcsinh, 4.0),
    "math.acosh": (np.arccosh, 4.0),
    "math.atanh": (np.arctanh, 4.0),
    "math.erf": (np.vectorize(math.erf), 4.0),
    "math.erfc": (np.vectorize(math.erfc), 4.0),
    "math.atan": (np.arctan, 4.0),
    "math.asin": (np.arcsin, 4.0),
    "math.acos": (np.arccos, 4.0),
    "math.cbrt": (np.cbrt, 4.0),
    "math.round": (lambda x: np.copysign(np.trunc(np.abs(x) + 0.5), x), 0.0),
}
BINARY: dict[str, tuple[Callable[..., np.ndarray], float]] = {
    "math.atan2": (np.arctan2, 4.0),
    "math.powf": (np.power, 1.0),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("op", EXACT)
def test_it_is_as_near_as_it_says(op: str, lanes: int, seed: int) -> None:
    function, units = EXACT[op]
    x = any_floats(seed)
    with np.errstate(all="ignore"):
        check(op, units, compiled(op, lanes, x), function(x.astype(np.float64)), [x])


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("op", BINARY)
def test_functions_of_two_are_as_near_as_they_say(op: str, lanes: int, seed: int) -> None:
    function, units = BINARY[op]
    x, y = any_floats(seed), np.random.default_rng(seed).permutation(any_floats(seed + 100))
    y[: COUNT // 8] = np.round(y[: COUNT // 8])
    with np.errstate(all="ignore"):
        check(op, units, compiled(op, lanes, x, y), function(x.astype(np.float64), y.astype(np.float64)), [x, y])


def check(op: str, units: float, found: np.ndarray, wanted: np.ndarray, operands: list[np.ndarray]) -> None:
    """Equal at infinities and where there is no number; elsewhere at most so many units in the last place off."""
    rounded = wanted.astype(np.float32)
    at = np.stack(operands, 1)
    kind = np.isnan(found) != np.isnan(rounded)
    assert not kind.any(), f"{op}{at[kind][0]} = {found[kind][0]}, not {rounded[kind][0]}"
    odd = ~np.isfinite(rounded) & ~np.isnan(rounded)
    wrong = odd & (found != rounded)
    assert not wrong.any(), f"{op}{at[wrong][0]} = {found[wrong][0]}, not {rounded[wrong][0]}"
    plain = np.isfinite(rounded)
    off = units_in_the_last_place(found[plain].astype(np.float64), wanted[plain])
    worst = int(np.argmax(off))
    assert off[worst] <= units + 0.5, f"{op}{at[plain][worst]} = {found[plain][worst]!r}, {off[worst]} units off"


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("op", "function"), [("math.sin", np.sin), ("math.cos", np.cos)])
def test_sines_are_near_up_to_its_limit(op: str, function: Callable[[np.ndarray], np.ndarray], lanes: int) -> None:
    rng = np.random.default_rng(5)
    quarters = np.arange(-64, 64) * (np.pi / 2)
    wide = 10 ** rng.uniform(-8, 6, COUNT - quarters.size - 2) * rng.choice([-1, 1], COUNT - quarters.size - 2)
    x = np.concatenate([quarters, [0.0, np.nan], wide]).astype(np.float32)
    found, wanted = compiled(op, lanes, x), function(x.astype(np.float64))
    wrong = np.abs(found - wanted)
    wrong[np.isnan(x) & np.isnan(found)] = 0
    worst = int(np.argmax(wrong))
    assert wrong[worst] <= 1.5e-7, f"{op}({x[worst]!r}) = {found[worst]!r}, not {wanted[worst]!r}"


@pytest.mark.parametrize(("op", "function"), [("math.sin", np.sin), ("math.cos", np.cos)])
def test_sines_of_large_numbers_are_sines(op: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    rng = seeded.rng()
    x = (10 ** rng.uniform(6, 38.5, COUNT) * rng.choice([-1, 1], COUNT)).astype(np.float32)
    x[: COUNT // 2] = 10 ** rng.uniform(6, 9, COUNT // 2)
    x[-2:] = np.inf, -np.inf
    found, wanted = compiled(op, 16, x), function(x[: COUNT // 2].astype(np.float64))
    assert np.abs(found[: COUNT // 2] - wanted).max() < 1e-5
    assert np.isnan(found[-2:]).all() and np.abs(found[:-2]).max() <= 1


@pytest.mark.parametrize("lanes", [1, 8])
def test_rounding_to_bf16_where_no_instruction_does(lanes: int) -> None:
    """Every kind of number: to the nearest, halves to even, what is too large to infinity, and NaN to NaN."""
    bits = seeded.rng().integers(0, 1 << 32, COUNT, np.uint32)
    bits[::2] = bits[::2] & 0xFFFF0000 | 0x8000  # halves
    bits[:4] = 0x7F800001, 0x7F7FFFFF, 0xFF800000, 0xFFFFFFFF

    def ops(kind: str) -> str:
        short, half, word = (kind.replace("f32", name) for name in ("bf16", "i16", "i32"))
        return f"""
        %s = arith.truncf %a : {kind} to {short}
        %h = arith.bitcast %s : {short} to {half}
        %w = arith.extui %h : {half} to {word}
        %n = arith.constant {16 if lanes == 1 else "dense<16>"} : {word}
        %u = arith.shli %w, %n : {word}
        %b = arith.bitcast %u : {word} to {kind}"""

    x = bits.view(np.float32)
    found = mapped(ops, "arith.truncf", ExpandMath(shifted_bf16=True), lanes, x)
    expected = ((bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32)
    numbers = ~np.isnan(x)
    assert np.isnan(found[~numbers]).all() and 100 < numbers.sum() < COUNT
    assert (found.view(np.uint32) == expected)[numbers].all()
