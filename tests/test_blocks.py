"""Weights in blocks: entries compute with the numbers that the blocks stand for, on any target."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from drawn_weights import of_16_bits

import lispgpt
from lispgpt.base import host
from lispgpt.base.dtypes import BLOCK_DTYPES, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.cli.checkpoint import checkpoint as checkpoint_command
from lispgpt.cli.main import main
from lispgpt.compiler.driver import Request, compile_request
from lispgpt.compiler.folders import find_given, open_weights, programs
from lispgpt.compiler.request import Observer
from lispgpt.runtime.checkpoints import open as open_checkpoint
from lispgpt.runtime.checkpoints.blocks import in_blocks_of, widened
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import convert_to_blocks, make
from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors

pytestmark = pytest.mark.drawn

PROGRAM = """
(require nn)
(config out 72  in 512  layers 2  weight-type bf16)
(weights (table [out in] weight-type) (per layers (w [out in] weight-type)) (few [4 in] q8_0))
(entry products [(x [n in])] {:second (linear x (w 1)) :few (linear x few) :tied (matmul-transposed x table)})
(entry lookup [(ids [n] i32)] (rows table ids))
"""


FEW = [("q8_0", 96), ("q4_0", 96), ("q4_0", 192), ("int8", 384), ("mxfp4", 96), ("mxfp4", 128)]
FEW += [(kind, 256 * n) for kind, n in (("q4_k", 1), ("q5_k", 1), ("q6_k", 3), ("iq4_xs", 1), ("k_mix", 2))]
"""Types, and numbers of a row, of products that CPUs add up as whole numbers."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("blocks") / "products.lisp"
    path.write_text(PROGRAM)
    return path


def weights(path: Path, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random weights, written as f32."""
    shapes = {"table": (72, 512), "layers.0.w": (72, 512), "layers.1.w": (72, 512), "few": (4, 512)}
    made = {name: rng.normal(0.1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    write_safetensors(path, [(name, made[name].shape, "f32") for name in made], made.values())
    return made


@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
def test_entries_compute_with_what_blocks_stand_for(dtype: str, program: Path, tmp_path: Path, fresh_seed: int) -> None:
    rng = np.random.default_rng(fresh_seed)
    made = weights(tmp_path / "w.safetensors", rng)
    stored = {name: widened(in_blocks_of(w, "q8_0" if name == "few" else dtype), dtype) for name, w in made.items()
              if name != "few"}  # fmt: skip
    stored["few"] = widened(in_blocks_of(made["few"], "q8_0"), "q8_0")
    with lispgpt.load(program, tmp_path / "w.safetensors", settings={"weight-type": dtype}) as model:
        for n in (1, 5, 20):
            x = rng.normal(0, 1, (n, 512)).astype(np.float32)
            found = model.run("products", x=x)
            for result, name in {"second": "layers.1.w", "few": "few", "tied": "table"}.items():
                numbers = stored[name].astype(np.float64)
                error = np.abs(found[result] - x.astype(np.float64) @ numbers.T)
                assert (error <= of_16_bits(x, numbers)).all(), (result, n, error.max())
        ids = rng.integers(0, 72, 3)
        assert np.array_equal(model.run("lookup", ids=ids)["lookup"], stored["table"][ids])


@pytest.mark.skipif(not {"avx2", "fma", "f16c"} <= host.cpu_features(), reason="code for x86-64-v3 does not run here")
@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3"])
@pytest.mark.parametrize(("dtype", "inner"), FEW)
def test_few_rows_are_numbers_of_16_bits(dtype: str, inner: int, target: str, tmp_path: Path, fresh_seed: int) -> None:
    """A row's error is below a 65,000th of the largest of 32 of its numbers, times the weights that it meets."""
    rng = np.random.default_rng(fresh_seed)
    (tmp_path / "x.lisp").write_text(
        f"(require nn) (weights (w [40 {inner}] {dtype})) (entry e [(x [n {inner}])] (linear x w))"
    )
    values = rng.normal(0.1, 1, (40, inner)).astype(np.float32)
    write_safetensors(tmp_path / "w.safetensors", [("w", values.shape, "f32")], [values])
    numbers = widened(in_blocks_of(values, dtype), dtype).astype(np.float64)
    with lispgpt.load(tmp_path / "x.lisp", tmp_path / "w.safetensors", target=target) as model:
        for n in (1, 3):
            x = rng.normal(0, 1, (n, inner)).astype(np.float32)
            x[:, 32:64] *= 1000  # what others lose by it, were the scale one for all
            x[0, 64:] = 0
            bound = of_16_bits(x, numbers)
            error = np.abs(model.run("e", x=x)["e"] - x.astype(np.float64) @ numbers.T)
            assert (error <= bound).all(), (n, (error / bound).max())
            x[-1, inner - 1] = np.nan
            found = model.run("e", x=x)["e"]
            assert np.isnan(found[-1]).all() and np.isfinite(found[:-1]).all()


@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
def test_quantised_numbers_are_near(dtype: str, fresh_seed: int) -> None:
    rng = np.random.default_rng(fresh_seed)
    values = rng.normal(0, 1, (7, 512)).astype(np.float32)
    values[3] = 0
    values[4, :32] = 5.0
    values[5] = np.abs(values[5])
    blocks = in_blocks_of(values, dtype)
    assert blocks.shape == find_dtype(dtype).items(values.shape) and blocks.dtype == find_dtype(dtype).numpy
    steps = {
        "q8_0": 127,
        "q4_0": 8,
        "q4_k": 15,
        "q5_k": 31,
        "q6_k": 31,
        "iq4_xs": 9,
        "mxfp4": 4,
        "k_mix": 31,
        "int8": 127,
        "fp8": 28,
    }[dtype]
    largest = np.abs(values.reshape(7, -1, find_dtype(dtype).block)).max(-1).repeat(find_dtype(dtype).block, -1)
    error = np.abs(widened(blocks, dtype) - values)
    assert (error <= 1.05 * largest / steps + 1e-6).all()
    assert np.array_equal(widened(blocks, dtype)[3], np.zeros(512))


def test_gpus_get_kernels_that_read_blocks(program: Path) -> None:
    request = Request(
        program, "cuda:sm_90a", overrides={"weight-type": "q4_k"}, sizes=[{"n": 1}], entries=("products",)
    )
    artifact, _ = compile_request(request, Observer())
    buffers = {buffer.name: buffer for buffer in artifact.plan.buffers}
    assert buffers["w"].shape == (2, 72, 2, 144) and buffers["w"].dtype == "i8"
    assert artifact.weights["w"] == {"shape": [2, 72, 512], "dtype": "q4_k", "stacked": True}
    assert buffers["w"].nbytes == find_dtype("q4_k").nbytes(2 * 72 * 512)


def test_generation_with_blocks_follows_the_widened_weights(tmp_path: Path, examples: Path) -> None:
    path = tmp_path / "model.bin"
    make(path, Gpt2Shape.unpadded(500, 64, 2, 4, 64), "llmc", "f32", 3)
    opened = open_checkpoint(path)
    rounded = {}
    for name in opened.names():
        values = np.array(opened.tensor(name))
        matrix = values.ndim - opened.info(name).stacked > 1
        rounded[name] = widened(in_blocks_of(values, "q8_0"), "q8_0").reshape(values.shape) if matrix else values
    write_safetensors(
        tmp_path / "model.safetensors", [(n, v.shape, "f32") for n, v in rounded.items()], rounded.values()
    )
    given = {"context": 64, "layers": 2, "heads": 4, "width": 64, "vocab": 500}
    program, tokens = examples / "gpt2_generate.lisp", []
    for checkpoint, dtype in ((path, "q8_0"), (tmp_path / "model.safetensors", "f32")):
        with lispgpt.load(program, checkpoint, settings={**given, "weight-type": dtype}) as model:
            text = model.generate([1, 2, 3], max_new_tokens=16, greedy=True)
            list(text)
            tokens.append(text.tokens)
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(weights (w [4 100] q8_0)) (entry e [(x [2 100])] (+ x 1.0))", "rows of w have 100 elements, and blocks of"),
        ("(weights (w [4 64] q5_9)) (entry e [(x [2 64])] (+ x 1.0))", "`q5_9` is not defined"),
        ("(state (s [4 64] q8_0)) (entry e [(x [2 64])] (+ x 1.0))", r"`q8_0` is not one of the types f32, bf16, i32"),
        ("(weights (w [4 64] q8_0)) (entry e [(x [4 64])] (update! w x) x)", "w is in blocks .q8_0., which are read"),
        (
            "(weights (per 2 (w [4 64] q8_0))) (entry e [(x [4 64])] (first (gradients (sum (sum x)) (all-weights))))",
            "w is in blocks .q8_0., which are not trained",
        ),
        ("(config weight-type index)(weights (w [4 64] weight-type)) (entry e [(x [4 64])] x)", "not one of the types"),
    ],
)  # fmt: skip
def test_what_blocks_cannot_be_is_one_clear_error(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.lisp").write_text(text)
    with pytest.raises(UserError, match=message):
        lispgpt.compile(tmp_path / "x.lisp")


@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
def test_a_converted_checkpoint_holds_the_sources_weights_in_blocks(dtype: str, tmp_path: Path) -> None:
    make(tmp_path / "model.bin", Gpt2Shape.unpadded(500, 64, 2, 4, 256), "llmc", "f32", 3)
    source = open_checkpoint(tmp_path / "model.bin")
    left, tokenizer = convert_to_blocks(source, tmp_path / "out.safetensors", dtype)
    assert left == [] and tokenizer == tmp_path / "out.tokenizer.bin"
    opened = open_checkpoint(tmp_path / "out.safetensors")
    assert {k: opened.config[k] for k in ("vocab", "layers", "heads", "width")} == {
        k: source.config[k] for k in ("vocab", "layers", "heads", "width")
    }
    for name in source.names():
        values, info = np.array(source.tensor(name)), source.info(name)
        matrix = values.ndim - info.stacked > 1
        assert opened.info(name).dtype == (dtype if matrix else "f32") and opened.info(name).shape == info.shape
        wanted = widened(in_blocks_of(values, dtype), dtype).reshape(info.shape) if matrix else values
        found = np.empty(info.shape, np.float32)
        opened.read_into(name, found, "f32")
        assert np.array_equal(found, wanted), name
        assert not matrix or opened.view(name) is not None, "blocks are read where they are"
    opened.check_finite()
    assert set(opened.config["weight-types"]) == {"wte", "wpe", "qkv-w", "proj-w", "fc-w", "out-w"}


def test_what_metadata_says_of_blocks_is_held_against_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    for blocks in (
        {"w": ["q8_0", [4, 32], False]},
        {"w": ["q9", [2, 32], False]},
        {"v": ["q8_0", [2, 32], False]},
        [1],
    ):
        write_safetensors(path, [("w", (2, 34), "u8")], [np.zeros((2, 34), np.uint8)], {"blocks": json.dumps(blocks)})
        with pytest.raises(UserError, match=r"what its metadata says of the blocks of|should hold a JSON object"):
            open_checkpoint(path)


def test_the_command_prints_the_perplexity_of_both(
    tmp_path: Path, examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "model.bin", Gpt2Shape.unpadded(500, 64, 1, 4, 64), "llmc", "bf16", 3)
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog " * 4)
    words = [tmp_path / "model.bin", tmp_path / "out.safetensors", "--dtype", "q8_0", "--data", tmp_path / "text.txt"]
    with pytest.raises(SystemExit) as ended:
        main(["checkpoint", "convert", *map(str, words), "--program", str(examples / "gpt2_train.lisp"), "--most", "2"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    found = [float(line.split("perplexity ")[1].split(",")[0]) for line in lines if "perplexity" in line]
    assert len(found) == 2 and 0.9 < found[0] / found[1] < 1.1
    with pytest.raises(SystemExit) as ended:
        main(["checkpoint", "convert", *map(str, words[:4]), "--format", "llmc"])
    assert ended.value.code != 0


def test_a_converted_checkpoint_of_a_folder_knows_its_program(tmp_path: Path) -> None:
    """By the name of the package's program; of a user's own, the error says it."""
    austen, path, again = programs()["gpt2"].parent / "models" / "austen", tmp_path / "a.safetensors", tmp_path / "b"
    for words in ([austen, path, "--dtype", "q8_0"], [path, again.with_suffix(".safetensors"), "--dtype", "int8"]):
        checkpoint_command.main(["convert", *map(str, words)], standalone_mode=False)
    for made in (path, again.with_suffix(".safetensors")):
        given = find_given(made, None)
        assert given.program == programs()["gpt2"] and given.weights == made and given.config["width"] == 192
    convert_to_blocks(open_weights(austen), path, "q8_0", "../mine.lisp")
    with pytest.raises(UserError, match=r"give \.\./mine\.lisp, which it was made for, and --checkpoint .*a\.safe"):
        find_given(path, None)
