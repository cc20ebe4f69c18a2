"""A checkpoint's weights as a plan's buffers want them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lispgpt.base.dtypes import INTEGERS, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap
from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.given_weights import WHOLE, Several
from lispgpt.runtime.plan.plan import Buffer


def stored_weight(
    checkpoint: Checkpoint, buffer: Buffer, weights: Mapping[str, Mapping[str, Any]], context: Any
) -> tuple[np.ndarray, bool]:
    """(a weight as its buffer holds it, whether it is the file's own bytes); weights: shapes and dtypes of all."""
    if buffer.packing is not None:
        array, own = stored_weight(checkpoint, buffer.as_declared, weights, context)
        return buffer.packing.packed(array, buffer.shape), own
    declared = weights[buffer.name]
    weight = replace(buffer, shape=tuple(declared["shape"]), dtype=declared["dtype"])
    _check_layers(checkpoint, buffer.name, declared)
    view = checkpoint_view(checkpoint, weight, context)
    array = read_weight(checkpoint, weight, context) if view is None else view
    if weight.dtype != buffer.dtype:  # blocks, which are bytes for the kernels
        array = np.ascontiguousarray(array).view(find_dtype(buffer.dtype).numpy).reshape(buffer.shape)
    return array, view is not None


def check_unused(checkpoint: Checkpoint, names: FolderMap | None, declared: Mapping[str, Any]) -> None:
    """UserError where a model's folder or GGUF file has a weight that its own settings leave out, unless it is but
    another once more, as tied heads are: what it was trained to do would be lost silently.

    names: what the program calls the folder's tensors, if it says so.  declared: its weights.
    """
    if isinstance(checkpoint, Several):
        for part in checkpoint.parts:
            check_unused(part, names, declared)
    if names is None or checkpoint.format not in WHOLE:
        return
    for name in checkpoint.names():
        if name not in declared and not any(_is_same(checkpoint, name, other) for other in declared):
            stored = names.weights[name][0].name if name in names.weights else name
            without = "and its settings describe a model without it"
            raise UserError(f"{checkpoint.path} holds {stored} ({name!r}), {without}")


def _is_same(checkpoint: Checkpoint, name: str, other: str) -> bool:
    if other not in checkpoint.names() or checkpoint.info(name) != checkpoint.info(other):
        return False
    return np.array_equal(checkpoint.tensor(name), checkpoint.tensor(other))


def checkpoint_view(checkpoint: Checkpoint, buffer: Buffer, context: Any = None) -> np.ndarray | None:
    """The file's own bytes, where they are what the kernels want.

    context: the positions that the program has; where the checkpoint has more, a table of these is cut to the first.
    """
    info = _checked_info(checkpoint, buffer, context)
    view = checkpoint.view(buffer.name) if info.dtype == buffer.dtype else None
    return view if view is None else _first(view, find_dtype(buffer.dtype).items(buffer.shape))


def read_weight(checkpoint: Checkpoint, buffer: Buffer, context: Any = None) -> np.ndarray:
    """A converted copy of a weight in the buffer's shape and dtype."""
    info = _checked_info(checkpoint, buffer, context)
    kind = find_dtype(buffer.dtype)
    array = np.empty(kind.items(tuple(info.shape)), kind.numpy)
    checkpoint.read_into(buffer.name, array, buffer.dtype)
    return _first(array, kind.items(buffer.shape))


def _first(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    if array.shape == tuple(shape):
        return array
    return np.ascontiguousarray(array[tuple(slice(extent) for extent in shape)])


def _checked_info(checkpoint: Checkpoint, buffer: Buffer, context: Any) -> Any:
    if buffer.name not in checkpoint.names():
        known = ", ".join(checkpoint.names())
        raise UserError(f"the checkpoint has no weight {buffer.name!r}, which the program declares (it has {known})")
    info = checkpoint.info(buffer.name)
    if buffer.dtype in INTEGERS and not _holds(buffer.dtype, info.dtype):
        raise UserError(f"weight {buffer.name!r} is {buffer.dtype} in the program, {info.dtype} in the checkpoint")
    if tuple(info.shape) != buffer.shape:
        found = checkpoint.config.get("context")
        if not _is_cut(buffer.shape, tuple(info.shape), context, found):
            longer = f"; --context takes at most {found}" if _is_cut(info.shape, buffer.shape, found, context) else ""
            raise UserError(
                f"weight {buffer.name!r} is {spelled(buffer.shape)} in the program, {spelled(info.shape)} in the "
                f"checkpoint{longer}"
            )
    return info


def _holds(integer: str, stored: str) -> bool:
    """Whether all that a stored type has are numbers of an integer's."""
    same = integer == stored
    return same or (stored in INTEGERS and np.can_cast(find_dtype(stored).numpy, find_dtype(integer).numpy))


def _check_layers(checkpoint: Checkpoint, name: str, declared: Mapping[str, Any]) -> None:
    """UserError where a stack is of other layers in the checkpoint, as far as that says which."""
    found = checkpoint.info(name).layers if name in checkpoint.names() else None
    layers = declared.get("layers", [*range(declared["shape"][0])] if declared["shape"] else [])
    if found is not None and list(found) != layers:
        own, theirs = (", ".join(map(str, each)) or "none" for each in (layers, found))
        raise UserError(f"weight {name!r} is of layers {own} in the program, and of {theirs} in the checkpoint")


def _is_cut(shape: Sequence[int], whole: Sequence[int], context: Any, allowed: Any) -> bool:
    """Whether shapes differ only in that one has fewer positions."""
    pairs = list(zip(shape, whole, strict=False))
    fewer = isinstance(context, int) and isinstance(allowed, int) and context < allowed
    same_rank = len(shape) == len(whole)
    return fewer and same_rank and all(a == b or (a, b) == (context, allowed) for a, b in pairs)


def spelled(extents: Sequence[int]) -> str:
    """A shape as programs write it."""
    return "[" + " ".join(map(str, extents)) + "]"


def spelled_inputs(shapes: Mapping[str, Sequence[int]]) -> str:
    """Names with their shapes."""
    return ", ".join(f"{name} {spelled(shape)}" for name, shape in shapes.items())
