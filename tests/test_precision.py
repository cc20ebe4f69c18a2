"""--precision: products with short weights on activations in BF16, against float64 and against those in F32."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import Weights, compile_text, random_weights
from emulated_amd.running import Emulation
from emulated_cuda.device import EmulatedCuda
from test_cli import Call, assert_one_error, call, generate, made

from lispgpt.compiler.driver import Observer, Request, compile_request, emit
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.decoding import ALL_LOGITS
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact, load_artifact
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn

__all__ = ["call", "made"]

ROOT = Path(__file__).resolve().parents[1]
GENERATE, PIPELINE = ROOT / "examples" / "gpt2_generate.lisp", ROOT / "passes" / "pipelines" / "cpu.lisp"

TWO_PRODUCTS = """
(require nn)
(config context 1)
(weights (x [40 96]) (scale [96]) (w [64 96] bf16) (v [48 96]))
(entry out [tokens positions]
  (let [n (rms-norm x scale 1e-2)] (concat-columns (linear n w) (linear n v))))
(defn concat-columns [a b]
  (tensor [r 40 c 112] (select (< c 64) (at a r (min c 63)) (at b r (max 0 (- c 64))))))
"""
ONE_PRODUCT = """
(require nn)
(config context 1)
(weights (x [40 96]) (scale [96]) (w [64 96] bf16))
(entry out [tokens positions] (linear (rms-norm x scale 1e-2) w))
"""


def on_cpu(artifact: Artifact, weights: Weights) -> np.ndarray:
    return in_session(artifact, CpuDevice(2), weights)


def on_nvidia(artifact: Artifact, weights: Weights) -> np.ndarray:
    return in_session(artifact, EmulatedCuda(), weights)


def in_session(artifact: Artifact, device: Any, weights: Weights) -> np.ndarray:
    with Session(artifact, device, weights) as session:  # type: ignore[arg-type]
        return session.run("out", np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int32))["out"]


def on_amd(artifact: Artifact, weights: Weights) -> np.ndarray:
    emulation = Emulation(artifact, {name: weights.view(name) for name in weights.names()})
    return emulation.run(emulation.entry("out", 1)).reshape(40, 64)


@pytest.mark.parametrize(("target", "alike"), [("cuda:sm_90a", True), ("rocm:gfx1151", True), ("cpu:znver5", False)])
def test_products_of_one_row_are_exact_on_gpus(target: str, alike: bool, tmp_path: Path) -> None:
    made = [
        compile_text(ONE_PRODUCT.replace("x [40 96]", "x [1 96]"), tmp_path, target=target, precision=precision)
        for precision in ("exact", "fast")
    ]
    assert (made[0].code == made[1].code) == alike


@pytest.mark.parametrize(
    ("target", "run"),
    [("cpu", on_cpu), ("cpu:x86-64-v3", on_cpu), ("cuda:sm_90a", on_nvidia), ("rocm:gfx1151", on_amd)],
)
def test_fast_products_err_by_what_rounding_to_bf16_does(target: str, run: Any, tmp_path: Path) -> None:
    found = {}
    for precision in ("exact", "fast"):
        artifact = compile_text(ONE_PRODUCT, tmp_path, target=target, precision=precision)
        assert artifact.precision == precision
        if not found:
            weights = random_weights(artifact)
            a = weights.exact()
        found[precision] = run(artifact, weights)
    n = a["x"] / np.sqrt((a["x"] ** 2).mean(-1, keepdims=True) + 0.01) * a["scale"]
    errors = {name: np.abs(values - n @ a["w"].T) for name, values in found.items()}
    assert np.all(errors["exact"] < 2e-4)
    assert np.all(errors["fast"] <= 2**-9 * 1.01 * np.abs(n) @ np.abs(a["w"]).T + 1e-5)
    assert errors["fast"].max() > 3 * errors["exact"].max()


def test_the_dump_shows_what_is_rounded_and_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "two.lisp").write_text(TWO_PRODUCTS)
    kernels = emit(Request(tmp_path / "two.lisp", precision="fast"), "kernels", Observer())
    norm = next(line for line in kernels.splitlines() if "@rows_40x96" in line)
    assert norm.endswith("{") and "tensor<40x96xf32>, tensor<40x96xbf16>" in norm.partition("->")[2]
    assert "truncf" not in emit(Request(tmp_path / "two.lisp"), "kernels", Observer())


@pytest.mark.parametrize(("rows", "element"), [(64, "bf16"), (63, "f32")])
def test_what_attention_of_many_rows_takes_is_rounded_where_it_is_made(rows: int, element: str) -> None:
    small = {"layers": 2, "heads": 1, "width": 64, "context": 80, "vocab": 90}
    sizes = [{"batch": 1, "positions": rows}]
    text = emit(Request(GENERATE, overrides=small, sizes=sizes, precision="fast"), "kernels", Observer())
    attention = next(line for line in text.splitlines() if f"@attention_1x{rows}x1x64" in line)
    assert f": tensor<{rows}x192x{element}>" in attention.partition("->")[0], attention


@pytest.mark.parametrize("rows", [64, 20])
def test_queries_beside_caches_in_bf16_are_rounded_where_they_are_made(rows: int) -> None:
    small = {"layers": 2, "heads": 1, "width": 64, "context": 80, "vocab": 90, "cache-type": "bf16"}
    sizes = [{"batch": 1, "positions": rows}]
    request = Request(GENERATE, overrides=small, entries=("prefill",), sizes=sizes, precision="fast")
    text = emit(request, "kernels", Observer())
    attention = next(line for line in text.splitlines() if f"@attention_1x{rows}x1x64" in line)
    assert f": tensor<{rows}x192xbf16>" in attention.partition("->")[0], attention


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_a_chips_own_tanh_is_taken_where_activations_are_rounded(precision: str) -> None:
    small = {"layers": 2, "heads": 1, "width": 64, "context": 80, "vocab": 90}
    request = {"entries": ("prefill",), "sizes": [{"batch": 1, "positions": 32}], "precision": precision}
    artifact = compile_request(Request(GENERATE, "cuda:sm_90a", overrides=small, **request), Observer())[0]
    assert ("tanh.approx" in artifact.code.decode()) == (precision == "fast")


@pytest.mark.parametrize(
    ("settings", "length", "target", "device"),
    [
        ({}, 17, "cpu", lambda: CpuDevice(2)),
        ({"cache-type": "bf16"}, 17, "cpu", lambda: CpuDevice(2)),
        ({"weight-type": "q8_0"}, 17, "cpu", lambda: CpuDevice(2)),
        ({}, 70, "cpu", lambda: CpuDevice(2)),
        ({"cache-type": "bf16"}, 70, "cpu:x86-64-v3", lambda: CpuDevice(2)),
        pytest.param({}, 70, "cuda:sm_90a", EmulatedCuda, marks=pytest.mark.slow),
        ({"cache-type": "bf16"}, 70, "cuda:sm_90a", EmulatedCuda),
    ],
)
def test_a_models_logits_are_nearly_the_same(
    settings: dict[str, Any], length: int, target: str, device: Callable[[], Any], tmp_path: Path
) -> None:
    shape = Gpt2Shape.unpadded(vocab=90, context=96, layers=1, heads=1, width=64)
    path = tmp_path / "model.bin"
    make(path, shape, "llmc", "bf16", seeded.fresh_seed())
    tokens = seeded.rng().integers(0, 90, (1, length), np.int32)
    positions = np.arange(length, dtype=np.int32)[None]
    found, opened = [], checkpoints.open(path)
    for precision in ("exact", "fast"):
        wanted = {"entries": (ALL_LOGITS,), "sizes": [{"batch": 1, "length": length}], "precision": precision}
        request = Request(GENERATE, target, overrides=settings, checkpoint_config=opened.config, **wanted)
        artifact, _ = compile_request(request, Observer())
        with Session(artifact, device(), opened) as session:
            found.append(session.run(ALL_LOGITS, tokens, positions)["logits"].reshape(length, -1)[:, :90])
    exact, fast = (values.astype(np.float64) for values in found)
    largest = np.abs(fast - exact).max()
    assert 0 < largest < 0.1 * exact.std(), largest
    top = np.sort(exact, -1)[:, -2:]
    certain = top[:, 1] - top[:, 0] > 2 * largest
    assert certain.any() and np.array_equal(exact.argmax(-1)[certain], fast.argmax(-1)[certain])


def test_what_was_compiled_says_its_precision(call: Call) -> None:
    given = (GENERATE, "--checkpoint", "small.bin", "--precision", "fast")
    assert call("compile", *given, "-o", "fast.lgpt").code == 0
    assert load_artifact(Path("fast.lgpt")).precision == "fast"
    ran = generate(call, "--prompt-tokens", "1,2", "--stats", program="fast.lgpt")
    assert ran.code == 0 and "products fast" in ran.err, ran


def test_a_pipeline_without_the_pass_is_refused(call: Call) -> None:
    text = PIPELINE.read_text()
    Path("mine.lisp").write_text("\n".join(line for line in text.splitlines() if "round-activations" not in line))
    given = (GENERATE, "--checkpoint", "small.bin", "--pipeline", "mine.lisp", "--precision", "fast")
    assert_one_error(call("compile", *given, "-o", "x.lgpt"), 1, "round-activations")
