"""Checkpoints: every format and type gives the same tensors, zero-copy where promised, in little memory."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import seeded
from click.testing import CliRunner
from safetensors import numpy as safetensors_numpy

from lispgpt.base.errors import UserError
from lispgpt.cli.checkpoint import checkpoint as cli
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import convert, make
from lispgpt.runtime.checkpoints.numbers import bf16_to_f32, f32_to_bf16, is_finite
from lispgpt.runtime.checkpoints.seeded import PRESETS, RandomCheckpoint

SHAPE = Gpt2Shape.unpadded(211, 24, 3, 6, 96)


def read_all(checkpoint: checkpoints.Checkpoint, dtype: str) -> dict[str, np.ndarray]:
    """All tensors, read over a poisoned destination."""
    tensors = {}
    for name in checkpoint.names():
        poison = np.uint16(0x7FC1) if dtype == "bf16" else np.float32("nan")
        tensors[name] = np.full(checkpoint.info(name).shape, poison)
        checkpoint.read_into(name, tensors[name], dtype)
    return tensors


def without_padding(tensors: dict[str, np.ndarray], vocab: int) -> dict[str, np.ndarray]:
    return tensors | {"wte": tensors["wte"][:vocab]}


def assert_equal(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert np.array_equal(left[name], right[name]), name  # NaN, the poison, equals nothing


@pytest.mark.parametrize("format", ["llmc", "huggingface"])
@pytest.mark.parametrize("stored", ["f32", "bf16"])
def test_what_is_made_is_what_is_read(tmp_path: Path, format: str, stored: str) -> None:
    seed = seeded.fresh_seed()
    source = RandomCheckpoint(SHAPE, seed)
    make(tmp_path / "model", SHAPE, format, stored, seed)
    opened = checkpoints.open(tmp_path / "model")
    assert opened.format == format
    assert {k: v for k, v in opened.config.items() if k != "epsilon"} == SHAPE.config(stored)
    assert {opened.info(name).dtype for name in opened.names()} == {stored}
    opened.check_finite()
    for wanted in ("f32", "bf16"):
        expected = read_all(source, stored)
        if stored != wanted:
            expected = {k: (bf16_to_f32 if wanted == "f32" else f32_to_bf16)(v) for k, v in expected.items()}
        found = read_all(opened, wanted)
        assert_equal(without_padding(found, SHAPE.vocab), without_padding(expected, SHAPE.vocab))
        if format == "huggingface":
            assert not found["wte"][SHAPE.vocab :].any()


def test_llmc_layout_is_the_documented_one(tmp_path: Path) -> None:
    make(tmp_path / "model.bin", SHAPE, "llmc", "f32", 1)
    data = (tmp_path / "model.bin").read_bytes()
    assert struct.unpack_from("<8i", data) == (20240326, 3, 24, 211, 3, 6, 96, 256)
    floats = np.frombuffer(data, "<f4", offset=1024)
    opened = checkpoints.open(tmp_path / "model.bin")
    layer = [f"{part}-{kind}" for part in ("ln1", "qkv", "proj", "ln2", "fc", "out") for kind in "wb"]
    expected = ["wte", "wpe", *layer, "lnf-w", "lnf-b"]
    assert list(opened.names()) == expected
    start = 0
    for name in expected:
        tensor = opened.tensor(name)
        assert np.array_equal(tensor.reshape(-1), floats[start : start + tensor.size])
        start += tensor.size
    assert start == floats.size
    assert opened.info("qkv-w").shape == (3, 288, 96)


def test_the_124m_shape_has_the_published_number_of_elements() -> None:
    assert PRESETS["gpt2-124m"].count == 124_475_904


def test_llmc_views_are_the_files_own_bytes(tmp_path: Path) -> None:
    for dtype, storage in (("bf16", np.uint16), ("f32", np.float32)):
        make(tmp_path / dtype, SHAPE, "llmc", dtype, 2)
        opened = checkpoints.open(tmp_path / dtype)
        for name in opened.names():
            view = opened.view(name)
            assert view is not None and view.dtype == storage and view.flags.c_contiguous
            assert not view.flags.owndata and not view.flags.writeable
            assert opened.tensor(name) is view


def test_huggingface_matrices_are_transposed_and_names_may_have_a_prefix(tmp_path: Path) -> None:
    make(tmp_path / "plain", SHAPE, "huggingface", "f32", 3)
    tensors = safetensors_numpy.load_file(tmp_path / "plain" / "model.safetensors")
    opened = checkpoints.open(tmp_path / "plain")
    assert np.array_equal(opened.tensor("fc-w")[2], tensors["h.2.mlp.c_fc.weight"].T)
    assert np.array_equal(opened.tensor("lnf-b"), tensors["ln_f.bias"])
    assert tensors["wte.weight"].shape == (211, 96)
    renamed = {f"transformer.{name}": array for name, array in tensors.items()}
    renamed["lm_head.weight"] = tensors["wte.weight"].copy()
    renamed["transformer.h.0.attn.bias"] = np.ones((1, 1, 24, 24), bool)
    renamed["transformer.h.1.attn.masked_bias"] = np.float32([-1e4])
    (tmp_path / "plain" / "model.safetensors").unlink()
    (names := sorted(renamed)).reverse()
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, members in halves.items():
        safetensors_numpy.save_file({name: renamed[name] for name in members}, tmp_path / "plain" / file)
    weight_map = {name: file for file, members in halves.items() for name in members}
    (tmp_path / "plain" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    sharded = checkpoints.open(tmp_path / "plain")
    assert_equal(read_all(sharded, "f32"), read_all(RandomCheckpointWithZeroPadding(3), "f32"))


@pytest.mark.parametrize("stored", [np.float16, np.float64])
def test_floats_that_no_kernel_reads_become_ones_that_they_do(stored: type, tmp_path: Path) -> None:
    make(tmp_path / "m", SHAPE, "huggingface", "f32", 3)
    file = tmp_path / "m" / "model.safetensors"
    narrow = {name: array.astype(stored) for name, array in safetensors_numpy.load_file(file).items()}
    safetensors_numpy.save_file(narrow, file)
    opened = checkpoints.open(tmp_path / "m")
    assert opened.config["weight-type"] == "f32" and opened.view("fc-b") is None
    expected = np.stack([narrow[f"h.{layer}.mlp.c_fc.weight"].T for layer in range(3)]).astype(np.float32)
    assert np.array_equal(read_all(opened, "f32")["fc-w"], expected)
    assert np.array_equal(read_all(opened, "bf16")["fc-w"], f32_to_bf16(expected))
    assert opened.tensor("fc-w").dtype == np.float32
    narrow["wte.weight"][3, 5] = np.inf
    safetensors_numpy.save_file(narrow, file)
    with pytest.raises(UserError, match="wte"):
        checkpoints.open(tmp_path / "m").check_finite(["wte"])


class RandomCheckpointWithZeroPadding(RandomCheckpoint):
    def __init__(self, seed: int) -> None:
        super().__init__(SHAPE, seed)

    def read_layer_into(self, name: str, layer: int, destination: np.ndarray, dtype: str) -> None:
        super().read_layer_into(name, layer, destination, dtype)
        if name == "wte":
            destination[SHAPE.vocab :] = 0


def test_half_precision_is_read_exactly(tmp_path: Path) -> None:
    make(tmp_path / "hf", SHAPE, "huggingface", "f32", 4)
    path = tmp_path / "hf" / "model.safetensors"
    halves = {name: array.astype(np.float16) for name, array in safetensors_numpy.load_file(path).items()}
    safetensors_numpy.save_file(halves, path)
    opened = checkpoints.open(tmp_path / "hf")
    assert opened.config["weight-type"] == "f32" and opened.info("proj-w").dtype == "f16"
    assert np.array_equal(opened.tensor("proj-w")[1], halves["h.1.attn.c_proj.weight"].T.astype(np.float32))


@pytest.mark.parametrize("route", [("llmc", "huggingface"), ("huggingface", "llmc")])
def test_converting_there_and_back_loses_nothing(tmp_path: Path, route: tuple[str, str]) -> None:
    shape = Gpt2Shape.unpadded(300, 16, 2, 4, 32)
    make(tmp_path / "one", shape, route[0], "bf16", 5)
    convert(tmp_path / "one", tmp_path / "two", route[1])
    convert(tmp_path / "two", tmp_path / "three", route[0], "f32")
    first, last = checkpoints.open(tmp_path / "one"), checkpoints.open(tmp_path / "three")
    assert last.config["weight-type"] == "f32" and first.config["weight-type"] == "bf16"
    assert_equal(
        without_padding(read_all(first, "f32"), shape.vocab), without_padding(read_all(last, "f32"), shape.vocab)
    )
    convert(tmp_path / "three", tmp_path / "three", route[0], "bf16")
    again = checkpoints.open(tmp_path / "three")
    assert_equal(
        without_padding(read_all(first, "bf16"), shape.vocab), without_padding(read_all(again, "bf16"), shape.vocab)
    )


def test_a_seed_means_the_same_numbers_forever() -> None:
    values = np.empty((2, 8), np.float32)
    RandomCheckpoint(Gpt2Shape.unpadded(2, 2, 1, 1, 8), 7).read_layer_into("wpe", 0, values, "f32")
    assert values[0, :4].tolist() == [-1.6404154300689697, 0.7313317060470581, -1.6640185117721558, 0.97212815284729]
    other = np.empty((2, 8), np.float32)
    RandomCheckpoint(Gpt2Shape.unpadded(2, 2, 1, 1, 8), 8).read_layer_into("wpe", 0, other, "f32")
    assert not np.isin(other, values).any()


def test_bf16_rounding_is_to_nearest_even() -> None:
    random_bits = seeded.rng().integers(0, 1 << 32, 100_000, np.uint64).astype(np.uint32)
    ties = random_bits & np.uint32(0xFFFF0000) | np.uint32(0x8000)
    for values in (random_bits.view(np.float32), ties.view(np.float32)):
        rounded = bf16_to_f32(f32_to_bf16(values))
        finite = np.isfinite(values) & (np.abs(values) < 3.3e38)
        assert np.array_equal(np.isnan(rounded), np.isnan(values))
        below = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)[finite].astype(np.float64)
        above = ((values.view(np.uint32) & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32)
        exact, above = values[finite].astype(np.float64), above[finite].astype(np.float64)
        even_below = (values.view(np.uint32)[finite] >> np.uint32(16)) % 2 == 0
        nearer_below = np.abs(exact - below) < np.abs(above - exact)
        tie = np.abs(exact - below) == np.abs(above - exact)
        expected = np.where(nearer_below | (tie & even_below), below, above)
        assert np.array_equal(rounded[finite], expected.astype(np.float32))


@pytest.mark.parametrize(("dtype", "storage"), [("f32", np.float32), ("f16", np.float16), ("bf16", np.uint16)])
def test_every_nan_and_infinity_is_found(dtype: str, storage: type) -> None:
    chance = seeded.rng()
    largest = {"f32": 0x7F7FFFFF, "f16": 0x7BFF, "bf16": 0x7F7F}[dtype]
    bits = np.uint32 if dtype == "f32" else np.uint16
    sign = 1 << (8 * np.dtype(bits).itemsize - 1)
    array = (chance.integers(0, largest + 1, 300_000) | chance.choice([0, sign], 300_000)).astype(bits)
    array[:2] = largest, largest | sign
    assert is_finite(array.view(storage), dtype)
    for bad in (largest + 1, largest + 1 | sign, largest + 2, largest + 2 | sign, sign - 1, 2 * sign - 1):
        damaged = array.copy()
        damaged[chance.integers(array.size)] = bad
        assert not is_finite(damaged.view(storage), dtype)


def hipgpt_bytes(chance: np.random.Generator, vocab: int, context: int, width: int, hidden: int, layers: int) -> bytes:
    """A checkpoint as HipGPT writes it."""
    shapes = [(width, 3 * width), (width, width), (width, hidden), (hidden, width), 3 * width, width, hidden]
    data = [np.int32([vocab, context, width, layers]).tobytes()]
    data.append(chance.standard_normal((vocab + context) * width, np.float32).tobytes())
    for _ in range(layers):
        data.append(np.int32([width, 2, hidden]).tobytes())
        data += [chance.standard_normal(shape, np.float32).tobytes() for shape in [*shapes, *[width] * 5]]
    return b"".join([*data, chance.standard_normal(width * vocab, np.float32).tobytes()])


def test_hipgpt(tmp_path: Path) -> None:
    data = hipgpt_bytes(seeded.rng(), vocab=31, context=7, width=6, hidden=10, layers=2)
    (tmp_path / "model").write_bytes(data)
    opened = checkpoints.open(tmp_path / "model")
    assert opened.format == "hipgpt" and opened.config["hidden"] == 10 and opened.config["heads"] == 2
    floats = np.frombuffer(data, "<f4")
    assert np.array_equal(opened.tensor("out-proj"), floats[-6 * 31 :].reshape(6, 31).T)
    first_layer = 4 + 38 * 6 + 3
    assert np.array_equal(opened.tensor("qkv-w")[0], floats[first_layer:][: 6 * 18].reshape(6, 18).T)
    with pytest.raises(UserError, match="not a GPT-2"):
        convert(tmp_path / "model", tmp_path / "out")


def test_an_unknown_tensor_is_named(tmp_path: Path) -> None:
    make(tmp_path / "model", SHAPE, "llmc", "f32", 1)
    with pytest.raises(UserError, match=r"no tensor 'qkv'; it has wte, "):
        checkpoints.open(tmp_path / "model").info("qkv")


def test_the_command_line(tmp_path: Path) -> None:
    runner, path = CliRunner(), str(tmp_path / "m.bin")
    sizes = ["--layers", "2", "--heads", "2", "--width", "16", "--vocab", "300", "--context", "12"]
    assert runner.invoke(cli, ["make", path, *sizes, "--seed", "3"]).exit_code == 0
    assert (tmp_path / "m.tokenizer.bin").exists()
    described = runner.invoke(cli, ["info", path, "--json", "--check"])
    facts = json.loads(described.output)
    assert facts["config"] == Gpt2Shape.unpadded(300, 12, 2, 2, 16).config("bf16")
    assert facts["tensors"]["fc-w"] == {"shape": [2, 64, 16], "dtype": "bf16"}
    assert facts["bytes"] == (tmp_path / "m.bin").stat().st_size - 1024
    table = runner.invoke(cli, ["info", path])
    assert table.exit_code == 0 and "2 x 64 x 16" in table.output
    converted = runner.invoke(cli, ["convert", path, str(tmp_path / "hf"), "--format", "huggingface", "--dtype", "f32"])
    assert converted.exit_code == 0 and (tmp_path / "hf" / "tokenizer.json").exists()
    for arguments, hint in (
        (["make", path, "--layers", "2"], "give --preset, or also --heads, --width, --vocab, --context"),
        (["make", path, *sizes, "--heads", "3"], "not a multiple"),
        (["info", str(tmp_path / "nothing")], "there is no checkpoint"),
        (["convert", path, str(tmp_path)], "is no ordinary file"),
        (["convert", path, "/dev/null/model.bin"], "cannot write"),
        (["convert", path, path, "--format", "huggingface"], "is a folder"),
    ):
        failed = runner.invoke(cli, arguments)
        assert isinstance(failed.exception, UserError) and hint in failed.exception.message


def test_a_failed_conversion_leaves_what_was_there(tmp_path: Path) -> None:
    make(tmp_path / "good", SHAPE, "llmc", "bf16", 1)
    damaged = bytearray((tmp_path / "good").read_bytes())
    damaged[-2:] = b"\x80\x7f"
    (tmp_path / "bad").write_bytes(damaged)
    before = (tmp_path / "good").read_bytes()
    with pytest.raises(UserError, match="'lnf-b' holds NaN or infinity"):
        convert(tmp_path / "bad", tmp_path / "good")
    assert (tmp_path / "good").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "good"]


def test_reading_a_large_folder_does_not_keep_the_file_in_memory(tmp_path: Path) -> None:
    shape = Gpt2Shape.unpadded(128, 8, 2, 4, 1024)
    make(tmp_path / "hf", shape, "huggingface", "bf16", 1)
    opened = checkpoints.open(tmp_path / "hf")

    def resident() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("RssFile:")[1].split()[0]) * 1024

    before = resident()
    for name in opened.names():
        opened.tensor(name)
    opened.check_finite()
    assert resident() - before < 2 * shape.count / 4
