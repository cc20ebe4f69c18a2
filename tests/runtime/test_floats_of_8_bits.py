"""Safetensors' 8-bit floats, with and without scales, as they are read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import recorded_folders
import seeded
from safetensors.numpy import save_file

import lispgpt
from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.compiler.folders import open_weights
from lispgpt.runtime.checkpoints.blocks import widened
from lispgpt.runtime.checkpoints.floats_of_8_bits import floats_of_8_bits, nearest_e4m3
from lispgpt.runtime.checkpoints.numbers import bf16_to_f32, f32_to_bf16, is_finite

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


def test_the_nearest_pattern_is_found(fresh_seed: int) -> None:
    numbers = floats_of_8_bits("f8e4m3")[:0x7F].astype(np.float64)
    between = (numbers[1:] + numbers[:-1]) / 2  # ties, which go to even patterns
    assert not (nearest_e4m3(between.astype(np.float32)) & 1).any()
    rng = np.random.default_rng(fresh_seed)
    drawn = np.ldexp(rng.uniform(-1, 1, 5000), rng.integers(-14, 9, 5000)).astype(np.float32)
    values = np.concatenate([drawn, numbers, -numbers, np.nextafter(between, 0), np.nextafter(between, 448)])
    values = values.astype(np.float32)
    found = floats_of_8_bits("f8e4m3")[nearest_e4m3(values)]
    nearest = np.abs(np.abs(values)[:, None].astype(np.float64) - numbers).min(1)
    assert np.array_equal(np.abs(found.astype(np.float64) - values), nearest)


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


@pytest.mark.parametrize("block", [None, [128, 128], [16, 256]])
def test_scaled_matrices_stay_as_they_are(block: list[int] | None, tmp_path: Path) -> None:
    """As blocks of 128 with a scale each, which say exactly what the folder does; logits are those of their numbers."""
    sizes = {60: 128, 77: 256, 20: 32}
    tensors = {name: [sizes.get(n, n) for n in shape] for name, shape in FOLDER.tensors.items()}
    config = {k: sizes.get(v, v) if isinstance(v, int) else v for k, v in FOLDER.config.items()} | {"head_dim": 16}
    folder, rng = replace(FOLDER, config=json.loads(json.dumps(config)), tensors=tensors), seeded.rng()
    scaled, plain = folder.write(tmp_path / "scaled"), folder.write(tmp_path / "plain")
    changed, numbers = {}, {}
    for name, (rows, columns) in ((n, s) for n, s in tensors.items() if n.endswith("_proj.weight")):
        patterns = (rng.integers(0, 0x7F, (rows, columns)) | rng.integers(0, 2, (rows, columns)) << 7).astype(np.uint8)
        each = (rows, columns) if block is None else (block[0], block[1])
        scales = rng.uniform(0.5, 1, (-(-rows // each[0]), -(-columns // each[1]))).astype(np.float32) / 2000
        grid = np.repeat(np.repeat(scales, each[0], 0), each[1], 1)[:rows, :columns]
        changed |= {
            name: ("F8_E4M3", patterns),
            f"{name}_scale_inv": ("F32", scales if block else scales.reshape(())),
        }
        numbers[name] = ("F32", floats_of_8_bits("f8e4m3")[patterns] * grid)
    rewrite(scaled, changed)
    rewrite(plain, numbers)
    quantization = {"quant_method": "fp8", "weight_block_size": block}
    (scaled / "config.json").write_text(json.dumps(folder.config | {"quantization_config": quantization}))
    opened, wanted = open_weights(scaled), open_weights(plain)
    kept = opened.config["weight-types"]
    assert set(kept.values()) == {"fp8"} and {"qkv-w", "up-w", "down-w"} <= set(kept)  # proj-w has rows of 64
    for name in kept:
        blocks = np.empty(find_dtype("fp8").items(opened.info(name).shape), find_dtype("fp8").numpy)
        opened.read_into(name, blocks, "fp8")
        assert np.array_equal(widened(blocks, "fp8"), wanted.tensor(name)), name
    logits = []
    for path in (scaled, plain):
        with lispgpt.load(path) as model:
            entry = model.entry("decode-greedy", "this", batch=1, positions=1).name
            steps = enumerate(folder.cases[0].prompt[:4])
            found = [model.session.run(entry, tokens=[[t]], positions=[[n]])["logits"].copy() for n, t in steps]
            logits.append(np.concatenate(found))
    assert np.abs(logits[0] - logits[1]).max() < 1e-4 * np.abs(logits[1]).max()


def test_what_is_not_read_is_named(tmp_path: Path) -> None:
    rows, columns = FOLDER.tensors[MATRIX]
    bytes_of = np.zeros((rows, columns), np.uint8)
    path = FOLDER.write(tmp_path / "model")
    rewrite(path, {MATRIX: ("F8_E8M0", bytes_of)})
    with pytest.raises(
        UserError, match=r"tensor 'layers\.1\.mlp.down_proj\.weight' is of type F8_E8M0, which is not read"
    ):
        open_weights(path)
