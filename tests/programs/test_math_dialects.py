"""The dialects of numbers (math, arith, index, complex) go through the default pipeline and give the right values."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import seeded

TOLERANCE = {"f64": 1e-14, "f32": 3e-7, "bf16": 4e-3, "f16": 1e-3}

UNARY: dict[str, Callable[[float], float]] = {
    **{name: getattr(math, name) for name in ("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "cbrt")},
    **{name: getattr(math, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan")},
    **{name: getattr(math, name) for name in ("asinh", "atanh", "erf", "erfc", "ceil", "floor", "trunc")},
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "round": lambda x: math.floor(x + 0.5),
    "roundeven": round,
    "absf": abs,
}


def functions(cases: list[tuple[str, str]]) -> tuple[str, str]:
    """(declarations, main's body) that prints the f64 %r of every case's body, given with its type, on a line each."""
    declared = ["func.func private @printF64(f64)", "func.func private @printNewline()"]
    calls = []
    for number, (body, type_) in enumerate(cases):
        declared.append(f"func.func @case_{number}() -> f64 {{\n{body}\n{widen(type_)}\nreturn %wide : f64 }}")
        calls.append(f"%v{number} = func.call @case_{number}() : () -> f64")
        calls.append(f"func.call @printF64(%v{number}) : (f64) -> ()\nfunc.call @printNewline() : () -> ()")
    return "\n".join(declared), "\n".join([*calls, "%r = arith.constant 0 : i32"])


def widen(type_: str) -> str:
    """%r of that type as the f64 %wide."""
    if type_ == "f64":
        return "%zero = arith.constant 0.0 : f64\n%wide = arith.addf %r, %zero : f64"
    if type_ in ("f32", "bf16", "f16"):
        return f"%wide = arith.extf %r : {type_} to f64"
    if type_ == "index":
        return "%int = arith.index_cast %r : index to i64\n%wide = arith.sitofp %int : i64 to f64"
    return f"%wide = arith.{'uitofp' if type_ == 'i1' else 'sitofp'} %r : {type_} to f64"


def numbers(run_main: Callable[..., Any], cases: list[tuple[str, str]]) -> list[float]:
    declared, body = functions(cases)
    ran = run_main(body, "i32", declared)
    assert ran.code == 0, ran.errors
    return [float(line) for line in ran.lines[:-1]]


@pytest.mark.parametrize("type_", ["f32", "f64", "bf16", "f16"])
def test_math(run_main: Callable[..., Any], type_: str) -> None:
    x = float(seeded.rng().integers(20, 110)) / 128
    cases = [(f"%x = arith.constant {x} : {type_}\n%r = math.{name} %x : {type_}", type_) for name in UNARY]
    got = numbers(run_main, cases)
    expected = [function(x) for function in UNARY.values()]
    np.testing.assert_allclose(got, expected, rtol=max(TOLERANCE[type_], 1e-5), atol=1e-7)  # %g prints six digits


def test_math_of_two_and_of_integers(run_main: Callable[..., Any]) -> None:
    two = "%x = arith.constant 0.75 : f32\n%y = arith.constant 1.25 : f32\n"
    one = "%x = arith.constant 70 : i32\n"
    cases = {
        two + "%r = math.atan2 %x, %y : f32": ("f32", math.atan2(0.75, 1.25)),
        two + "%r = math.powf %x, %y : f32": ("f32", 0.75**1.25),
        two + "%r = math.copysign %x, %y : f32": ("f32", 0.75),
        two + "%r = math.fma %x, %y, %y : f32": ("f32", 0.75 * 1.25 + 1.25),
        two + "%n = arith.constant 3 : i32\n%r = math.fpowi %x, %n : f32, i32": ("f32", 0.75**3),
        two + "%r = math.isnan %x : f32": ("i1", 0),
        "%x = arith.constant 7 : i32\n%r = math.ipowi %x, %x : i32": ("i32", 7**7),
        one + "%r = math.ctlz %x : i32": ("i32", 25),
        one + "%r = math.cttz %x : i32": ("i32", 1),
        one + "%r = math.ctpop %x : i32": ("i32", 3),
        "%x = arith.constant -70 : i32\n%r = math.absi %x : i32": ("i32", 70),
    }
    got = numbers(run_main, [(body, type_) for body, (type_, _) in cases.items()])
    np.testing.assert_allclose(got, [value for _, value in cases.values()], rtol=1e-5)


def test_integers_and_index(run_main: Callable[..., Any]) -> None:
    arith = {
        "floordivsi": -4,
        "ceildivsi": -3,
        "remsi": -1,
        "divsi": -3,
        "shrsi": -2,
        "minsi": -7,
        "andi": 0,
        "xori": -5,
    }
    index = {
        "add": 16,
        "sub": 10,
        "mul": 39,
        "divs": 4,
        "ceildivs": 5,
        "floordivs": 4,
        "remu": 1,
        "maxs": 13,
        "shl": 104,
    }
    both = "%x = arith.constant -7 : i32\n%y = arith.constant 2 : i32\n"
    pair = "%x = index.constant 13\n%y = index.constant 3\n"
    cases = [(f"{both}%r = arith.{op} %x, %y : i32", "i32") for op in arith]
    cases += [(f"{pair}%r = index.{op} %x, %y", "index") for op in index]
    assert numbers(run_main, cases) == [*arith.values(), *index.values()]


def test_complex(run_main: Callable[..., Any]) -> None:
    real, imaginary = (float(n) / 16 for n in seeded.rng().integers(1, 16, 2))
    z = complex(real, imaginary)
    functions = {name: getattr(cmath, name) for name in ("exp", "log", "sin", "cos", "tan", "tanh", "sqrt")}
    functions |= {"neg": lambda w: -w, "conj": lambda w: w.conjugate(), "sign": lambda w: w / abs(w)}
    start = f"%a = arith.constant {real} : f64\n%b = arith.constant {imaginary} : f64\n"
    start += "%z = complex.create %a, %b : complex<f64>\n"
    cases, expected = [], []
    for name, function in functions.items():
        for part, value in (("re", function(z).real), ("im", function(z).imag)):
            cases.append(
                (f"{start}%w = complex.{name} %z : complex<f64>\n%r = complex.{part} %w : complex<f64>", "f64")
            )
            expected.append(value)
    for name, value in (("add", z + z), ("mul", z * z), ("div", z / (z + z))):
        cases.append(
            (f"{start}%d = complex.add %z, %z : complex<f64>\n"
             f"%w = complex.{name} %z, %{'d' if name == 'div' else 'z'} : complex<f64>\n"
             "%r = complex.re %w : complex<f64>", "f64")
        )  # fmt: skip
        expected.append(value.real)
    cases.append((f"{start}%r = complex.abs %z : complex<f64>", "f64"))
    np.testing.assert_allclose(numbers(run_main, cases), [*expected, abs(z)], rtol=1e-5, atol=1e-12)
