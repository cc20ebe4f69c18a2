"""GPU kernels as the back ends make them: nothing spilled, wide loads, matrix instructions; no GPU or SDK needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from head_sizes import HeadSize, write_program
from random_products import RandomProduct

from lispgpt.base.errors import InternalError, UserError
from lispgpt.compiler.driver import Observer, Request, compile_request, emit
from lispgpt.compiler.kernel_report import kernel_facts, kernel_table
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.targets import GPU_CHIPS, Gpu, find_target
from lispgpt.runtime.devices import device_module, installed_chip, open_device

SMALL = {"vocab": 500, "padded-vocab": 512, "context": 256, "layers": 2, "heads": 4, "width": 256}
GPT2_124M = {"vocab": 50257, "padded-vocab": 50304, "context": 1024, "layers": 12, "heads": 12, "width": 768}
MOST_INSTRUCTIONS = 30_000
"""Of a model's kernels: what compilation takes its time for."""
MATRIX = {
    "rocm:gfx942": "v_mfma_f32_16x16x16",
    "rocm:gfx950": "v_mfma_f32_16x16x16",
    "cuda": "mma.sync.aligned.m16n8k16",
    "cuda:sm_90a": "wgmma.mma_async.sync.aligned.m64n",
}
QUICK = ("gfx1151", "sm_90")
AMD, NVIDIA = (
    [pytest.param(f"{kind}:{c}", marks=[] if c in QUICK else [pytest.mark.slow]) for c in GPU_CHIPS[kind]]
    for kind in ("rocm", "cuda")
)


def request_for(examples: Path, target: str) -> Request:
    return Request(examples / "gpt2_generate.lisp", target, overrides=SMALL)


@pytest.mark.parametrize("target", AMD)
def test_amd_kernels_keep_everything_in_registers(target: str, examples: Path) -> None:
    assembly = emit(request_for(examples, target), "asm", Observer())
    facts = kernel_facts(assembly)
    assert len(facts) > 10
    assert [name for name, f in facts.items() if f.spills or f.scratch] == []
    decode = [f for name, f in facts.items() if name.startswith(("contraction_1x", "attention_1x1x"))]
    assert decode and all(f.widest_load == 16 for f in decode)
    assert all(f.shared is not None and f.shared <= 64 * 1024 for f in facts.values())
    assert MATRIX.get(target, "v_wmma_f32_16x16x16_bf16") in assembly


@pytest.mark.slow
@pytest.mark.parametrize("target", ["rocm:gfx942", "rocm:gfx1201"])
def test_amd_kernels_of_a_124m_model(target: str, examples: Path) -> None:
    """The sizes that people run: every shape of prefill, the tiles that fill a chip, and how much code there is."""
    request = Request(examples / "gpt2_generate.lisp", target, overrides=GPT2_124M)
    assembly = emit(request, "asm", Observer())
    assert len(re.findall(r"^\t[a-z]", assembly, re.MULTILINE)) < MOST_INSTRUCTIONS
    facts = kernel_facts(assembly)
    assert [name for name, f in facts.items() if f.spills or f.scratch] == []
    assert set(re.findall(r"\.[sv]gpr_spill_count:\s*(\d+)", assembly)) == {"0"}
    decode = [f for name, f in facts.items() if re.match(r"(rows_1x|contraction_1x|attention_1x1x)", name)]
    assert len(decode) >= 9 and all(f.widest_load == 16 for f in decode)
    prefill = [name for name in facts if re.match(r"(contraction_(16|128|1024)x|attention_1x(128|1024)x\w+x64$)", name)]
    assert len(prefill) >= 14
    matrix = MATRIX.get(target, "v_wmma_f32_16x16x16_bf16")
    assert [name for name in prefill if matrix not in kernel_body(assembly, name)] == []


@pytest.mark.slow
@pytest.mark.parametrize("activations", ["bf16", "f32"])
@pytest.mark.parametrize("chip", GPU_CHIPS["rocm"])
def test_a_training_step_of_a_124m_model_on_amd_chips(chip: str, activations: str, examples: Path) -> None:
    """Eight sequences of 1,024 tokens: nothing spilled, no scratch, matrix instructions in every product."""
    target, settings = f"rocm:{chip}", {**GPT2_124M, "weight-type": "bf16", "activation-type": activations}
    sizes = [{"batch": 8, "length": 1024}]
    request = Request(examples / "gpt2_train.lisp", target, settings, sizes=sizes, entries=["train"])
    assembly = emit(request, "asm", Observer())
    facts = kernel_facts(assembly)
    assert [name for name, f in facts.items() if f.spills or f.scratch] == []
    assert set(re.findall(r"\.private_segment_fixed_size:\s*(\d+)", assembly)) == {"0"}
    products = [name for name in facts if name.startswith(("contraction", "attention"))]
    gradients = [name for name in products if name.startswith("attention_gradient")]
    weights = [name for name in products if re.match(r"contraction_(768|2304|3072|50304)x\d+", name)]
    assert len(products) >= 20 and len(gradients) == 2 and len(weights) >= 5, products
    without = [n for n in products if not re.search("v_(wmma|mfma)_f32_", kernel_body(assembly, n))]
    assert without == []


def kernel_body(assembly: str, name: str) -> str:
    return assembly.split(f"\n{name}:", 1)[1].split("s_endpgm", 1)[0]


@pytest.mark.parametrize("target", NVIDIA)
def test_ptx_has_wide_loads_and_matrix_instructions(target: str, examples: Path) -> None:
    assembly = emit(request_for(examples, target), "asm", Observer())
    facts = kernel_facts(assembly)
    decode = [f for name, f in facts.items() if name.startswith(("contraction_1x", "attention_1x1x"))]
    assert decode and all(f.widest_load == 16 for f in decode)
    assert MATRIX.get(target, MATRIX["cuda"]) in assembly
    assert all(f.shared is not None and f.shared <= 48 * 1024 for f in facts.values())
    assert ".extern .func" not in assembly and "call" not in re.findall(r"^\s+(\w+)", assembly, re.MULTILINE)
    assert ("griddepcontrol.wait" in assembly) == find_target(target).early_launch  # type: ignore[attr-defined]


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("target", "depth", "tiled"),
    [
        ("rocm:gfx1100", 256, False),
        ("cuda:sm_90", 256, True),
        pytest.param("rocm:gfx942", 256, False, marks=pytest.mark.slow),
        pytest.param("rocm:gfx950", 256, True, marks=pytest.mark.slow),
        pytest.param("rocm:gfx1100", 512, False, marks=pytest.mark.slow),
        pytest.param("cuda:sm_80", 256, True, marks=pytest.mark.slow),
        pytest.param("cuda:sm_80", 512, False, marks=pytest.mark.slow),
    ],
)
def test_large_heads_take_the_shared_memory_that_there_is(target: str, depth: int, tiled: bool, tmp_path: Path) -> None:
    """Prefill's attention uses matrix instructions where a tile of keys and values fits, another schedule elsewhere."""
    request = Request(write_program(tmp_path / "attention.lisp", [HeadSize(depth, "f32")], 128), target)
    chip, assembly = find_target(target), emit(request, "asm", Observer())
    assert isinstance(chip, Gpu)
    assert all(f.shared is not None and f.shared <= chip.shared_bytes for f in kernel_facts(assembly).values())
    launches = [x for e in compile_request(request, Observer())[0].plan.entries for x in e.launches]
    assert all(x.shared_bytes <= chip.dynamic_shared_bytes for x in launches)
    assert (MATRIX.get(target, "wmma" if target.startswith("rocm") else MATRIX["cuda"]) in assembly) == tiled


def test_shared_memory_that_a_chip_lacks_is_no_kernel() -> None:
    chip = find_target("rocm:gfx1100")
    assert isinstance(chip, Gpu)
    with pytest.raises(InternalError, match="wants 65537 bytes of shared memory, more than rocm:gfx1100 has"):
        BlockMemory(chip, 64 * 1024 + 1, aligned=False)


def test_early_kernels_load_weights_ahead_of_their_wait(examples: Path) -> None:
    assembly = emit(request_for(examples, "cuda:sm_90"), "asm", Observer())
    body = assembly.split(".visible .entry contraction_1x256_2(")[1].split(".visible .entry")[0]
    before, after = body.split("griddepcontrol.wait")
    assert len(re.findall(r"ld\.global\.v4", before)) >= 1
    assert len(re.findall(r"ld\.global", after)) >= 2 and "st.global" not in before


def test_report_knows_every_kernel(examples: Path) -> None:
    request = request_for(examples, "rocm:gfx1151")
    artifact, _ = compile_request(request, Observer())
    table = kernel_table(artifact, emit(request, "asm", Observer()))
    rows = table.splitlines()[2 : 2 + len(artifact.kernels)]
    assert [line for line in rows if " - " in line] == []


def test_an_unknown_chip_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"no chip 'gfx1'.*gfx1151"):
        find_target("rocm:gfx1")


@pytest.mark.parametrize("kind", GPU_CHIPS)
def test_a_missing_driver_is_one_line(kind: str) -> None:
    if device_module(kind).missing() is None:
        pytest.skip("this machine has such a GPU")
    for attempt in (lambda: open_device(kind), lambda: installed_chip(kind)):
        with pytest.raises(UserError) as caught:
            attempt()
        assert "\n" not in caught.value.message and len(caught.value.message) < 200


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1151"])
def test_elements_that_are_loaded_one_by_one_leave_registers(chip: str, tmp_path: Path) -> None:
    """Both operands in f32, with k along no dimension of memory and of a length that no vector divides."""
    sizes = {"b0": 2, "r0": 1, "r1": 97, "c0": 1, "c1": 145, "k0": 2, "k1": 227}
    indices = ("k0", "k1", "r0", "r1", "b0"), ("k1", "b0", "k0", "c1", "c0"), ("c1", "b0", "r0", "c0", "r1")
    product = RandomProduct(*indices, sizes, ("f32", "f32"), True)
    assembly = emit(Request(product.write(tmp_path), f"rocm:{chip}"), "asm", Observer())
    (facts,) = (f for name, f in kernel_facts(assembly).items() if name.startswith("contraction"))
    assert not facts.spills and not facts.scratch
