"""Contexts: how many positions code and memory are made for, and attention over far more than a tile of them."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from attention_variants import Stored
from emulated_cuda.test_attention import as_stored, attention
from test_cli import Call, assert_one_error, call, generate, made

from lispgpt import api
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.checkpoints.llama import LlamaShape
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.session import Session

__all__ = ["call", "made"]

LONG, DEPTH = 100_000, 8
GREEDY = ("--prompt-tokens", "1,2", "--greedy")

ATTEND = f"""
(require nn)
(config context {LONG})
(weights (q [128 {2 * DEPTH}]) (k [128 {DEPTH}]) (v [128 {DEPTH}]))
(state (kv [1 2 1 context {DEPTH}] bf16))
(entry out [tokens positions] {{:shapes [{{positions 1}} {{positions 16}}]}}
  (let [rows (dim tokens 0)
        heads-of (fn [x count] (reshape (slice x [0 0] [rows (dim x 1)]) [rows count {DEPTH}]))]
    (attend (heads-of q 2) (heads-of k 1) (heads-of v 1) (kv 0) WEIGH)))
"""
NEAR = "(fn [score head t position] (select (< (- position t) (: 40000 i32)) score -inf))"


@pytest.mark.drawn
@pytest.mark.parametrize("near", [LONG, 40_000])
@pytest.mark.parametrize("rows", [1, 16])
def test_a_long_context_is_attended_tile_by_tile(rows: int, near: int, tmp_path: Path) -> None:
    rng = seeded.rng()
    (tmp_path / "long.lisp").write_text(ATTEND.replace("WEIGH", "" if near == LONG else NEAR))
    artifact, _ = compile_request(Request(tmp_path / "long.lisp"), Observer())
    q = rng.standard_normal((128, 2, DEPTH), dtype=np.float32)
    k, v = rng.standard_normal((2, 128, 1, DEPTH), dtype=np.float32)
    kv = as_stored(rng.standard_normal((1, 2, 1, LONG, DEPTH), dtype=np.float32), "bf16")
    first = int(rng.integers(70_000, LONG - rows))
    positions = np.arange(first, first + rows, dtype=np.int32)
    weights = Stored({"q": q.reshape(128, -1), "k": k.reshape(128, -1), "v": v.reshape(128, -1)})
    with Session(artifact, CpuDevice(2), weights) as session:  # type: ignore[arg-type]
        state = next(buffer.name for buffer in artifact.plan.buffers if buffer.kind == "state")
        session.device.copy_in(session._buffers[state], kv)
        (found,) = session.run("out", np.zeros((1, rows), np.int32), positions[None]).values()
    after = (kv.astype(np.uint32) << 16).view(np.float32)
    own = (as_stored(np.stack([k, v])[:, :rows], "bf16").astype(np.uint32) << 16).view(np.float32)
    after[0, :, :, positions] = own.transpose(1, 0, 2, 3)
    expected = attention(q[:rows], after[0, 0], after[0, 1], positions, near)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-5)


def test_memory_is_taken_for_what_is_used_of_a_context(call: Call, examples: Path, tmp_path: Path) -> None:
    shape = LlamaShape(60, 131_072, 8, 32, 8, 32, 16, 64)
    make(tmp_path / "llama", shape, "huggingface", "bf16", 1)
    assert json.loads((tmp_path / "llama" / "config.json").read_text())["max_position_embeddings"] == 131_072
    options = ["run", examples / "llama_tiny.lisp", "--checkpoint", tmp_path / "llama", *GREEDY, "--max-new-tokens", 4]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    whole, capped = (call(*options, "--stats", *more) for more in ((), ("--context", 64)))
    assert whole.code == capped.code == 0, whole.err + capped.err
    assert whole.out == capped.out
    assert "states of 4,295.0 MB for 131072 positions" in whole.err
    assert "for 64 positions" in capped.err
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000  # KiB


def test_code_for_gpus_is_for_all_positions_too(call: Call, examples: Path, tmp_path: Path) -> None:
    make(tmp_path / "llama", LlamaShape(60, 131_072, 1, 2, 1, 32, 16, 16), "huggingface", "bf16", 1)
    options = ["compile", examples / "llama_tiny.lisp", "--checkpoint", tmp_path / "llama", "--target", "cuda:sm_90a"]
    done = call(*options, "--emit", "mlir")
    assert "1x2x1x131072x16xf32" in done.out and not done.err
    more = call(*options, "--emit", "mlir", "--context", 20_000)
    assert "1x2x1x20000x16xf32" in more.out and not more.err


def test_plans_say_which_states_grow(examples: Path, tmp_path: Path) -> None:
    """Keys and values do, in each entry and under their own names; what adds up does not."""
    settings = {"layers": 1, "heads": 2, "kv-heads": 1, "width": 32, "vocab": 60, "context": 64}
    shapes = [{"batch": 1, "positions": 1}, {"batch": 2, "positions": 1}]
    given: dict[str, Any] = {"shapes": shapes, "entries": ["logits"]}
    plan = api.compile(examples / "llama_tiny.lisp", settings=settings, **given).plan
    states = {buffer.name: buffer.shape for buffer in plan.buffers if buffer.kind == "state"}
    assert len(states) == 2 == len(plan.entries)
    for entry in plan.entries:
        ((name, axis),) = entry.grows.items()
        assert states[name] == (1, entry.sizes["batch"], 2, 1, 64, 16) and axis == 4
    given["shapes"] = shapes[:1]
    recurrence = api.compile(examples / "recurrence.lisp", settings={"layers": 1}, **given).plan
    assert recurrence.entries and not any(entry.grows for entry in recurrence.entries)


def test_a_table_of_positions_is_cut_to_the_context(call: Call, tmp_path: Path) -> None:
    found = [generate(call, *GREEDY, "--format", "json", *more) for more in ((), ("--context", 9))]
    assert [done.code for done in found] == [0, 0], found
    tokens = [json.loads(done.out)["tokens"] for done in found]
    assert tokens[0] == tokens[1]


def test_no_table_has_more_positions_than_the_checkpoint(call: Call) -> None:
    assert_one_error(generate(call, *GREEDY, "--context", 21), 1, "[21 12]", "[20 12]", "--context takes at most 20")


def test_an_artifact_has_its_own_context(call: Call, made: Path) -> None:
    compiled = ["compile", examples_program(), "--checkpoint", "small.bin", "--context", 9, "-o", "nine.lgpt"]
    assert call(*compiled).code == 0
    assert generate(call, *GREEDY, program="nine.lgpt").code == 0
    assert_one_error(generate(call, *GREEDY, "--context", 8, program="nine.lgpt"), 2, "nine.lgpt")


def examples_program() -> Path:
    return Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"


def test_it_is_said_that_a_prompt_is_longer_than_the_context(call: Call) -> None:
    numbers = [",".join(str(n % 250) for n in range(length)) for length in (20, 21)]
    whole, cut = (generate(call, "--prompt-tokens", tokens, "--max-new-tokens", 2) for tokens in numbers)
    assert whole.code == cut.code == 0 and "longer than the context" not in whole.err
    assert "a prompt of 21 tokens is longer than the context of 20: the last 15 tokens are read" in cut.err
