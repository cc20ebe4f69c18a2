"""A model of 131,072 positions on an emulated AMD GPU, which has memory for those that are used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_cli import Call, call, made

from lispgpt.runtime.checkpoints.llama import LlamaShape
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.devices.amd_emulator.mapped import MappedMemory

__all__ = ["call", "made"]

CONTEXT, HEAD, PAGE = 131_072, 16, 1024
PARTS = 2 * 2
"""Keys and values of each head of the one layer."""
PROMPT = ",".join(map(str, range(1, 14)))
EACH = PAGE // (4 * HEAD)
"""Positions of a page."""


def test_memory_is_taken_for_what_is_used_of_a_context(
    call: Call, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MappedMemory, "granularity", PAGE)
    make(tmp_path / "llama", LlamaShape(60, CONTEXT, 1, 2, 2, 32, 32, HEAD), "huggingface", "bf16", 1)
    options = ["run", examples / "llama_tiny.lisp", "--checkpoint", tmp_path / "llama", "--format", "json", "--stats"]
    options += ["--prompt-tokens", PROMPT, "--greedy", "--max-new-tokens", 6]
    found = [call(*options, "--target", target) for target in ("cpu", "emulated:gfx1151")]
    assert [done.code for done in found] == [0, 0], found
    cpu, gpu = (json.loads(done.out)["tokens"] for done in found)
    assert gpu == cpu and 13 < EACH < 13 + len(gpu)
    whole, taken = PARTS * CONTEXT * HEAD * 4 / 1e6, PARTS * 2 * PAGE / 1e6
    assert (
        f"states of {whole:,.1f} MB for {CONTEXT} positions, keys and values in f32, {taken:,.1f} MB of them taken"
        in found[1].err
    )
