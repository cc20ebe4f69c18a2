"""Ragged texts as one batch, by penalties, on an emulated AMD GPU: the tokens that the CPU gives one by one."""

from __future__ import annotations

import json
from pathlib import Path

import forked
import numpy as np
import seeded
from emulated_amd.test_generation import PROGRAM, VOCAB, make_checkpoint

CHOICE = ["--temperature", "1.5", "--min-p", "0.01", "--repeat-penalty", "1.5", "--logprobs", "--seed", "3"]


def test_a_batch_has_the_tokens_of_its_texts(tmp_path: Path) -> None:
    rng = seeded.rng()
    seed = int(rng.integers(1 << 30))
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", seed, layers=1, heads=2, context=32)
    prompts = [[int(t) for t in rng.integers(0, VOCAB, n)] for n in (3, 17, 1)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"tokens": prompt}) + "\n" for prompt in prompts))
    words = [*("--prompts", "prompts.jsonl", "--checkpoint", str(checkpoint)), *("--max-new-tokens", "4"), *CHOICE]
    expected = lispgpt(tmp_path, *words, "--batch", "1")
    found = lispgpt(tmp_path, *words, "--batch", "2", "--target", "emulated:gfx1151")
    about = f"seed {seed}, {prompts}"
    assert [each["tokens"] for each in found] == [each["tokens"] for each in expected], about
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one["logprobs"], other["logprobs"], atol=1e-3, err_msg=about)


def lispgpt(folder: Path, *words: str) -> list[dict]:
    ran = forked.lispgpt("run", PROGRAM, "--format", "json", *words, cwd=folder)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: list[dict] = json.loads(ran.stdout.splitlines()[-1])["texts"]
    return found
