"""Sums that count who has added to them: what they add up to, of up to 16 parts of any size and sign."""

from __future__ import annotations

import ctypes

import numpy as np
import seeded
from tensor_functions import descriptor_of

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import create_op, execution_engine, ir, new_context, passmanager
from lispgpt.ir.threads import each, word
from lispgpt.passes.decode_step.fixed_point_sums import COUNT_BITS, LOST, MOST, MOST_PARTS, UNITS, lacks, value_of_sum

COUNT = 20_000
PIPELINE = "builtin.module(convert-scf-to-cf,expand-strided-metadata,convert-math-to-llvm,convert-to-llvm)"


def parts_added(parts: np.ndarray) -> np.ndarray:
    """[sums parts] of F32, as whole numbers that are added to a word."""
    whole = np.rint(parts.astype(np.float64) * UNITS)
    with np.errstate(invalid="ignore"):
        kept = np.where(np.abs(parts) < MOST, whole, LOST * UNITS).astype(np.int64)
    return (kept << COUNT_BITS) + 1


def read(now: np.ndarray, before: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """(what words add up to, 0 where so many parts have been added), as the ops say on this machine."""
    found, missing = np.full(COUNT, np.nan, np.float32), np.full(COUNT, -1, np.int32)
    with new_context(), ir.Location.unknown():
        module = ir.Module.create()
        types = [ir.MemRefType.get([COUNT], element) for element in (b.i64(), b.i64(), b.f32(), b.i32())]
        with ir.InsertionPoint(module.body):
            function = create_op(
                "func.func",
                attributes={
                    "sym_name": ir.StringAttr.get("read"),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
                    "llvm.emit_c_interface": ir.UnitAttr.get(),
                },
                regions=1,
            )
        block = function.regions[0].blocks.append(*types)
        memories = list(block.arguments)

        def one(number: Number) -> None:
            at = [number.index()]
            words = [Number(b.load(memory, at, 1)) for memory in memories[:2]]
            b.store(value_of_sum(*words).value, memories[2], at)
            b.store(lacks(*words, parts).value, memories[3], at)

        with ir.InsertionPoint(block):
            each(word(0), word(COUNT), one)
            create_op("func.return")
        passmanager.PassManager.parse(PIPELINE).run(module.operation)
        engine = execution_engine.ExecutionEngine(module, opt_level=1)
        described = [descriptor_of(array) for array in (now, before, found, missing)]
        engine.invoke("read", *(ctypes.pointer(ctypes.pointer(one)) for one in described))
    return found, missing


def summed(parts: np.ndarray, before: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return before + parts_added(parts).sum(1)


def test_sums_are_as_exact_as_f32() -> None:
    """Within the last bit of what the parts add up to, whatever the words held before."""
    rng, seed = seeded.named_rng()
    count = int(rng.integers(1, MOST_PARTS + 1))
    sizes = 2.0 ** rng.uniform(-20, 20, (COUNT, 1))
    parts = np.clip(rng.standard_normal((COUNT, count)) * sizes, -MOST + 1, MOST - 1).astype(np.float32)
    before = rng.integers(-(1 << 63), 1 << 63, COUNT, np.int64)
    found, missing = read(summed(parts, before), before, count)
    exact = np.rint(parts.astype(np.float64) * UNITS).sum(1) / UNITS
    assert (missing == 0).all(), seed
    assert (np.abs(found - exact) <= np.spacing(np.abs(exact).astype(np.float32))).all(), (seed, count)
    assert (read(summed(parts[:, 1:], before), before, count)[1] != 0).all(), seed


def test_what_is_too_large_makes_no_number() -> None:
    """However many parts are, and whatever the others."""
    rng, seed = seeded.named_rng()
    parts = rng.uniform(-MOST, MOST, (COUNT, MOST_PARTS)).astype(np.float32) * np.float32(1 - 2.0**-20)
    kinds = np.array([np.inf, -np.inf, np.nan, MOST, -MOST, 1e30], np.float32)
    lost = np.argsort(rng.random(parts.shape)) < rng.integers(1, MOST_PARTS + 1, (COUNT, 1))
    parts = np.where(lost, rng.choice(kinds, parts.shape), parts)
    before = rng.integers(-(1 << 63), 1 << 63, COUNT, np.int64)
    found, _ = read(summed(parts, before), before, MOST_PARTS)
    assert np.isnan(found).all(), seed
