"""Arrays on the host for the dtypes of a plan's buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lispgpt.base.dtypes import INTEGERS, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.numbers import bf16_to_f32, f32_to_bf16
from lispgpt.runtime.devices.base import READ_LATER_BYTES, Device
from lispgpt.runtime.plan.plan import Buffer


def as_array(value: Any, name: str) -> np.ndarray:
    """What numpy makes of an input; UserError where that is no array."""
    try:
        return np.asarray(value)
    except ValueError:
        raise UserError(f"input {name} has not as many numbers in each row") from None


def as_stored(value: Any, buffer: Buffer, name: str) -> np.ndarray:
    """A value as a C-contiguous array of a buffer's shape and dtype; UserError where that would change it.

    Whole numbers go to integers where they fit, truths and 0 and 1 to i1; numbers of any kind to floats, which round.
    """
    array = as_array(value, name)
    kind = array.dtype.kind
    if kind not in "iufb" or array.shape != buffer.shape:
        raise UserError(
            f"input {name} is {buffer.dtype} {list(buffer.shape)}, and not {array.dtype} {list(array.shape)}"
        )
    if buffer.dtype in INTEGERS:
        wanted = find_dtype(buffer.dtype).numpy
        fits = array.dtype == wanted or not array.size  # as prompts are, whose numbers are not looked at again
        least, most = (0, 1) if buffer.dtype == "i1" else (np.iinfo(wanted).min, np.iinfo(wanted).max)
        if kind == "f" or (not fits and not least <= int(array.min()) <= int(array.max()) <= most):
            what = f"whole numbers from {least} to {most}"
            raise UserError(f"input {name} is {buffer.dtype}, and not all of what was given are {what}")
        return np.ascontiguousarray(array, wanted)
    if buffer.dtype == "bf16" and array.dtype != np.uint16:
        return f32_to_bf16(np.ascontiguousarray(array, np.float32))
    return np.ascontiguousarray(array, find_dtype(buffer.dtype).numpy)


def readable(array: np.ndarray, dtype: str) -> np.ndarray:
    """What a buffer of that dtype holds, as numbers: BF16 widened to float32."""
    return bf16_to_f32(array) if dtype == "bf16" else array


def read_later(device: Device, buffer: Any, declared: Buffer) -> Callable[[], np.ndarray]:
    """What waits for a buffer's contents after all that was launched so far, and gives them as float32 or int32.

    A large one is waited for at once.
    """
    array = np.empty(declared.shape, find_dtype(declared.dtype).numpy)
    if declared.nbytes > READ_LATER_BYTES:
        device.copy_out(buffer, array)
        return lambda: readable(array, declared.dtype)
    wait = device.read_later(buffer, array)
    return lambda: readable(wait(), declared.dtype)
