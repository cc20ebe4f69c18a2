"""What users are told of a text that is not what it seems: another model's tokenizer, a mark, a full context."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.cli.main import main
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.data.shards import write_shard

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def made(folder: Path, name: str, vocab: int) -> Path:
    make(folder / name, Gpt2Shape.unpadded(vocab=vocab, context=20, layers=1, heads=1, width=8), "llmc", "bf16", 1)
    return folder / name


def run(capfd: pytest.CaptureFixture[str], *more: object) -> tuple[int, Any, str]:
    """`lispgpt run`: its exit code, what it says in JSON, and to standard error."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in ("run", EXAMPLES / "gpt2_generate.lisp", "--greedy", "--format", "json", *more)])
    said = capfd.readouterr()
    return ended.value.code, json.loads(said.out) if said.out else None, said.err  # type: ignore[return-value]


def test_a_tokenizer_of_another_model_is_refused_or_doubted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISPGPT_CACHE", str(tmp_path / "cache"))
    small, large = made(tmp_path, "small.bin", 300), made(tmp_path, "large.bin", 700)
    one = ("--checkpoint", large, "--tokenizer", small.with_name("small.tokenizer.bin"), "--max-new-tokens", 1)
    code, _, said = run(capfd, *one, "--prompt", "Once")
    assert code == 1 and "has 300 tokens, and the model's vocabulary has 700: it is another model's" in said
    code, _, said = run(capfd, *one, "--prompt-tokens", "5")
    assert code == 0 and "the model's vocabulary has 700: is it the model's own?" in said
    make(tmp_path / "own", Gpt2Shape.unpadded(vocab=500, context=20, layers=1, heads=1, width=8), "huggingface", "bf16")
    (tmp_path / "own" / "tokenizer.json").unlink(missing_ok=True)
    shutil.copy(small.with_name("small.tokenizer.bin"), tmp_path / "own" / "tokenizer.bin")
    code, _, said = run(capfd, "--checkpoint", tmp_path / "own", "--prompt", "Once", "--max-new-tokens", 1)
    assert code == 0 and "is it the model's own?" not in said, "it lies in one folder with the weights"
    with pytest.raises(UserError, match="it is another model's"):
        lispgpt.evaluate(EXAMPLES / "gpt2_generate.lisp", large, EXAMPLES / "texts", tokenizer=one[3])


def test_a_mark_is_no_text_and_a_full_context_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISPGPT_CACHE", str(tmp_path / "cache"))
    small = made(tmp_path, "small.bin", 300)
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbfOnce\n")
    marked = run(capfd, "--checkpoint", small, "--prompt-file", tmp_path / "marked.txt", "--max-new-tokens", 30)
    plain = run(capfd, "--checkpoint", small, "--prompt", "Once", "--max-new-tokens", 3)
    assert marked[1]["prompt_tokens"] == plain[1]["prompt_tokens"] and len(marked[1]["tokens"]) == 30
    assert "the text grew beyond the context of 20: wherever that was full, it went on from its last 15" in marked[2]
    assert "context" not in plain[2]


def test_labels_are_of_the_vocabulary(tmp_path: Path) -> None:
    """Those below 0 do not count."""
    with lispgpt.load(EXAMPLES / "gpt2_train.lisp", made(tmp_path, "small.bin", 300)) as model:
        losses = [model.run("evaluate", tokens=[[1, 2, 3]], targets=[[2, 3, last]])["loss"] for last in (-1, -7)]
        assert losses[0] == losses[1] and np.isfinite(losses[0])
        with pytest.raises(UserError, match="input targets has 5000, and entry 'evaluate'"):
            model.run("evaluate", tokens=[[1, 2, 3]], targets=[[2, 3, 5000]])
        assert np.isnan(model.run("evaluate", tokens=[[1, 2, 3]], targets=[[2, 3, 300]])["loss"])
    with pytest.raises(UserError, match="the token 300 is not below 300"):
        write_shard(tmp_path / "shard.bin", [np.array([300])], 300)
