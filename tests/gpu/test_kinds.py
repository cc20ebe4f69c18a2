"""Hugging Face folders of every kind on the GPU: the tokens that transformers generates."""

from __future__ import annotations

from pathlib import Path

import pytest
import recorded_folders
from gpu.chips import Chip

import lispgpt

FOLDERS = {folder.name: folder for folder in recorded_folders.folders()}
QUICK = ("gemma3-f32", "gpt-oss-bf16", "deepseek-v3-f32", "mamba2-f32", "rwkv-f32", "lfm2-bf16", "mixtral-window-bf16")
QUICK += ("bloom-f32", "falcon-groups-bf16", "cohere2-f32")
"""Those that are least like each other; --slow has all."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in FOLDERS])
def test_a_folder_gives_transformers_tokens(name: str, chip: Chip, tmp_path: Path) -> None:
    folder = FOLDERS[name]
    with lispgpt.load(folder.write(tmp_path / name), target=chip.device) as model:
        for case in folder.cases[: chip.sized(3, 1)]:
            text = model.generate(case.prompt, max_new_tokens=len(case.tokens), greedy=True)
            assert list(text) is not None
            assert case.accepts(text.tokens), f"{name}: {text.tokens} is not {case.tokens}"
