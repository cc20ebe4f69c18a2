"""The one door to MLIR: every other module takes `ir`, `passmanager` and `execution_engine` from here.

The upstream `mlir` package is used where a real one is importable, else the copy inside `flydsl`.  One process can
load only one of them, because their shared libraries define the same symbols.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from lispgpt.base.errors import InternalError
from lispgpt.ir.tile_dialect import dialect_text

FLYDSL = "flydsl"


def _open_without_its_own_file(package: str) -> None:
    """Let a package's parts be imported without its own file, which imports what they do not need."""
    spec = importlib.util.find_spec(package) if package not in sys.modules else None
    if spec is not None:
        sys.modules[package] = importlib.util.module_from_spec(spec)


if importlib.util.find_spec("mlir") is not None and importlib.util.find_spec("mlir.ir") is not None:
    from mlir import execution_engine, ir, passmanager, rewrite  # type: ignore

    DISTRIBUTION = "mlir"
else:
    _open_without_its_own_file(FLYDSL)  # which imports PyTorch where there is one: seconds
    from flydsl._mlir import execution_engine, ir, passmanager, rewrite  # type: ignore

    DISTRIBUTION = FLYDSL

# Making PTX, MLIR ends the process where these name a folder without NVIDIA's device library.  Nothing here links that.
for _toolkit in ("CUDA_ROOT", "CUDA_HOME", "CUDA_PATH"):
    os.unsetenv(_toolkit)


# The bindings look for a Python module of an op's dialect each time they hand out an op, until they have found one.
# An empty module ends that.
for _dialect in [
    "affine",
    "amdgpu",
    "arm_neon",
    "bufferization",
    "complex",
    "index",
    "linalg",
    "ml_program",
    "nvgpu",
    "nvvm",
    "omp",
    "quant",
    "shape",
    "spirv",
    "tensor",
    "tile",
    "tosa",
    "transform",
    "ub",
    "x86",
    "x86vector",
]:
    _module = f"{ir.__package__}.dialects.{_dialect}"
    if importlib.util.find_spec(_module) is None:
        sys.modules.setdefault(_module, ModuleType(_module))


def without_op_classes() -> None:
    """Hand out ops without the bindings' Python classes for them, whose modules take longer to import than a small
    program to compile.  For a process in which nobody but this package uses the bindings."""
    dialects = importlib.import_module(f"{ir.__package__}.dialects")
    for _, name, _ in pkgutil.iter_modules(dialects.__path__, f"{dialects.__name__}."):
        sys.modules.setdefault(name, ModuleType(name))


LLVMFunctionType: Any = importlib.import_module(f"{ir.__package__}._mlir_libs._mlirDialectsLLVM").FunctionType
"""`!llvm.func<…>`, which the bindings keep apart from the builtin types."""

__all__ = [
    "DISTRIBUTION",
    "LLVMFunctionType",
    "attribute",
    "create_op",
    "execution_engine",
    "ir",
    "new_context",
    "numbers",
    "passmanager",
    "rewrite",
    "without_op_classes",
]


def new_context() -> ir.Context:
    """A context with every upstream dialect and pass and the `tile` dialect, without worker threads (modules here are
    small)."""
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        _load_dialects(ir.Module.parse(dialect_text()))
    return context


def _load_dialects(module: ir.Module) -> None:
    """Register the dialects that a module of IRDL defines in its context."""
    if importlib.util.find_spec(f"{ir.__package__}.dialects.irdl") is not None:
        importlib.import_module(f"{ir.__package__}.dialects.irdl").load_dialects(module)
        return
    capsule = module.operation._CAPIPtr
    name = _GET_NAME(capsule)
    if not _irdl_loader()(_GET_POINTER(capsule, name)):
        raise InternalError("MLIR does not take the definition of the tile dialect")


@cache
def _irdl_loader() -> Any:
    """`mlir::irdl::loadDialects`, which flydsl's library exports and has no Python function for."""
    (library,) = (Path(ir.__file__).parent / "_mlir_libs").glob("libFlyPythonCAPI.so*")
    load = ctypes.CDLL(str(library))["_ZN4mlir4irdl12loadDialectsENS_8ModuleOpE"]
    load.argtypes, load.restype = [ctypes.c_void_p], ctypes.c_bool
    return load


_GET_NAME, _GET_POINTER = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
_GET_NAME.argtypes, _GET_NAME.restype = [ctypes.py_object], ctypes.c_char_p
_GET_POINTER.argtypes, _GET_POINTER.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def attribute(value: Any) -> ir.Attribute:
    """An attribute as it is; an int as one of i64, a bool, a text, a type, a list of ints as a dense array of i64, a
    list of anything else as an array of such, and a dict as one of them."""
    if isinstance(value, ir.Attribute):
        return value
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, ir.Type):
        return ir.TypeAttr.get(value)
    if isinstance(value, dict):
        return ir.DictAttr.get({name: attribute(one) for name, one in value.items()})
    if all(isinstance(one, int) for one in value):
        return ir.DenseI64ArrayAttr.get(list(value))
    return ir.ArrayAttr.get([attribute(one) for one in value])


def numbers(values: Iterable[int]) -> ir.Attribute:
    """An array of attributes of i64, which need not be dense."""
    return ir.ArrayAttr.get([attribute(value) for value in values])


def create_op(
    name: str,
    operands: Sequence[Any] = (),
    results: Sequence[ir.Type] = (),
    attributes: dict[str, Any] | None = None,
    regions: int = 0,
    successors: Sequence[Any] = (),
    loc: ir.Location | None = None,
    ip: ir.InsertionPoint | None = None,
) -> ir.Operation:
    """Build one op by its name at the current (or given) insertion point; the name must be registered.

    attributes: as attributes, or what `attribute` makes them of.
    """
    return ir.Operation.create(
        name,
        results=list(results),
        operands=list(operands),
        attributes={name: attribute(value) for name, value in (attributes or {}).items()},
        successors=list(successors),
        regions=regions,
        loc=loc,
        ip=ip,
    )
