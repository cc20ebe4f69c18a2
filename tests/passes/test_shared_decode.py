"""A decode step that clusters share in one launch, on the PTX interpreter: the CPU's tokens, in any order of roles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import random_weights
from emulated_cuda.device import EmulatedCuda
from shared_steps import EXAMPLES, GPT2, by_cpu, clear_weights, compiled, fill_cache

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.passes.decode_step import attention_heads
from lispgpt.runtime.checkpoints.blocks import in_blocks_of, widened
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn

WALKED = ":steps 0 :numbers 8"
"""No weights wait in registers, and few keys do."""


def check(
    folder: Path,
    clusters: int,
    start: int,
    count: int,
    order: int = 0,
    program: str = "gpt2.lisp",
    options: str = "",
    cached: bool = False,
    **config: int | str,
) -> None:
    """order: of the roles, by warps of all blocks (0) or by every block's own in an order of that seed.  cached: with
    keys and values of earlier positions."""
    cpu = compiled(folder, "cpu", program=program, **config)
    weights, seed = clear_weights(cpu, seeded.fresh_seed(), start, count, cached)
    known = seed if cached else None
    tokens, logits = by_cpu(cpu, weights, start, count, known)
    artifact = compiled(folder, "cuda:sm_90a", clusters, program, options=options, **config)
    (entry,) = artifact.plan.entries
    assert len(entry.launches) == 1, entry.remarks
    with Session(artifact, EmulatedCuda(order), weights) as session:  # type: ignore[arg-type]
        if known is not None:
            fill_cache(session, known)
        session.put(entry, {"tokens": [[3]], "positions": [[start]]})
        found = [int(next_.item()) for next_ in session.repeat(entry, "next", count)]
        made = session.read(entry.results["logits"])[0]
        report = session.read(entry.results["report"])[0]
        assert session.read(next(iter(entry.inputs.values()))).item() == found[-1]
    size = min(made.size, logits.size)
    np.testing.assert_allclose(made[:size], logits[:size], rtol=1e-3, atol=1e-3, err_msg=f"seed {seed}")
    assert found == tokens, f"seed {seed}"
    ranked = np.sort(logits[: GPT2["vocab"]])
    assert report[:2].tolist() == [tokens[-1], 1], f"seed {seed}"
    size = max(abs(ranked[0]), abs(ranked[-1]))
    clear = report[2:].view(np.float32).item()
    assert 0.9 * (ranked[-1] - ranked[-2]) / size <= clear <= 1.1, f"seed {seed}"


@pytest.mark.parametrize("cache", ["f32", "bf16"])
def test_clusters_make_the_cpus_tokens(cache: str, tmp_path: Path) -> None:
    check(tmp_path, clusters=2, start=7, count=2, layers=1, **{"cache-type": cache})


def test_clusters_make_the_tokens_of_grouped_heads_with_rotations_and_gates(tmp_path: Path) -> None:
    check(tmp_path, 2, 5, 2, program="llama_tiny.lisp", layers=1)


@pytest.mark.parametrize(
    ("options", "position"),
    [
        (":rows 24", 251),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((":rows 0", 251), (":rows 24", 100), ("", 123))),
    ],
)
def test_rows_of_the_cache_come_from_where_they_lie(options: str, position: int, tmp_path: Path) -> None:
    """The first of them from a block's own, all from the device's, fewer than a block holds, and all from its own."""
    check(tmp_path, 2, position, 2, options=options, cached=True, context=256, **{"cache-type": "f32"})


def test_rows_of_grouped_heads_lie_in_a_blocks_memory(tmp_path: Path) -> None:
    check(tmp_path, 2, 90, 2, program="llama_tiny.lisp", cached=True, context=96, layers=2)


@pytest.mark.parametrize("kind", ["int8", pytest.param("q8_0", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("program", "options"), [("gpt2.lisp", ""), pytest.param("llama_tiny.lisp", WALKED, marks=pytest.mark.slow)]
)
def test_weights_in_blocks(program: str, kind: str, options: str, tmp_path: Path) -> None:
    check(tmp_path, 2, 5, 2, program=program, options=options, layers=1, **{"weight-type": kind})


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [{"weight-type": "int8"}, pytest.param({"cache-type": "bf16"}, marks=pytest.mark.slow)]
)
def test_heads_that_clusters_do_not_share_evenly(config: dict[str, str], tmp_path: Path) -> None:
    """The second of two clusters has one of three heads, which fill two chunks of weights each."""
    check(tmp_path, 2, 5, 2, layers=1, width=384, heads=3, **config)


@pytest.mark.parametrize("kind", ["bf16", pytest.param("q8_0", marks=pytest.mark.slow)])
def test_slices_of_no_even_number_of_steps(kind: str, tmp_path: Path) -> None:
    """Two slices of a row have 13 steps each, which are walked some at a time."""
    sizes = {"layers": 1, "width": 832, "heads": 13, "kv-heads": 1, "hidden": 128}
    check(tmp_path, 2, 5, 1, program="llama_tiny.lisp", options=WALKED, **sizes, **{"weight-type": kind})


@pytest.mark.parametrize("kind", ["int8", "q8_0"])
@pytest.mark.parametrize("spread", [pytest.param(0.0, marks=pytest.mark.slow), 3.0])
def test_a_head_of_whole_numbers_is_as_exact_as_f32(kind: str, spread: float, tmp_path: Path) -> None:
    """Also where the numbers of the normed stream differ by orders of magnitude.  Layers add nothing to the stream."""
    artifact = compiled(tmp_path, "cuda:sm_90a", 2, layers=1, **{"weight-type": kind})
    (entry,), seed = artifact.plan.entries, seeded.fresh_seed()
    weights, rng = random_weights(artifact, seed=seed), np.random.default_rng(seed)
    values = weights.values
    for name in ("proj-w", "proj-b", "out-w", "out-b"):
        values[name][:] = 0
    values["lnf-w"] = (values["lnf-w"] * 10 ** rng.uniform(-spread, spread, GPT2["width"])).astype(np.float32)
    with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
        session.put(entry, {"tokens": [[3]], "positions": [[7]]})
        list(session.repeat(entry, "next", 1))
        found = session.read(entry.results["logits"])[0, : GPT2["vocab"]]
    head, places = (widened(in_blocks_of(values[n], kind), kind).astype(np.float64) for n in ("wte", "wpe"))
    x = head[3] + places[7]
    normed = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * values["lnf-w"] + values["lnf-b"]
    head = head[: GPT2["vocab"]]
    size = np.abs(head) @ np.abs(normed)
    assert (np.abs(found - head @ normed) <= 2.0**-22 * size).all(), f"seed {seed}"


@pytest.mark.slow
def test_rows_do_not_wait_behind_more_weights_than_a_block_holds(tmp_path: Path) -> None:
    config: dict[str, int | str] = {"width": 896, "heads": 7, "weight-type": "int8"}
    check(tmp_path, 1, 5, 2, layers=1, **config)


@pytest.mark.parametrize("weight", [np.inf, 1e9])
def test_what_no_sum_can_hold_is_no_number(weight: float, tmp_path: Path) -> None:
    """Neither a part that is infinite nor one that is too large for whole numbers makes a token."""
    artifact = compiled(tmp_path, "cuda:sm_90a", 2, layers=1)
    (entry,), weights = artifact.plan.entries, random_weights(artifact, scale=0.2, seed=seeded.fresh_seed())
    weights.values["proj-w"][0, 5] = weight
    with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
        session.put(entry, {"tokens": [[3]], "positions": [[7]]})
        assert [int(next_.item()) for next_ in session.repeat(entry, "next", 1)] == [-1]
        assert np.isnan(session.read(entry.results["logits"])[0, : GPT2["vocab"]]).all()


@pytest.mark.slow
def test_a_step_is_the_same_in_every_use_of_its_memory(tmp_path: Path) -> None:
    """Marks that tell one use from the next are no part of the numbers."""
    artifact = compiled(tmp_path, "cuda:sm_90a", 2, layers=1)
    (entry,), found = artifact.plan.entries, []
    weights = random_weights(artifact, scale=0.2, seed=seeded.fresh_seed())
    with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
        for _ in range(2):
            session.put(entry, {"tokens": [[3]], "positions": [[7]]})
            list(session.repeat(entry, "next", 1))
            found.append(session.read(entry.results["logits"]))
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clusters", "start", "count", "config"),
    [
        (3, 3, 10, {}),  # one cluster for the head alone, and two launches
        (2, 30, 2, {"cache-type": "bf16"}),
        (4, 6, 3, {"heads": 4, "width": 256, "layers": 1}),
        (2, 14, 3, {"layers": 3}),
        (2, 7, 2, {}),
    ],
)
def test_other_models_and_clusters(
    clusters: int, start: int, count: int, config: dict[str, int | str], tmp_path: Path
) -> None:
    check(tmp_path, clusters, start, count, **config)


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", WALKED])
@pytest.mark.parametrize(
    ("program", "clusters", "start", "config"),
    [
        ("gpt2.lisp", 2, 7, {}),
        ("gpt2.lisp", 3, 200, {"heads": 1, "context": 256, "cache-type": "bf16"}),
        ("gpt2.lisp", 2, 5, {"heads": 4, "width": 320}),  # heads of 80, two in a cluster
        ("gpt2.lisp", 2, 30, {"heads": 8, "hidden": 96}),  # heads of 16; hidden units that do not fill tiles
        ("llama_tiny.lisp", 3, 9, {"layers": 2}),  # a cluster's heads are a group
        ("llama_tiny.lisp", 4, 9, {"kv-heads": 1}),  # one head of keys, which each cluster has
        ("llama_tiny.lisp", 2, 20, {"heads": 3, "kv-heads": 3, "width": 192, "hidden": 160, "context": 512}),
        ("llama_tiny.lisp", 3, 12, {"width": 64, "head-width": 256}),
        ("qwen2.lisp", 3, 12, {"heads": 6, "width": 192}),
        ("qwen3.lisp", 2, 12, {"head-width": 32}),  # norms of each head
        ("mistral.lisp", 2, 30, {"window": 11, "context": 64}),
    ],
)
def test_other_heads_and_widths(
    program: str, clusters: int, start: int, config: dict[str, int | str], options: str, tmp_path: Path
) -> None:
    check(tmp_path, clusters, start, 2, program=program, options=options, **{"layers": 1, **config})


@pytest.mark.slow
@pytest.mark.parametrize("program", ["gpt2.lisp", "llama_tiny.lisp"])
@pytest.mark.parametrize("options", ["", WALKED])
def test_roles_in_any_order(program: str, options: str, tmp_path: Path) -> None:
    order = 1 + seeded.fresh_seed() % 1000
    check(tmp_path, 2, 6, 2, order, program, options, layers=1)


@pytest.mark.parametrize(
    ("program", "config", "why"),
    [
        ("gpt2.lisp", {"width": 96}, "heads of 48 and a width of 96 do not fill tiles"),
        ("gpt2.lisp", {"width": 4096}, "heads of 2048 and a width of 4096 do not fill tiles"),
        ("olmo2.lisp", {}, "its layers are contraction, rows, rows, attention, contraction, rows"),
        ("gpt2.lisp", {"weight-type": "f32"}, "a product is not of rows with BF16 weights"),
    ],
)
def test_what_is_no_such_chain_stays_as_it_was(
    program: str, config: dict[str, int | str], why: str, tmp_path: Path
) -> None:
    artifact = compiled(tmp_path, "cuda:sm_90a", program=program, **config)
    (entry,) = artifact.plan.entries
    assert len(entry.launches) > 1
    assert any(r.startswith(f"it is not shared among clusters: {why}") for r in entry.remarks), entry.remarks


def test_norms_of_heads_count_in_what_one_launch_takes(tmp_path: Path) -> None:
    """Four layers of Qwen3 of 0.6B, and of the same without norms of heads."""
    plain, normed = (as_one(program, tmp_path) for program in ("llama_tiny.lisp", "qwen3.lisp"))
    assert 5 < normed - plain < 40


def test_a_row_that_is_normed_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number of a head depends on all of its columns: to read these for each took most of compiling Qwen3."""
    reads, note = [0], attention_heads._Columns._note

    def counted(self: Any, index: Any, width: int) -> Any:
        reads[0] += 1
        return note(self, index, width)

    monkeypatch.setattr(attention_heads._Columns, "_note", counted)
    artifact = compiled(tmp_path, "cuda:sm_90a", program="qwen3.lisp", layers=1, **{"head-width": 64})
    assert len(artifact.plan.entries[0].launches) == 1
    assert reads[0] < 4 * (4 + 2 + 2) * 64


def as_one(program: str, tmp_path: Path) -> int:
    """Microseconds that one launch is modelled to take."""
    sizes: dict[str, int | str] = {
        "layers": 4, "heads": 16, "kv-heads": 8, "width": 1024, "hidden": 3072, "vocab": 32000, "context": 1024,
    }  # fmt: skip
    path = tmp_path / "program.lisp"
    given = "" if "(generate" in (EXAMPLES / program).read_text() else "(generate logits {:temperature 0.0})"
    path.write_text(f'(require "{EXAMPLES / program}")\n{given}')
    more: dict[str, int | str] = {"head-width": 64} if program == "qwen3.lisp" else {}
    request = Request(path, "cuda:sm_90a", overrides={**sizes, **more}, entries=("decode-greedy",))
    (entry,) = compile_request(request, Observer())[0].plan.entries
    assert len(entry.launches) == 1
    return int(re.search(r"(\d+) us as one", "".join(entry.remarks))[1])  # type: ignore[index]


def test_a_chip_without_clusters_is_left_alone(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, "cuda:sm_80")
    assert all(len(entry.launches) > 1 for entry in artifact.plan.entries)


def test_a_warp_of_each_block_keeps_matrix_units_awake(tmp_path: Path) -> None:
    """It alternates between an instruction and less sleep than after which units sleep; the interpreter has no time."""
    code = compiled(tmp_path, "cuda:sm_90a", 2, "gpt2.lisp").code.decode()
    (start,) = [m.start() for m in re.finditer("nanosleep", code)]
    loop = code[code.rindex("test_wait", 0, start) : start]
    nanoseconds = int(re.match(r"nanosleep.u32 (\d+)", code[start:]).group(1))  # type: ignore[union-attr]
    assert loop.count("mma.sync") == 1 and 0 < 2 * nanoseconds < 590
