"""GGUF files that llama.cpp's own converter made: their tokens are transformers' (see tools/record_converted.py)."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import Case

import lispgpt
from lispgpt.compiler.folders import programs
from lispgpt.runtime import tokenizers
from lispgpt.runtime.decoding import ALL_LOGITS
from lispgpt.runtime.every_position import rows_for
from lispgpt.runtime.gguf.header import read_header

FILES = Path(__file__).parent / "references" / "converted"
RECORDED: dict[str, Any] = json.loads((FILES / "converted.json").read_text())
NAMES = sorted(RECORDED)


def unpacked(name: str, folder: Path) -> Path:
    path = folder / f"{name}.gguf"
    path.write_bytes(lzma.decompress((FILES / f"{name}.gguf.xz").read_bytes()))
    return path


def cases_of(name: str) -> list[Case]:
    return [Case(logits={}, **each) for each in RECORDED[name]["cases"]]


@pytest.mark.parametrize("name", NAMES)
def test_a_converted_file_has_transformers_best_tokens(name: str, tmp_path: Path) -> None:
    """After every position of the longest text, which all of it is to the model (long ones are others to some)."""
    path, case = unpacked(name, tmp_path), cases_of(name)[-1]
    tokenizer = tokenizers.find(path, None)
    assert tokenizer is not None
    start, *rest = RECORDED[name]["text_tokens"]
    assert tokenizer.encode(RECORDED[name]["text"]) == (rest if start == 1 else [start, *rest])
    with lispgpt.load(path) as model:
        length = rows_for(len(case.prompt) + len(case.tokens), 96)
        model.add(model.compiled([ALL_LOGITS], {"batch": 1, "length": length}))
        best = model.logits([*case.prompt, *case.tokens]).argmax(-1)[len(case.prompt) - 1 : -1]
    np.testing.assert_array_equal(best, case.tokens)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_converted_file_gives_transformers_tokens(name: str, tmp_path: Path) -> None:
    with lispgpt.load(unpacked(name, tmp_path)) as model:
        for case in cases_of(name):
            text = model.generate(case.prompt, max_new_tokens=len(case.tokens), greedy=True)
            list(text)
            assert case.accepts(text.tokens), f"{text.tokens} is not {case.tokens}"


def test_every_kind_of_gguf_files_is_among_them(tmp_path: Path) -> None:
    headers = [read_header(unpacked(name, tmp_path)) for name in RECORDED]
    kinds = [
        kind.partition(" ")[0] for kind in programs("gguf")
    ]  # what windows do is in none of the converter's Llamas
    assert not [kind for kind in kinds if not any(header.is_of(kind) for header in headers)]
