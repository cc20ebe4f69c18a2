"""Products of every layout and size, and of weights in blocks, against float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, rounded_to_bf16
from gpu.chips import Chip
from random_products import RandomProduct, random_product

import lispgpt
from lispgpt.base.dtypes import BLOCK_DTYPES
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.pipelines.pipeline_file import pipeline_path
from lispgpt.runtime.checkpoints.blocks import in_blocks_of, widened
from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors
from lispgpt.runtime.session import Session

LAYOUTS = {
    "x times the transpose of w": (("n", "i"), ("o", "i"), ("n", "o")),
    "dy times w": (("n", "o"), ("o", "i"), ("n", "i")),
    "the transpose of dy times x": (("n", "o"), ("n", "i"), ("o", "i")),
    "a batch of them": (("n", "b0", "i"), ("b0", "i", "o"), ("b0", "o", "n")),
}
WARPGROUPS = """
(require nn)
(config context 128)
(weights (table [64 192]) (w [{outputs} 192] bf16) (b [{outputs}]))
(entry product [tokens positions] (gelu (linear (rows table tokens) w b)))
"""
NEAR = 3e-5
"""Of F32 products, which matrix instructions take in pieces of BF16."""


def check(chip: Chip, product: RandomProduct, folder: Path, rng: np.random.Generator) -> None:
    artifact = compile_request(Request(product.write(folder), chip.target), Observer())[0]
    values = product.values(rng)
    bf16 = frozenset(n for n, d in zip(("x", "w"), product.dtypes, strict=True) if d == "bf16")
    with Session(artifact, chip.open(), Weights(values, bf16)) as session:  # type: ignore[arg-type]
        entry = session.artifact.plan.entries[0].name
        found = [session.run(entry, [[0]], [[0]])[entry] for _ in range(2)]
    expected = product.expected(values)
    np.testing.assert_array_equal(found[0], found[1])
    error = np.linalg.norm(found[0] - expected) / max(np.linalg.norm(expected), 1e-3)
    assert error <= NEAR, f"{product}: {error}"


@pytest.mark.parametrize("dtypes", [("f32", "f32"), ("f32", "bf16"), ("bf16", "bf16")], ids="-".join)
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_of_training(name: str, dtypes: tuple[str, str], chip: Chip, tmp_path: Path) -> None:
    """Of sizes that fill tiles, and of ones that do not."""
    rng, (left, right, result) = seeded.rng(), LAYOUTS[name]
    for low, high, unit in chip.sized(((1, 20, 1), (17, 300, 1), (2, 12, 64)), ((17, 40, 1),)):
        sizes = {i: unit * int(rng.integers(low, high)) for i in dict.fromkeys(left + right)} | {"b0": 2}
        sizes = {i: size for i, size in sizes.items() if i in left + right}
        check(chip, RandomProduct(left, right, result, sizes, dtypes, bool(rng.integers(2))), tmp_path, rng)


@pytest.mark.parametrize("number", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 80))])
def test_any_layout(number: int, chip: Chip, tmp_path: Path) -> None:
    rng = seeded.rng()
    most = chip.sized({"b": 5, "r": 200, "c": 250, "k": 300}, {"b": 2, "r": 20, "c": 20, "k": 30})
    check(chip, random_product(rng, most, int(rng.choice([1, 1, 4, 16]))), tmp_path, rng)


@pytest.mark.parametrize("options", ["", ":splits 1", ":rows 128", ":outputs 16"])
@pytest.mark.parametrize("outputs", [96, 200, 37])
def test_tiles_of_warpgroups(outputs: int, options: str, chip: Chip, tmp_path: Path) -> None:
    """Of 70 sequences by one and of a prompt of 128, with what follows the product, where a chip has warpgroups."""
    if chip.emulated or chip.target != "cuda:sm_90a":
        pytest.skip(f"{chip.target} multiplies by other instructions, or an emulator knows no clusters")
    rng = seeded.rng()
    shapes = {"table": (64, 192), "w": (outputs, 192), "b": (outputs,)}
    values = {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    values["w"] = rounded_to_bf16(values["w"])
    program = tmp_path / "product.lisp"
    program.write_text(WARPGROUPS.format(outputs=outputs))
    pipeline = tmp_path / "mine.lisp"
    text = pipeline_path("gpu").read_text().replace("(pass choose) ", "")
    pipeline.write_text(text.replace("schedule-gpu-warpgroups)", f"schedule-gpu-warpgroups {{{options}}})"))
    artifact = compile_request(Request(program, chip.target, pipeline=pipeline, batch=70), Observer())[0]
    with Session(artifact, chip.open(), Weights(values, frozenset("w"))) as session:  # type: ignore[arg-type]
        for shape in ((70, 1), (1, 128)):
            tokens = rng.integers(0, 64, shape).astype(np.int32)
            (result,) = session.run("product", tokens, np.zeros(shape, np.int32)).values()
            exact = {name: value.astype(np.float64) for name, value in values.items()}
            y = exact["table"][tokens.ravel()] @ exact["w"].T + exact["b"]
            wanted = 0.5 * y * (1 + np.tanh(0.7978845608028654 * (y + 0.044715 * y**3)))
            assert np.linalg.norm(result - wanted) <= NEAR * np.linalg.norm(wanted)


@pytest.mark.parametrize("inner", [256, 1280])
def test_weights_in_blocks(inner: int, chip: Chip, tmp_path: Path) -> None:
    """One row, as decoding has, a few, and as many as prompts have."""
    rng, columns = seeded.rng(), chip.sized(200, 24)
    kinds = rng.permutation(BLOCK_DTYPES)[: chip.sized(len(BLOCK_DTYPES), 4)].tolist()
    weights = " ".join(f"(w-{dtype} [{columns} {inner}] {dtype})" for dtype in kinds)
    products = " ".join(f":{dtype} (linear x w-{dtype})" for dtype in kinds)
    program, path = tmp_path / "products.lisp", tmp_path / "w.safetensors"
    program.write_text(f"(require nn)\n(weights {weights})\n(entry products [(x [n {inner}])] {{{products}}})\n")
    made = {f"w-{dtype}": rng.normal(0, 1, (columns, inner)).astype(np.float32) for dtype in kinds}
    write_safetensors(path, [(name, (columns, inner), "f32") for name in made], made.values())
    with lispgpt.load(program, path, target=chip.device) as model:
        for rows in chip.sized((1, 2, 7, 16, 64, 130), (1, 7)):
            x = rng.normal(0, 1, (rows, inner)).astype(np.float32)
            found = model.run("products", x=x)
            for dtype in kinds:
                numbers = widened(in_blocks_of(made[f"w-{dtype}"], dtype), dtype).astype(np.float64)
                wanted = x.astype(np.float64) @ numbers.T
                assert np.abs(found[dtype] - wanted).max() < NEAR * np.abs(wanted).max(), f"{dtype} of {rows} rows"
