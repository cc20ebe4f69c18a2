"""Safetensors' 8-bit floats, with and without scales, as they are read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import recorded_folders
import seeded
from safetensors.numpy import save_file

from lispgpt.base.errors import UserError
from lispgpt.compiler.folders import open_weights
from lispgpt.runtime.checkpoints.numbers import bf16_to_f32, f32_to_bf16, floats_of_8_bits, is_finite

FOLDER = next(folder for folder in recorded_folders.folders() if folder.name == "qwen3-f32")
MATRIX = "model.layers.1.mlp.down_proj.weight"


def rewrite(path: Path, changed: dict[str, tuple[str, np.ndarray]]) -> None:
    """The folder's file, with some tensors of bytes that are called another type's."""
    from safetensors import safe_open

    file = path / "model.safetensors"
    with safe_open(file, "numpy") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    save_file(tensors | {name: array for name, (_, array) in changed.items()}, file)
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for name, (kind, array) in changed.items():
        header[name] |= {"dtype": kind} if array.dtype == np.uint8 else {}
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def test_every_pattern_is_what_it_is_called() -> None:
    e4m3, e5m2 = floats_of_8_bits("f8e4m3"), floats_of_8_bits("f8e5m2")
    assert [e4m3[n] for n in (0x00, 0x01, 0x07, 0x08, 0x38, 0x7E, 0xB8)] == [0, 2**-9, 7 * 2**-9, 2**-6, 1, 448, -1]
    assert [e5m2[n] for n in (0x00, 0x01, 0x04, 0x3C, 0x7B, 0xFC)] == [0, 2**-16, 2**-14, 1, 57344, -np.inf]
    assert np.isnan(e4m3[[0x7F, 0xFF]]).all() and np.isnan(e5m2[[0x7D, 0xFF]]).all()
    for kind, values in (("f8e4m3", e4m3), ("f8e5m2", e5m2)):
        numbers = values[np.isfinite(values)]
        np.testing.assert_array_equal(bf16_to_f32(f32_to_bf16(numbers)), numbers)
        for pattern, value in enumerate(values):
            assert is_finite(np.array([pattern], np.uint8), kind) == np.isfinite(value)


@pytest.mark.parametrize("block", [None, [32, 16], [128, 128]])
def test_scaled_matrices_are_read_with_their_scales(block: list[int] | None, tmp_path: Path) -> None:
    path, rng = FOLDER.write(tmp_path / "model"), seeded.rng()
    rows, columns = FOLDER.tensors[MATRIX]
    patterns = rng.integers(0, 0x7F, (rows, columns)).astype(np.uint8)
    each = (rows, columns) if block is None else tuple(block)
    shape = () if block is None else (-(-rows // each[0]), -(-columns // each[1]))
    scales = np.array(rng.random(shape) + 0.5, np.float32)
    stem = MATRIX.removesuffix(".weight")
    more = {f"{stem}.weight_scale_inv": ("F32", scales), f"{stem}.activation_scale": ("F32", np.ones((), np.float32))}
    rewrite(path, {MATRIX: ("F8_E4M3", patterns)} | more)
    config = json.loads((path / "config.json").read_text())
    quantization = {"quant_method": "fp8", "weight_block_size": block, "activation_scheme": "static"}
    (path / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    grid = np.repeat(np.repeat(scales.reshape(shape or (1, 1)), each[0], 0), each[1], 1)[:rows, :columns]
    found = np.empty((rows, columns), np.float32)
    checkpoint = open_weights(path)
    checkpoint.read_layer_into("down-w", 0, found, "f32")  # which is not scaled
    assert checkpoint.info("down-w").dtype == "f32" and np.abs(found).max() < 4
    checkpoint.read_layer_into("down-w", 1, found, "f32")
    np.testing.assert_array_equal(found, floats_of_8_bits("f8e4m3")[patterns] * grid)


def test_what_is_not_read_is_named(tmp_path: Path) -> None:
    rows, columns = FOLDER.tensors[MATRIX]
    bytes_of = np.zeros((rows, columns), np.uint8)
    path = FOLDER.write(tmp_path / "model")
    rewrite(path, {MATRIX: ("F8_E8M0", bytes_of)})
    with pytest.raises(
        UserError, match=r"tensor 'layers\.1\.mlp.down_proj\.weight' is of type F8_E8M0, which is not read"
    ):
        open_weights(path)
