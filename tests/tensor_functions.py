"""Runs tensor-level functions for tests, lowered with upstream passes alone to plain loops."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.source import Source
from lispgpt.ir.mlir import execution_engine, ir, new_context, passmanager
from lispgpt.language.model.sizes import Wanted
from lispgpt.language.program import Program, evaluate

_RUNNER = Path(ir.__file__).parent / "_mlir_libs" / "libmlir_c_runner_utils.so"
_SOFTMAX = """
  transform.named_sequence @__transform_main(%root: !transform.any_op) {
    %softmax = transform.structured.match ops{["linalg.softmax"]} in %root : (!transform.any_op) -> !transform.any_op
    %parts = transform.structured.decompose_interface %softmax : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
"""
_PIPELINE = (
    "builtin.module(canonicalize,cse,"
    "one-shot-bufferize{allow-return-allocs-from-loops bufferize-function-boundaries=1 "
    "function-boundary-type-conversion=identity-layout-map},"
    "buffer-results-to-out-params{modify-public-functions=1},convert-linalg-to-loops,expand-strided-metadata,lower-affine,convert-scf-to-cf,"
    "convert-math-to-llvm,convert-math-to-libm,convert-to-llvm,reconcile-unrealized-casts)"
)
_DTYPES = {"f32": np.float32, "i32": np.int32, "bf16": np.uint16, "i64": np.int64, "f64": np.float64}


def program(text: str, shapes: list[tuple[int, int]] = [(1, 1)], **options: Any) -> Program:  # noqa: B006
    """Evaluate a program's text inside the active context."""
    given = {"overrides": {}, "checkpoint_config": {}, "root": Path(), **options}
    return evaluate(Source("test.lisp", text), wanted=Wanted(shapes), **given)


def run(
    text: str, inputs: list[np.ndarray], shapes: list[tuple[int, int]], function: str, **options: Any
) -> list[np.ndarray]:
    """Evaluate a program and call one of its functions; its results, first filled with a poison value."""
    with new_context(), ir.Location.unknown():
        return call(program(text, shapes, **options), inputs, function)


def call(made: Program, inputs: list[np.ndarray], function: str) -> list[np.ndarray]:
    """Lower a copy of a program's module and call one of its functions."""
    text = str(made.module).replace("module {", "module attributes {transform.with_named_sequence} {" + _SOFTMAX, 1)
    module = ir.Module.parse(text)
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    target = next(op for op in functions if op.attributes["sym_name"].value == function)
    for other in functions:
        if "entry" in other.attributes and other != target:
            other.operation.erase()
    kind = ir.FunctionType(ir.TypeAttr(target.attributes["function_type"]).value)
    results = [np.full(t.shape, _poison(str(t.element_type)), _DTYPES[str(t.element_type)]) for t in kind.results]
    for array, wanted in zip(inputs, kind.inputs, strict=True):
        assert list(array.shape) == list(wanted.shape), (array.shape, str(wanted))
        assert array.dtype == _DTYPES[str(wanted.element_type)]
    target.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
    passmanager.PassManager.parse("builtin.module(transform-interpreter)").run(module.operation)
    for op in list(module.body.operations):
        if op.operation.name == "transform.named_sequence":
            op.operation.erase()
    passmanager.PassManager.parse(_PIPELINE).run(module.operation)
    engine = execution_engine.ExecutionEngine(module, opt_level=1, shared_libs=[str(_RUNNER)])
    arrays = [np.array(a, order="C") for a in inputs] + results  # bufferization may write into what it is given
    descriptors = [descriptor_of(a) for a in arrays]
    pointers = [ctypes.pointer(ctypes.pointer(d)) for d in descriptors]
    engine.invoke(function, *pointers)
    return results


def _poison(dtype: str) -> Any:
    return np.nan if dtype.startswith("f") else 0x5A5A


def descriptor_of(array: np.ndarray) -> ctypes.Structure:
    rank = max(array.ndim, 1)

    class Descriptor(ctypes.Structure):
        _fields_ = (
            ("allocated", ctypes.c_void_p),
            ("aligned", ctypes.c_void_p),
            ("offset", ctypes.c_longlong),
            ("sizes", ctypes.c_longlong * rank),
            ("strides", ctypes.c_longlong * rank),
        )

    made = Descriptor(array.ctypes.data, array.ctypes.data, 0)
    for i in range(array.ndim):
        made.sizes[i], made.strides[i] = array.shape[i], array.strides[i] // array.itemsize
    return made
