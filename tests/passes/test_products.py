"""Products of every layout against float64: executed on the CPU, as PTX on numpy, and on the emulator of AMD's GPUs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, open_poisoned, rounded_to_bf16, step
from emulated_products import check, on_emulated_amd, on_emulated_cuda
from random_products import RandomProduct, random_product

from lispgpt.base.errors import UserError
from lispgpt.base.host import FEATURES, may_use_tiles, missing_features
from lispgpt.compiler.driver import Observer, Request, compile_request, emit
from lispgpt.compiler.kernel_report import kernel_facts
from lispgpt.passes.targets import Cpu, find_target
from lispgpt.pipelines.pipeline_file import pipeline_path
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.cpu import CpuDevice

pytestmark = pytest.mark.drawn

MATRIX = {"gfx942": "v_mfma_f32_16x16x16", "gfx1151": "v_wmma_f32_16x16x16_bf16", "gfx1201": "v_wmma_f32_16x16x16_bf16"}


def seeds(count: int) -> list[int]:
    return [int(s) for s in seeded.rng().integers(0, 1 << 30, count)]


def on_cpu(product: RandomProduct, values: dict[str, np.ndarray], folder: Path, target: str = "cpu") -> np.ndarray:
    artifact, _ = compile_request(Request(product.write(folder), target), Observer())
    bf16 = frozenset(n for n, d in zip(("x", "w"), product.dtypes, strict=True) if d == "bf16")
    with open_poisoned(artifact, Weights(values, bf16)) as session:
        return next(iter(step(session, [0], [0], "out").values()))


@pytest.mark.parametrize("seed", seeds(12))
def test_on_the_cpu(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    product = random_product(rng, {"b": 6, "r": 70, "c": 90, "k": 80}, int(rng.choice([1, 1, 4, 16])))
    values = product.values(rng)
    check(on_cpu(product, values, tmp_path), product, values, 1e-6, f"seed {seed}")


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3"])
def test_many_rows_of_operands_with_the_sums_innermost(target: str, seed: int, tmp_path: Path) -> None:
    """Rows, columns and sums that fill no block, tile, panel or vector; sums of one panel and of several."""
    if lacking(target):
        pytest.skip(f"this CPU has no {', '.join(lacking(target))}")
    rng = np.random.default_rng(seed)
    for inner in (int(rng.integers(32, 200)), int(rng.integers(500, 900))):
        sizes = {"n": int(rng.integers(64, 300)), "o": int(rng.integers(32, 260)), "i": inner}
        dtypes = str(rng.choice(["f32", "bf16"])), str(rng.choice(["f32", "bf16"]))
        product = RandomProduct(("n", "i"), ("o", "i"), ("n", "o"), sizes, dtypes, bool(rng.integers(2)))
        values = product.values(rng)
        check(on_cpu(product, values, tmp_path, target), product, values, 1e-6, f"seed {seed}")


def lacking(target: str) -> list[str]:
    """What this machine has not of what code for a CPU needs."""
    tiles = [] if "rapids" not in target or may_use_tiles() else ["permission for AMX"]
    return [*missing_features(target), *tiles]


SIZES = {"b0": 2, "n": 136, "o": 72, "i": 104}
TRAINING = {
    "x times the transpose of w": (("n", "i"), ("o", "i"), ("n", "o")),
    "dy times w": (("n", "o"), ("o", "i"), ("n", "i")),
    "the transpose of dy times x": (("n", "o"), ("n", "i"), ("o", "i")),
    "a batch of them": (("n", "b0", "i"), ("b0", "i", "o"), ("b0", "o", "n")),
}
PAIRED = {"sapphirerapids": "llvm.x86.tdpbf16ps.internal", "znver4": "llvm.x86.avx512bf16.dpbf16ps.512"}


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("chip", PAIRED)
def test_on_instructions_for_pairs(chip: str, seed: int, tmp_path: Path) -> None:
    """Sizes that fill neither the last tile nor the last pair; layouts of training, and any."""
    if lacking(f"cpu:{chip}"):
        pytest.skip(f"this CPU has no {', '.join(lacking(f'cpu:{chip}'))}")
    rng = np.random.default_rng(seed)
    for name, (left, right, result) in TRAINING.items():
        sizes = {index: int(rng.integers(17, 90)) for index in dict.fromkeys(left + right)}
        dtypes = tuple(str(d) for d in rng.choice(["f32", "bf16"], 2))
        product = RandomProduct(left, right, result, sizes | {"b0": 2}, (dtypes[0], dtypes[1]), bool(rng.integers(2)))
        values = product.values(rng)
        check(on_cpu(product, values, tmp_path, f"cpu:{chip}"), product, values, 1e-6, f"{name}, seed {seed}")
    product = random_product(rng, {"b": 3, "r": 80, "c": 100, "k": 150}, 16)
    values = product.values(rng)
    check(on_cpu(product, values, tmp_path, f"cpu:{chip}"), product, values, 1e-6, f"seed {seed}")


@pytest.mark.parametrize("dtypes", [("bf16", "bf16"), ("f32", "bf16"), ("f32", "f32")], ids="-".join)
@pytest.mark.parametrize("chip", PAIRED)
def test_large_products_take_instructions_for_pairs(chip: str, dtypes: tuple[str, str], tmp_path: Path) -> None:
    """A product in several parts is as exact as one in f32, and pays only where one instruction has many sums."""
    left, right, result = TRAINING["dy times w"]
    product = RandomProduct(left, right, result, {"n": 40, "o": 70, "i": 50}, dtypes, True)
    llvm = emit(Request(product.write(tmp_path), f"cpu:{chip}"), "llvm", Observer())
    assert (PAIRED[chip] in llvm) == (chip == "sapphirerapids" or dtypes == ("bf16", "bf16"))


@pytest.mark.parametrize("chip", ["x86-64-v3", "x86-64-v4", "cooperlake", "znver5", "sapphirerapids"])
def test_chips_have_the_capabilities_of_their_features(chip: str) -> None:
    target = find_target(f"cpu:{chip}")
    assert isinstance(target, Cpu)
    features = set(FEATURES[chip])
    assert target.vector_bytes == (64 if "avx512f" in features else 32)
    wanted = next((f for f in ("amx_bf16", "avx512_bf16") if f in features), None)
    assert (target.pairs.feature if target.pairs else None) == wanted
    assert "avx2" in target.describe() and ("amx-bf16" in target.describe()) == (wanted == "amx_bf16")


@pytest.mark.skipif(not (shutil.which("llvm-objdump") or shutil.which("objdump")), reason="needs a disassembler")
@pytest.mark.parametrize(
    ("chip", "has", "lacks"),
    [("x86-64-v3", "ymm", "zmm"), ("sapphirerapids", "tdpbf16ps", "v4fmaddps"), ("znver5", "vdpbf16ps", "tdpbf")],
)
def test_code_is_for_its_chip_and_not_for_this_machine(chip: str, has: str, lacks: str, tmp_path: Path) -> None:
    """Whatever this machine has: code for a level has no instruction of more, code for a chip all that it has."""
    product = RandomProduct(("n", "i"), ("o", "i"), ("n", "o"), {"n": 96, "o": 96, "i": 96}, ("bf16", "bf16"), True)
    code = emit(Request(product.write(tmp_path), f"cpu:{chip}"), "asm", Observer())
    assert has in code
    assert lacks not in code


@pytest.mark.skipif(not (shutil.which("llvm-objdump") or shutil.which("objdump")), reason="needs a disassembler")
def test_sums_of_pairs_stay_in_registers(tmp_path: Path) -> None:
    """Between the first and the last of the instructions that one tile repeats nothing goes to the stack."""
    product = RandomProduct(("n", "i"), ("o", "i"), ("n", "o"), {"n": 96, "o": 96, "i": 96}, ("bf16", "bf16"), True)
    lines = emit(Request(product.write(tmp_path), "cpu:znver4"), "asm", Observer()).splitlines()
    inner = [i for i, line in enumerate(lines) if "vdpbf16ps" in line]
    assert len(inner) >= 24
    assert not [line for line in lines[inner[0] : inner[-1]] if "vmov" in line and "(%rsp)" in line]


def test_few_rows_stay_vectors(tmp_path: Path) -> None:
    product = RandomProduct(("n", "i"), ("o", "i"), ("n", "o"), {"n": 2, "o": 64, "i": 64}, ("f32", "bf16"), True)
    llvm = emit(Request(product.write(tmp_path), "cpu:sapphirerapids"), "llvm", Observer())
    assert "bf16ps" not in llvm


def test_refused_permission_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    product = RandomProduct(("n", "i"), ("o", "i"), ("n", "o"), {"n": 96, "o": 96, "i": 32}, ("f32", "bf16"), True)
    artifact, _ = compile_request(Request(product.write(tmp_path), "cpu:sapphirerapids"), Observer())
    assert [facts.get("permission") for facts in artifact.kernels.values()] == ["amx"]
    monkeypatch.setattr("lispgpt.runtime.devices.cpu.may_use_tiles", lambda ask: False)
    with pytest.raises(UserError, match="AMX"):
        CpuDevice(1).load(artifact.code, artifact.kernels)


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_on_an_emulated_gpu(chip: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    product = random_product(rng, {"b": 2, "r": 40, "c": 40, "k": 80}, int(rng.choice([1, 4, 8])))
    values = product.values(rng)
    artifact, _ = compile_request(Request(product.write(tmp_path), f"cuda:{chip}"), Observer())
    check(on_emulated_cuda(artifact, values), product, values, 3e-5, f"seed {seed}")


@pytest.mark.parametrize("chip", ["gfx942", "gfx1151", "gfx1201"])
def test_on_an_emulated_amd_gpu(chip: str, tmp_path: Path) -> None:
    """Two products that the emulator can run: it lacks gfx942's instructions on parts of registers."""
    done = 0
    for number, seed in enumerate(seeds(12)):
        rng = np.random.default_rng(seed)
        product = random_product(rng, {"b": 2, "r": 40, "c": 40, "k": 80}, int(rng.choice([1, 4, 8])))
        values = product.values(rng)
        path = tmp_path / str(number)
        path.mkdir()
        artifact, _ = compile_request(Request(product.write(path), f"rocm:{chip}"), Observer())
        try:
            found = on_emulated_amd(product, values, artifact)
        except NotModelled:
            continue
        check(found, product, values, 3e-5, f"seed {seed}")
        done += 1
        if done == 2:
            return
    raise AssertionError("the emulator runs hardly any product")


@pytest.mark.parametrize("dtypes", [("bf16", "bf16"), ("f32", "bf16"), ("bf16", "f32")], ids="-".join)
@pytest.mark.parametrize("name", TRAINING)
def test_products_of_training_take_warpgroups(name: str, dtypes: tuple[str, str], tmp_path: Path) -> None:
    """Sizes that fill neither the last tile nor the last step of k, whatever else should take less time for them."""
    seed = seeds(1)[0]
    rng = np.random.default_rng(seed)
    left, right, result = TRAINING[name]
    sizes = {index: SIZES[index] for index in dict.fromkeys(left + right)}
    product = RandomProduct(left, right, result, sizes, dtypes, bool(rng.integers(2)))
    pipeline = tmp_path / "unchosen.lisp"
    pipeline.write_text(pipeline_path("gpu").read_text().replace("(pass choose) ", ""))
    artifact, _ = compile_request(Request(product.write(tmp_path), "cuda:sm_90a", pipeline=pipeline), Observer())
    assert b"wgmma.mma_async.sync.aligned.m64n" in artifact.code
    values = product.values(rng)
    check(on_emulated_cuda(artifact, values), product, values, 3e-5, f"seed {seed}")


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("chip", ["gfx942", "gfx1151", "gfx1201"])
def test_amd_kernels_stay_in_registers_and_use_matrix_instructions(chip: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    for number in range(6):
        product = random_product(rng, {"b": 4, "r": 300, "c": 300, "k": 700}, int(rng.choice([1, 8])))
        path = tmp_path / str(number)
        path.mkdir()
        assembly = emit(Request(product.write(path), f"rocm:{chip}"), "asm", Observer())
        (facts,) = (f for name, f in kernel_facts(assembly).items() if name.startswith("contraction"))
        assert not facts.spills and not facts.scratch, f"seed {seed}: {product}"
        assert facts.shared is not None and facts.shared <= 64 * 1024
        if min(product.extent("r"), product.extent("c")) >= 8:
            assert MATRIX[chip] in assembly, f"seed {seed}: {product}"


NAMED = {
    "a matrix product that adds": ("(linalg.matmul {:result (type c)} a b c)", "nk,km->nm", ("a", "b"), "c"),
    "a batch of them": ("(linalg.batch_matmul {:result (type f)} d e f)", "bnk,bkm->bnm", ("d", "e"), "f"),
    "a matrix by a vector": ("(linalg.matvec {:result (type u)} a v u)", "nk,k->n", ("a", "v"), "u"),
    "a vector by a matrix": ("(linalg.vecmat {:result (type t)} v b t)", "k,km->m", ("v", "b"), "t"),
    "an index summed in one operand alone": ("(contract [n m] d [j n k] b [k m])", "jnk,km->nm", ("d", "b"), ""),
    "two of them": ("(contract [m] d [j n k] b [k m])", "jnk,km->m", ("d", "b"), ""),
    "transposed and widened operands": (
        "(contract [n m] (tensor [k 20 n 9] (at g n k)) [k n] (cast (tensor [m 17 k 20] (at b k m)) f32) [m k])",
        "nk,km->nm",
        ("g", "b"),
        "",
    ),
    "an outer product": ("(contract [n m] u [n] t [m])", "n,m->nm", ("u", "t"), ""),
    "a product that adds in bf16": ("(linalg.matmul {:result (type h)} g b h)", "nk,km->nm", ("g", "b"), "h"),
}
SUMMED_FIRST = {"an index summed in one operand alone": 1, "two of them": 2}
SHAPES = {
    "a": "[9 20]", "b": "[20 17]", "c": "[9 17]", "d": "[3 9 20]", "e": "[3 20 17]", "f": "[3 9 17]",
    "g": "[9 20] bf16", "h": "[9 17] bf16", "t": "[17]", "u": "[9]", "v": "[20]",
}  # fmt: skip


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80"])
@pytest.mark.parametrize("name", NAMED)
def test_other_ops_become_contractions(name: str, target: str, tmp_path: Path) -> None:
    form, subscripts, operands, start = NAMED[name]
    used = [*operands, *start]
    weights = " ".join(f"({w} {SHAPES[w]})" for w in used)
    path = tmp_path / "named.lisp"
    path.write_text(
        "(require nn)(require-dialect linalg)(config context 1)"
        f"(weights {weights})(entry out [tokens positions] (* (cast {form} f32) 1.0))"
    )
    request = Request(path, target)
    kernels = emit(request, "kernels", Observer())
    assert ("product = {" in kernels) == (name != "an outer product")
    assert kernels.count("kernel = ") == 1 + SUMMED_FIRST.get(name, 0)
    rng = seeded.rng()
    values = {w: random_values(rng, SHAPES[w]) for w in used}
    exact = {w: v.astype(np.float64) for w, v in values.items()}
    expected = np.einsum(subscripts, *(exact[w] for w in operands)) + (exact[start] if start else 0)
    artifact, _ = compile_request(request, Observer())
    bf16 = frozenset(w for w in used if "bf16" in SHAPES[w])
    if target == "cpu":
        with open_poisoned(artifact, Weights(values, bf16)) as session:
            found = next(iter(step(session, [0], [0], "out").values()))
    else:
        found = on_emulated_cuda(artifact, values)
    error = 1e-2 if start in bf16 else 3e-5
    assert np.linalg.norm(found - expected) <= error * np.linalg.norm(expected)


def random_values(rng: np.random.Generator, declared: str) -> np.ndarray:
    shape, _, dtype = declared.strip("[").partition("]")
    values = rng.standard_normal([int(n) for n in shape.split()], np.float32)
    return rounded_to_bf16(values) if dtype else values
