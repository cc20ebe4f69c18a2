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
    return Lowered(made, function).call(function, inputs)


class Lowered:
    """A copy of a program's module, lowered; of its entries alone the one that is named, or all."""

    def __init__(self, made: Program, only: str | None = None) -> None:
        text = str(made.module).replace("module {", "module attributes {transform.with_named_sequence} {" + _SOFTMAX, 1)
        module = ir.Module.parse(text)
        self.kinds: dict[str, tuple[list[tuple[tuple[int, ...], str]], list[tuple[tuple[int, ...], str]]]] = {}
        for op in [op for op in module.body.operations if op.operation.name == "func.func"]:
            name = op.attributes["sym_name"].value
            if only is not None and "entry" in op.attributes and name != only:
                op.operation.erase()
            elif "entry" in op.attributes or name == only:
                kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
                self.kinds[name] = _described(kind.inputs), _described(kind.results)
                op.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        passmanager.PassManager.parse("builtin.module(transform-interpreter)").run(module.operation)
        for op in list(module.body.operations):
            if op.operation.name == "transform.named_sequence":
                op.operation.erase()
        passmanager.PassManager.parse(_PIPELINE).run(module.operation)
        self.engine = execution_engine.ExecutionEngine(module, opt_level=0, shared_libs=[str(_RUNNER)])

    def call(self, function: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        taken, given = self.kinds[function]
        results = [np.full(shape, _poison(dtype), _DTYPES[dtype]) for shape, dtype in given]
        for array, (shape, dtype) in zip(inputs, taken, strict=True):
            assert array.shape == shape, (array.shape, shape)
            assert array.dtype == _DTYPES[dtype]
        arrays = [np.array(a, order="C") for a in inputs] + results  # bufferization may write into what it is given
        descriptors = [descriptor_of(a) for a in arrays]
        pointers = [ctypes.pointer(ctypes.pointer(d)) for d in descriptors]
        self.engine.invoke(function, *pointers)
        return results


class Compiled:
    """All entries of a program's text, compiled at once."""

    def __init__(self, text: str, **options: Any) -> None:
        with new_context(), ir.Location.unknown():
            self.lowered = Lowered(program(text, [], **options))

    def call(self, entry: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return self.lowered.call(entry, inputs)


def _described(types: Any) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(t.shape), str(t.element_type)) for t in types]


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
