"""Tensors of 8-bit floats with the scales that stand beside them, as folders of quant_method "fp8" have them.

`w.weight` of F8_E4M3 means its numbers times those of `w.weight_scale_inv`: one, or a grid of which each is for a block
of the matrix.  The scales of activations (`activation_scale`) are for products in 8 bits, which nothing here makes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.dtypes import FLOATS_OF_8_BITS
from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints import nibbles
from lispgpt.runtime.checkpoints.nibbles import method_of, with_exponents
from lispgpt.runtime.checkpoints.numbers import converted
from lispgpt.runtime.checkpoints.safetensors_file import Stored
from lispgpt.runtime.checkpoints.scales import Scales

METHOD = "fp8"
SCALES, OF_ACTIVATIONS = (".weight_scale_inv", ".weight_scale"), (".activation_scale", ".input_scale")


def is_read(quantization: Any) -> bool:
    """Whether folders that config.json's quantization_config says this of are read."""
    return method_of(quantization) in (METHOD, nibbles.METHOD)


def with_scales(folder: Path, stored: dict[str, Stored], quantization: Any) -> dict[str, Stored]:
    """The tensors, each with the scales that are for it; UserError for scales that do not fit."""
    if method_of(quantization) == nibbles.METHOD:
        return with_exponents(folder, stored)
    if method_of(quantization) != METHOD:
        return stored
    found = {name: tensor for name, tensor in stored.items() if not name.endswith((*SCALES, *OF_ACTIVATIONS))}
    for name, scales in stored.items():
        ending = next((ending for ending in SCALES if name.endswith(ending)), None)
        if ending is None:
            continue
        own = f"{name.removesuffix(ending)}.weight"
        if own not in found or found[own].dtype not in FLOATS_OF_8_BITS or scales.dtype not in ("f32", "bf16"):
            raise UserError(f"{folder}: tensor {name!r} holds scales ({scales.dtype}), for no matrix of 8-bit floats")
        values = converted(np.ascontiguousarray(scales.array), scales.dtype, "f32")
        block = quantization.get("weight_block_size")
        found[own] = replace(found[own], scales=Scales.of(folder, name, values, found[own].shape, block))
    unscaled = next((n for n, t in found.items() if t.dtype in FLOATS_OF_8_BITS and t.scales is None), None)
    if unscaled is not None:
        raise UserError(f"{folder}: tensor {unscaled!r} is of {found[unscaled].dtype}, and its scales are missing")
    return found
