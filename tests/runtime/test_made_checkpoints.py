"""Where checkpoints may be written: a name that fits what is written, and a disk that has room for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import convert, make, make_for

SHAPE = Gpt2Shape.unpadded(211, 24, 3, 6, 96)


@pytest.mark.parametrize("name", ["model.gguf", "model.safetensors", "model.pt", "MODEL.GGUF"])
def test_a_name_that_says_of_another_kind_of_file_is_refused(name: str, tmp_path: Path) -> None:
    """Whoever reads it would take it at its word."""
    make(tmp_path / "model.bin", SHAPE)
    for written in (lambda: convert(tmp_path / "model.bin", tmp_path / name), lambda: make(tmp_path / name, SHAPE)):
        with pytest.raises(UserError, match=r"is an llm\.c file: call it .*\.bin"):
            written()
    with pytest.raises(UserError, match="is a folder: call it "):
        convert(tmp_path / "model.bin", tmp_path / name, "huggingface")
    with pytest.raises(UserError, match=r"is a safetensors file: call it .*\.safetensors"):
        make_for(tmp_path / "model.bin", {}, [("w", (2, 3), "f32", False)])
    assert [path.name for path in tmp_path.iterdir() if path.suffix.lower() == Path(name).suffix.lower()] == []


def test_a_programs_weights_beyond_the_disk_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="its weights take 4,000,000,000,000,000 bytes, and the disk has"):
        make_for(tmp_path / "w.safetensors", {}, [("w", (10**9, 10**6), "f32", False)])
    assert list(tmp_path.iterdir()) == []
